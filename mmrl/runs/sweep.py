"""Scores of the settings of a sweep, and selection of the best setting.

The score of a setting is the mean return over all seeds and the last quarter of the evaluations.
Scores within `CLOSE` of the best one, as a fraction of the range of all returns, count as ties.
Ties are broken by the area under the learning curve, which is the mean over all evaluations. The
area is less noisy, because it averages four times as many values, and it favors settings that learn
faster.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from mmrl.runs.results import interval

# Largest difference of a tie, as a fraction of the range of all returns. It is small compared to
# the 95 % intervals of scores.
CLOSE = 0.005

Setting = dict[str, float]
Curves = Float[np.ndarray, "setting seed eval"]


class Trial(NamedTuple):
    """Setting and its results, which are -∞ after a non-finite loss."""

    setting: Setting
    score: float
    area: float | None  # area under the learning curve; None in rows from earlier versions


class Score(NamedTuple):
    """Statistics of a setting. Returns after a non-finite loss count as -∞."""

    setting: Setting
    finals: Float[np.ndarray, " seed"]  # mean of the last quarter of the evaluations, per seed
    final: float  # mean of `finals`
    interval: tuple[float, float]  # 95 % interval of the interquartile mean of `finals`
    best: float  # maximum over evaluations of the mean over seeds
    area: float  # mean over seeds and all evaluations


class Verdict(NamedTuple):
    """Winner of a sweep, and information on how certain the result is."""

    winner: Score
    edges: list[str]  # settings whose best value is at an end of the grid, which may be too narrow
    equals: list[Score]  # settings that are not significantly worse than the winner
    ties: list[Score]  # settings that tie with the winner by score, and lose by area


def rows(
    settings: Sequence[Setting], seeds: Sequence[int], history: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return rows with the returns of all evaluations, one per setting and seed."""
    both = itertools.product(settings, seeds)
    return [
        {**setting, "seed": seed, "returns": [row["returns"][i] for row in history]}
        for i, (setting, seed) in enumerate(both)
    ]


def verdict(settings: Sequence[Setting], curves: Curves) -> Verdict:
    """Return the best setting so far. Raises `ValueError` before the first evaluation.

    All settings are trained with the same seeds. A setting is significantly worse than the winner
    if the 95 % interval of the paired differences between the two is above zero.
    """
    statistics = scores(settings, curves)
    finite = curves[np.isfinite(curves)]
    span = float(np.ptp(finite)) if finite.size else 0.0
    trials = [Trial(one.setting, one.final, one.area) for one in statistics]
    close = equal(trials, CLOSE * span)
    setting = best(close)
    winner = next(one for one in statistics if one.setting == setting)
    grid = {name: sorted({one[name] for one in settings}) for name in setting}
    others = [one for one in statistics if one is not winner and not _is_worse(winner, one)]
    both = zip(statistics, trials, strict=True)
    ties = [one for one, its in both if its in close and one is not winner]
    return Verdict(winner, ends(setting, grid), others, ties)


def scores(settings: Sequence[Setting], curves: Curves) -> list[Score]:
    """Return the scores of all settings. Raises `ValueError` before the first evaluation."""
    if not curves.size:
        raise ValueError("There is no score before the first block. Iterate over the run first.")
    finals = np.nan_to_num(last_quarter(curves).mean(-1), nan=-np.inf)
    means = np.nan_to_num(curves, nan=-np.inf).mean(1).max(-1)
    columns = zip(settings, finals, final(curves), means, area(curves), strict=True)
    return [
        Score(setting, each, float(last), _interval(each), float(highest), float(mean))
        for setting, each, last, highest, mean in columns
    ]


def _interval(finals: Float[np.ndarray, " seed"]) -> tuple[float, float]:
    if not np.isfinite(finals).all():
        return -np.inf, float(finals.max())
    _, low, high = interval(finals)
    return low, high


def _is_worse(winner: Score, other: Score) -> bool:
    """Return True if `other` is significantly worse than the winner."""
    if not np.isfinite(other.final):
        return bool(np.isfinite(winner.final))
    return interval(winner.finals - other.finals)[1] > 0


def final(curves: Curves) -> Float[np.ndarray, " setting"]:
    """Return the mean over seeds and the last quarter of the evaluations."""
    return area(last_quarter(curves))


def area(curves: Curves) -> Float[np.ndarray, " setting"]:
    """Return the mean over seeds and all evaluations."""
    return np.nan_to_num(curves.mean((1, 2)), nan=-np.inf)


def last_quarter(curves: Float[np.ndarray, "*any eval"]) -> Float[np.ndarray, "*any last"]:
    """Return the last quarter of the evaluations, at least one."""
    return curves[..., -max(curves.shape[-1] // 4, 1) :]


def equal(trials: Sequence[Trial], close: float) -> list[Trial]:
    """Return the settings with scores within `close` of the best.

    If every score is -∞, all settings are returned.
    """
    most = max(one.score for one in trials)
    return [one for one in trials if one.score >= most - close]


def best(equals: Sequence[Trial]) -> Setting:
    """Return the setting with the largest area."""
    return max(equals, key=lambda one: one.area or 0.0).setting


def ends(setting: Setting, grid: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the names of the hyperparameters whose value is at an end of their (sorted) grid."""
    return [name for name in grid if setting[name] in (grid[name][0], grid[name][-1])]
