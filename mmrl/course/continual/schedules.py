"""Orders of tasks, after Rolnick et al. 2019, Section 4.

A schedule lists which task each environment plays at each stage of training: rows are stages,
columns are environments.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

Schedule = Int[np.ndarray, "stage env"]


def separate(task: int, stages: int, environments: int) -> Schedule:
    """Return a schedule of only one task."""
    _check(stages=stages, environments=environments)
    return np.full((stages, environments), task, np.int32)


def simultaneous(tasks: int, stages: int, environments: int) -> Schedule:
    """Return a schedule of all tasks at once: each environment plays one task throughout.

    Raises `ValueError` unless each task has equally many environments.
    """
    _check(tasks=tasks, stages=stages, environments=environments)
    if environments % tasks:
        raise ValueError(
            f"`environments` must be a multiple of `tasks` = {tasks}, because each task gets an "
            f"equal number, got {environments}."
        )
    return np.tile(np.arange(environments, dtype=np.int32) % tasks, (stages, 1))


def sequential(order: Sequence[int], cycles: int, environments: int) -> Schedule:
    """Return a schedule in which all environments play each task of `order`, `cycles` times."""
    _check(cycles=cycles, environments=environments)
    stages = np.tile(np.asarray(order, np.int32), cycles)
    return np.repeat(stages[:, None], environments, axis=1)


def probed(
    order: Sequence[int], cycles: int, environments: int, *, probe: int, position: int
) -> Schedule:
    """Return a `sequential` schedule with a stage of another task after `position` stages."""
    plan = sequential(order, cycles, environments)
    if not 0 <= position <= len(plan):
        raise ValueError(f"`position` must be from 0 to {len(plan)} stages, got {position}.")
    return np.insert(plan, position, np.int32(probe), axis=0)


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1, got {size}.")
