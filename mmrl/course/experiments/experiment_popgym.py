"""The POPGym table: every task and level that we have, four memories, and the benchmark's score.

Morad et al. 2023 (arXiv:2303.01859) train PPO, three times for each memory and task, and report the
MMER: the maximum over training of the mean episodic return, here of the episodes that ended within
a block of 65 536 steps, which is their batch. Those are the training's own episodes, of sampled
actions. A network sees the previous action and the begin flag, as theirs do.

`SETTINGS` have twice the batch of the agent's default, in as many more minibatches, and one pass
less, so that a cell takes some minutes; all else is the default. Cells of 15 million steps, as many
as in the paper, come last: `mmrl experiment popgym --only 15M` measures those alone.
"""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mmrl.agents import ppo
from mmrl.agents.common import trained
from mmrl.course.experiments.experiment_baselines import train
from mmrl.course.experiments.grid import Grid, Row, kept, rounded
from mmrl.envs import popgym
from mmrl.envs.wrappers import Wrapper
from mmrl.runs import Setup

SEEDS = (0, 1, 2)
MEMORIES = ("lru", "s5", "ffm", "gru")
BLOCKS = {"3M": 46, "15M": 229}  # of 65 536 steps
FIRST = ("RepeatPrevious", "RepeatFirst", "Autoencode", "MultiarmedBandit")  # tell memories apart
OBSERVES = ("previous_action", "begin_flag")
SETTINGS: dict[str, Any] = {"environments": 32, "minibatches": 8, "epochs": 3, "block": 16}
QUICK: dict[str, Any] = {"environments": 8, "block": 1, "blocks": 2, "episodes": 4, "width": 8}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One memory on one level of a task."""

    task: str
    level: str
    memory: str
    steps: str = "3M"

    @property
    def name(self) -> str:
        """Says it in words; what a finished cell is known by."""
        return f"{self.task}{self.level}, {self.memory}, {self.steps}"

    def setup(self, quick: bool = False) -> Setup:
        """A run that keeps account of its own episodes."""
        sizes = {**SETTINGS, "blocks": BLOCKS[self.steps]} | (QUICK if quick else {})
        config = dataclasses.replace(ppo.Config(), memory=self.memory, **sizes)
        task = popgym.SPECS[f"popgym-{self.task}{self.level}-v0"]()
        env = Tally(task, config.block * config.rollout, config.blocks)
        return Setup(env=env, agent="ppo", config=config, seeds=SEEDS, observes=OBSERVES)


def cells() -> list[Cell]:
    """The whole grid: 3 million steps first, then level by level, then task by task."""
    tasks = dict.fromkeys((*FIRST, *popgym.LEVELS))
    return [
        Cell(task, level, memory, steps)
        for steps in BLOCKS
        for level in ("Easy", "Medium", "Hard")
        for task in tasks
        for memory in MEMORIES
    ]


class Tallied(NamedTuple):
    """The inner state, and an environment's account of all its episodes so far."""

    env_state: Any
    clock: Int[Array, ""]  # steps in all
    total: Float[Array, ""]  # return of this episode so far
    returns: Float[Array, " blocks"]  # sum over the episodes that ended in a block
    episodes: Int[Array, " blocks"]  # how many those were

    @property
    def time(self) -> Any:
        """Steps since the reset, as every gymnax state has it."""
        return self.env_state.time


class Tally(Wrapper):
    """Keeps, over all resets, what its episodes returned: undiscounted, summed block by block.

    A block is `block` steps of this environment. What lasts longer than `blocks` is not counted.
    """

    def __init__(self, env: Any, block: int, blocks: int):
        super().__init__(env)
        self.block, self.blocks = block, blocks

    def inner_state(self, state: Any) -> Any:
        return state.env_state

    def after_reset(self, key: PRNGKeyArray, reset: Any, params: Any) -> Any:
        zeros = jnp.zeros(self.blocks)
        obs, env_state = reset
        counts = zeros.astype(jnp.int32)
        return obs, Tallied(env_state, jnp.int32(0), jnp.float32(0), zeros, counts)

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Any, params: Any
    ) -> Any:
        obs, env_state, reward, terminated, info = step
        state = before._replace(
            env_state=env_state, clock=before.clock + 1, total=before.total + reward
        )
        return obs, state, reward, terminated, info

    def step_and_reset(self, key: PRNGKeyArray, state: Any, action: Any, params: Any) -> Any:
        step, (obs, fresh) = super().step_and_reset(key, state, action, params)
        ended, block = step[1], state.clock // self.block  # if it did not, nobody takes `fresh`
        returns = ended.returns.at[block].add(ended.total)
        episodes = ended.episodes.at[block].add(1)
        return step, (obs, fresh._replace(clock=ended.clock, returns=returns, episodes=episodes))


def measure(cell: Cell, quick: bool, folder: pathlib.Path) -> Row:
    """Train a cell's agents in a folder of their own, from where they were left, and tell of it."""
    setup = cell.setup(quick)
    run, cpu = train(setup, folder)
    tallied = run.state.carries.env_state
    weights = jax.tree.leaves(trained(run.state.net))
    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        "seeds": list(SEEDS),
        **scores(np.asarray(tallied.returns), np.asarray(tallied.episodes)),
        "greedy": rounded(run.history[-1]["returns"]),
        "env_steps": run.history[-1]["env_steps"],
        "parameters": sum(x.size for x in weights) // len(SEEDS),
        "cpu_seconds": cpu and cpu[-1],
        "settings": dataclasses.asdict(setup.config),
        "quick": quick,
    }


def scores(
    returns: Float[np.ndarray, "seed env block"], episodes: Int[np.ndarray, "seed env block"]
) -> Row:
    """The MMER of each trial and their mean, and the mean episodic returns that they are of.

    A block in which no episode ended has no return.
    """
    ended = episodes.sum(1)
    means = np.where(ended, returns.sum(1) / np.maximum(ended, 1), np.nan)
    trials = np.nanmax(means, axis=1)
    told = [[None if np.isnan(x) else x for x in one] for one in np.round(means, 4).tolist()]
    about = {"mmer": round(float(trials.mean()), 4), "trials": rounded(trials), "returns": told}
    return {**about, "least_episodes": int(ended.min())}


def say(row: Row) -> str:
    """A row in a few words."""
    return f"{row['mmer']:.3f}, of {row['trials']}; greedily {row['greedy']} at last"


GRID = Grid(
    "popgym",
    cells(),
    kept(measure),
    say,
    keeps=True,
    small=cells()[:1],
    about="The POPGym table: its tasks and levels, PPO with four memories, three trials each.",
    decides="which memory solves which task of POPGym",
    turn=6,
)
