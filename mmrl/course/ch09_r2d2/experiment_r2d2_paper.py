"""R2D2 with the settings of Kapturowski et al. (2019), except for the sizes of a run.

Sequences have m = 80 steps, of which consecutive ones share 40, targets have n = 5 rewards and the
rescaling h, and γ = 0.997. Episodes have at least 400 steps. A cell is a task, an observation and a
variant. The variants are:

- the strategies of the paper, with a burn-in of l = 40 or 20 steps
- ablations of "stored, burn-in 40", each of which changes one setting
- "no memory": the strategy without memory
- "Ape-X": no memory, and single transitions instead of sequences, as in Horgan et al. (2018)

Cells that observe the Markov state of the task show the gain of a memory where it is not necessary.
The game of MinAtar is fully observed, and has a convolutional encoder. `tuning` chooses the
learning rate of each cell, starting with `RATES`, on seeds that are not reported.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from mmrl.agents import r2d2
from mmrl.course import plain
from mmrl.course.experiments import fleet, tuning
from mmrl.course.experiments.fleet import QUICK, Fleet, FleetResult
from mmrl.course.experiments.grid import Grid, Row, interval_at_rate, one_by_one, settings
from mmrl.runs import program

RATES = (3e-4, 1e-3, 3e-3)  # Adam learning rates to try first
SEEDS = (0, 1, 2, 3, 4, 5)
TUNING_SEEDS = (1000, 1001)
BOTH = "stored, burn-in 40"  # the paper's agent
STRATEGIES: dict[str, dict[str, Any]] = {
    BOTH: {},
    "zero": {"start": "zero", "burn_in": 0},
    "stored": {"burn_in": 0},
    "burn-in 40": {"start": "zero"},
    "stored, burn-in 20": {"burn_in": 20},
    "burn-in 20": {"start": "zero", "burn_in": 20},
}
NO_MEMORY: dict[str, dict[str, Any]] = {
    "no memory": {"memory": "none", "start": "zero", "burn_in": 0},
    "Ape-X": {
        "memory": "none",
        "start": "zero",
        "burn_in": 0,
        "length": 1,
        "overlap": 0,
        "batch": plain.R2D2.batch * plain.R2D2.length,
    },
}
ABLATIONS: dict[str, dict[str, Any]] = {
    "without h": {"rescale": False},
    "normalized rewards": {"rescale": False, "normalize_rewards": True},
    "n = 1": {"n_step": 1},
    "n = 20": {"n_step": 20},
    "η = 0": {"eta": 0.0},
    "η = 1": {"eta": 1.0},
    "no dueling head": {"dueling": False},
    "target period 20": {"target_period": 20},
    "target period 500": {"target_period": 500},
    "uniform sampling": {"alpha": 0.0},
}
VARIANTS = STRATEGIES | NO_MEMORY | ABLATIONS
"""Settings that each variant changes in `CONFIG`."""

# A run has 163 840 steps and 2 560 gradient steps.
CONFIG = dataclasses.replace(
    plain.R2D2, memory="lstm", updates=4, block=40, beta_decay=640.0, encoder="auto"
)


@dataclasses.dataclass(frozen=True)
class Task:
    """A task with at least 400 steps per episode."""

    env: str
    span: float = 2.0  # best return minus worst return
    reward_scale: float = 1.0
    has_state: bool = True  # True: the Markov state can be observed instead
    scale: tuple[tuple[str, float], ...] = ()  # worst and best return, unless `chance` has them


TASKS = {
    "RepeatFirstMedium": Task("popgym-RepeatFirstMedium-v0", reward_scale=100.0),  # 415 steps
    "PositionOnlyCartPoleHard": Task(  # 600 steps
        "popgym-PositionOnlyCartPoleHard-v0", span=1.0, reward_scale=100.0
    ),
    "Breakout": Task(  # up to 1000 steps; the scale is that of `staleness`
        "Breakout-MinAtar", span=5.58, has_state=False, scale=(("worst", 0.42), ("best", 6.0))
    ),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task, what the agent observes, and a variant."""

    task: str
    variant: str
    observe: str = "observation"  # or "state"

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        observe = ", Markov state" if self.observe == "state" else ""
        return f"{self.task}{observe}, {self.variant}"

    @property
    def config(self) -> r2d2.Config:
        """Settings of the cell."""
        scale = TASKS[self.task].reward_scale
        return dataclasses.replace(CONFIG, reward_scale=scale, **VARIANTS[self.variant])


def cells() -> list[Cell]:
    """Return all cells, the most informative first."""
    main = [Cell(task, variant) for task in TASKS for variant in (*STRATEGIES, *NO_MEMORY)]
    twins = [
        Cell(name, variant, "state")
        for name, task in TASKS.items()
        for variant in (BOTH, "no memory")
        if task.has_state
    ]
    return [*main, *twins, *(Cell(task, x) for task in TASKS for x in ABLATIONS)]


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Choose the learning rate of a cell, train its agents, and return their results."""
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))

    def to_row(result: FleetResult) -> Row:
        return {
            "cell": cell.name,
            "task": cell.task,
            "observe": cell.observe,
            "variant": cell.variant,
            "memory": config.memory,
            **dict(TASKS[cell.task].scale),
            **fleet.return_fields(config, result.returns),
            "cpu_seconds": result.cpu_seconds,
            "settings": settings(config),
            "quick": quick,
        }

    going = functools.partial(train, cell, config)
    span = TASKS[cell.task].span
    return tuning.tune(going, to_row, RATES, TUNING_SEEDS, SEEDS, span=span, row=row)


def train(
    cell: Cell, config: r2d2.Config, rates: Sequence[float], seeds: Sequence[int]
) -> FleetResult:
    """Train one agent per rate and seed."""
    return _fleet(cell.task, cell.observe).train(config, {"learning_rate": rates}, seeds)


@functools.lru_cache(4)  # few, because compiled programs use a lot of memory
def _fleet(task: str, observe: str) -> Fleet:
    env, params, *_ = program("r2d2", TASKS[task].env, observe=observe)
    return Fleet(r2d2, env, params)


GRID = Grid(
    "r2d2_paper",
    cells(),
    one_by_one(measure),
    interval_at_rate,
    limit=3600.0,
    about="R2D2 with the paper's sequences on long episodes: strategies, ablations, Ape-X.",
    decides="what stored states and burn-in add at the paper's settings",
    turn=27,
)
