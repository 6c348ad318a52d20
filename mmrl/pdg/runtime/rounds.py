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

Step = tuple[int, int]
"""A group of a loop's statements, and the value of the counter that it runs for."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rounds:
    """In round k, group g runs `counts[k, g]` times, from `starts[k, g]` by `steps[k, g]`."""

    starts: np.ndarray
    counts: np.ndarray
    steps: np.ndarray

    def varying(self) -> int:
        """How many groups do not run equally often in every round?"""
        return int((self.counts != self.counts[0]).any(0).sum())


def regroup(sequence: Sequence[Step], groups: int) -> Rounds:
    """The rounds that run a sequence of (group, value of the counter), which is not empty.

    A round may end after every run of some group (n-step: after each `learn`), or as late as the
    order allows (Monte-Carlo). Of these, the one in which fewest groups vary from round to round.
    """
    ways = [_rounds(sequence, groups, last) for last in (None, *range(groups))]
    return min(ways, key=Rounds.varying)


def _rounds(sequence: Sequence[Step], groups: int, last: int | None) -> Rounds:
    rounds: list[list[list[int]]] = []
    at = -1
    for group, value in sequence:
        again = group == at != last and _continues(rounds[-1][group], value)
        if not rounds or at == last or not (group > at or again):
            rounds.append([[] for _ in range(groups)])
        rounds[-1][group].append(value)
        at = group
    starts = [[run[0] if run else 0 for run in runs] for runs in rounds]
    counts = [[len(run) for run in runs] for runs in rounds]
    steps = [[run[1] - run[0] if len(run) > 1 else 0 for run in runs] for runs in rounds]
    # A run of one has any step: that of the others.
    usual = [max(column, key=abs) for column in zip(*steps, strict=True)]
    return Rounds(np.array(starts), np.array(counts), np.where(steps, steps, usual))


def _continues(run: list[int], value: int) -> bool:
    return len(run) < 2 or value - run[-1] == run[1] - run[0]
