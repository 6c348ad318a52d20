"""Loops with conditions, rewritten so that one XLA program runs every statement unconditionally.

A schedule that lets learning follow acting at a distance of n steps has a loop such as

    for c in range(T + n - 1):
        if c < T: act(c)
        if c >= n - 1: learn(c - n + 1)

`lax.cond` would take every buffer through both branches, and peeling would compile `act` and
`learn` three times. The same sequence of statements, `act` n times, then `learn`, `act`, `learn`,
…, is a loop over *rounds*, in each of which every group of statements runs some number of times,
possibly none: here 1 `learn` per round, and n, 1, 1, …, 1, 0, …, 0 times `act`. With tiles of m
steps it is m times `act` per round. All of this is known before the program is compiled.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Rounds:
    """In round k, group g runs `counts[k, g]` times, from `starts[k, g]` in steps of `steps[g]`."""

    starts: np.ndarray
    counts: np.ndarray
    steps: np.ndarray

    def constant(self, group: int) -> bool:
        """Does `group` run equally often in every round?"""
        return bool((self.counts[:, group] == self.counts[0, group]).all())


def regroup(active: Sequence[Sequence[bool]], values: Sequence[int]) -> Rounds | None:
    """The rounds of a loop over `values` whose group g runs where `active[g]`, if there are any.

    A round may end after every run of some group (n-step: after each `learn`), or as late as the
    order allows (Monte-Carlo). Of these, the one in which fewest groups vary from round to round.
    """
    ways = [_rounds(active, values, last) for last in (None, *range(len(active)))]
    found = [rounds for rounds in ways if rounds is not None]
    return min(found, key=_varying, default=None)


def _varying(rounds: Rounds) -> int:
    return sum(not rounds.constant(group) for group in range(len(rounds.steps)))


def _rounds(
    active: Sequence[Sequence[bool]], values: Sequence[int], last: int | None
) -> Rounds | None:
    groups, rounds, at = range(len(active)), [], -1
    for position, value in enumerate(values):
        for group in (g for g in groups if active[g][position]):
            again = group == at != last and _continues(rounds[-1][group], value)
            if not rounds or at == last or not (group > at or again):
                rounds.append([[] for _ in groups])
            rounds[-1][group].append(value)
            at = group
    gaps = [{b - a for runs in rounds for a, b in itertools.pairwise(runs[g])} for g in groups]
    if not rounds or any(len(gap) > 1 for gap in gaps):
        return None
    starts = np.array([[run[0] if run else 0 for run in runs] for runs in rounds])
    counts = np.array([[len(run) for run in runs] for runs in rounds])
    return Rounds(starts, counts, np.array([gap.pop() if gap else 1 for gap in gaps]))


def _continues(run: list[int], value: int) -> bool:
    return len(run) < 2 or value - run[-1] == run[-1] - run[-2]
