"""Syntax tree of the loops and conditions that execute a schedule.  §6.3.

A program is a tree of frozen dataclasses. Its loop bounds, conditions and points are expressions
(`expr`) in the loop counters and the bounds T, I, … `str(node)` formats the tree as Python,
executors traverse it, and `trace` lists the events of one run. A counter may have the name of a
symbol but a different value. In the body of `for t in …`, an operation that lags by two steps runs
at the point [i, t - 2].

`generate` builds the tree from isl's syntax tree, the loops that visit all times of a plan.

    >>> from mmrl.pdg import Program, compile
    >>> p = Program("t")
    >>> tree = generate(compile(p.graph(2.0 * p.value(p.symbols[0])), {}).plan, memory=False)
    >>> interleaves(tree, "value", "mul"), trace(tree, T=1)
    (True, [('run', 'value', (0,)), ('run', 'mul', (0,))])
"""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import islpy as isl

from mmrl.pdg.build import sets
from mmrl.pdg.build.expr import Expr, Sym
from mmrl.pdg.build.graph import Graph, Output
from mmrl.pdg.build.sets import IN, OUT, context, maps, union
from mmrl.pdg.plan.frees import MemoryPlan, Statement
from mmrl.pdg.schedule import constants

Event = tuple[str, str | Output, tuple[int, ...]]  # ("run", op, p), ("free", (op, output), p), …


@dataclasses.dataclass(frozen=True, eq=False)
class Execute:
    """Statement that runs the operation `op` at `point`."""

    op: str
    point: tuple[Expr, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Memory:
    """Statement that manages the memory of a tensor's value at `point`."""

    tensor: Output
    point: tuple[Expr, ...]


class Free(Memory):
    """Deallocation of a value that is no longer needed."""


class Offload(Memory):
    """Transfer of a value from the device to the host."""


class Fetch(Memory):
    """Transfer of a value from the host back to the device."""


class Tree:
    """Node with child nodes."""

    def __str__(self) -> str:
        return text(self)  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True, eq=False)
class Body(Tree):
    """Sequence of nodes that run in order."""

    body: "tuple[Node, ...]"


@dataclasses.dataclass(frozen=True, eq=False)
class If(Tree):
    """Conditional that runs `then` if `condition` holds, else `orelse`, which may be empty."""

    condition: Expr
    then: Body
    orelse: Body


@dataclasses.dataclass(frozen=True, eq=False)
class Loop(Tree):
    """Loop that runs `body` for each value of `counter` in range(start, stop, step).

    The step is negative only in readable trees (see `generate`).
    """

    counter: str
    start: Expr
    stop: Expr
    step: int
    body: Body


Leaf = Execute | Memory
Node = Body | If | Loop | Leaf
KINDS = {Execute: "run", Free: "free", Offload: "offload", Fetch: "fetch"}


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all nodes inside it once, in program order."""
    yield node
    inner: tuple[Node, ...] = ()
    if isinstance(node, Body):
        inner = node.body
    elif isinstance(node, If):
        inner = (node.then, node.orelse)
    elif isinstance(node, Loop):
        inner = (node.body,)
    for child in inner:
        yield from walk(child)


def leaves(node: Node) -> Iterator[Leaf]:
    """Return each statement of the tree once, in program order."""
    return (each for each in walk(node) if isinstance(each, Leaf))


def interleaves(node: Node, first: str, second: str) -> bool:
    """Return True if an innermost loop executes both operations, such as acting and learning."""
    for loop in walk(node):
        if isinstance(loop, Loop) and {first, second} <= _executed_ops(loop):
            inner = (_executed_ops(each) for each in walk(loop.body) if isinstance(each, Loop))
            if not any(inner):
                return True
    return False


def _executed_ops(node: Node) -> set[str]:
    return {leaf.op for leaf in leaves(node) if isinstance(leaf, Execute)}


def trace(node: Node, **bounds: int) -> list[Event]:
    """Return the events of one run with the given bounds, in order.

    An event is ("run", op, point) or (kind, (op, output), point), where the kind is "free",
    "offload" or "fetch".
    """
    return list(_events(node, dict(bounds)))


def _events(node: Node, env: dict[str, int]) -> Iterator[Event]:
    if isinstance(node, Body):
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
    """Return the tree with the symbols in `env` replaced; none of them may be a loop counter."""
    if isinstance(node, Body):
        return Body(tuple(substitute(child, env) for child in node.body))
    if isinstance(node, If):
        then, orelse = substitute(node.then, env), substitute(node.orelse, env)
        return If(node.condition.substitute(env), then, orelse)
    if isinstance(node, Loop):
        start, stop = node.start.substitute(env), node.stop.substitute(env)
        return Loop(node.counter, start, stop, node.step, substitute(node.body, env))
    return dataclasses.replace(node, point=tuple(part.substitute(env) for part in node.point))


def text(node: Node, several: Collection[str] = ()) -> str:
    """Format the tree as Python: `o(i, t)` runs an operation, `del o[i, t]` frees its output.

    For operations in `several`, which have several outputs, adds an index: `del e[i, t][1]`.
    """
    return "\n".join(_lines(node, frozenset(several))) or "pass"


def _lines(node: Node, several: frozenset[str]) -> Iterator[str]:
    if isinstance(node, Body):
        for child in node.body:
            yield from _lines(child, several)
    elif isinstance(node, If):
        yield f"if {node.condition}:"
        yield from _indent(node.then, several)
        yield from _else(node.orelse, several)
    elif isinstance(node, Loop):
        yield f"for {node.counter} in range({_range(node)}):"
        yield from _indent(node.body, several)
    else:
        yield _statement(node, several)


def _else(block: Body, several: frozenset[str]) -> Iterator[str]:
    if len(block.body) == 1 and isinstance(block.body[0], If):
        first, *rest = _lines(block.body[0], several)
        yield from [f"el{first}", *rest]
    elif block.body:
        yield "else:"
        yield from _indent(block, several)


def _indent(block: Body, several: frozenset[str]) -> Iterator[str]:
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


Kind, Op = isl.ast_node_type, isl.ast_expr_op_type
NODES = {kind: node for node, kind in KINDS.items()}
Counters = Mapping[str, Expr]  # values of counters
Meanings = Mapping[str, list[Statement]]  # statements for each name in isl's tree


def generate(
    plan: MemoryPlan, *, memory: bool = True, readable: bool = False, least: int = 1
) -> Body:
    """Generate the loops of a plan, for all bounds of at least `least`.

    If `memory` is true, the tree contains deallocations, offloads and fetches. If `readable` is
    true, the prologue and epilogue become separate loops, so that the steady-state loop has few
    conditions, and loops may count down. A readable tree takes twice as long to compile, and
    contains many copies of the loop body unless `least` is larger than every window.
    """
    within = context(plan.graph, least, plan.times.get_ctx())
    times, meanings = _group(plan, memory)
    times = [each.intersect_params(within) for each in times]
    times = [each for each in times if not each.is_empty()]
    loops = [k for k in range(plan.depth) if not constants(times, k)]
    separate = (loops[1:] or loops) if readable else []
    scan = _tree(times, meanings, separate, 0)
    tree = _node(isl.AstBuild.from_context(within).node_from_schedule(scan), meanings, {})
    return _rename(tree, plan.graph, {}, readable)


def _group(plan: MemoryPlan, memory: bool) -> tuple[list[isl.Map], Meanings]:
    """Group statements that always run at the same time and point.

    For example, an operation and the deallocations that always follow it form a group. Returns the
    times of each group under a single name, and the statements that each name represents, in the
    order of the plan.
    """
    when = {each.get_tuple_name(IN): each.set_tuple_name(IN, "x") for each in maps(plan.times)}
    groups: list[tuple[isl.Map, isl.Map, list[Statement]]] = []
    for name, statement in plan.statements.items():
        if name in when and (memory or statement.kind == "run"):  # a name without times never runs
            times = when[name]
            # The times of an operation and of the deallocations that follow it differ only in the
            # last coordinate.
            near = statement.kind in ("run", "free")
            key = times.project_out(OUT, plan.depth - 1, 1) if near else times
            together = (group for other, _, group in groups if other.plain_is_equal(key))
            if not (group := next(together, [])):
                groups.append((key, times, group))
            group.append(statement)
    times = [each.set_tuple_name(IN, f"s{k}") for k, (_, each, _) in enumerate(groups)]
    return times, {f"s{k}": group for k, (*_, group) in enumerate(groups)}


def _tree(times: list[isl.Map], meanings: Meanings, separate: list[int], k: int) -> isl.Schedule:
    """Return the schedule tree of all coordinates from k, with a sequence or a loop for each.

    isl generates loops faster from such a tree than from times, in which some coordinates only
    order statements.
    """
    depth = times[0].dim(OUT)
    if k == depth:
        domains = (isl.UnionSet.from_set(each.domain()) for each in times)
        return isl.Schedule.from_domain(functools.reduce(isl.UnionSet.union, domains))
    if places := constants(times, k):
        parts: dict[int, list[isl.Map]] = {place: [] for place in sorted(set(places))}
        for place, each in zip(places, times, strict=True):
            parts[place].append(each)
        bundles = _bundle(parts.values(), meanings, k)
        several = (_tree(bundle, meanings, separate, k + 1) for bundle in bundles)
        return functools.reduce(isl.Schedule.sequence, several)
    values = (each.project_out(OUT, k + 1, depth - k - 1).project_out(OUT, 0, k) for each in times)
    count = isl.MultiUnionPwAff.from_union_map(union(values))
    tree = _tree(times, meanings, separate, k + 1).insert_partial_schedule(count)
    if k not in separate:
        return tree
    loop = tree.get_root().child(0)
    return loop.band_member_set_ast_loop_type(0, isl.ast_loop_type.separate).get_schedule()


def _bundle(parts: Iterable[list[isl.Map]], meanings: Meanings, k: int) -> Iterator[list[isl.Map]]:
    """Merge adjacent parts of a sequence that run under the same conditions at the same point."""
    first, before = "", None
    for part in parts:
        one, *others = part
        rest = range(k, one.dim(OUT))
        prefix = one.project_out(OUT, k, len(rest)).set_tuple_name(IN, "x")
        joins = not others and all(constants(part, j) for j in rest)
        if joins and before is not None and before.plain_is_equal(prefix):
            meanings[first].extend(meanings[one.get_tuple_name(IN)])
        else:
            first, before = one.get_tuple_name(IN), prefix if joins else None
            yield part


def _node(node: isl.AstNode, meanings: Meanings, counters: Counters) -> Body:
    kind = node.get_type()
    if kind == Kind.block:
        children = node.block_get_children()
        several = (children.get_at(k) for k in range(children.n_ast_node()))
        return _join(_node(child, meanings, counters) for child in several)
    if kind == Kind.if_:  # pyright: ignore[reportAttributeAccessIssue]
        condition = _expression(node.if_get_cond(), counters)
        then = _node(node.if_get_then(), meanings, counters)
        orelse = _node(node.if_get_else(), meanings, counters) if node.if_has_else() else Body(())
        return Body((If(condition, then, orelse),))
    if kind == Kind.for_:  # pyright: ignore[reportAttributeAccessIssue]
        return _loop(node, meanings, counters)
    if kind == Kind.user:
        return _leaves(node.user_get_expr(), meanings, counters)
    raise NotImplementedError(f"isl returned a node of unknown kind {kind}; report this as a bug")


def _loop(node: isl.AstNode, meanings: Meanings, counters: Counters) -> Body:
    counter = node.for_get_iterator().get_id().get_name()
    start = _expression(node.for_get_init(), counters)
    if node.for_is_degenerate():
        return _node(node.for_get_body(), meanings, {**counters, counter: start})
    condition = node.for_get_cond()  # `counter < stop` or `counter <= last`
    stop = _expression(condition.get_op_arg(1), counters)
    stop = sets.successor(stop) if condition.get_op_type() == Op.le else stop
    step = node.for_get_inc().get_val().to_python()
    return Body((Loop(counter, start, stop, step, _node(node.for_get_body(), meanings, counters)),))


def _leaves(call: isl.AstExpr, meanings: Meanings, counters: Counters) -> Body:
    name, *point = (call.get_op_arg(k) for k in range(call.get_op_n_arg()))
    where = tuple(_expression(one, counters) for one in point)
    several = meanings[name.get_id().get_name()]
    what = (each.op if each.kind == "run" else (each.op, each.output) for each in several)
    return Body(tuple(NODES[x.kind](one, where) for x, one in zip(several, what, strict=True)))


def _expression(node: isl.AstExpr, counters: Counters) -> Expr:
    expr = sets.to_expr(node)
    return expr.substitute(counters) if counters else expr


def _join(blocks: Iterable[Body]) -> Body:
    return Body(tuple(child for block in blocks for child in block.body))


def _rename(node: Node, graph: Graph, names: Counters, down: bool) -> Any:
    """Rename each counter to the dimension that it counts, if there is one.

    A counter counts t if all operations in the loop that depend on the counter run at points where
    t is the counter plus a constant. If `down` is true, a loop in which t is a constant minus the
    counter is reversed. `names` maps outer counters to their new names.
    """
    if isinstance(node, Body):
        return Body(tuple(_rename(child, graph, names, down) for child in node.body))
    if isinstance(node, If):
        then, orelse = (_rename(part, graph, names, down) for part in (node.then, node.orelse))
        return If(node.condition.substitute(names), then, orelse)
    if not isinstance(node, Loop):
        return substitute(node, names)
    directions = set(_directions(node, graph))
    sign, name = directions.pop() if len(directions) == 1 else (0, "")
    reserved = frozenset(graph.bounds).union(*(each.symbols() for each in names.values()))
    if not sign or name in reserved or (sign < 0 and not down):
        sign, name = 1, node.counter
    body = _rename(node.body, graph, {**names, node.counter: Sym(name) * sign}, down)
    start, stop = (part.substitute(names) * sign for part in (node.start, node.stop))
    return Loop(name, start, stop, node.step * sign, body)


def _directions(loop: Loop, graph: Graph) -> Iterator[tuple[int, str]]:
    """Yield (factor, dimension) for each index with the counter; a factor other than ±1 is 0."""
    counter = Sym(loop.counter)
    for leaf in leaves(loop.body):
        op = leaf.op if isinstance(leaf, Execute) else leaf.tensor[0]
        for dim, index in zip(graph.ops[op].domain, leaf.point, strict=True):
            if loop.counter in index.symbols():
                up, down = not (index - counter).symbols(), not (index + counter).symbols()
                yield (int(up) - int(down), dim.name)
