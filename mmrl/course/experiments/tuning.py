"""Tuning of hyperparameters, which every experiment except forgetting uses.

The selection rule extends the rule of `mmrl.runs.sweep` by a condition. For each
hyperparameter of the winner, the next smaller and the next larger value on the grid must have been
trained. A search can therefore start with few values. If the best of these values is neither the
smallest nor the largest, no other value is trained. Otherwise one more value is usually sufficient.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from mmrl.runs import provenance
from mmrl.runs.sweep import CLOSE, Curves, Setting, Trial, area, best, ends, equal, final

GRID = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # learning rates


class Choice(NamedTuple):
    """Result of a search."""

    setting: Setting  # the winner
    trials: list[Trial]  # all settings with their scores, in ascending order
    at_edge: list[str]  # hyperparameters of the winner that are at the edge of their grid


def choose(
    train: Callable[[list[Setting]], Curves],
    first: Iterable[Setting],
    grid: Mapping[str, Sequence[float]],
    *,
    span: float = 1.0,
    score: Callable[[Curves], Float[np.ndarray, " setting"]] = final,
    trials: Iterable[Trial] = (),
) -> Choice:
    """Find the best setting by training until all its neighbors on the grid have been tried.

    The search starts with the settings in `first`. Settings are compared by score, and settings
    with nearly equal scores by the area under the learning curve. `train` trains agents with the
    given settings and returns their curves. Hyperparameters that are not in `grid` keep their
    values from `first`. `span` is the range of possible returns, best minus worst. Settings in
    `trials` are trained again only if their area is needed but missing.
    """
    first = [dict(one) for one in first]
    _check(first, grid)
    trials = [one._replace(area=one.score) if score is area else one for one in trials]
    by_key = {_key(one.setting): one for one in trials}
    missing = [one for one in first if _key(one) not in by_key]
    while True:
        if missing:
            curves = np.asarray(train(missing), float)
            for one, high, wide in zip(missing, score(curves), area(curves), strict=True):
                by_key[_key(one)] = Trial(one, float(high), float(wide))
        in_order = [by_key[key] for key in sorted(by_key)]
        equals = equal(in_order, CLOSE * span)
        missing = [dict(one.setting) for one in equals if one.area is None and len(equals) > 1]
        if missing:
            continue
        winner = best(equals)
        missing = [one for one in _neighbors(winner, grid) if _key(one) not in by_key]
        if not missing:
            return Choice(winner, in_order, ends(winner, grid))


def _key(setting: Setting) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(setting.items()))


def _neighbors(setting: Setting, grid: Mapping[str, Sequence[float]]) -> list[Setting]:
    """Return the settings that differ in one hyperparameter by one step on its grid."""
    steps = [
        (name, values[i])
        for name, values in grid.items()
        for i in (values.index(setting[name]) - 1, values.index(setting[name]) + 1)
        if 0 <= i < len(values)
    ]
    return [{**setting, name: value} for name, value in steps]


def _check(first: Sequence[Setting], grid: Mapping[str, Sequence[float]]) -> None:
    if not first:
        raise ValueError("`first` must contain at least one setting; got none.")
    for name, values in grid.items():
        for one in first:
            if one[name] not in values:
                raise ValueError(f"`{name}` must be on its grid, {values}; got {one[name]:g}.")


def choose_rate(
    train: Callable[[Sequence[float], Sequence[int]], Float[np.ndarray, "agent eval"]],
    first: Sequence[float],
    seeds: Sequence[int],
    *,
    grid: Sequence[float] = GRID,
    span: float = 1.0,
    score: Callable[[Curves], Float[np.ndarray, " setting"]] = final,
    row: Mapping[str, Any] | None = None,
) -> Choice:
    """Run `choose` for the learning rate.

    `train` takes a sequence of rates and a sequence of seeds of equal length, and trains one agent
    per pair. If an earlier `row` is given, the results that it records are not measured again.
    """

    def curves(settings: list[Setting]) -> Curves:
        pairs = [(one["learning_rate"], seed) for one in settings for seed in seeds]
        returns = train(*zip(*pairs, strict=True))
        return np.asarray(returns).reshape(len(settings), len(seeds), -1)

    return choose(
        curves,
        [{"learning_rate": rate} for rate in first],
        {"learning_rate": grid},
        span=span,
        score=score,
        trials=recall(row or {"tuning": {}}),
    )


def tune(
    train: Callable[[Sequence[float], Sequence[int]], Any],
    to_row: Callable[[Any], dict[str, Any]],
    first: Sequence[float],
    tuning_seeds: Sequence[int],
    seeds: Sequence[int],
    *,
    row: Mapping[str, Any] | None = None,
    curves: Callable[[Any], Float[np.ndarray, "agent eval"]] = lambda trained: trained.returns,
    **rule: Any,
) -> dict[str, Any]:
    """Choose a learning rate, train agents with it, and return the row.

    `train` trains one agent per rate and seed, and `to_row` returns the fields of a row about the
    agents with the best rate. `rule` contains further arguments of `choose_rate`. If the
    agents of an earlier `row` had the same rate, they are not trained again.
    """
    choice = choose_rate(
        lambda rates, seeds: curves(train(rates, seeds)), first, tuning_seeds, row=row, **rule
    )
    if row and (same := grow(row, choice)):
        return same
    about = {"tuning_seeds": list(tuning_seeds), "seeds": list(seeds)}
    rate = choice.setting["learning_rate"]
    return {**record(choice), **about, **to_row(train([rate] * len(seeds), seeds))}


def record(choice: Choice) -> dict[str, Any]:
    """Return the fields of a row that record the learning rate and the search for it."""
    trials = [(str(one.setting["learning_rate"]), one) for one in choice.trials]
    return {
        "learning_rate": choice.setting["learning_rate"],
        "tuning": {rate: one.score for rate, one in trials},
        "tuning_areas": {rate: one.area for rate, one in trials},
        "tuning_at_bound": bool(choice.at_edge),
    }


def recall(row: Mapping[str, Any]) -> list[Trial]:
    """Read the results of a search from a row."""
    areas = row.get("tuning_areas", {})
    return [
        Trial({"learning_rate": float(rate)}, score, areas.get(rate))
        for rate, score in row["tuning"].items()
    ]


def is_stale(row: Mapping[str, Any]) -> bool:
    """Return True if a row's learning rate was chosen by an earlier rule."""
    return bool(row.get("tuning")) and "tuning_areas" not in row


def stands(row: Mapping[str, Any]) -> bool:
    """Return True if the other rates of an outdated row are clearly worse.

    The rate of the row must also be neither the smallest nor the largest of the rates that were
    tried.
    """
    scores = {float(rate): score for rate, score in row.get("tuning", {}).items()}
    rate = row.get("learning_rate", 0.0)
    others = [score for other, score in scores.items() if other != rate]
    inside = bool(scores) and min(scores) < rate < max(scores)
    return inside and max(others) < scores[rate] - 2 * CLOSE  # 2 is the largest span of any task


def grow(row: Mapping[str, Any], choice: Choice) -> dict[str, Any] | None:
    """Add all tried rates to a row, or return None if its agents had another rate."""
    if row.get("learning_rate") != choice.setting["learning_rate"]:
        return None
    return {**row, **record(choice), "tuned": provenance()}
