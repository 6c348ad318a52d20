"""The orders to meet tasks in, after Rolnick et al. 2019, Section 4.

A schedule says which task each environment plays at each stage of training: rows are stages,
columns are environments.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

Schedule = Int[np.ndarray, "stage env"]


def separate(task: int, stages: int, environments: int) -> Schedule:
    """A schedule of one task alone."""
    _check(stages=stages, environments=environments)
    return np.full((stages, environments), task, np.int32)


def simultaneous(tasks: int, stages: int, environments: int) -> Schedule:
    """All tasks at once: every environment plays one of them throughout.

    Raises `ValueError` unless each task has as many environments.
    """
    _check(tasks=tasks, stages=stages, environments=environments)
    if environments % tasks:
        raise ValueError(
            f"`environments` must be a multiple of `tasks` = {tasks}, so that each task has as "
            f"many, got {environments}."
        )
    return np.tile(np.arange(environments, dtype=np.int32) % tasks, (stages, 1))


def sequential(order: Sequence[int], cycles: int, environments: int) -> Schedule:
    """All environments play the first task of `order`, then all the next one; `cycles` times."""
    _check(cycles=cycles, environments=environments)
    stages = np.tile(np.asarray(order, np.int32), cycles)
    return np.repeat(stages[:, None], environments, axis=1)


def probed(
    order: Sequence[int], cycles: int, environments: int, *, probe: int, position: int
) -> Schedule:
    """`sequential`, with one more stage, of another task, after `position` stages."""
    plan = sequential(order, cycles, environments)
    if not 0 <= position <= len(plan):
        raise ValueError(f"`position` must be from 0 to {len(plan)} stages, got {position}.")
    return np.insert(plan, position, np.int32(probe), axis=0)


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1, got {size}.")
