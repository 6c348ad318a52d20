"""Evaluation of memories on held-out tasks, with the same budget for every entry.

An entry is trained by PPO on every held-out task with every reported seed. The hyperparameters, the
other layers of the network and their initial weights are equal for all entries. The score is the
mean return over tasks, with an interval over seeds. `TUNING` contains the tasks and seeds on which
entries may be tuned. These are disjoint from the held-out tasks and the reported seeds.

CPU-seconds count training and evaluation on all tasks and seeds, without compilation. The
first block of a run includes compilation, so its time is estimated from the other blocks.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from mmrl import envs
from mmrl.agents import ppo
from mmrl.course.capstone.gates import WIDTH, Factory
from mmrl.envs.wrappers import StateObservation
from mmrl.nets import ActorCritic
from mmrl.runs import Run, Setup, interval

OBSERVES = ("previous_action", "begin_flag")


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Tasks, seeds and sizes of an evaluation."""

    name: str
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    blocks: int  # number of evaluations, of which the last is scored
    block: int  # iterations per evaluation, each with 16 environments and 128 steps
    episodes: int = 64  # greedy episodes per evaluation
    width: int = WIDTH
    quick: bool = False  # True for a short protocol that only tests the code

    @property
    def config(self) -> ppo.Config:
        """The config of the agent, which is equal for all entries."""
        return ppo.Config(
            width=self.width, block=self.block, blocks=self.blocks, episodes=self.episodes
        )

    @property
    def env_steps(self) -> int:
        """The number of environment steps per task and seed."""
        config = self.config
        return config.environments * config.rollout * self.block * self.blocks


@dataclasses.dataclass(frozen=True)
class Limits:
    """Tasks and seeds on which an entry may be tuned."""

    tasks: tuple[str, ...]
    first_seed: int  # smallest allowed seed; all larger seeds are allowed too


HELD_OUT = (
    "popgym-RepeatPreviousMedium-v0",
    "popgym-MultiarmedBanditEasy-v0",
    "popgym-NoisyPositionOnlyCartPoleMedium-v0",
    "popgym-MineSweeperEasy-v0",
)
TUNING = Limits(
    tasks=(
        "popgym-RepeatPreviousEasy-v0",
        "popgym-RepeatFirstEasy-v0",
        "popgym-PositionOnlyCartPoleEasy-v0",
        "popgym-CountRecallEasy-v0",
    ),
    first_seed=100,
)
FULL = Protocol("full", HELD_OUT, seeds=(0, 1, 2, 3, 4), blocks=12, block=20)
QUICK = Protocol("quick", TUNING.tasks[:1], seeds=(100, 101), blocks=4, block=10, quick=True)
NOTHING = (
    "QUICK LOOK: one tuning task, two tuning seeds and a sixth of the steps. It only "
    "shows that everything runs; its score does not count."
)


def evaluate(
    factory: Factory,
    protocol: Protocol = FULL,
    sees_state: bool = False,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train a memory on all tasks and seeds, and compute its score.

    If `sees_state` is True, the network observes the Markov state of the task instead of the
    observation. It is then an oracle, which does not need a memory.
    """
    if protocol.quick:
        log(NOTHING)
    results = {}
    for task in protocol.tasks:
        results[task] = one = train(factory, protocol, task, sees_state)
        log(f"{task}: {_text(one['returns'])}, {one['cpu_seconds']:.0f} CPU-s")
    return {"tasks": results, **summary(results)}


def train(
    factory: Factory, protocol: Protocol, task: str, sees_state: bool = False
) -> dict[str, Any]:
    """Train a memory on one task, and return its results."""
    env: Any = envs.make(task)[0]
    if sees_state:
        env = StateObservation(env)
    setup = Setup(
        env=env,
        agent="ppo",
        config=protocol.config,
        seeds=protocol.seeds,
        observes=OBSERVES,
        make=functools.partial(network, factory),
    )
    curves, ends = [], [time.process_time()]
    for report in Run(setup):
        curves.append(np.round(np.float64(report.returns), 4).tolist())
        ends.append(time.process_time())
    seconds = np.diff(ends)
    typical = seconds[1:].mean() if len(seconds) > 1 else seconds[0]
    return {
        "returns": curves[-1],
        "course": np.array(curves).T.tolist(),
        "env_steps": protocol.env_steps,
        "cpu_seconds": round(float(typical * len(seconds)), 1),
        "cpu_seconds_of_compiling": round(float(seconds[0] - typical), 1),
    }


def network(
    factory: Factory, config: ppo.Config, env: Any, params: Any, key: PRNGKeyArray
) -> ActorCritic:
    """Return an actor-critic that contains the memory.

    The weights outside of the memory depend only on the key, so they are the same for all memories.
    """
    size, width = math.prod(env.observation_space(params).shape), config.width
    parts, *keys = jax.random.split(key, 3)
    net = ActorCritic.make(
        "frame_stack", size, env.action_space(params).n, width=width, frames=1, key=parts
    )
    memories = [factory(width, width, key=each) for each in keys]
    return eqx.tree_at(lambda net: (net.policy.memory, net.critic.memory), net, memories)


def summary(tasks: dict[str, Any]) -> dict[str, Any]:
    """Compute the score of an entry, its interval and its CPU-seconds from its results."""
    middle, low, high = interval(by_seed(tasks))
    seconds = sum(one["cpu_seconds"] for one in tasks.values())
    return {
        "score": round(middle, 4),
        "interval_95": [round(low, 4), round(high, 4)],
        "cpu_seconds": round(seconds, 1),
    }


def by_seed(tasks: dict[str, Any]) -> Float[np.ndarray, " seed"]:
    """Return the mean return of each seed over all tasks."""
    return np.mean([one["returns"] for one in tasks.values()], axis=0)


def _text(returns: Sequence[float]) -> str:
    middle, low, high = interval(np.array(returns))
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"
