"""The choice of a setting on tuning seeds: one rule for every experiment except forgetting.

The rule is taken from `mmrl.runs.sweep`, and a winner must also have neighbors: until the next
smaller and larger values of each of its numbers have been tried, agents are trained there too, up
to the ends of a stated grid. So the first values may be few: a winner inside them costs no more,
and a winner at their edge costs one more value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from mmrl.runs import provenance
from mmrl.runs.sweep import CLOSE, Curves, Setting, Tried, area, best, ends, equal, final

GRID = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # learning rates; a step is a factor of about 3


class Chosen(NamedTuple):
    """The winner, all tried settings, and the numbers for which the grid was too narrow."""

    setting: Setting
    tried: list[Tried]  # in ascending order
    bound: list[str]  # the numbers of the winner that lie at an end of their grid


def choose(
    train: Callable[[list[Setting]], Curves],
    first: Iterable[Setting],
    grid: Mapping[str, Sequence[float]],
    *,
    span: float = 1.0,
    score: Callable[[Curves], Float[np.ndarray, " setting"]] = final,
    known: Iterable[Tried] = (),
) -> Chosen:
    """Return the best setting by score, then by area, with neighbors on every side of the grid.

    `train` trains agents at some settings. Numbers without a `grid` stay as in `first`; `span` is
    the best return minus the worst. `known` settings are not trained again, unless their area is
    needed and missing.
    """
    first = [dict(one) for one in first]
    _check(first, grid)
    known = [one._replace(area=one.score) if score is area else one for one in known]
    tried = {_key(one.setting): one for one in known}
    missing = [one for one in first if _key(one) not in tried]
    while True:
        if missing:
            curves = np.asarray(train(missing), float)
            for one, high, wide in zip(missing, score(curves), area(curves), strict=True):
                tried[_key(one)] = Tried(one, float(high), float(wide))
        ordered = [tried[key] for key in sorted(tried)]
        equals = equal(ordered, CLOSE * span)
        missing = [dict(one.setting) for one in equals if one.area is None and len(equals) > 1]
        if missing:
            continue
        winner = best(equals)
        missing = [one for one in _neighbors(winner, grid) if _key(one) not in tried]
        if not missing:
            return Chosen(winner, ordered, ends(winner, grid))


def _key(setting: Setting) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(setting.items()))


def _neighbors(setting: Setting, grid: Mapping[str, Sequence[float]]) -> list[Setting]:
    """Return the settings that differ by one step on one grid."""
    steps = [
        (name, values[i])
        for name, values in grid.items()
        for i in (values.index(setting[name]) - 1, values.index(setting[name]) + 1)
        if 0 <= i < len(values)
    ]
    return [{**setting, name: value} for name, value in steps]


def _check(first: Sequence[Setting], grid: Mapping[str, Sequence[float]]) -> None:
    if not first:
        raise ValueError("`first` must hold at least one setting; got none.")
    for name, values in grid.items():
        for one in first:
            if one[name] not in values:
                raise ValueError(f"`{name}` must be on its grid, {values}; got {one[name]:g}.")


def choose_rate(
    train: Callable[[Sequence[float], Sequence[int]], Float[np.ndarray, "lane eval"]],
    first: Sequence[float],
    seeds: Sequence[int],
    *,
    grid: Sequence[float] = GRID,
    span: float = 1.0,
    score: Callable[[Curves], Float[np.ndarray, " setting"]] = final,
    row: Mapping[str, Any] | None = None,
) -> Chosen:
    """Run `choose` for only the learning rate: `train` trains an agent per rate and seed.

    An earlier `row` provides known results.
    """

    def curves(settings: list[Setting]) -> Curves:
        lanes = [(one["learning_rate"], seed) for one in settings for seed in seeds]
        returns = train(*zip(*lanes, strict=True))
        return np.asarray(returns).reshape(len(settings), len(seeds), -1)

    return choose(
        curves,
        [{"learning_rate": rate} for rate in first],
        {"learning_rate": grid},
        span=span,
        score=score,
        known=recall(row or {"tuning": {}}),
    )


def tuned(
    train: Callable[[Sequence[float], Sequence[int]], Any],
    tell: Callable[[Any], dict[str, Any]],
    first: Sequence[float],
    tuning_seeds: Sequence[int],
    seeds: Sequence[int],
    *,
    row: Mapping[str, Any] | None = None,
    curves: Callable[[Any], Float[np.ndarray, "lane eval"]] = lambda trained: trained.returns,
    **rule: Any,
) -> dict[str, Any]:
    """Return a row's learning rate, how it was chosen, and the fields that `tell` returns.

    `tell` describes agents trained at this rate; `train` trains one per rate and seed. `rule`
    contains the arguments of `choose_rate`. An earlier `row` keeps its agents if they had the same
    rate.
    """
    chosen = choose_rate(
        lambda rates, seeds: curves(train(rates, seeds)), first, tuning_seeds, row=row, **rule
    )
    if row and (same := grown(row, chosen)):
        return same
    about = {"tuning_seeds": list(tuning_seeds), "seeds": list(seeds)}
    rate = chosen.setting["learning_rate"]
    return {**record(chosen), **about, **tell(train([rate] * len(seeds), seeds))}


def record(chosen: Chosen) -> dict[str, Any]:
    """Return the part of a row that records the learning rate and how it was chosen."""
    tried = [(str(one.setting["learning_rate"]), one) for one in chosen.tried]
    return {
        "learning_rate": chosen.setting["learning_rate"],
        "tuning": {rate: one.score for rate, one in tried},
        "tuning_areas": {rate: one.area for rate, one in tried},
        "tuning_at_bound": bool(chosen.bound),
    }


def recall(row: Mapping[str, Any]) -> list[Tried]:
    """Read the rates that a row's tuning tried; rows of an earlier rule have no areas."""
    areas = row.get("tuning_areas", {})
    return [
        Tried({"learning_rate": float(rate)}, score, areas.get(rate))
        for rate, score in row["tuning"].items()
    ]


def outdated(row: Mapping[str, Any]) -> bool:
    """Return True if a row's learning rate was chosen by an earlier rule: the best of a few."""
    return bool(row.get("tuning")) and "tuning_areas" not in row


def stands(row: Mapping[str, Any]) -> bool:
    """Return True if an outdated row needs no training: its neighbors score clearly less."""
    scores = {float(rate): score for rate, score in row.get("tuning", {}).items()}
    rate = row.get("learning_rate", 0.0)
    others = [score for other, score in scores.items() if other != rate]
    inside = bool(scores) and min(scores) < rate < max(scores)
    return inside and max(others) < scores[rate] - 2 * CLOSE  # for the largest span, 2


def grown(row: Mapping[str, Any], chosen: Chosen) -> dict[str, Any] | None:
    """Add all tried rates to a row; None if its agents were trained at another rate."""
    if row.get("learning_rate") != chosen.setting["learning_rate"]:
        return None
    return {**row, **record(chosen), "tuned": provenance()}
