"""Comparison of DQN on a tape with R2D2, whose improvements are added one at a time.

A cell is a task, a memory and a strategy. R2D2's strategies start replayed sequences from the zero
state or the stored state, with or without a burn-in. The strategy "tape" is DQN on complete
episodes. All cells train for the same number of gradient steps, on about the same number of
transitions per step. Each cell has its own learning rate. `tuning` chooses it, starting with
`RATES`, on seeds that are not reported. A cell also records its cost: the number of transitions it
trained on, without padding, and the CPU-seconds after compilation.

Cells with stored states and a burn-in also record the ΔQ of their trained agents for all four
starts, on the same sequences (see `mmrl.course.instruments`).
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mmrl._dtypes import whole
from mmrl.agents import dqn, r2d2
from mmrl.course import plain
from mmrl.course.experiments import fleet, tuning
from mmrl.course.experiments.fleet import QUICK, Fleet, FleetResult
from mmrl.course.experiments.grid import (
    Grid,
    Row,
    by_an_earlier_rule,
    interval_at_rate,
    one_by_one,
    settings,
)
from mmrl.course.instruments import STARTS, replay_delta_q
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag, PreviousAction, PreviousReward

RATES = (1e-3, 3e-3, 1e-2)  # Adam learning rates to try first
SEEDS = (0, 1, 2, 3, 4, 5)
TUNING_SEEDS = (1000, 1001)
STRATEGIES = {
    "tape": {},
    "zero": {"start": "zero", "burn_in": 0},
    "stored": {"start": "stored", "burn_in": 0},
    "burn_in": {"start": "zero"},
    "stored_burn_in": {"start": "stored"},
}
"""Settings that each strategy changes. "tape" is DQN, and the others are R2D2."""
MEMORIES = ("lru", "lstm")
SPAN = 2.0  # best return minus worst return
SAMPLES = 256  # sequences per seed for ΔQ


@dataclasses.dataclass(frozen=True)
class Task:
    """Settings of a task, shared by all strategies."""

    name: str
    steps: int  # steps in an episode
    length: int
    overlap: int
    burn_in: int
    batch: int  # sequences per batch
    reward_scale: float = 25.0  # as in `batching`, where rewards are ±0.25
    level: str = ""  # name of the environment, if it differs from the task's
    sizes: tuple[tuple[str, int], ...] = ()  # arguments of the environment
    capacity: int = 16_320
    gamma: float = 0.5  # γ, as in `batching`
    blocks: int = 16

    @property
    def transitions(self) -> int:
        """Number of steps in a batch, including padding."""
        return self.batch * self.length


TASKS = {
    task.name: task
    for task in (
        Task("RepeatPreviousPaper", 103, length=10, overlap=5, burn_in=5, batch=50),
        Task("RepeatFirstEasy", 51, length=10, overlap=5, burn_in=5, batch=50),
        Task(
            "RepeatPreviousLong",
            415,
            length=20,
            overlap=10,
            burn_in=10,
            batch=40,
            reward_scale=100.0,
            level="RepeatPreviousPaper",
            sizes=(("num_decks", 8),),
            capacity=32_640,
        ),
    )
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task, a memory and a strategy."""

    task: str
    memory: str
    strategy: str

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return f"{self.task}, {self.memory}, {self.strategy.replace('_', ' ')}"

    @property
    def config(self) -> dqn.Config | r2d2.Config:
        """Settings of the cell."""
        task = TASKS[self.task]
        common: dict[str, Any] = {
            "memory": self.memory,
            "gamma": task.gamma,
            "reward_scale": task.reward_scale,
            "updates": 4,
            "blocks": task.blocks,
        }
        if self.strategy == "tape":
            return dataclasses.replace(
                plain.DQN, **common, batch=task.transitions, capacity=task.capacity
            )
        cut = {"length": task.length, "overlap": task.overlap, "burn_in": task.burn_in}
        own = {**cut, **STRATEGIES[self.strategy]}
        return dataclasses.replace(
            plain.R2D2, **common, **own, batch=task.batch, capacity=task.capacity
        )


def cells() -> list[Cell]:
    """Return all cells, task by task."""
    return [Cell(t, m, s) for t in TASKS for m in MEMORIES for s in STRATEGIES]


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Choose the learning rate of a cell, train its agents, and return their results."""
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))

    def to_row(result: FleetResult) -> Row:
        fill = np.mean(result.metrics.fill, axis=0)  # mean over agents
        steps = np.cumsum(fill) * _window(config) * config.updates * config.block
        return {
            "cell": cell.name,
            "task": cell.task,
            "memory": cell.memory,
            "strategy": cell.strategy,
            **fleet.return_fields(config, result.returns),
            "trained_transitions": steps.round().tolist(),
            "cpu_seconds": result.cpu_seconds,
            "delta_q": _stale(cell, result.state),
            "settings": settings(cell.config),
            "quick": quick,
        }

    going = functools.partial(train, cell, config)
    return tuning.tune(going, to_row, RATES, TUNING_SEEDS, SEEDS, span=SPAN, row=row)


def train(cell: Cell, config: Any, rates: Sequence[float], seeds: Sequence[int]) -> FleetResult:
    """Train one agent per rate and seed."""
    agents = _fleet(cell.task, cell.strategy == "tape")
    return agents.train(config, {"learning_rate": rates}, seeds)


def _window(config: dqn.Config | r2d2.Config) -> int:
    """Return the number of steps in a batch, including padding and burn-in."""
    if isinstance(config, dqn.Config):
        return whole("batch", config.batch)
    return config.batch * config.length


def _stale(cell: Cell, state: Any) -> dict[str, Any] | None:
    """Return the median ΔQ of each agent by start, at the first and the last trained step."""
    if cell.strategy != "stored_burn_in":
        return None
    keys = jax.vmap(jax.random.key)(jnp.arange(len(SEEDS), dtype=jnp.uint32))
    prefix = TASKS[cell.task].steps
    errors = jax.jit(jax.vmap(lambda s, k: replay_delta_q(s, k, SAMPLES, prefix)))(state, keys)

    def medians(values: Array) -> list[list[float]]:
        valid = np.where(np.asarray(errors.valid)[:, None], np.asarray(values), np.nan)
        return np.nanmedian(valid, axis=2).T.tolist() if np.any(errors.valid) else []

    first, last = medians(errors.first), medians(errors.last)
    pairs = zip(STARTS, first, last, strict=True) if first else ()
    return {start: {"first": one, "last": two} for start, one, two in pairs}


@functools.lru_cache(4)  # few, because compiled programs use a lot of memory
def _fleet(name: str, on_tape: bool) -> Fleet:
    task = TASKS[name]
    sizes: dict[str, Any] = dict(task.sizes)
    env, params = make(f"popgym-{task.level or name}-v0", **sizes)
    return Fleet(dqn if on_tape else r2d2, BeginFlag(PreviousReward(PreviousAction(env))), params)


GRID = Grid(
    "r2d2",
    cells(),
    one_by_one(measure),
    interval_at_rate,
    outdated=by_an_earlier_rule,
    about="Zero states, stored states and burn-in against the tape, and how stale states are.",
    decides="what stored states and burn-in add to zero states",
    turn=8,
)
