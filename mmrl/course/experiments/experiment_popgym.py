"""The POPGym benchmark: PPO with four memories on every task and level in `mmrl.envs.popgym`.

Morad et al. 2023 (arXiv:2303.01859) train PPO three times for each memory and task, and report the
MMER, the maximum over training of the mean episodic return. The mean is over the training episodes
that end within a block of 65 536 steps, which is the paper's batch size; their actions are sampled.
The network also observes the previous action and the begin flag, as in the paper.

Compared with the agent's defaults, `SETTINGS` has twice as many environments and minibatches and
one epoch less, so that a cell takes a few minutes. All other settings are defaults. Cells with 15
million steps, the length in the paper, come last. `mmrl experiment popgym --only 15M` measures only
those.

For 3 million steps, two more cells show how much a memory can gain at most. The agent "none" has no
memory. The agent "state" also has no memory, but observes the Markov state of the task. The
difference between their scores is the observability gap.
"""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mmrl.agents import ppo
from mmrl.agents.common import trainable
from mmrl.course.experiments.experiment_baselines import train
from mmrl.course.experiments.grid import Grid, Row, in_folder, round_list
from mmrl.envs import popgym
from mmrl.envs.base import Ends, never
from mmrl.envs.wrappers import Wrapper
from mmrl.runs import Setup

SEEDS = (0, 1, 2)
MEMORIES = ("lru", "s5", "ffm", "gru")
BOUNDS = ("none", "state")  # no memory, observing the observation or the Markov state
BLOCKS = {"3M": 46, "15M": 229}  # blocks of 65 536 steps
# Tasks that separate the memories most clearly; they are measured first.
FIRST = ("RepeatPrevious", "RepeatFirst", "Autoencode", "MultiarmedBandit")
OBSERVES = ("previous_action", "begin_flag")
SETTINGS: dict[str, Any] = {"environments": 32, "minibatches": 8, "epochs": 3, "block": 16}
QUICK: dict[str, Any] = {"environments": 8, "block": 1, "blocks": 2, "episodes": 4, "width": 8}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A memory on one level of a task."""

    task: str
    level: str
    memory: str  # one of `MEMORIES` or `BOUNDS`
    steps: str = "3M"

    @property
    def name(self) -> str:
        """A description in words, which identifies the cell in the results."""
        return f"{self.task}{self.level}, {self.memory}, {self.steps}"

    def setup(self, quick: bool = False) -> Setup:
        """Return the `Setup` of a run that records the returns of its training episodes."""
        sizes = {**SETTINGS, "blocks": BLOCKS[self.steps]} | (QUICK if quick else {})
        memory = "none" if self.memory in BOUNDS else self.memory
        config = dataclasses.replace(ppo.Config(), memory=memory, **sizes)
        task = popgym.SPECS[f"popgym-{self.task}{self.level}-v0"]()
        env = Tally(task, config.block * config.rollout, config.blocks)
        observe = "state" if self.memory == "state" else Setup.observe
        return Setup(env, config, SEEDS, "ppo", OBSERVES, observe=observe)


def cells() -> list[Cell]:
    """Return all cells, ordered by number of steps, then by level, then by task."""
    tasks = dict.fromkeys((*FIRST, *popgym.LEVELS))
    return [
        Cell(task, level, memory, steps)
        for steps in BLOCKS
        for level in ("Easy", "Medium", "Hard")
        for task in tasks
        for memory in (*MEMORIES, *(BOUNDS if steps == "3M" else ()))
    ]


class TallyState(NamedTuple):
    """The inner state, and the totals over all episodes of an environment."""

    env_state: Any
    clock: Int[Array, ""]  # steps so far
    total: Float[Array, ""]  # return of this episode so far
    returns: Float[Array, " blocks"]  # sum over the episodes that ended during each block
    episodes: Int[Array, " blocks"]  # number of episodes that ended during each block

    @property
    def time(self) -> Any:
        """Steps since the reset, as in every gymnax state."""
        return self.env_state.time


class Tally(Wrapper):
    """Wrapper that sums the undiscounted returns of episodes in each block of training.

    A block is `block` steps of one environment. Steps after the first `blocks` blocks are ignored.
    """

    def __init__(self, env: Any, block: int, blocks: int):
        super().__init__(env)
        self.block, self.blocks = block, blocks

    def inner_state(self, state: Any) -> Any:
        """Return the state of the wrapped environment."""
        return state.env_state

    def after_reset(self, key: PRNGKeyArray, reset: Any, params: Any) -> Any:
        """Start all totals from 0."""
        zeros = jnp.zeros(self.blocks)
        obs, env_state = reset
        counts = zeros.astype(jnp.int32)
        return obs, TallyState(env_state, jnp.int32(0), jnp.float32(0), zeros, counts)

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Any, params: Any
    ) -> Any:
        """Add the reward to the return of the current episode, and advance the clock."""
        obs, env_state, reward, terminated, info = step
        state = before._replace(
            env_state=env_state, clock=before.clock + 1, total=before.total + reward
        )
        return obs, state, reward, terminated, info

    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any, ends: Ends = never
    ) -> Any:
        """Step the environment, and carry the totals into the state after a reset."""
        step, (obs, fresh) = super().step_and_reset(key, state, action, params, ends)
        # If no episode ended, `fresh` is discarded.
        tally, block = step[1], state.clock // self.block
        returns = tally.returns.at[block].add(tally.total)
        episodes = tally.episodes.at[block].add(1)
        return step, (obs, fresh._replace(clock=tally.clock, returns=returns, episodes=episodes))


def measure(cell: Cell, quick: bool, folder: pathlib.Path) -> Row:
    """Train the agents of a cell, or resume training, and return the row."""
    setup = cell.setup(quick)
    run, cpu = train(setup, folder)
    tally = run.state.carries.env_state
    weights = jax.tree.leaves(trainable(run.state.net))
    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        "seeds": list(SEEDS),
        **scores(np.asarray(tally.returns), np.asarray(tally.episodes)),
        "greedy": round_list(run.history[-1]["returns"]),
        "env_steps": run.history[-1]["env_steps"],
        "parameters": sum(x.size for x in weights) // len(SEEDS),
        "cpu_seconds": cpu and cpu[-1],
        "settings": dataclasses.asdict(setup.config),
        "quick": quick,
    }


def scores(
    returns: Float[np.ndarray, "seed env block"], episodes: Int[np.ndarray, "seed env block"]
) -> Row:
    """Compute the MMER of each trial and the mean return of each block.

    The return of a block in which no episode ended is None.
    """
    counts = episodes.sum(1)
    means = np.where(counts, returns.sum(1) / np.maximum(counts, 1), np.nan)
    trials = np.nanmax(means, axis=1)
    table = [[None if np.isnan(x) else x for x in one] for one in np.round(means, 4).tolist()]
    about = {"mmer": round(float(trials.mean()), 4), "trials": round_list(trials), "returns": table}
    return {**about, "least_episodes": int(counts.min())}


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    return f"{row['mmer']:.3f}, of {row['trials']}; greedily {row['greedy']} at last"


GRID = Grid(
    "popgym",
    cells(),
    in_folder(measure),
    summarize,
    keeps=True,
    small=cells()[:1],
    about="The POPGym table: its tasks and levels, PPO with four memories, three trials each.",
    decides="which memory solves which task of POPGym",
    turn=6,
)
