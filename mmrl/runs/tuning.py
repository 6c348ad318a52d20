"""One rule says which of several settings is best.

A setting has a number for every name, such as {"learning_rate": 1e-3}. Its score is the mean of the
last quarter of the evaluations, over its seeds. Settings whose scores are within `CLOSE` of the
best, as a share of the span from the worst to the best return, count as equal: there the area under
the curve decides, that is the mean of all evaluations, since it averages four times as many and
tells fast from slow where both arrive.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

CLOSE = 0.005  # less than tells agents apart: their 95 % intervals are wider

Setting = dict[str, float]
Curves = Float[np.ndarray, "setting seed eval"]


class Tried(NamedTuple):
    """A setting and what its agents reached; -∞ where the loss of one was no longer finite."""

    setting: Setting
    score: float
    area: float | None  # None in rows from before it was recorded


def final(curves: Curves) -> Float[np.ndarray, " setting"]:
    """The mean of the last quarter of the evaluations, over seeds."""
    return area(last_quarter(curves))


def area(curves: Curves) -> Float[np.ndarray, " setting"]:
    """The mean of all evaluations, over seeds."""
    return np.nan_to_num(curves.mean((1, 2)), nan=-np.inf)


def last_quarter(curves: Float[np.ndarray, "*any eval"]) -> Float[np.ndarray, "*any last"]:
    """The evaluations that a score is the mean of: at least one."""
    return curves[..., -max(curves.shape[-1] // 4, 1) :]


def equal(tried: Sequence[Tried], close: float) -> list[Tried]:
    """Settings that are as good as the best; all of them, if the loss of all diverged."""
    best = max(one.score for one in tried)
    return [one for one in tried if one.score >= best - close]


def best(equals: Sequence[Tried]) -> Setting:
    """The setting with the largest area, of those that are equal by score."""
    return max(equals, key=lambda one: one.area or 0.0).setting


def ends(setting: Setting, grid: Mapping[str, Sequence[float]]) -> list[str]:
    """The names of its numbers that lie on an end of their grid, which ascends."""
    return [name for name in grid if setting[name] in (grid[name][0], grid[name][-1])]
