"""The program that a schedule stands for: loops, conditions, and what they execute.  §6.3.

A tree of frozen dataclasses whose bounds, conditions and points are expressions (`expr.py`) of the
loop counters and of the bounds T, I, … It reads as Python (`str(node)`), it can be walked by an
executor, and `trace` lists the events of one run. A counter is *not* the symbol it may be named
after: in the body of `for t in …`, an operation two steps behind runs at the point [i, t - 2].
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mmrl.pdg.expr import Expr

Tensor = tuple[str, int]  # an operation and the number of one of its outputs
Event = tuple[str, str | Tensor, tuple[int, ...]]  # ("run", op, p) or ("free", (op, output), p) …


@dataclasses.dataclass(frozen=True, eq=False)
class Execute:
    """Run the operation `op` at `point`."""

    op: str
    point: tuple[Expr, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Memory:
    """A statement on the memory of a tensor at `point`."""

    tensor: Tensor
    point: tuple[Expr, ...]


class Free(Memory):
    """Forget it: nothing reads it any more."""


class Offload(Memory):
    """Move it from the device to the host."""


class Fetch(Memory):
    """Move it back from the host to the device."""


class Tree:
    """A node that holds other nodes."""

    def __str__(self) -> str:
        return text(self)  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True, eq=False)
class Block(Tree):
    """Nodes that run one after the other."""

    body: "tuple[Node, ...]"


@dataclasses.dataclass(frozen=True, eq=False)
class If(Tree):
    """`then` where the condition holds, else `orelse` (which may be an empty block)."""

    condition: Expr
    then: Block
    orelse: Block


@dataclasses.dataclass(frozen=True, eq=False)
class Loop(Tree):
    """`body` for each counter in range(start, stop, step); a readable tree may count down."""

    counter: str
    start: Expr
    stop: Expr
    step: int
    body: Block


Leaf = Execute | Memory
Node = Block | If | Loop | Leaf
KINDS = {Execute: "run", Free: "free", Offload: "offload", Fetch: "fetch"}


def walk(node: Node) -> Iterator[Node]:
    """The node and every node in it once, in the order of the text."""
    yield node
    inner: tuple[Node, ...] = ()
    if isinstance(node, Block):
        inner = node.body
    elif isinstance(node, If):
        inner = (node.then, node.orelse)
    elif isinstance(node, Loop):
        inner = (node.body,)
    for child in inner:
        yield from walk(child)


def leaves(node: Node) -> Iterator[Leaf]:
    """Every statement of the tree once, in the order of the text."""
    return (each for each in walk(node) if isinstance(each, Leaf))


def interleaves(node: Node, first: str, second: str) -> bool:
    """Is there an innermost loop that executes both operations, as acting and learning may be?"""
    for loop in walk(node):
        if isinstance(loop, Loop) and {first, second} <= _executed(loop):
            inner = (_executed(each) for each in walk(loop.body) if isinstance(each, Loop))
            if not any(inner):
                return True
    return False


def _executed(node: Node) -> set[str]:
    return {leaf.op for leaf in leaves(node) if isinstance(leaf, Execute)}


def trace(node: Node, **bounds: int) -> list[Event]:
    """The events of one run with these bounds, in order.

    An event is ("run", op, point) or (kind, (op, output), point) with the kind "free", "offload"
    or "fetch".
    """
    return list(_events(node, dict(bounds)))


def _events(node: Node, env: dict[str, int]) -> Iterator[Event]:
    if isinstance(node, Block):
        for child in node.body:
            yield from _events(child, env)
    elif isinstance(node, If):
        yield from _events(node.then if node.condition.evaluate(env) else node.orelse, env)
    elif isinstance(node, Loop):
        counts = range(node.start.evaluate(env), node.stop.evaluate(env), node.step)
        for count in counts:
            yield from _events(node.body, {**env, node.counter: count})
    else:
        point = tuple(int(index.evaluate(env)) for index in node.point)
        what = node.op if isinstance(node, Execute) else node.tensor
        yield KINDS[type(node)], what, point


def substitute(node: Node, env: Mapping[str, Expr]) -> Any:
    """This tree with symbols replaced; no counter in it may be one of them."""
    if isinstance(node, Block):
        return Block(tuple(substitute(child, env) for child in node.body))
    if isinstance(node, If):
        then, orelse = substitute(node.then, env), substitute(node.orelse, env)
        return If(node.condition.substitute(env), then, orelse)
    if isinstance(node, Loop):
        start, stop = node.start.substitute(env), node.stop.substitute(env)
        return Loop(node.counter, start, stop, node.step, substitute(node.body, env))
    return dataclasses.replace(node, point=tuple(part.substitute(env) for part in node.point))


def text(node: Node, several: Collection[str] = ()) -> str:
    """The tree as Python: `o(i, t)` runs an operation, `del o[i, t]` frees what it gave.

    The outputs of an operation in `several` are told apart: `del e[i, t][1]`.
    """
    return "\n".join(_lines(node, frozenset(several))) or "pass"


def _lines(node: Node, several: frozenset[str]) -> Iterator[str]:
    if isinstance(node, Block):
        for child in node.body:
            yield from _lines(child, several)
    elif isinstance(node, If):
        yield f"if {node.condition}:"
        yield from _indented(node.then, several)
        yield from _else(node.orelse, several)
    elif isinstance(node, Loop):
        yield f"for {node.counter} in range({_range(node)}):"
        yield from _indented(node.body, several)
    else:
        yield _statement(node, several)


def _else(block: Block, several: frozenset[str]) -> Iterator[str]:
    if len(block.body) == 1 and isinstance(block.body[0], If):
        first, *rest = _lines(block.body[0], several)
        yield from [f"el{first}", *rest]
    elif block.body:
        yield "else:"
        yield from _indented(block, several)


def _indented(block: Block, several: frozenset[str]) -> Iterator[str]:
    lines = list(_lines(block, several)) or ["pass"]
    yield from (f"    {line}" for line in lines)


def _range(loop: Loop) -> str:
    start, stop = str(loop.start), str(loop.stop)
    if loop.step != 1:
        return f"{start}, {stop}, {loop.step}"
    return stop if start == "0" else f"{start}, {stop}"


def _statement(leaf: Leaf, several: frozenset[str]) -> str:
    point = ", ".join(str(index) for index in leaf.point)
    if isinstance(leaf, Execute):
        return f"{leaf.op}({point})"
    op, output = leaf.tensor
    tensor = f"{op}[{point or '()'}]" + (f"[{output}]" if op in several else "")
    return f"del {tensor}" if isinstance(leaf, Free) else f"{KINDS[type(leaf)]}({tensor})"
