"""Rolling up: a loop takes back the iterations that a schedule wrote out before or after it.

isl likes to peel: the last step of learning stands below the loop, the first steps of acting in a
loop of their own above it. Each copy would be compiled again. Where a statement is one of the
loop's for some value of its counter, it becomes part of the loop's sequence, and `rounds.py` finds
a loop that runs that sequence.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.pdg.expr import Expr
from mmrl.pdg.runtime.forms import Form, form
from mmrl.pdg.runtime.rounds import Step
from mmrl.pdg.syntax import Execute, Loop

Item = tuple[Expr, Any]
"""A condition, and the execution or loop below it."""


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
    values = range(loop.start.evaluate(bounds), loop.stop.evaluate(bounds), loop.step)
    sequence = [
        (g, value)
        for value in values
        for g, condition in enumerate(conditions)
        if condition.evaluate({**bounds, loop.counter: value})
    ]
    kept = sorted({g for g, _ in sequence})
    return Rolled(
        loop.counter,
        tuple(tuple(groups[g][1]) for g in kept),
        tuple((kept.index(g), value) for g, value in sequence),
    )


def roll(items: list[Any], bounds: Mapping[str, int]) -> list[Any]:
    """Statements and `Rolled` loops, in order, with the loops' neighbors drawn into them."""
    loops = [item for item in items if isinstance(item, Rolled)]
    for loop in sorted(loops, key=lambda each: -len(each.groups)):
        if loop not in items:
            continue
        at = items.index(loop)
        after, used = _absorb(loop, items[at + 1 :], bounds)
        before, unused = _absorb(loop, items[:at][::-1], bounds, backward=True)
        sequence = (*before, *loop.sequence, *after)
        whole = dataclasses.replace(loop, sequence=sequence)
        items = [*items[: at - unused], whole, *items[at + 1 + used :]]
    return items


def _absorb(
    loop: Rolled, items: list[Any], bounds: Mapping[str, int], backward: bool = False
) -> tuple[list[Step], int]:
    """The steps that the first of `items` are, and how many items that takes."""
    steps: list[Step] = []
    used = 0
    while used < len(items):
        found, size = _steps(loop, items[used:], bounds, backward)
        if not size:
            break
        steps = found + steps if backward else steps + found
        used += size
    return steps, used


def _steps(
    loop: Rolled, items: list[Any], bounds: Mapping[str, int], backward: bool
) -> tuple[list[Step], int]:
    if isinstance(items[0], Rolled):
        other = items[0]
        places = [_place(loop, group, other.counter, bounds) for group in other.groups]
        if None in places:
            return [], 0
        moves = [place for place in places if place is not None]
        return [(moves[g][0], moves[g][1] + value) for g, value in other.sequence], 1
    for group in sorted(loop.groups, key=len, reverse=True):
        some = items[: len(group)]
        place = _place(loop, some[::-1] if backward else some, None, bounds, group)
        if place is not None:
            return [place], len(group)
    return [], 0


def _place(
    loop: Rolled,
    statements: Sequence[Any],
    counter: str | None,
    bounds: Mapping[str, int],
    only: tuple | None = None,
) -> Step | None:
    """The group that `statements` are, and its counter minus theirs (or its counter, if none)."""
    for g, group in enumerate(loop.groups):
        if only in (None, group) and len(group) == len(statements):
            shifts = {
                _shift(a, b, loop.counter, counter, bounds)
                for a, b in zip(group, statements, strict=True)
            }
            if len(shifts) == 1 and (shift := shifts.pop()) is not None:
                return g, shift
    return None


def _shift(
    ours: Any, theirs: Any, counter: str, other: str | None, bounds: Mapping[str, int]
) -> int | None:
    """The s such that `ours` at counter = s (+ `other`) is `theirs`, None if there is none."""
    if not (isinstance(ours, Execute) and isinstance(theirs, Execute) and ours.op == theirs.op):
        return None
    shifts = set()
    for a, b in zip(ours.point, theirs.point, strict=True):
        left, right = form(a, bounds), form(b, bounds)
        if left is None or right is None:
            return None
        shifts.add(_solve(left, right, counter, other))
    shifts.discard(True)
    return shifts.pop() if len(shifts) == 1 else None


def _solve(left: Form, right: Form, counter: str, other: str | None) -> Any:
    """s with left(counter = s + other) = right; True if any will do, None if none does."""
    slope = left.get(counter, 0)
    rest = {s: right.get(s, 0) - left.get(s, 0) for s in {*left, *right} - {counter, other}}
    constant = rest.pop("", 0)
    if any(rest.values()) or slope != (slope if other is None else right.get(other, 0)):
        return None
    if slope == 0:
        return None if constant else True
    return None if constant % slope else constant // slope
