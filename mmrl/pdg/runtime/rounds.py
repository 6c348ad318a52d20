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
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from mmrl.pdg.expr import Expr, lift

Step = tuple[int, int]
"""A group of a loop's statements, and the value of the counter that it runs for."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A number for every round, looked up."""

    values: tuple[int, ...]
    round: Expr

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """The number of the round that `env` says it is."""
        return jnp.asarray(self.values, jnp.int32)[self.round.evaluate(env)]


@dataclasses.dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds: in round k, group `order[j]` runs `counts[k, j]` times from `starts[k, j]` on."""

    order: tuple[int, ...]
    starts: np.ndarray
    counts: np.ndarray
    steps: np.ndarray

    def cost(self) -> tuple[int, int]:
        """How many groups do not run equally often in every round, and how many rounds."""
        return int((self.counts != self.counts[0]).any(0).sum()), len(self.counts)

    def column(self, j: int, k: Expr) -> "Column":
        """The part of group `order[j]` in round k."""
        counts = self.counts[:, j]
        (used,) = counts.nonzero()
        start, step = (_even(values[:, j], used, k) for values in (self.starts, self.steps))
        only = {str(k): int(used[0])} if len(used) == 1 else {}
        number = _even(counts, np.arange(len(counts)), k)
        return Column(start, step, number, int(counts.max()), only)


@dataclasses.dataclass(frozen=True)
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
    return lift(start) + slope * k


def regroup(sequence: Sequence[Step], groups: int) -> Rounds:
    """The rounds that run a sequence of (group, value of the counter), which is not empty.

    A round may end after every run of some group (n-step: after each `learn`), or as late as the
    order allows (Monte-Carlo); in it, one group may stand elsewhere than in the loop. Of these, the
    rounds in which fewest groups vary, and of those the fewest.
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
    # A run of one has any step: that of the others.
    usual = [max(column, key=abs) for column in zip(*steps, strict=True)]
    return Rounds(order, np.array(starts), np.array(counts), np.where(steps, steps, usual))


def _continues(run: list[int], value: int) -> bool:
    return len(run) < 2 or value - run[-1] == run[1] - run[0]
