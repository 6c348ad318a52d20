"""From a schedule's tree to what is compiled: rounds for conditions, and no needless reads.

A value that was computed earlier in the same stretch of code is taken from there. Only what some
operation reads later, in another iteration, has to be stored in a ring.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from mmrl.pdg.expr import TRUE, And, Expr
from mmrl.pdg.graph import Op
from mmrl.pdg.runtime.access import Accesses, Read
from mmrl.pdg.runtime.account import Tensor
from mmrl.pdg.runtime.forms import same
from mmrl.pdg.runtime.layout import Layout
from mmrl.pdg.runtime.roll import Item, Rolled, roll, unrolled
from mmrl.pdg.runtime.rounds import Rounds, regroup
from mmrl.pdg.syntax import Block, Execute, Fetch, If, Loop, Offload

Affine = tuple[tuple[str, int], ...]
Key = tuple[Tensor, tuple[Affine, ...]]
"""A root and the coordinates of a value in it, as sums of counters."""


@dataclasses.dataclass(frozen=True)
class Do:
    """Compute `op` at `point`; a read with a key is of a value at hand, any other of a ring."""

    op: Op
    point: tuple[Expr, ...]
    reads: tuple[tuple[Read, Key | None], ...]
    keys: tuple[Key | None, ...]


@dataclasses.dataclass(frozen=True)
class Each:
    """A loop without conditions on its counter."""

    counter: str
    start: Expr
    stop: Expr
    step: int
    body: tuple


@dataclasses.dataclass(frozen=True)
class Turns:
    """A loop over rounds, in each of which every group runs some number of times."""

    counter: str
    groups: tuple[tuple, ...]
    rounds: Rounds


@dataclasses.dataclass(frozen=True)
class When:
    """A condition that no loop could take."""

    condition: Expr
    body: tuple


class Planner:
    """Plans a tree; afterwards `stored` has the roots that need a ring."""

    def __init__(self, accesses: Accesses, layout: Layout):
        self._accesses, self._layout = accesses, layout
        self._bounds = accesses.bounds
        self.stored = {layout.places[tensor].root for tensor in accesses.graph.results}

    def plan(self, tree: Any) -> tuple:
        """What is compiled for a whole program."""
        return self._block(self._items(tree), set())

    def _block(self, items: Iterable[Item], known: set[Key]) -> tuple:
        """Statements with their conditions, in order; `known` grows by what they compute."""
        nodes: list[Any] = []
        simple = [self._simple(*item) for item in items]
        for item in roll([item for item in simple if item is not None], self._bounds):
            match item:
                case When(condition, inner):
                    body = self._block([(TRUE, each) for each in inner], set(known))
                    nodes += [When(condition, body)] if body else []
                case Rolled():
                    nodes += self._turns(item, known)
                case Loop():
                    nodes += self._loop(item, known)
                case Execute():
                    nodes.append(self._do(item, known))
        return tuple(nodes)

    def _simple(self, condition: Expr, item: Any) -> Any:
        """The statement without a condition that numbers decide; a loop as a sequence."""
        if not set(condition.symbols()) <= set(self._bounds):
            return When(condition, (item,))
        if not condition.evaluate(self._bounds):
            return None
        if isinstance(item, Loop):
            return unrolled(item, _groups(self._items(item.body)), self._bounds) or item
        return item

    def _items(self, node: Any) -> list[Item]:
        """What `node` executes, but for merges whose values are where they belong already."""
        return [(condition, item) for condition, item in flatten(node) if not self._idle(item)]

    def _idle(self, item: Any) -> bool:
        if isinstance(item, Loop):
            return not self._items(item.body)
        reads = set(self._accesses.reads[item.op])
        return self._accesses.graph.ops[item.op].run is None and reads <= self._layout.aliased

    def _loop(self, loop: Loop, known: set[Key]) -> list:
        body = self._block(self._items(loop.body), set(known))
        return [Each(loop.counter, loop.start, loop.stop, loop.step, body)] if body else []

    def _turns(self, rolled: Rolled, known: set[Key]) -> list:
        """The sequence as rounds."""
        if not rolled.sequence:
            return []
        groups = range(len(rolled.groups))
        rounds = regroup(rolled.sequence, len(groups))
        bodies = [
            self._block([(TRUE, item) for item in rolled.groups[g]], set(known)) for g in groups
        ]
        return [Turns(rolled.counter, tuple(bodies), rounds)]

    def _do(self, node: Execute, known: set[Key]) -> Do:
        op, reads = self._accesses.graph.ops[node.op], self._accesses.reads[node.op]
        here = dict(zip(self._accesses.names[node.op], node.point, strict=True))
        wanted = [read for read in reads if read not in self._layout.aliased]
        found = []
        for read in wanted:
            key = None
            if not read.sliced:
                key = self._key(read.tensor, [e.substitute(here) for e in read.edge.index])
            if key not in known:
                key = None
                self.stored.add(self._layout.places[read.tensor].root)
            found.append((read, key))
        outputs = self._accesses.outputs[node.op]
        keys = tuple(self._key(tensor, node.point) for tensor in outputs)
        if op.run is None and len(wanted) < len(reads):
            # What it does not choose itself is in its place already.
            self.stored |= {self._layout.places[node.op, 0].root} if wanted else set()
        if wanted or not reads:
            known |= {key for key in keys if key is not None}
        return Do(op, tuple(node.point), tuple(found), keys)

    def _key(self, tensor: Tensor, point: Sequence[Expr]) -> Key | None:
        place = self._layout.places[tensor]
        forms = [same(e, self._bounds) for e in place.at([*point])]
        return None if None in forms else (place.root, tuple(f for f in forms if f is not None))


def flatten(node: Any, condition: Expr = TRUE) -> Iterable[tuple[Expr, Any]]:
    """The executions and loops of a tree, each under the conditions it stands below; no frees.

    Raises ValueError for what only the interpreter can do.
    """
    match node:
        case Block(body):
            for child in body:
                yield from flatten(child, condition)
        case If(test, then, orelse):
            yield from flatten(then, _both(condition, test))
            yield from flatten(orelse, _both(condition, ~test))
        case Execute() | Loop():
            yield condition, node
        case Offload() | Fetch():
            raise ValueError(
                f"`swap` must be empty for one XLA program, got {node.tensor[0]}: a ring cannot be "
                f"on the host by points. Interpret the program instead."
            )


def _both(a: Expr, b: Expr) -> Expr:
    return b if a.same(TRUE) else And(a, b)


def _groups(items: Sequence[tuple[Expr, Any]]) -> list[tuple[Expr, list]]:
    """Neighbours under the same condition, together."""
    groups: list[tuple[Expr, list]] = []
    for condition, item in items:
        if groups and groups[-1][0].same(condition):
            groups[-1][1].append(item)
        else:
            groups.append((condition, [item]))
    return groups
