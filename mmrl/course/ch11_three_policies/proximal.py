"""Tasks and settings of the experiments on proximal policies."""

import dataclasses
import functools
from typing import Any

import numpy as np
from jaxtyping import Float

from mmrl.agents import ppo
from mmrl.course import plain
from mmrl.course.experiments.fleet import Fleet
from mmrl.runs import program
from mmrl.runs.setup import find

PAPER = dataclasses.replace(
    plain.PPO,
    memory="none",
    normalize_rewards=True,
    environments=16,
    rollout=32,
    epochs=3,
    block=12,
    blocks=20,
)
"""Settings of Hilton et al. (2022), except for the sizes and the discount."""


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment, its settings, and the scale of its returns."""

    name: str
    env_id: str
    worst: float  # return of a random policy, normalized to 0
    best: float  # return that is normalized to 1
    memory: str = "none"
    memory_sizes: tuple[tuple[str, int], ...] = ()
    gamma: float = 0.99  # γ, per step
    blocks: int = PAPER.blocks  # evaluations in the staleness experiment

    def fit(self, config: Any) -> Any:
        """Return `config` with the memory and the discount of this task."""
        sizes = {"memory": self.memory, "memory_sizes": self.memory_sizes}
        return dataclasses.replace(config, **sizes, gamma=self.gamma)

    def normalize(self, returns: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
        """Scale returns to 0 for a random policy and 1 for `best`; NaN is also scaled to 0."""
        return (np.nan_to_num(returns, nan=self.worst) - self.worst) / (self.best - self.worst)

    def areas(self, returns: Float[np.ndarray, "*any eval"]) -> Float[np.ndarray, "*any"]:
        """Compute the mean normalized return over training."""
        return self.normalize(returns).mean(axis=-1)

    def finals(self, returns: Float[np.ndarray, "*any eval"]) -> Float[np.ndarray, "*any"]:
        """Compute the mean normalized return of the last quarter of the evaluations."""
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


@functools.lru_cache(4)  # few, because compiled programs use a lot of memory
def agents(name: str, task: str) -> Fleet:
    """Return a fleet that trains agents of type `name` on `task`."""
    setup = TASKS[task]
    observes = () if setup.memory == "none" else ppo.OBSERVES
    env, params, *_ = program("ppo", setup.env_id, observes, flat=True)
    return Fleet(find(name), env, params)
