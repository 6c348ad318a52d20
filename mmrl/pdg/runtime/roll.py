"""Rolling up: a loop takes back the iterations that a schedule wrote out before or after it.

isl likes to peel: the last step of learning stands below the loop, the first steps of acting in a
loop of their own above it. Each copy would be compiled again. Where a statement is one of the
loop's for some value of its counter, it becomes part of the loop's sequence, and `rounds.py` finds
a loop that runs that sequence.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.pdg.expr import Expr, Sym
from mmrl.pdg.runtime.rounds import Step
from mmrl.pdg.syntax import Execute, Loop

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
    """The loop as `Rolled`, if its counter and numbers alone decide what runs when, else None."""
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
