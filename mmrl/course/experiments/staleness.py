"""Learning from old rollouts: PPO with three proximal policies.  Hilton et al. 2022, Figure 1.

A cell is a task, a proximal policy and a staleness S: every rollout waits for S iterations before
it is learned from. "behavior" limits the step from who acted; "decoupled" from θ as the iteration
begins; "recent" too, but also weighs actions as if that θ had acted, which is biased. Without
staleness the three are one, PPO. Every cell has agents at all rates that it tries, so that the
methods can be compared at one learning rate, that of the cell without staleness, and each at its
own best one; rates are chosen by the rule of `tuning`, by area, on seeds that are not among the
reported ones.

The S iterations in which nothing has waited long enough are played but not learned from; their
steps count, unlike in the paper's code. What is measured is the area under the curve of normalized
returns, that is their mean over all evaluations, and the last quarter of the evaluations.

Diagnostics are means over gradient steps and seeds. Both divergences are estimated from the actions
that were taken. That of "recent" to behavior is 0 when an iteration begins, since it takes θ for
who acted.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from mmrl.agents import ppo
from mmrl.course.experiments import tuning
from mmrl.course.experiments.ppo import QUICK, Fleet, Trained, side_by_side
from mmrl.course.experiments.resuming import read, resume
from mmrl.runs import interval, program, provenance
from mmrl.runs.setup import find

RATES = (2.5e-4, 1e-3, 4e-3)  # of Adam, the first that are tried
ALL_RATES = (6.25e-5, *RATES, 1.6e-2, 6.4e-2)
SEEDS = (0, 1, 2, 3, 4)
TUNING_SEEDS = (1000, 1001)
PROXIMAL = ("decoupled", "recent", "behavior")
STALENESS = (4, 16, 48, 1)  # S, iterations

PAPER = ppo.Config(
    memory="none",
    normalize_rewards=True,
    environments=16,
    rollout=32,
    epochs=3,
    block=12,
    blocks=20,
)
"""Its settings, but for sizes and the discount."""


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment and what it asks of an agent."""

    name: str
    env_id: str
    worst: float  # return of a random policy, which counts as 0
    best: float  # return that counts as 1
    memory: str = "none"
    memory_sizes: tuple[tuple[str, int], ...] = ()
    gamma: float = 0.99  # γ, per step
    blocks: int = PAPER.blocks  # evaluations of PPO from old rollouts

    def fit(self, config: Any) -> Any:
        """The config for this task."""
        sizes = {"memory": self.memory, "memory_sizes": self.memory_sizes}
        return dataclasses.replace(config, **sizes, gamma=self.gamma)

    def normalized(self, returns: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
        """0 for a random policy's; an agent whose loss diverged counts as that."""
        return (np.nan_to_num(returns, nan=self.worst) - self.worst) / (self.best - self.worst)

    def areas(self, returns: Float[np.ndarray, "*any eval"]) -> Float[np.ndarray, "*any"]:
        """Mean normalized return over training."""
        return self.normalized(returns).mean(axis=-1)

    def finals(self, returns: Float[np.ndarray, "*any eval"]) -> Float[np.ndarray, "*any"]:
        """Mean normalized return of the last quarter of the evaluations."""
        return self.areas(returns[..., -max(returns.shape[-1] // 4, 1) :])


TASKS = {
    task.name: task
    for task in (
        Task("Catch", "Catch-bsuite", -0.6, 1.0),
        Task(
            "RepeatPreviousEasy",
            "popgym-RepeatPreviousEasy-v0",
            -0.5,
            1.0,
            memory="lru",
            memory_sizes=(("state_size", 32),),
            gamma=0.9,
            blocks=10,
        ),
        Task("Breakout", "Breakout-MinAtar", 0.42, 6.0),
    )
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One entry of the grid."""

    task: str
    proximal: str = "behavior"
    staleness: int = 0

    @property
    def name(self) -> str:
        """Says it in words; what a finished cell is known by."""
        return f"{self.task}, {self.proximal}, staleness {self.staleness}"

    @property
    def config(self) -> ppo.Config:
        task = TASKS[self.task]
        sizes = {"staleness": self.staleness, "blocks": task.blocks}
        return task.fit(dataclasses.replace(PAPER, proximal=self.proximal, **sizes))


def cells() -> list[Cell]:
    """The whole grid, the most telling cells first."""
    stale = {task: [Cell(task, p, s) for s in STALENESS for p in PROXIMAL] for task in TASKS}
    first, *rest = TASKS
    some, all_ = 2 * len(PROXIMAL), 3 * len(PROXIMAL)  # the smaller stalenesses; all but 1
    return [
        *(Cell(first), *stale[first][:all_]),
        *(cell for task in rest for cell in (Cell(task), *stale[task][:some])),
        *(cell for task in rest for cell in stale[task][some:all_]),
        *stale[first][all_:],
    ]


def run(out: pathlib.Path, minutes: float, quick: bool) -> Iterator[str]:
    """Train every cell that `out/staleness.jsonl` lacks, while there is time for another."""

    def shared(task: str) -> list[float]:
        fresh = read(out / "staleness.jsonl").get(Cell(task).name)
        return [fresh["learning_rate"]] if fresh else []

    def measured(cell: Cell, quick: bool, old: dict[str, Any] | None = None) -> dict[str, Any]:
        return measure(cell, quick, old, shared(cell.task))

    def outdated(row: dict[str, Any]) -> bool:
        return tuning.outdated(row) or not set(shared(row["task"])) <= set(row["rates"])

    yield from resume("staleness", out, cells(), measured, _say, minutes, quick, outdated)


def _say(row: dict[str, Any]) -> str:
    found = zip(row["rates"], row["interquartile_mean"], row["interval_95"], strict=True)
    return "; ".join(f"{m:.2f} [{low:.2f}, {high:.2f}] at {r:g}" for r, m, (low, high) in found)


def measure(
    cell: Cell,
    quick: bool = False,
    old: dict[str, Any] | None = None,
    shared: Sequence[float] = (),
) -> dict[str, Any]:
    """Train a cell's agents at every rate, `shared` ones too, and say what they reached.

    The agents of an `old` row of it are not trained again.
    """
    task = TASKS[cell.task]
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))
    fleet, some = Fleet(config, *compiled("ppo", cell.task)), len(TUNING_SEEDS)
    seeds, told = (*TUNING_SEEDS, *SEEDS), _told(old or {"rates": []})

    def train(trying: list[tuning.Setting]) -> np.ndarray:
        # One rate at a time: a ring of rollouts takes memory.
        rates = [one["learning_rate"] for one in trying]
        runs = [fleet.train({"learning_rate": [rate] * len(seeds)}, seeds) for rate in rates]
        told.update(zip(rates, (_tell(task, config, run) for run in runs), strict=True))
        return np.stack([task.normalized(run.returns[:some]) for run in runs])

    chosen = tuning.choose(
        train,
        [{"learning_rate": rate} for rate in sorted({*RATES, *shared})],
        {"learning_rate": ALL_RATES},
        score=tuning.area,
        known=tuning.recall(old or {"tuning": {}}),
    )
    rates = sorted(told)
    steps = config.rollout * config.environments
    about = {
        "cell": cell.name,
        "task": cell.task,
        "memory": config.memory,
        "proximal": cell.proximal,
        "staleness": cell.staleness,
        "tuning_seeds": list(TUNING_SEEDS),
        "seeds": list(SEEDS),
        "worst": task.worst,
        "best": task.best,
        "env_steps": [steps * config.block * (i + 1) for i in range(config.blocks)],
        "filling_steps": steps * cell.staleness,  # of them; played but not learned from
        "settings": settings(config),
        "quick": quick,
    }
    names = told[rates[0]]
    return {
        **(old or about),
        **tuning.record(chosen),  # its own best
        **({"tuned": provenance()} if old else {}),
        "rates": rates,
        **{name: [told[rate][name] for rate in rates] for name in names if name != "diagnostics"},
        "diagnostics": {
            name: [told[rate]["diagnostics"][name] for rate in rates]
            for name in names["diagnostics"]
        },
    }


def _tell(task: Task, config: ppo.Config, run: Trained) -> dict[str, Any]:
    """What the agents of the reported seeds reached at a rate."""
    returns = run.returns[len(TUNING_SEEDS) :]
    areas = task.areas(returns)
    middle, *ends = interval(areas)
    return {
        "interquartile_mean": middle,  # of areas
        "interval_95": ends,
        "areas": rounded(areas),  # [seed]
        "finals": rounded(task.finals(returns)),
        "returns": rounded(returns),  # [seed, eval]
        "diagnostics": _diagnostics(config, run.diagnostics),  # [eval]
        "cpu_seconds": run.cpu_seconds[-1],  # per agent
    }


def _told(row: dict[str, Any]) -> dict[float, dict[str, Any]]:
    """What a row says of the agents at each of its rates, as `_tell` does."""
    names = ("interquartile_mean", "interval_95", "areas", "finals", "returns", "cpu_seconds")
    return {
        rate: {
            **{name: row[name][k] for name in names},
            "diagnostics": {name: values[k] for name, values in row["diagnostics"].items()},
        }
        for k, rate in enumerate(row["rates"])
    }


def _diagnostics(config: ppo.Config, found: ppo.Diagnostics) -> dict[str, list[float]]:
    """Means over the reported seeds; none of blocks in which nothing had waited long enough."""
    named = {**found.steps._asdict(), "explained": found.explained}
    names = ("clipped", "kl_behavior", "kl_proximal", "entropy", "explained")
    filling = -(-config.staleness // config.block)  # blocks
    means = {name: rounded(named[name][len(TUNING_SEEDS) :].mean(axis=0)) for name in names}
    return {name: [math.nan] * len(x[:filling]) + x[filling:] for name, x in means.items()}


def settings(config: ppo.Config) -> dict[str, Any]:
    """All of a configuration but the learning rate."""
    named = dataclasses.asdict(config)
    return {name: value for name, value in named.items() if name != "learning_rate"}


def rounded(values: Any) -> list[Any]:
    """As lists, with 4 decimals."""
    return np.round(np.asarray(values, float), 4).tolist()


@functools.cache
def compiled(agent: str, task: str):
    """`init` and `block` of many agents that differ in key and in numbers of their `Config`."""
    found = TASKS[task]
    env, params, *_ = program("ppo", found.env_id, False, found.memory != "none")
    return side_by_side(find(agent), env, params)
