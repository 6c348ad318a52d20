"""From a schedule's tree to what is compiled: rounds for conditions, and no needless reads.

A value that was computed earlier in the same stretch of code is taken from there. Only what some
operation reads later, in another iteration, has to be stored in a ring.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from mmrl.pdg.expr import TRUE, Const, Expr, Sym
from mmrl.pdg.graph import Op
from mmrl.pdg.runtime.access import Accesses, Read
from mmrl.pdg.runtime.account import Tensor
from mmrl.pdg.runtime.layout import Layout
from mmrl.pdg.runtime.roll import Rolled, roll, unrolled
from mmrl.pdg.runtime.rounds import Column, Table, regroup
from mmrl.pdg.syntax import Block, Execute, Fetch, If, Loop, Offload, substitute

Item = tuple[Expr, Any]
"""A condition, and the execution or loop below it."""
Key = tuple[Tensor, tuple[Expr, ...]]
"""A root and the coordinates of a value in it."""
Known = dict[Key, Key]
"""The values at hand, by all keys that they may be asked for."""
ZERO, ONE = Const(0), Const(1)


@dataclasses.dataclass(frozen=True)
class Do:
    """Compute `op` at `point`; a read with a key is of a value at hand, any other of a ring."""

    op: Op
    point: tuple[Expr, ...]
    reads: tuple[tuple[Read, Key | None], ...]
    keys: tuple[Key, ...]


@dataclasses.dataclass(frozen=True)
class Repeat:
    """`body`, for `number` values of `counter`: `start`, `start + step`, …

    A condition is a number as well: its body runs once or not at all.
    """

    number: Expr | Table
    body: "tuple[Node, ...]"
    counter: str = ""
    start: Expr | Table = ZERO
    step: Expr | Table = ONE


Node = Do | Repeat


class Planner:
    """Plans a tree; afterwards `stored` has the roots that need a ring."""

    def __init__(self, accesses: Accesses, layout: Layout):
        self._accesses, self._layout = accesses, layout
        self._bounds = accesses.bounds
        self.stored = {layout.places[tensor].root for tensor in accesses.graph.results}

    def plan(self, tree: Any) -> tuple[Node, ...]:
        """All that is compiled for a whole program."""
        return self._block(self._items(tree), {})

    def _block(self, items: Iterable[Item], known: Known) -> tuple[Node, ...]:
        """Statements with their conditions, in order; `known` grows by what they compute."""
        nodes: list[Node] = []
        decided = [self._decided(*item) for item in items]
        for item in roll([item for item in decided if item is not None], self._bounds):
            match item:
                case Execute():
                    nodes.append(self._do(item, known))
                case Rolled():
                    nodes += self._rounds(item, known)
                case Loop(counter, start, stop, step, body):
                    number = (stop - start + (step - 1)) // step
                    inner = self._block(self._items(body), dict(known))
                    nodes += [Repeat(number, inner, counter, start, Const(step))] if inner else []
                case (condition, inner):
                    body = self._block([(TRUE, inner)], dict(known))
                    nodes += [Repeat(condition, body)] if body else []
        return tuple(nodes)

    def _decided(self, condition: Expr, item: Any) -> Any:
        """The item without a condition that numbers decide; a loop as a sequence."""
        if not set(condition.symbols()) <= set(self._bounds):
            return condition, item
        if not condition.evaluate(self._bounds):
            return None
        if isinstance(item, Loop):
            return unrolled(item, _groups(self._items(item.body)), self._bounds) or item
        return item

    def _items(self, node: Any) -> list[Item]:
        """All that `node` executes, but for merges whose values are where they belong already."""
        return [(condition, item) for condition, item in flatten(node) if not self._idle(item)]

    def _idle(self, item: Any) -> bool:
        if isinstance(item, Loop):
            return not self._items(item.body)
        reads = set(self._accesses.reads[item.op])
        return self._accesses.graph.ops[item.op].run is None and reads <= self._layout.aliased

    def _rounds(self, rolled: Rolled, known: Known) -> Sequence[Node]:
        """The sequence as rounds. What runs once in each of them is at hand for all after it."""
        if not rolled.sequence:
            return ()
        rounds = regroup(rolled.sequence, len(rolled.groups))
        several = len(rounds.counts) > 1
        k = Sym(f"round of {rolled.counter}") if several else ZERO
        mine = dict(known) if several else known
        nodes: list[Node] = []
        for j, g in enumerate(rounds.order):
            if rounds.counts[:, j].any():
                nodes += self._group(rolled, g, rounds.column(j, k), mine)
        return [Repeat(Const(len(rounds.counts)), tuple(nodes), str(k))] if several else nodes

    def _group(self, rolled: Rolled, g: int, column: Column, known: Known) -> Sequence[Node]:
        """The work of a group in a round: its statements, or as many turns as the round says."""
        counter, (start, step, number) = rolled.counter, (column.start, column.step, column.number)
        change: dict[str, Expr] = {}
        if isinstance(start, Expr) and column.most == 1:
            change = {counter: start}
        items = [(TRUE, substitute(item, change)) for item in rolled.groups[g]]
        if change and ONE.same(number):
            return self._block(items, known)
        # In the only round that it runs in, values may be asked for by that round's number.
        inner = {
            (root, tuple(part.substitute(column.only) for part in at)): key
            for (root, at), key in known.items()
        }
        body = self._block(items, {**known, **inner})
        return [Repeat(number, body, counter, start, step)] if body else []

    def _do(self, node: Execute, known: Known) -> Do:
        op, reads = self._accesses.graph.ops[node.op], self._accesses.reads[node.op]
        here = dict(zip(self._accesses.names[node.op], node.point, strict=True))
        wanted = [read for read in reads if read not in self._layout.aliased]
        found = []
        for read in wanted:
            key = None
            if not read.sliced:
                key = self._key(read.tensor, [e.substitute(here) for e in read.edge.index])
            if key in known:
                key = known[key]
            else:
                key = None
                self.stored.add(self._layout.places[read.tensor].root)
            found.append((read, key))
        keys = tuple(self._key(t, node.point) for t in self._accesses.outputs[node.op])
        if op.run is None and len(wanted) < len(reads):
            # What it does not choose itself is in its place already.
            self.stored |= {self._layout.places[node.op, 0].root} if wanted else set()
        if wanted or not reads:
            known |= {key: key for key in keys}
        return Do(op, tuple(node.point), tuple(found), keys)

    def _key(self, tensor: Tensor, point: Sequence[Expr]) -> Key:
        place = self._layout.places[tensor]
        where = place.at([part.substitute(self._bounds) for part in point])
        return place.root, tuple(part if isinstance(part, Expr) else Const(part) for part in where)


def flatten(node: Any, condition: Expr = TRUE) -> Iterable[Item]:
    """The executions and loops of a tree, each under the conditions it stands below; no frees.

    Raises ValueError for what only the interpreter can do.
    """
    match node:
        case Block(body):
            for child in body:
                yield from flatten(child, condition)
        case If(test, then, orelse):
            yield from flatten(then, condition & test)
            yield from flatten(orelse, condition & ~test)
        case Execute() | Loop():
            yield condition, node
        case Offload() | Fetch():
            raise ValueError(
                f"`swap` must be empty for one XLA program, got {node.tensor[0]}: its rings stay "
                f"on the device, and where that is a CPU, XLA ignores wishes for the host's "
                f"memory (`memory_analysis().host_temp_size_in_bytes` is 0). Interpret it instead."
            )


def _groups(items: Sequence[Item]) -> list[tuple[Expr, list]]:
    """Neighbours under the same condition, together."""
    groups: list[tuple[Expr, list]] = []
    for condition, item in items:
        if groups and groups[-1][0].same(condition):
            groups[-1][1].append(item)
        else:
            groups.append((condition, [item]))
    return groups
