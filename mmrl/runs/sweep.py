"""The outcome of a sweep: a score for every setting, and the best one.

A score is the mean of the last quarter of the evaluations, over seeds. Settings whose scores are
within `CLOSE` of the best, as a share of the span from the worst to the best return, count as
equal. Among these, the area under the curve decides, which is the mean of all evaluations. It
averages four times as many numbers, and it separates fast from slow settings that reach the same
score.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from mmrl.runs.results import interval

CLOSE = 0.005  # below the differences between agents: their 95 % intervals are wider

Setting = dict[str, float]
Curves = Float[np.ndarray, "setting seed eval"]


class Tried(NamedTuple):
    """A setting and the results of its agents; -∞ if a loss was no longer finite."""

    setting: Setting
    score: float
    area: float | None  # None in rows from before it was recorded


class Scored(NamedTuple):
    """The returns of a setting; a loss that was no longer finite counts as -∞."""

    setting: Setting
    finals: Float[np.ndarray, " seed"]  # each seed's mean of the last quarter of the evaluations
    final: float  # mean of `finals`
    interval: tuple[float, float]  # 95 % interval of their interquartile mean
    best: float  # largest mean over seeds of an evaluation
    area: float  # mean of all evaluations


class Verdict(NamedTuple):
    """The winner of a sweep, and how certain that is."""

    winner: Scored
    edges: list[str]  # names of its numbers at an end of their grid: better values may lie beyond
    equals: list[Scored]  # other settings that these seeds cannot separate from it
    tied: list[Scored]  # other settings with an equal score, decided by the area


def rows(
    settings: Sequence[Setting], seeds: Sequence[int], history: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return a row per setting and seed, with its return at every evaluation."""
    both = itertools.product(settings, seeds)
    return [
        {**setting, "seed": seed, "returns": [row["returns"][i] for row in history]}
        for i, (setting, seed) in enumerate(both)
    ]


def verdict(settings: Sequence[Setting], curves: Curves) -> Verdict:
    """Return the best setting so far. Raise `ValueError` before the first evaluation.

    The span runs from the worst to the best of all measured returns. Seeds are shared, so another
    setting counts as worse if the differences to it, seed by seed, have a 95 % interval above zero.
    """
    scored = scores(settings, curves)
    seen = curves[np.isfinite(curves)]
    span = float(np.ptp(seen)) if seen.size else 0.0
    tried = [Tried(one.setting, one.final, one.area) for one in scored]
    close = equal(tried, CLOSE * span)
    won = best(close)
    winner = next(one for one in scored if one.setting == won)
    grid = {name: sorted({one[name] for one in settings}) for name in won}
    others = [one for one in scored if one is not winner and not _apart(winner, one)]
    both = zip(scored, tried, strict=True)
    tied = [one for one, its in both if its in close and one is not winner]
    return Verdict(winner, ends(won, grid), others, tied)


def scores(settings: Sequence[Setting], curves: Curves) -> list[Scored]:
    """Return the score of every setting. Raise `ValueError` before the first evaluation."""
    if not curves.size:
        raise ValueError("There is no score before the first block. Iterate over the run first.")
    finals = np.nan_to_num(last_quarter(curves).mean(-1), nan=-np.inf)
    means = np.nan_to_num(curves, nan=-np.inf).mean(1).max(-1)
    columns = zip(settings, finals, final(curves), means, area(curves), strict=True)
    return [
        Scored(setting, each, float(last), _interval(each), float(highest), float(mean))
        for setting, each, last, highest, mean in columns
    ]


def _interval(finals: Float[np.ndarray, " seed"]) -> tuple[float, float]:
    if not np.isfinite(finals).all():
        return -np.inf, float(finals.max())
    _, low, high = interval(finals)
    return low, high


def _apart(winner: Scored, other: Scored) -> bool:
    """Return True if the winner is better than the other one by more than seeds explain."""
    if not np.isfinite(other.final):
        return bool(np.isfinite(winner.final))
    return interval(winner.finals - other.finals)[1] > 0


def final(curves: Curves) -> Float[np.ndarray, " setting"]:
    """Return the mean of the last quarter of the evaluations, over seeds."""
    return area(last_quarter(curves))


def area(curves: Curves) -> Float[np.ndarray, " setting"]:
    """Return the mean of all evaluations, over seeds."""
    return np.nan_to_num(curves.mean((1, 2)), nan=-np.inf)


def last_quarter(curves: Float[np.ndarray, "*any eval"]) -> Float[np.ndarray, "*any last"]:
    """Return the evaluations whose mean is a score: at least one."""
    return curves[..., -max(curves.shape[-1] // 4, 1) :]


def equal(tried: Sequence[Tried], close: float) -> list[Tried]:
    """Return the settings whose score equals the best; all of them, if every loss diverged."""
    most = max(one.score for one in tried)
    return [one for one in tried if one.score >= most - close]


def best(equals: Sequence[Tried]) -> Setting:
    """Return the setting with the largest area, among those with equal scores."""
    return max(equals, key=lambda one: one.area or 0.0).setting


def ends(setting: Setting, grid: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the names of its numbers that lie at an end of their grid, which ascends."""
    return [name for name in grid if setting[name] in (grid[name][0], grid[name][-1])]
