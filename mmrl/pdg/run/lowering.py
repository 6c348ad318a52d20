"""Lower the tree of a schedule to the plan of an XLA program, without conditions in loops.

There are three steps. `rolling` moves copies of a loop's body into the loop, `regroup` replaces
the conditions of the loop with rounds, and `Lowering` replaces reads of rings with values that were
computed earlier in the same block of code. Only results, values that are read by slices, and values
that are read outside the block are stored in a ring.

*Rounds* replace the conditions in a loop, so that an XLA program can run every statement
unconditionally. For example, if learning follows acting at a distance of n steps, the schedule has
the loop

    for c in range(T + n - 1):
        if c < T: act(c)
        if c >= n - 1: learn(c - n + 1)

`lax.cond` would pass every buffer through both branches, and peeling would compile `act` and
`learn` twice. The same sequence of statements, `act` n times, then `learn`, `act`, `learn`, …, can
be written as a loop over *rounds*. In each round, every group of statements runs a number of times,
possibly zero. In this example, `learn` runs once per round, and `act` runs n, 1, 1, …, 1, 0, …, 0
times. With tiles of m steps, `act` runs m times per round. All these numbers are known before the
program is compiled.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mmrl.pdg.build.expr import TRUE, Const, Expr, Structural, Sym, as_expr
from mmrl.pdg.build.graph import Op, Output
from mmrl.pdg.plan.account import Read, ReadTable
from mmrl.pdg.plan.code import Body, Execute, If, Loop, substitute
from mmrl.pdg.plan.layout import Layout
from mmrl.pdg.run.rolling import Column, GroupLoop, Table, regroup, roll, unroll

Item = tuple[Expr, Any]
"""Condition, and the execution or loop that it guards."""


@dataclasses.dataclass(frozen=True, eq=False)
class Key(Structural):
    """Key of a value: a root tensor, and coordinates in its storage."""

    root: Output
    point: tuple[Expr, ...]


Cache = dict[Key, Key]
"""Values computed in this block, by all keys under which they can be looked up."""
ZERO, ONE = Const(0), Const(1)


@dataclasses.dataclass(frozen=True, eq=False)
class Do:
    """Execution of `op` at `point`, with a key for each read.

    A read with a key uses a value that was computed in the same block. If the key is None, the read
    uses a ring.
    """

    op: Op
    point: tuple[Expr, ...]
    reads: tuple[tuple[Read, Key | None], ...]
    keys: tuple[Key, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Repeat:
    """Loop that runs `body` for `number` values of `counter`: `start`, `start + step`, …

    A condition is a loop whose `number` is 0 or 1. `again` contains the reads (execution, read,
    key) in which an operation reads its own result of the previous iteration, stored under `key`.
    """

    number: Expr | Table
    body: "tuple[Node, ...]"
    counter: str = ""
    start: Expr | Table = ZERO
    step: Expr | Table = ONE
    again: "tuple[tuple[Do, Read, Key], ...]" = ()


Node = Do | Repeat


class Lowering:
    """Lowering of a tree to a plan. After `lower`, `stored` contains the roots that need a ring."""

    def __init__(self, accesses: ReadTable, layout: Layout):
        self._accesses, self._layout = accesses, layout
        self._bounds = accesses.bounds
        self.stored = {layout.places[tensor].root for tensor in accesses.graph.results}

    def lower(self, tree: Any) -> tuple[Node, ...]:
        """Return the plan of a complete program."""
        return self._block(self._items(tree), {})

    def _block(self, items: Iterable[Item], cache: Cache) -> tuple[Node, ...]:
        """Lower items in order, and add the values that they compute to `cache`."""
        nodes: list[Node] = []
        pieces = [self._decide(*item) for item in items]
        for item in roll([item for item in pieces if item is not None], self._bounds):
            match item:
                case Execute():
                    nodes.append(self._do(item, cache))
                case GroupLoop():
                    nodes += self._rounds(item, cache)
                case Loop(counter, start, stop, step, body):
                    number = (stop - start + (step - 1)) // step
                    inner = self._block(self._items(body), dict(cache))
                    nodes += self._repeat(number, inner, counter, start, Const(step))
                case (condition, inner):
                    body = self._block([(TRUE, inner)], dict(cache))
                    nodes += [Repeat(condition, body)] if body else []
        return tuple(nodes)

    def _decide(self, condition: Expr, item: Any) -> Any:
        """Return an item without its condition, or None if the condition is false.

        If the condition depends on counters, returns the pair (condition, item). A loop becomes
        `GroupLoop` if possible.
        """
        if not set(condition.symbols()) <= set(self._bounds):
            return condition, item
        if not condition.evaluate(self._bounds):
            return None
        if isinstance(item, Loop):
            return unroll(item, _groups(self._items(item.body)), self._bounds) or item
        return item

    def _items(self, node: Any) -> list[Item]:
        """Return the statements of `node`, omitting merges that share storage with all inputs."""
        return [(condition, item) for condition, item in flatten(node) if not self._idle(item)]

    def _idle(self, item: Any) -> bool:
        if isinstance(item, Loop):
            return not self._items(item.body)
        reads = set(self._accesses.reads[item.op])
        return self._accesses.graph.ops[item.op].run is None and reads <= self._layout.aliases

    def _rounds(self, loop: GroupLoop, cache: Cache) -> Sequence[Node]:
        """Lower a sequence to rounds.

        If a group runs once per round, its values are available to the groups after it.
        """
        if not loop.sequence:
            return ()
        rounds = regroup(loop.sequence, len(loop.groups))
        several = len(rounds.counts) > 1
        k = Sym(f"round of {loop.counter}") if several else ZERO
        inner = dict(cache) if several else cache
        nodes: list[Node] = []
        for j, g in enumerate(rounds.order):
            if rounds.counts[:, j].any():
                nodes += self._group(loop, g, rounds.column(j, k), inner)
        return self._repeat(Const(len(rounds.counts)), tuple(nodes), str(k)) if several else nodes

    def _group(self, loop: GroupLoop, g: int, column: Column, cache: Cache) -> Sequence[Node]:
        """Lower a group in a round to its statements, either once or in a loop."""
        counter, (start, step, number) = loop.counter, (column.start, column.step, column.number)
        change: dict[str, Expr] = {}
        if isinstance(start, Expr) and column.most == 1:
            change = {counter: start}
        items = [(TRUE, substitute(item, change)) for item in loop.groups[g]]
        if change and ONE.same(number):
            return self._block(items, cache)
        # If the group runs in only one round, values can also be looked up by the round's number.
        inner = {
            Key(at.root, tuple(part.substitute(column.only) for part in at.point)): key
            for at, key in cache.items()
        }
        body = self._block(items, {**cache, **inner})
        return self._repeat(number, body, counter, start, step)

    def _repeat(
        self,
        number: Expr | Table,
        body: tuple[Node, ...],
        counter: str,
        start: Expr | Table = ZERO,
        step: Expr | Table = ONE,
    ) -> list[Node]:
        """Return the loop over `body`, or nothing if `body` is empty."""
        again, written = [], set()
        for node in body if isinstance(step, Const) else ():
            if isinstance(node, Do):
                reads = self._own_reads(node, {counter: Sym(counter) + step})
                again += [(node, read, key) for read, key in reads if key.root not in written]
            written |= {key.root for do in executions([node]) for key in do.keys}
        return [Repeat(number, body, counter, start, step, tuple(again))] if body else []

    def _own_reads(self, node: Do, after: Mapping[str, Expr]) -> Iterator[tuple[Read, Key]]:
        """Yield (read, key) of the reads from rings that read a result of `node` one step later."""
        for read in [read for read, key in node.reads if key is None and not read.sliced]:
            key = self._key(read.tensor, self._index(node, read))
            point = [part.substitute(after) for part in key.point]
            equal = [k for k in node.keys if k.root == key.root and _equal(k.point, point)]
            yield from ((read, own) for own in equal)

    def _index(self, node: "Execute | Do", read: Read) -> list[Any]:
        """Return the index of a read at the point of an execution."""
        name = node.op if isinstance(node.op, str) else node.op.name
        here = dict(zip(self._accesses.names[name], node.point, strict=True))
        return [part.substitute(here) for part in read.edge.index]

    def _do(self, node: Execute, cache: Cache) -> Do:
        op, reads = self._accesses.graph.ops[node.op], self._accesses.reads[node.op]
        pairs = []
        for read in reads:
            if read not in self._layout.aliases:
                at = self._index(node, read)
                key = None if read.sliced else cache.get(self._key(read.tensor, at))
                self.stored |= {self._layout.places[read.tensor].root} if key is None else set()
                pairs.append((read, key))
        keys = tuple(self._key(t, node.point) for t in self._accesses.outputs[node.op])
        if len(pairs) < len(reads):
            # Aliased sources have already written their values to the merge's ring.
            self.stored.add(self._layout.places[node.op, 0].root)
        cache |= {key: key for key in keys}
        return Do(op, tuple(node.point), tuple(pairs), keys)

    def _key(self, tensor: Output, point: Sequence[Expr]) -> Key:
        place = self._layout.places[tensor]
        where = place.at([part.substitute(self._bounds) for part in point])
        return Key(place.root, tuple(map(as_expr, where)))


def executions(nodes: Sequence[Node]) -> Iterator[Do]:
    """Yield the executions in a plan, including those in loops."""
    for node in nodes:
        yield from executions(node.body) if isinstance(node, Repeat) else (node,)


def _equal(point: Sequence[Expr], other: Sequence[Expr]) -> bool:
    differences = [a - b for a, b in zip(point, other, strict=True)]
    return all(ZERO.same(difference) for difference in differences)


def flatten(node: Any, condition: Expr = TRUE) -> Iterable[Item]:
    """Yield the executions and loops of a tree, with the conditions that guard them."""
    match node:
        case Body(body):
            for child in body:
                yield from flatten(child, condition)
        case If(test, then, orelse):
            yield from flatten(then, condition & test)
            yield from flatten(orelse, condition & ~test)
        case Execute() | Loop():
            yield condition, node


def _groups(items: Sequence[Item]) -> list[tuple[Expr, list]]:
    """Group consecutive items with equal conditions."""
    groups: list[tuple[Expr, list]] = []
    for condition, item in items:
        if groups and groups[-1][0].same(condition):
            groups[-1][1].append(item)
        else:
            groups.append((condition, [item]))
    return groups
