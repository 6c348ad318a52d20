"""Learning from old rollouts: PPO with three proximal policies (Hilton et al. 2022, Figure 1).

A cell is a task, a proximal policy and a staleness S, which is the number of iterations between
playing a rollout and learning from it. "behavior" limits the step from the behavior policy, and
"decoupled" limits the step from θ at the start of the iteration. "recent" also limits the step from
that θ, but weights actions as if that θ had acted, which is biased. Without staleness all three are
equal to PPO. A row contains results at every learning rate that was tried for its cell. The methods
can therefore be compared at the same rate, chosen by the cell without staleness, or each at its own
best rate. `tuning` chooses rates by the area under the curve, on seeds that are not reported.

In the first S iterations no rollout is old enough, so the agent plays but does not learn. Unlike in
the paper's code, these steps are counted. Cells record the area under the curve, which is the mean
normalized return over all evaluations, and the final score, which is the mean over the last quarter
of the evaluations.

Diagnostics are means over gradient steps and seeds. Both divergences are estimates from the sampled
actions. For "recent", the divergence from the behavior policy is 0 at the start of an iteration,
because "recent" replaces the behavior policy with θ.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mmrl.agents import ppo
from mmrl.course.ch11_three_policies.proximal import PAPER, TASKS, Task, agents
from mmrl.course.experiments import tuning
from mmrl.course.experiments.fleet import QUICK, FleetResult, env_steps
from mmrl.course.experiments.grid import Grid, Row, Rows, round_list, settings
from mmrl.runs import interval, provenance

RATES = (2.5e-4, 1e-3, 4e-3)  # Adam learning rates to try first
ALL_RATES = (6.25e-5, *RATES, 1.6e-2, 6.4e-2)
SEEDS = (0, 1, 2, 3, 4)
TUNING_SEEDS = (1000, 1001)
PROXIMAL = ("decoupled", "recent", "behavior")
STALENESS = (4, 16, 48, 1)  # S, iterations


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task, a proximal policy and a staleness."""

    task: str
    proximal: str = "behavior"
    staleness: int = 0

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return f"{self.task}, {self.proximal}, staleness {self.staleness}"

    @property
    def config(self) -> ppo.Config:
        """Settings of the cell."""
        task = TASKS[self.task]
        sizes = {"staleness": self.staleness, "blocks": task.blocks}
        return task.fit(dataclasses.replace(PAPER, proximal=self.proximal, **sizes))


def cells() -> list[Cell]:
    """Return all cells, the most informative first."""
    stale = {task: [Cell(task, p, s) for s in STALENESS for p in PROXIMAL] for task in TASKS}
    first, *rest = TASKS
    some, all_ = 2 * len(PROXIMAL), 3 * len(PROXIMAL)  # cells with S = 4 and 16; cells with S > 1
    return [
        *(Cell(first), *stale[first][:all_]),
        *(cell for task in rest for cell in (Cell(task), *stale[task][:some])),
        *(cell for task in rest for cell in stale[task][some:all_]),
        *stale[first][all_:],
    ]


def measure_all(together: Sequence[Cell], by_name: Rows, quick: bool) -> list[Row]:
    """Measure each cell at its candidate rates and at its task's rate without staleness."""
    return [measure(c, quick, by_name.get(c.name), common_rate(c.task, by_name)) for c in together]


def common_rate(task: str, by_name: Rows) -> list[float]:
    """Return a list with the task's learning rate without staleness, or an empty list."""
    fresh = by_name.get(Cell(task).name)
    return [fresh["learning_rate"]] if fresh else []


def is_stale(row: Row, by_name: Rows) -> bool:
    """Return True if the tuning rule changed, or if the row lacks its task's shared rate."""
    return tuning.is_stale(row) or not set(common_rate(row["task"], by_name)) <= set(row["rates"])


def summarize(row: Row) -> str:
    """Summarize a row: its area at each rate."""
    results = zip(row["rates"], row["interquartile_mean"], row["interval_95"], strict=True)
    return "; ".join(f"{m:.2f} [{low:.2f}, {high:.2f}] at {r:g}" for r, m, (low, high) in results)


def measure(
    cell: Cell,
    quick: bool = False,
    old: Row | None = None,
    more_rates: Sequence[float] = (),
    reported: Sequence[int] = SEEDS,
) -> Row:
    """Train agents of a cell at every rate, including `more_rates`, and return the row.

    `reported` contains the seeds of the results, in addition to `TUNING_SEEDS`. Agents that are
    already in the row `old` are not trained again.
    """
    task = TASKS[cell.task]
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))
    fleet, some = agents("ppo", cell.task), len(TUNING_SEEDS)
    seeds, by_rate = (*TUNING_SEEDS, *reported), _by_rate(old or {"rates": []})

    def train(trying: list[tuning.Setting]) -> np.ndarray:
        curves = []
        for rate in (one["learning_rate"] for one in trying):
            # Train at one rate at a time, because the buffer of old rollouts takes a lot of memory.
            run = fleet.train(config, {"learning_rate": [rate] * len(seeds)}, seeds)
            by_rate[rate] = _results(task, config, run)
            curves.append(task.normalize(run.returns[:some]))
        return np.stack(curves)

    choice = tuning.choose(
        train,
        [{"learning_rate": rate} for rate in sorted({*RATES, *more_rates})],
        {"learning_rate": ALL_RATES},
        score=tuning.area,
        trials=tuning.recall(old or {"tuning": {}}),
    )
    rates = sorted(by_rate)
    about = {
        "cell": cell.name,
        "task": cell.task,
        "memory": config.memory,
        "proximal": cell.proximal,
        "staleness": cell.staleness,
        "tuning_seeds": list(TUNING_SEEDS),
        "seeds": list(reported),
        "worst": task.worst,
        "best": task.best,
        "env_steps": env_steps(config),
        # Steps of the first S iterations, without learning; `env_steps` includes them.
        "filling_steps": config.rollout * config.environments * cell.staleness,
        "settings": settings(config),
        "quick": quick,
    }
    names = by_rate[rates[0]]
    return {
        **(old or about),
        **tuning.record(choice),  # the cell's own best rate
        **({"tuned": provenance()} if old else {}),
        "rates": rates,
        **{
            name: [by_rate[rate][name] for rate in rates] for name in names if name != "diagnostics"
        },
        "diagnostics": {
            name: [by_rate[rate]["diagnostics"][name] for rate in rates]
            for name in names["diagnostics"]
        },
    }


def _results(task: Task, config: ppo.Config, run: FleetResult) -> dict[str, Any]:
    """Return the results of the reported seeds at one learning rate."""
    returns = run.returns[len(TUNING_SEEDS) :]
    areas = task.areas(returns)
    middle, *ends = interval(areas)
    return {
        "interquartile_mean": middle,  # interquartile mean of the areas
        "interval_95": ends,
        "areas": round_list(areas),  # [seed]
        "finals": round_list(task.finals(returns)),
        "returns": round_list(returns),  # [seed, eval]
        "diagnostics": _diagnostics(config, run.metrics.diagnostics),  # [eval]
        "cpu_seconds": run.cpu_seconds[-1],  # per agent
    }


def _by_rate(row: dict[str, Any]) -> dict[float, dict[str, Any]]:
    """Return the results in a row by learning rate, in the format of `_results`."""
    names = ("interquartile_mean", "interval_95", "areas", "finals", "returns", "cpu_seconds")
    return {
        rate: {
            **{name: row[name][k] for name in names},
            "diagnostics": {name: values[k] for name, values in row["diagnostics"].items()},
        }
        for k, rate in enumerate(row["rates"])
    }


def _diagnostics(config: ppo.Config, arrays: ppo.Diagnostics) -> dict[str, list[float]]:
    """Return mean diagnostics over the reported seeds, NaN in blocks without learning."""
    fields = {**arrays.steps._asdict(), "clipped": arrays.steps.clip_fraction}
    fields["explained"] = arrays.explained_variance
    names = ("clipped", "kl_behavior", "kl_proximal", "entropy", "explained")  # as in earlier rows
    filling = -(-config.staleness // config.block)  # blocks
    means = {name: round_list(fields[name][len(TUNING_SEEDS) :].mean(axis=0)) for name in names}
    return {name: [math.nan] * len(x[:filling]) + x[filling:] for name, x in means.items()}


GRID = Grid(
    "staleness",
    cells(),
    measure_all,
    summarize,
    outdated=is_stale,
    after=lambda cell: [Cell(cell.task).name],
    about="PPO that learns from old rollouts, with three proximal policies.",
    decides="which proximal policy tolerates old rollouts",
    turn=10,
)
