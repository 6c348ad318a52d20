"""A grid of settings times some seeds: one program, since real-valued settings are traced."""

import dataclasses
import difflib
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from mmrl.agents import find, repeatable
from mmrl.agents.settings import kinds_of
from mmrl.runs import tuning
from mmrl.runs.checkpoint import RunError
from mmrl.runs.devices import share
from mmrl.runs.files import expanded
from mmrl.runs.folder import CHECKPOINT, described, folder
from mmrl.runs.lanes import check, with_numbers
from mmrl.runs.results import interval
from mmrl.runs.run import built
from mmrl.runs.setup import Setup, describe, restore
from mmrl.runs.training import Training
from mmrl.runs.tuning import CLOSE, Setting, Tried

Grid = Mapping[str, Sequence[Any]]  # of numbers, by the names of settings
SEEDS = (100, 101, 102)
"""Seeds to tune on: not those of `Setup`, because what was chosen on a seed looks better there."""


class Scored(NamedTuple):
    """The returns of a setting; a loss that was no longer finite counts as -∞."""

    setting: Setting
    finals: Float[np.ndarray, " seed"]  # each seed's mean of the last quarter of the evaluations
    final: float  # their mean
    interval: tuple[float, float]  # 95 %, of their interquartile mean
    best: float  # largest mean over seeds of an evaluation
    area: float  # mean of all evaluations


class Verdict(NamedTuple):
    """The winner of a sweep, and how sure that is."""

    winner: Scored
    edges: list[str]  # its numbers that lie on an end of their values: better ones may lie beyond
    equals: list[Scored]  # others that these seeds cannot tell apart from it
    tied: list[Scored]  # others whose scores count as equal, so that the area has decided


class Sweep(Training):
    """Train an agent for every setting and seed, all side by side: iterate, as with a `Run`.

        sweep = Sweep(Setup("popgym-RepeatFirstEasy-v0", seeds=SEEDS),
                      {"learning_rate": (1e-3, 3e-3), "gamma": (0.5, 0.9)}, "runs/rates")
        for report in sweep:            # returns of every lane, the seeds of a setting together
            ...
        sweep.verdict().winner.setting  # {"learning_rate": 0.003, "gamma": 0.5}

    `over` has the values of real-valued settings; all others are the setup's. Never report what an
    agent reaches on the seeds on which it was tuned. A lane whose loss is no longer finite returns
    NaN from then on, and the others go on. `path` and `resume` are as for a `Run`.

    Raises `ValueError` for names and values that cannot be swept, and `RunError` as a `Run` does.
    """

    def __init__(
        self,
        setup: Setup,
        over: Grid,
        path: str | os.PathLike | None = None,
        resume: bool = False,
        devices: int | None = None,
    ):
        self.path = folder(path, resume)
        self.over = _checked(setup, over)
        values = itertools.product(*self.over.values())
        self.settings = [dict(zip(self.over, each, strict=True)) for each in values]
        configs = [dataclasses.replace(setup.config, **setting) for setting in self.settings]
        made = built(setup, share(devices, len(configs) * len(setup.seeds), setup.shards))
        if not (resume and self.path is not None and (self.path / CHECKPOINT).exists()):
            for config in configs:
                check(find(setup.agent), config, made.env, made.params, setup.shards)
        each = [repeatable(config) for config in configs for _ in setup.seeds]
        numbers = {name: [getattr(config, name) for config in each] for name in self.over}
        config = with_numbers(repeatable(setup.config), numbers)
        self._set_up(setup, made, config, setup.seeds * len(self.settings))
        self._start(resume)

    @property
    def description(self) -> dict[str, Any]:
        over = [[name, list(values)] for name, values in self.over.items()]  # in the lanes' order
        return describe(self.setup) | {"over": over}

    def _returns(self, metrics: Any) -> Float[np.ndarray, " lane"]:
        going = np.isfinite(self.history[-1]["returns"]) if self.history else True
        return np.where(metrics.finite & going, metrics.returns.mean(-1), np.nan)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for every lane: its setting, its seed, and its return at every evaluation."""
        return self._rows(self.history)

    def _rows(self, history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        lanes = itertools.product(self.settings, self.setup.seeds)
        return [
            {**setting, "seed": seed, "returns": [row["returns"][lane] for row in history]}
            for lane, (setting, seed) in enumerate(lanes)
        ]

    def _written(self, history: list[dict[str, Any]]) -> dict[str, Any]:
        return {"env_steps": [row["env_steps"] for row in history], "rows": self._rows(history)}

    @property
    def curves(self) -> Float[np.ndarray, "setting seed eval"]:
        """Returns of all evaluations so far; NaN from where a loss was no longer finite."""
        returns = [row["returns"] for row in self.rows]
        return np.array(returns, float).reshape(len(self.settings), len(self.setup.seeds), -1)

    def scores(self) -> list[Scored]:
        """The score of every setting so far. Raises `ValueError` before the first block."""
        curves = self.curves
        if not curves.size:
            raise ValueError("There is nothing to score before the first block: iterate first.")
        finals = np.nan_to_num(tuning.last_quarter(curves).mean(-1), nan=-np.inf)
        means = np.nan_to_num(curves, nan=-np.inf).mean(1).max(-1)
        summed = zip(tuning.final(curves), means, tuning.area(curves), strict=True)
        return [
            Scored(setting, each, float(final), _interval(each), float(best), float(area))
            for setting, each, (final, best, area) in zip(
                self.settings, finals, summed, strict=True
            )
        ]

    def verdict(self) -> Verdict:
        """The best setting so far, by the rule of `mmrl.runs.tuning`.

        The span of returns is that from the worst to the best of all that were measured. Seeds are
        shared, so another setting counts as told apart if the differences to it, seed by seed, have
        a 95 % interval above zero.
        """
        scores, curves = self.scores(), self.curves
        seen = curves[np.isfinite(curves)]
        span = float(np.ptp(seen)) if seen.size else 0.0
        tried = [Tried(one.setting, one.final, one.area) for one in scores]
        close = tuning.equal(tried, CLOSE * span)
        won = tuning.best(close)
        winner = next(one for one in scores if one.setting == won)
        grid = {name: sorted(values) for name, values in self.over.items()}
        others = [one for one in scores if one is not winner and not _apart(winner, one)]
        both = zip(scores, tried, strict=True)
        tied = [one for one, its in both if its in close and one is not winner]
        return Verdict(winner, tuning.ends(won, grid), others, tied)


def saved_sweep(path: str | os.PathLike) -> tuple[Setup, Grid] | None:
    """The setup of the sweep in a folder and the values that it tries, or None.

    Raises `RunError` if it cannot be read, is a run, or has parts that are not of mmrl.
    """
    there = described(expanded(path))
    if there is None:
        return None
    if "over" not in there:
        raise RunError(f"{path} holds a run, not a sweep: go on with `mmrl train --resume`.")
    over = there.pop("over")
    return restore(there), dict(over)


def _interval(finals: Float[np.ndarray, " seed"]) -> tuple[float, float]:
    if not np.isfinite(finals).all():
        return -np.inf, float(finals.max())
    _, low, high = interval(finals)
    return low, high


def _apart(winner: Scored, other: Scored) -> bool:
    """Is the winner better than the other one by more than seeds explain?"""
    if not np.isfinite(other.final):
        return bool(np.isfinite(winner.final))
    return interval(winner.finals - other.finals)[1] > 0


def _checked(setup: Setup, over: Grid) -> dict[str, tuple[float, ...]]:
    """The values to try. Raises `ValueError` unless one program can try all of them."""
    if not over:
        raise ValueError(
            "`over` must name a setting and its values, such as learning_rate; got none."
        )
    return {name: _values(setup, name, values) for name, values in over.items()}


def _values(setup: Setup, name: str, values: Any) -> tuple[float, ...]:
    fields = {field.name: field for field in dataclasses.fields(find(setup.agent).Config)}
    if name not in fields:
        near = difflib.get_close_matches(name, fields, 1)
        advice = f" Try {near[0]}." if near else ""
        raise ValueError(f"`over` must name settings of {setup.agent}; got {name!r}.{advice}")
    if kinds_of(fields[name])[0] is not float:
        raise ValueError(
            f"`over` must name real-valued settings; got {name}, which shapes the program, so that "
            "each of its values is another one. Sweep once for each, in a folder of its own."
        )
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"`over` must have numbers for {name}; got {values!r}.") from None
    different = {float(np.float32(value)) for value in numbers}
    if len(numbers) < 2 or len(different) < len(numbers):
        raise ValueError(
            f"`over` must have at least two values for {name}, all different in 32 bits; got "
            f"{', '.join(f'{number:g}' for number in numbers) or 'none'}."
        )
    return numbers
