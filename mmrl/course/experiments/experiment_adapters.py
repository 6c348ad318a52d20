"""PPO with a GRU on a Navix task and on a MinAtar game, both with image observations.

Except for the memory and the length of a run, all settings are the agent's defaults. Each
evaluation plays 32 episodes greedily, and `returns` has shape [seed][evaluation]. `chance` is the
mean return of random actions over 256 episodes. Requires `pip install -e '.[navix]'` in a checkout.
"""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import numpy as np

from mmrl import envs
from mmrl.agents import ppo
from mmrl.checks.tracing import random_policy
from mmrl.course.experiments.experiment_baselines import trained_row
from mmrl.course.experiments.grid import Grid, Row, in_folder
from mmrl.rollout import evaluate
from mmrl.runs import Setup

SEEDS = (0, 1, 2)
EPISODES = 256
STEPS = {"Breakout-MinAtar": 500_000, "navix:Navix-DoorKey-5x5-v0": 500_000}
"""Environment steps of each task, per seed."""
QUICK: dict[str, Any] = {"block": 1, "blocks": 1, "episodes": 2, "width": 8, "environments": 2}
QUICK |= {"minibatches": 1, "rollout": 8}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task on which the agent is trained."""

    task: str

    @property
    def name(self) -> str:
        """A description in words, which identifies the cell in the results."""
        return f"{self.task}, ppo, gru"

    def setup(self, quick: bool = False) -> Setup:
        """Return the `Setup` that trains this cell."""
        config = ppo.Config(memory="gru").for_steps(STEPS[self.task])
        config = dataclasses.replace(config, **QUICK) if quick else config
        return Setup(self.task, config, SEEDS, "ppo")


def chance(task: str, episodes: int) -> float:
    """Estimate the mean return of random actions on a task."""
    env, params = envs.make(task)
    policy, most = random_policy(env, params), params.max_steps_in_episode
    play = functools.partial(evaluate, policy, env, params, (), jax.random.key(0), episodes, most)
    return float(np.mean(jax.jit(play)().returns))


def measure(cell: Cell, quick: bool, folder: pathlib.Path) -> Row:
    """Train the agents of a cell, or resume training, and return the row."""
    random = round(chance(cell.task, 2 if quick else EPISODES), 4)
    return trained_row(cell, cell.setup(quick), quick, folder) | {"chance": random}


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    final = ", ".join(f"{each[-1]:.2f}" for each in row["returns"])
    return f"{final}, chance {row['chance']:.2f}"


GRID = Grid(
    "adapters",
    [Cell(task) for task in STEPS],
    in_folder(measure),
    summarize,
    keeps=True,
    small=[Cell("Breakout-MinAtar")],
    about="PPO with a GRU on a task of navix and on a game of MinAtar.",
    decides="whether PPO learns in environments of other libraries",
    turn=26,
)
