"""Move copies of a loop's body back into the loop, and replace its conditions with rounds.

isl often peels a loop: it places the last step of learning after the loop, and the first steps of
acting in a separate loop before it. Each copy would be compiled separately. If a statement next to
the loop equals a statement in the loop for some value of the loop's counter, it is added to the
sequence of the loop. `regroup` then finds rounds that run the sequence.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from mmrl.pdg.build.expr import Expr, Structural, Sym, as_expr
from mmrl.pdg.plan.code import Execute, Loop

Step = tuple[int, int]
"""Group of statements in a loop, and the value of the loop's counter when it runs."""

SHIFT = Sym("shift")


@dataclasses.dataclass(frozen=True, eq=False)
class GroupLoop:
    """Loop as groups of statements that depend on its counter, and the order in which they run."""

    counter: str
    groups: tuple[tuple[Any, ...], ...]
    sequence: tuple[Step, ...]


def unroll(
    loop: Loop, groups: Sequence[tuple[Expr, list]], bounds: Mapping[str, int]
) -> GroupLoop | None:
    """Return a `GroupLoop` if the loop depends only on its counter and the bounds, else None."""
    symbols = {*bounds, loop.counter}
    conditions = [condition for condition, _ in groups]
    if not all(set(e.symbols()) <= symbols for e in (loop.start, loop.stop, *conditions)):
        return None
    sequence = tuple(
        (g, value)
        for value in range(loop.start.evaluate(bounds), loop.stop.evaluate(bounds), loop.step)
        for g, condition in enumerate(conditions)
        if condition.evaluate({**bounds, loop.counter: value})
    )
    return GroupLoop(loop.counter, tuple(tuple(group) for _, group in groups), sequence)


def roll(items: list[Any], bounds: Mapping[str, int]) -> list[Any]:
    """Move statements and loops into neighboring loops that contain equal statements."""
    loops = [item for item in items if isinstance(item, GroupLoop)]
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
    loop: GroupLoop, items: list[Any], bounds: Mapping[str, int], backward: bool = False
) -> tuple[tuple[Step, ...], int]:
    """Return the steps of `loop` that equal the adjacent items, and the number of these items."""
    steps: tuple[Step, ...] = ()
    rest = items
    while rest:
        for size in sorted({1, *map(len, loop.groups)}, reverse=True):
            near = rest[-size:] if backward else rest[:size]
            match = _steps(loop, near, bounds) if len(near) == size else None
            if match is not None:
                steps = (*match, *steps) if backward else (*steps, *match)
                rest = rest[:-size] if backward else rest[size:]
                break
        else:
            break
    return steps, len(items) - len(rest)


def _steps(loop: GroupLoop, items: list[Any], bounds: Mapping[str, int]) -> tuple[Step, ...] | None:
    """Return the steps of `loop` that equal `items`, or None.

    `items` are either one other loop or the statements of one step.
    """
    if not isinstance(items[0], GroupLoop):
        place = _place(loop, items, SHIFT, bounds)
        return place and (place,)
    other = items[0]
    counter = SHIFT + Sym(other.counter)
    places = {g: _place(loop, other.groups[g], counter, bounds) for g, _ in other.sequence}
    if len(items) > 1 or None in places.values():
        return None
    matches = {g: place for g, place in places.items() if place is not None}
    return tuple((matches[g][0], matches[g][1] + value) for g, value in other.sequence)


def _place(
    loop: GroupLoop, statements: Sequence[Any], counter: Expr, bounds: Mapping[str, int]
) -> Step | None:
    """Return the group of `loop` that equals `statements`, and the value of `SHIFT`, or None.

    The comparison substitutes `counter`, an expression with `SHIFT`, for the counter of the loop.
    """
    if not all(isinstance(statement, Execute) for statement in statements):
        return None
    names = [statement.op for statement in statements]
    for g, group in enumerate(loop.groups):
        if [getattr(statement, "op", None) for statement in group] != names:
            continue
        values = {**bounds, loop.counter: counter}
        points = [
            (a.substitute(values), b.substitute(bounds))
            for ours, theirs in zip(group, statements, strict=True)
            for a, b in zip(ours.point, theirs.point, strict=True)
        ]
        shifts = {_solve(a, b) for a, b in points} - {True}
        if len(shifts) == 1 and (shift := shifts.pop()) is not None:
            return g, shift
    return None


def _solve(ours: Expr, theirs: Expr) -> Any:
    """Return the shift that makes two indices equal.

    Returns True if every shift does, and None if no shift does.
    """
    gap = theirs - ours
    if gap.symbols() - {SHIFT.name}:
        return None
    zero, one = (gap.evaluate({SHIFT.name: shift}) for shift in (0, 1))
    if zero == one:
        return None if zero else True
    return None if zero % (zero - one) else zero // (zero - one)


@dataclasses.dataclass(frozen=True, eq=False)
class Table(Structural):
    """Lookup table with one number per round."""

    values: tuple[int, ...]
    round: Expr

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """Return the entry of the table for the round in `env`."""
        place = self.round.evaluate(env)
        is_concrete = isinstance(place, int | np.ndarray)
        return (np if is_concrete else jnp).asarray(self.values, np.int32)[place]


@dataclasses.dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds of a loop: group `order[j]` runs `counts[k, j]` times in round k.

    The counter of these runs starts at `starts[k, j]` and increases by `steps[k, j]`.
    """

    order: tuple[int, ...]
    starts: np.ndarray
    counts: np.ndarray
    steps: np.ndarray

    def cost(self) -> tuple[int, int]:
        """Return the number of groups with varying counts, and the number of rounds."""
        return int((self.counts != self.counts[0]).any(0).sum()), len(self.counts)

    def column(self, j: int, k: Expr) -> "Column":
        """Return the runs of group `order[j]` as functions of the round k."""
        counts = self.counts[:, j]
        (rounds,) = counts.nonzero()
        start, step = (_linear(values[:, j], rounds, k) for values in (self.starts, self.steps))
        only = {str(k): int(rounds[0])} if len(rounds) == 1 else {}
        number = _linear(counts, np.arange(len(counts)), k)
        return Column(start, step, number, int(counts.max()), only)


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """Runs of one group: start, step and number per round, and the largest number of all rounds."""

    start: Expr | Table
    step: Expr | Table
    number: Expr | Table
    most: int
    only: dict[str, int]
    """Maps the round's symbol to its value if the group runs in only one round; otherwise empty."""


def _linear(values: np.ndarray, rows: np.ndarray, k: Expr) -> Expr | Table:
    """Return values[k] as an expression if it is linear at `rows`, else as a table."""
    slope = int(((values[rows[1:2]] - values[rows[:1]]) // (rows[1:2] - rows[:1])).sum())
    start = int(values[rows[0]] - slope * rows[0])
    if (values[rows] != start + slope * rows).any():
        return Table(tuple(values.tolist()), k)
    return as_expr(start) + slope * k


def regroup(sequence: Sequence[Step], groups: int) -> Rounds:
    """Return rounds that run a non-empty sequence of pairs (group, counter value).

    A round ends after each run of a certain group (for n-step returns, after each `learn`), or as
    late as the order of groups allows (for Monte-Carlo returns). The search
    tries every choice of this group, and every order that moves at most one group of the loop to
    another position. The result has as few groups with varying counts as possible, and among these,
    as few rounds as possible.
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
    # A single run is compatible with any step, so use the step of the other rounds.
    usual = [max(column, key=abs) for column in zip(*steps, strict=True)]
    return Rounds(order, np.array(starts), np.array(counts), np.where(steps, steps, usual))


def _continues(run: list[int], value: int) -> bool:
    return len(run) < 2 or value - run[-1] == run[1] - run[0]
