"""Comparison of PPO with two memories and without memory, and with shorter rollouts.

A cell is a task, a memory, and a way to learn from rollouts. All cells of a task use the same
number of environment steps and of gradient steps. Each cell has its own learning rate. `tuning`
chooses it, starting with `RATES`, on seeds that are not reported. CPU-seconds are per agent. They
include evaluations, but not compilation.

"carried" is correct PPO: it replays each tape from the actor's state at the start of the tape.
"forgotten" replays it from the zero state, as if an episode began with every rollout.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from mmrl.agents import ppo
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
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag, FlattenObservation

RATES = (3e-4, 1e-3, 3e-3)  # Adam learning rates to try first
SEEDS = (0, 1, 2, 3, 4, 5)
TUNING_SEEDS = (1000, 1001)
SPAN = 2.0  # best return minus worst return, on tasks with a tuned learning rate
MEMORIES = ("lru", "gru", "none")
STARTS = ("carried", "forgotten")
BATCH = 2048  # steps per iteration

POPGYM = dataclasses.replace(
    plain.PPO,
    rollout=64,
    environments=BATCH // 64,
    normalize_rewards=True,
    gamma=0.9,
    max_grad_norm=0.5,
    block=3,
    blocks=12,
)
# These are the settings of purejaxrl/ppo.py, with three differences. We omit the clip and the
# factor ½ of its value loss. We normalize advantages per iteration instead of per minibatch. We
# bootstrap at a truncation, which PureJaxRL treats as a termination.
CART_POLE = dataclasses.replace(
    plain.PPO,
    environments=4,
    rollout=128,
    learning_rate=2.5e-4,
    anneal=1.0,
    adam_eps=1e-5,
    max_grad_norm=0.5,
    value_weight=0.25,
    block=122,
    blocks=8,
)


POLE = "CartPole-v1"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task, a memory, and a way to learn from rollouts."""

    task: str
    memory: str
    rollout: int = 64  # T, steps; ignored for the cart pole
    start: str = "carried"

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return f"{self.task}, {self.memory}, {self.config.rollout} steps {self.start}"

    @property
    def config(self) -> ppo.Config:
        """Settings of the cell."""
        if self.task == POLE:
            return dataclasses.replace(CART_POLE, memory=self.memory)
        shape = {"rollout": self.rollout, "environments": BATCH // self.rollout}
        return dataclasses.replace(POPGYM, memory=self.memory, **shape)


def cells() -> list[Cell]:
    """Return all cells, the most informative first."""
    lag, first = "RepeatPreviousPaper", "RepeatFirstEasy"
    return [
        *(Cell(lag, memory) for memory in MEMORIES),
        *(Cell(lag, "lru", 16, start) for start in STARTS),
        *(Cell(first, memory) for memory in MEMORIES),
        Cell(POLE, "none"),
    ]


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Choose the learning rate of a cell, train its agents, and return their results."""
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))

    def to_row(result: FleetResult) -> Row:
        return {
            "cell": cell.name,
            "task": cell.task,
            "memory": cell.memory,
            "rollout": config.rollout,
            "start": cell.start,
            **fleet.return_fields(config, result.returns),
            "cpu_seconds": result.cpu_seconds,
            "settings": settings(cell.config),
            "quick": quick,
        }

    going = functools.partial(train, cell, config)
    if cell.task != POLE:
        return tuning.tune(going, to_row, RATES, TUNING_SEEDS, SEEDS, span=SPAN, row=row)
    rate = config.learning_rate  # the rate of PureJaxRL
    about = {"learning_rate": rate, "tuning": {}, "tuning_seeds": [], "seeds": list(SEEDS)}
    return {**about, **to_row(going([rate] * len(SEEDS), SEEDS))}


def train(
    cell: Cell, config: ppo.Config, rates: Sequence[float], seeds: Sequence[int]
) -> FleetResult:
    """Train one agent per rate and seed."""
    return _fleet(cell.task, cell.start).train(config, {"learning_rate": rates}, seeds)


@functools.lru_cache(4)  # few, because compiled programs use a lot of memory
def _fleet(task: str, start: str) -> Fleet:
    env, params = make(task if task == POLE else f"popgym-{task}-v0")
    if task != POLE:
        env = BeginFlag(FlattenObservation(env))
    return Fleet(ppo, env, params, None if start == "carried" else forgetful)


def forgetful(
    config: ppo.Config, state: ppo.State, rollout: ppo.Rollout, key: PRNGKeyArray, measure: ppo.Flag
) -> tuple[ppo.State, Any]:
    """Run `ppo.learn` as if the actor had started every rollout from the zero state."""
    fresh = jax.vmap(lambda _: state.net.init())(jnp.arange(config.environments))
    return ppo.learn(config, state, rollout._replace(state=fresh), key, measure)


GRID = Grid(
    "ppo",
    cells(),
    one_by_one(measure),
    interval_at_rate,
    outdated=by_an_earlier_rule,
    about="PPO with two memories, without memory, and with shorter rollouts.",
    decides="what a memory adds to PPO",
    turn=9,
)
