"""PPO and PPG with and without an averaged proximal policy.

Reproduces Figures 4 and 18 of Hilton et al. (2022). A cell is a task and one of four algorithms.
All of them use the same sizes and the same number of environment steps. `tuning` chooses the
learning rate of each cell by the area under the curve. It starts from the same values for all
cells, and uses seeds that are not reported. The center of mass of the average is not tuned. As in
the paper, it is the number of minibatches per epoch, in gradient steps. The auxiliary phases of PPG
use the learning rate of its policy phases.

Cells record the area under the curve, which is the mean normalized return over all evaluations, and
the final score, which is the mean over the last quarter of the evaluations. A comparison tests both
over all tasks at once, with tasks as strata, as in Appendix E of the paper.

A surface contains the scores of PPO with an average and a KL penalty, for many centers of mass and
penalty weights. Appendix G of the paper predicts that doubling the weight compensates for
halving the center of mass.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from mmrl.agents import ppo
from mmrl.agents.ppo import ppg
from mmrl.course import plain
from mmrl.course.ch11_three_policies.proximal import PAPER, TASKS, agents
from mmrl.course.experiments import tuning
from mmrl.course.experiments.fleet import QUICK, FleetResult, env_steps
from mmrl.course.experiments.grid import Grid, Row, Rows, interval_at_rate, round_list, settings
from mmrl.course.experiments.stratified import van_elteren
from mmrl.runs import interval
from mmrl.runs.checkpoint import dumps, loads
from mmrl.runs.results import RESAMPLES, interquartile_mean

RATES = (5e-4, 1e-3, 2e-3, 4e-3)  # Adam learning rates to try first
ALL_RATES = (1.25e-4, 2.5e-4, *RATES, 8e-3, 1.6e-2)
TUNING_SEEDS = (1000, 1001)
# The number of seeds equals the number of tuning agents (4 rates × 2 seeds), so that both share
# one compiled program.
SEEDS = (0, 1, 2, 3, 4, 5, 6, 7)

CENTERS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # centers of mass, in gradient steps
WEIGHTS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # β, weights of the KL penalty
GRID_RATE = 4e-3  # high enough for the KL penalty to matter
GRID_SEEDS = (0, 1, 2)

SIZES: dict[str, Any] = {
    "memory": PAPER.memory,
    "normalize_rewards": PAPER.normalize_rewards,
    "environments": PAPER.environments,
    "rollout": PAPER.rollout,
    "minibatches": PAPER.minibatches,
    "prox_center": float(PAPER.minibatches),
    "block": 8,
    "blocks": 16,
}
LONGER = {"Breakout": 2}  # multiplies the number of iterations
# As in the paper, auxiliary minibatches are half as large as policy minibatches.
CONFIGS: dict[str, ppo.Config] = {
    "PPO": dataclasses.replace(plain.PPO, **SIZES, epochs=PAPER.epochs),
    "PPG": dataclasses.replace(plain.PPG, **SIZES, policy_iterations=8, auxiliary_minibatches=64),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task and an algorithm."""

    task: str
    algorithm: str

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return f"{self.task}, {self.algorithm}"

    @property
    def base(self) -> str:
        """Name of the algorithm without the average."""
        return self.algorithm.removesuffix("-EWMA")

    @property
    def config(self) -> ppo.Config:
        """Settings of the cell."""
        proximal = "behavior" if self.algorithm == self.base else "ewma"
        config = dataclasses.replace(CONFIGS[self.base], proximal=proximal)
        config = dataclasses.replace(config, block=config.block * LONGER.get(self.task, 1))
        return TASKS[self.task].fit(config)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Comparison of an algorithm with and without the average, over all tasks."""

    base: str

    @property
    def name(self) -> str:
        """Name in the results."""
        return f"{self.base}-EWMA against {self.base}"


@dataclasses.dataclass(frozen=True)
class Surface:
    """PPO-EWMA with a KL penalty, for many centers of mass and penalty weights."""

    task: str

    @property
    def name(self) -> str:
        """Name in the results."""
        return f"{self.task}, center of mass and weight"

    @property
    def config(self) -> ppo.Config:
        """Settings of the surface."""
        config = dataclasses.replace(CONFIGS["PPO"], objective="kl", proximal="ewma")
        return TASKS[self.task].fit(config)


def cells() -> list[Any]:
    """Return all cells, comparisons and surfaces, in the order in which they run."""
    return [
        cell
        for base in CONFIGS
        for cell in (*(Cell(t, base + e) for t in TASKS for e in ("", "-EWMA")), Comparison(base))
    ] + [Surface("Catch")]


def measure_any(together: Sequence[Any], by_name: Rows, quick: bool) -> list[Row]:
    """Measure a cell, a comparison or a surface."""
    (cell,) = together
    if isinstance(cell, Surface):
        return [measure_surface(cell, quick)]
    if isinstance(cell, Comparison):
        return [compare(cell, by_name, quick)]
    return [measure(cell, quick, by_name.get(cell.name))]


def is_stale(row: Row, by_name: Rows) -> bool:
    """Return True if the tuning rule changed, or if comparing the rows again gives new values."""
    if "z" not in row:
        return tuning.is_stale(row)
    again = compare(Comparison(row["cell"].split("-")[0]), by_name, row["quick"])
    return any(row[name] != value for name, value in loads(dumps(again)).items())


def summarize(row: Row) -> str:
    """Summarize a row in one line."""
    if "z" in row:
        pairs = zip(row["tasks"], row["area_difference"], strict=True)
        return f"z {row['z']['area']:+.2f}; " + ", ".join(f"{t} {d:+.3f}" for t, d in pairs)
    if "centers" in row:
        return f"mean areas from {np.min(row['means']):.2f} to {np.max(row['means']):.2f}"
    return interval_at_rate(row)


def measure(cell: Cell, quick: bool = False, old: Row | None = None) -> Row:
    """Choose the learning rate of a cell, train its agents, and return their results."""
    task, agent, config = TASKS[cell.task], cell.base.lower(), cell.config
    if quick:
        config = dataclasses.replace(config, **QUICK)
        if isinstance(config, ppg.Config):
            config = dataclasses.replace(config, policy_iterations=1, auxiliary_minibatches=8)
    names = ("learning_rate", "auxiliary_rate")[: 1 + (agent == "ppg")]

    def train(rates: Sequence[float], seeds: Sequence[int]) -> FleetResult:
        return agents(agent, cell.task).train(config, dict.fromkeys(names, rates), seeds)

    def to_row(result: FleetResult) -> Row:
        areas = task.areas(result.returns)
        middle, *ends = interval(areas)
        return {
            "cell": cell.name,
            "task": cell.task,
            "memory": config.memory,
            "algorithm": cell.algorithm,
            "worst": task.worst,
            "best": task.best,
            "interquartile_mean": middle,  # interquartile mean of the areas
            "interval_95": ends,
            "areas": round_list(areas),
            "finals": round_list(task.finals(result.returns)),
            "env_steps": env_steps(config),
            "returns": round_list(result.returns),
            "diagnostics": _diagnostics(result.metrics.diagnostics),
            "cpu_seconds": result.cpu_seconds,
            "settings": settings(config),
            "quick": quick,
        }

    rule: dict[str, Any] = {"grid": ALL_RATES, "score": tuning.area, "row": old}
    rule["curves"] = lambda trained: task.normalize(trained.returns)
    row = tuning.tune(train, to_row, RATES, TUNING_SEEDS, SEEDS, **rule)
    return {name: value for name, value in row.items() if name != "rates"}


def _diagnostics(arrays: Any) -> dict[str, list[float]]:
    """Return the mean of each diagnostic over agents, at every evaluation."""
    arrays = arrays.policy if isinstance(arrays, ppg.Diagnostics) else arrays
    fields = {**arrays.steps._asdict(), "clipped": arrays.steps.clip_fraction}
    fields["explained"] = arrays.explained_variance
    names = ("clipped", "kl_behavior", "kl_proximal", "entropy", "explained")  # as in earlier rows
    return {name: round_list(fields[name].mean(axis=0)) for name in names}


def measure_surface(cell: Surface, quick: bool = False) -> dict[str, Any]:
    """Train agents with every center of mass and every weight, at a fixed learning rate."""
    task = TASKS[cell.task]
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))
    fleet = agents("ppo", cell.task)
    pairs = [(center, seed) for center in CENTERS for seed in GRID_SEEDS]
    centers, seeds = zip(*pairs, strict=True)
    numbers = {"learning_rate": [GRID_RATE] * len(pairs), "prox_center": centers}
    runs = [
        fleet.train(config, {**numbers, "kl_weight": [w] * len(pairs)}, seeds)._replace(state=None)
        for w in WEIGHTS
    ]
    returns = np.stack([run.returns for run in runs])
    returns = returns.reshape(len(WEIGHTS), len(CENTERS), len(GRID_SEEDS), -1)
    areas = task.areas(returns)
    return {
        "cell": cell.name,
        "task": cell.task,
        "memory": config.memory,
        "weights": list(WEIGHTS),
        "centers": list(CENTERS),
        "learning_rate": GRID_RATE,
        "seeds": list(GRID_SEEDS),
        "worst": task.worst,
        "best": task.best,
        "means": round_list(areas.mean(axis=-1)),  # mean areas, [weight, center]
        "areas": round_list(areas),  # [weight, center, seed]
        "finals": round_list(task.finals(returns)),
        "cpu_seconds": [run.cpu_seconds[-1] for run in runs],  # per agent, [weight]
        "settings": settings(config),
        "quick": quick,
    }


def compare(cell: Comparison, by_name: Rows, quick: bool = False) -> Row:
    """Return the effect of the average on each task, and a test over all tasks."""
    pairs = [
        (by_name[Cell(task, f"{cell.base}-EWMA").name], by_name[Cell(task, cell.base).name])
        for task in TASKS
    ]
    out: dict[str, Any] = {"cell": cell.name, "tasks": list(TASKS), "z": {}, "p": {}}
    for what in ("area", "final"):
        name = f"{what}s"
        strata = [(np.array(with_[name]), np.array(without[name])) for with_, without in pairs]
        differences = [difference(*stratum) for stratum in strata]
        out[f"{what}_difference"] = [middle for middle, *_ in differences]
        out[f"{what}_interval_95"] = [list(ends) for _, *ends in differences]
        z = van_elteren(strata)
        out["z"][what], out["p"][what] = z, math.erfc(abs(z) / math.sqrt(2))  # two-sided
    return {**out, "seeds": list(SEEDS), "quick": quick}


def difference(
    ours: Float[np.ndarray, " seed"], theirs: Float[np.ndarray, " seed"]
) -> tuple[float, float, float]:
    """Return the difference of interquartile means, and its 95 % bootstrap interval."""
    draw = np.random.default_rng(0).integers
    means = [interquartile_mean(x[draw(x.size, size=(RESAMPLES, x.size))]) for x in (ours, theirs)]
    low, high = np.percentile(means[0] - means[1], (2.5, 97.5))
    middle = interquartile_mean(ours) - interquartile_mean(theirs)
    return float(middle), float(low), float(high)


def after(cell: Any) -> list[str]:
    """Return the names of the cells that a comparison depends on."""
    if not isinstance(cell, Comparison):
        return []
    return [Cell(task, cell.base + end).name for task in TASKS for end in ("", "-EWMA")]


GRID = Grid(
    "ewma",
    cells(),
    measure_any,
    summarize,
    outdated=is_stale,
    after=after,
    about="PPO and PPG with and without an average of θ as proximal policy.",
    decides="what an averaged proximal policy adds to PPO and PPG",
    turn=11,
)
