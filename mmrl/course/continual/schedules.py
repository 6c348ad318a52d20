"""Schedules of tasks, after Rolnick et al. 2019, Section 4.

A schedule is an array [stage, environment] with the index of the task that each environment plays
in each stage of training.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

Schedule = Int[np.ndarray, "stage env"]


def separate(task: int, stages: int, environments: int) -> Schedule:
    """Return a schedule for training on a single task."""
    _check(stages=stages, environments=environments)
    return np.full((stages, environments), task, np.int32)


def simultaneous(tasks: int, stages: int, environments: int) -> Schedule:
    """Return a schedule that trains on all tasks at once.

    Each environment plays the same task throughout. Raises `ValueError` unless `environments` is a
    multiple of `tasks`.
    """
    _check(tasks=tasks, stages=stages, environments=environments)
    if environments % tasks:
        raise ValueError(
            f"`environments` must be a multiple of `tasks` = {tasks}, so that every task gets the "
            f"same number of environments, got {environments}."
        )
    return np.tile(np.arange(environments, dtype=np.int32) % tasks, (stages, 1))


def sequential(order: Sequence[int], cycles: int, environments: int) -> Schedule:
    """Return a schedule that repeats the stages of `order`, with one task per stage."""
    _check(cycles=cycles, environments=environments)
    stages = np.tile(np.asarray(order, np.int32), cycles)
    return np.repeat(stages[:, None], environments, axis=1)


def with_probe(
    order: Sequence[int], cycles: int, environments: int, *, probe: int, position: int
) -> Schedule:
    """Return a `sequential` schedule with one stage of the task `probe` after `position` stages."""
    plan = sequential(order, cycles, environments)
    if not 0 <= position <= len(plan):
        raise ValueError(
            f"`position` must be between 0 and {len(plan)}, the number of stages; got {position}."
        )
    return np.insert(plan, position, np.int32(probe), axis=0)


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1, got {size}.")
