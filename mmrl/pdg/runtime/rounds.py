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
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Rounds:
    """In round k, group g runs for `counts[k, g]` values from `starts[k, g]` in steps `steps[g]`."""

    starts: np.ndarray
    counts: np.ndarray
    steps: np.ndarray

    def constant(self, group: int) -> bool:
        """Does `group` run equally often in every round?"""
        return bool((self.counts[:, group] == self.counts[0, group]).all())

    def segments(self) -> list["Rounds"]:
        """Stretches of rounds in which every group runs equally often."""
        changes = (np.diff(self.counts, axis=0) != 0).any(1).nonzero()[0] + 1
        parts = zip(np.split(self.starts, changes), np.split(self.counts, changes), strict=True)
        return [Rounds(starts, counts, self.steps) for starts, counts in parts]


def regroup(active: Sequence[Sequence[bool]], values: Sequence[int]) -> Rounds | None:
    """The rounds of a loop over `values` whose group g runs where `active[g]`; None if there are none.

    Of two ways to cut the sequence, the one with fewer groups whose number of runs varies: the last
    group ends a round at each run (n-step), or as late as it can (Monte-Carlo).
    """
    cuts = [_rounds(active, values, single) for single in (False, True)]
    found = [rounds for rounds in cuts if rounds is not None]
    return min(
        found, key=lambda r: sum(not r.constant(g) for g in range(len(active))), default=None
    )


def _rounds(active: Sequence[Sequence[bool]], values: Sequence[int], single: bool) -> Rounds | None:
    groups, rounds, last = len(active), [], -1
    for position, value in enumerate(values):
        for group in (g for g in range(groups) if active[g][position]):
            again = group == last and not (single and group == groups - 1)
            if not rounds or not (group > last or (again and _continues(rounds[-1][group], value))):
                rounds.append([[] for _ in range(groups)])
            rounds[-1][group].append(value)
            last = group
    gaps = [{b - a for runs in rounds for a, b in zip(runs[g], runs[g][1:])} for g in range(groups)]
    if not rounds or any(len(gap) > 1 for gap in gaps):
        return None
    starts = np.array([[run[0] if run else 0 for run in runs] for runs in rounds])
    counts = np.array([[len(run) for run in runs] for runs in rounds])
    return Rounds(starts, counts, np.array([gap.pop() if gap else 1 for gap in gaps]))


def _continues(run: list[int], value: int) -> bool:
    return len(run) < 2 or value - run[-1] == run[-1] - run[-2]
