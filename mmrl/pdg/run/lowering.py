"""From a schedule's tree to what is compiled: rounds for conditions, and no needless reads.

Three steps. `roll` takes copies of a loop's body back into the loop, `regroup` makes rounds of its
conditions, and `Lowering` leaves out reads: a value that was computed earlier in the same stretch
of code is taken from there. Only what some operation reads later, in another iteration, has to be
stored in a ring.

*Rounds* are loops with conditions, rewritten so that one XLA program runs every statement
unconditionally. A schedule that lets learning follow acting at a distance of n steps has a loop
such as

    for c in range(T + n - 1):
        if c < T: act(c)
        if c >= n - 1: learn(c - n + 1)

`lax.cond` would take every buffer through both branches, and peeling would compile `act` and
`learn` three times. The same sequence of statements, `act` n times, then `learn`, `act`, `learn`,
…, is a loop over *rounds*. In each round, every group of statements runs some number of times,
possibly none: here 1 `learn` per round, and n, 1, 1, …, 1, 0, …, 0 times `act`. With tiles of m
steps it is m times `act` per round. All of this is known before the program is compiled.

*Rolling up* prepares a loop for that, since isl often peels: the last step of learning stands below
the loop, and the first steps of acting in a separate loop above it. Each copy would be
compiled again. Where a statement is one of the loop's for some value of its counter, it becomes
part of the loop's sequence, and `regroup` finds a loop that runs that sequence.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from mmrl.pdg.build.expr import TRUE, Const, Expr, Structural, Sym, as_expr
from mmrl.pdg.build.graph import Op, Output
from mmrl.pdg.plan.account import Read, ReadTable
from mmrl.pdg.plan.code import Body, Execute, If, Loop, substitute
from mmrl.pdg.plan.layout import Layout

Step = tuple[int, int]
"""A group of a loop's statements, and the value of the counter that it runs for."""


@dataclasses.dataclass(frozen=True, eq=False)
class Table(Structural):
    """A number for every round, looked up."""

    values: tuple[int, ...]
    round: Expr

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """Return the number of the round in `env`."""
        return jnp.asarray(self.values, jnp.int32)[self.round.evaluate(env)]


@dataclasses.dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds: in round k, group `order[j]` runs `counts[k, j]` times from `starts[k, j]` on."""

    order: tuple[int, ...]
    starts: np.ndarray
    counts: np.ndarray
    steps: np.ndarray

    def cost(self) -> tuple[int, int]:
        """The number of groups that do not run equally often in every round, and of rounds."""
        return int((self.counts != self.counts[0]).any(0).sum()), len(self.counts)

    def column(self, j: int, k: Expr) -> "Column":
        """The part of group `order[j]` in round k."""
        counts = self.counts[:, j]
        (used,) = counts.nonzero()
        start, step = (_even(values[:, j], used, k) for values in (self.starts, self.steps))
        only = {str(k): int(used[0])} if len(used) == 1 else {}
        number = _even(counts, np.arange(len(counts)), k)
        return Column(start, step, number, int(counts.max()), only)


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """The runs of one group, by round."""

    start: Expr | Table
    step: Expr | Table
    number: Expr | Table
    most: int
    only: dict[str, int]
    """The number of the round, if it runs in one only."""


def _even(values: np.ndarray, used: np.ndarray, k: Expr) -> Expr | Table:
    """values[k], without a table where those that are used grow evenly."""
    slope = int(((values[used[1:2]] - values[used[:1]]) // (used[1:2] - used[:1])).sum())
    start = int(values[used[0]] - slope * used[0])
    if (values[used] != start + slope * used).any():
        return Table(tuple(values.tolist()), k)
    return as_expr(start) + slope * k


def regroup(sequence: Sequence[Step], groups: int) -> Rounds:
    """Return the rounds that run a sequence of (group, value of the counter), which is not empty.

    A round may end after every run of some group (n-step: after each `learn`), or as late as the
    order allows (Monte-Carlo); in it, one group may stand elsewhere than in the loop. Returns the
    rounds in which the fewest groups vary, and among those the fewest rounds.
    """
    orders: dict[tuple[int, ...], None] = {}
    for group, place in itertools.product(range(groups), repeat=2):
        order = [g for g in range(groups) if g != group]
        orders[*order[:place], group, *order[place:]] = None
    lasts = (None, *range(groups))
    ways = [_rounds(sequence, order, last) for order in orders for last in lasts]
    return min(ways, key=Rounds.cost)


def _rounds(sequence: Sequence[Step], order: tuple[int, ...], last: int | None) -> Rounds:
    rounds: list[list[list[int]]] = []
    at = -1
    for group, value in sequence:
        place = order.index(group)
        again = place == at != last and _continues(rounds[-1][place], value)
        if not rounds or at == last or not (place > at or again):
            rounds.append([[] for _ in order])
        rounds[-1][place].append(value)
        at = place
    starts = [[run[0] if run else 0 for run in runs] for runs in rounds]
    counts = [[len(run) for run in runs] for runs in rounds]
    steps = [[run[1] - run[0] if len(run) > 1 else 0 for run in runs] for runs in rounds]
    # A run of length one fits any step, so it takes the step of the others.
    usual = [max(column, key=abs) for column in zip(*steps, strict=True)]
    return Rounds(order, np.array(starts), np.array(counts), np.where(steps, steps, usual))


def _continues(run: list[int], value: int) -> bool:
    return len(run) < 2 or value - run[-1] == run[1] - run[0]


SHIFT = Sym("shift")


@dataclasses.dataclass(frozen=True, eq=False)
class Rolled:
    """Groups of statements in a counter, and the sequence in which they run."""

    counter: str
    groups: tuple[tuple[Any, ...], ...]
    sequence: tuple[Step, ...]


def unrolled(
    loop: Loop, groups: Sequence[tuple[Expr, list]], bounds: Mapping[str, int]
) -> Rolled | None:
    """Return the loop as `Rolled` if only its counter and numbers decide what runs, else None."""
    mine = {*bounds, loop.counter}
    conditions = [condition for condition, _ in groups]
    if not all(set(e.symbols()) <= mine for e in (loop.start, loop.stop, *conditions)):
        return None
    sequence = tuple(
        (g, value)
        for value in range(loop.start.evaluate(bounds), loop.stop.evaluate(bounds), loop.step)
        for g, condition in enumerate(conditions)
        if condition.evaluate({**bounds, loop.counter: value})
    )
    return Rolled(loop.counter, tuple(tuple(group) for _, group in groups), sequence)


def roll(items: list[Any], bounds: Mapping[str, int]) -> list[Any]:
    """Statements and `Rolled` loops, in order, with the loops' neighbors drawn into them."""
    loops = [item for item in items if isinstance(item, Rolled)]
    for loop in sorted(loops, key=lambda each: -len(each.groups)):
        if loop not in items:
            continue
        at = items.index(loop)
        before, first = _absorb(loop, items[:at], bounds, backward=True)
        after, last = _absorb(loop, items[at + 1 :], bounds)
        whole = dataclasses.replace(loop, sequence=(*before, *loop.sequence, *after))
        items = [*items[: at - first], whole, *items[at + 1 + last :]]
    return items


def _absorb(
    loop: Rolled, items: list[Any], bounds: Mapping[str, int], backward: bool = False
) -> tuple[tuple[Step, ...], int]:
    """The steps that the nearest of `items` are, and how many items that takes."""
    steps: tuple[Step, ...] = ()
    rest = items
    while rest:
        for size in sorted({1, *map(len, loop.groups)}, reverse=True):
            near = rest[-size:] if backward else rest[:size]
            found = _steps(loop, near, bounds) if len(near) == size else None
            if found is not None:
                steps = (*found, *steps) if backward else (*steps, *found)
                rest = rest[:-size] if backward else rest[size:]
                break
        else:
            break
    return steps, len(items) - len(rest)


def _steps(loop: Rolled, items: list[Any], bounds: Mapping[str, int]) -> tuple[Step, ...] | None:
    """The steps of `items`, one other loop or the statements of one step, in terms of `loop`."""
    if not isinstance(items[0], Rolled):
        place = _place(loop, items, SHIFT, bounds)
        return place and (place,)
    other = items[0]
    moved = SHIFT + Sym(other.counter)
    places = {g: _place(loop, other.groups[g], moved, bounds) for g, _ in other.sequence}
    if len(items) > 1 or None in places.values():
        return None
    moves = {g: place for g, place in places.items() if place is not None}
    return tuple((moves[g][0], moves[g][1] + value) for g, value in other.sequence)


def _place(
    loop: Rolled, statements: Sequence[Any], counter: Expr, bounds: Mapping[str, int]
) -> Step | None:
    """The group that `statements` are with `counter` for its counter, and the shift in that."""
    if not all(isinstance(statement, Execute) for statement in statements):
        return None
    names = [statement.op for statement in statements]
    for g, group in enumerate(loop.groups):
        if [getattr(statement, "op", None) for statement in group] != names:
            continue
        known = {**bounds, loop.counter: counter}
        points = [
            (a.substitute(known), b.substitute(bounds))
            for ours, theirs in zip(group, statements, strict=True)
            for a, b in zip(ours.point, theirs.point, strict=True)
        ]
        shifts = {_solve(a, b) for a, b in points} - {True}
        if len(shifts) == 1 and (shift := shifts.pop()) is not None:
            return g, shift
    return None


def _solve(ours: Expr, theirs: Expr) -> Any:
    """The shift at which both are the same; True if they always are, None if they never are."""
    gap = theirs - ours
    if gap.symbols() - {SHIFT.name}:
        return None
    zero, one = (gap.evaluate({SHIFT.name: shift}) for shift in (0, 1))
    if zero == one:
        return None if zero else True
    return None if zero % (zero - one) else zero // (zero - one)


Item = tuple[Expr, Any]
"""A condition, and the execution or loop below it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Key(Structural):
    """A root and the coordinates of a value in it."""

    root: Output
    point: tuple[Expr, ...]


Known = dict[Key, Key]
"""The values at hand, by each key under which they may be looked up."""
ZERO, ONE = Const(0), Const(1)


@dataclasses.dataclass(frozen=True, eq=False)
class Do:
    """Compute `op` at `point`; a read with a key is of a value at hand, any other of a ring."""

    op: Op
    point: tuple[Expr, ...]
    reads: tuple[tuple[Read, Key | None], ...]
    keys: tuple[Key, ...]


@dataclasses.dataclass(frozen=True, eq=False)
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


class Lowering:
    """Plans a tree; afterwards `stored` has the roots that need a ring."""

    def __init__(self, accesses: ReadTable, layout: Layout):
        self._accesses, self._layout = accesses, layout
        self._bounds = accesses.bounds
        self.stored = {layout.places[tensor].root for tensor in accesses.graph.results}

    def lower(self, tree: Any) -> tuple[Node, ...]:
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
        """Return the work of a group in a round: its statements, once or a number of times."""
        counter, (start, step, number) = rolled.counter, (column.start, column.step, column.number)
        change: dict[str, Expr] = {}
        if isinstance(start, Expr) and column.most == 1:
            change = {counter: start}
        items = [(TRUE, substitute(item, change)) for item in rolled.groups[g]]
        if change and ONE.same(number):
            return self._block(items, known)
        # If it runs in one round only, values may be looked up by the number of that round.
        inner = {
            Key(at.root, tuple(part.substitute(column.only) for part in at.point)): key
            for at, key in known.items()
        }
        body = self._block(items, {**known, **inner})
        return [Repeat(number, body, counter, start, step)] if body else []

    def _do(self, node: Execute, known: Known) -> Do:
        op, reads = self._accesses.graph.ops[node.op], self._accesses.reads[node.op]
        here = dict(zip(self._accesses.names[node.op], node.point, strict=True))
        found = []
        for read in reads:
            if read not in self._layout.aliased:
                at = [part.substitute(here) for part in read.edge.index]
                key = None if read.sliced else known.get(self._key(read.tensor, at))
                self.stored |= {self._layout.places[read.tensor].root} if key is None else set()
                found.append((read, key))
        keys = tuple(self._key(t, node.point) for t in self._accesses.outputs[node.op])
        if len(found) < len(reads):
            # A value that a merge does not choose itself is in its place already.
            self.stored.add(self._layout.places[node.op, 0].root)
        known |= {key: key for key in keys}
        return Do(op, tuple(node.point), tuple(found), keys)

    def _key(self, tensor: Output, point: Sequence[Expr]) -> Key:
        place = self._layout.places[tensor]
        where = place.at([part.substitute(self._bounds) for part in point])
        return Key(place.root, tuple(map(as_expr, where)))


def flatten(node: Any, condition: Expr = TRUE) -> Iterable[Item]:
    """The executions and loops of a tree, each under the conditions it stands below."""
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
    """Neighbours under the same condition, together."""
    groups: list[tuple[Expr, list]] = []
    for condition, item in items:
        if groups and groups[-1][0].same(condition):
            groups[-1][1].append(item)
        else:
            groups.append((condition, [item]))
    return groups
