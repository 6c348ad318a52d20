"""No experiment trains on batches that cut the tails of episodes off."""

import dataclasses
from typing import Any

import pytest

from mmrl.agents import dqn
from mmrl.course.ch07_train_it import experiment_batching as batching
from mmrl.course.ch07_train_it import experiment_training_times as training_times
from mmrl.course.ch09_r2d2 import experiment_r2d2 as r2d2
from mmrl.envs import make


def short(cell: Any, experiment: Any) -> None:
    config = dataclasses.replace(cell.config, batch=50)
    experiment.train(cell, config, [1e-3], [0])


@pytest.mark.parametrize("experiment", [batching, r2d2])
def test_a_batch_that_never_reaches_the_tails_is_refused(experiment: Any):
    tapes = [cell for cell in experiment.cells() if cell.name.endswith("tape")]
    for cell in {cell.task: cell for cell in tapes}.values():
        with pytest.raises(ValueError, match="would never learn from"):
            short(cell, experiment)


def test_nor_is_it_timed():
    with pytest.raises(ValueError, match="would never learn from"):
        training_times._steps(training_times._config("lru", batching.TAPE, batch=50))


@pytest.mark.parametrize("quick", [False, True])
def test_every_cell_of_the_grid_may_train(quick: bool):
    """And so may what a quick trial makes of it."""
    tapes = [cell for cell in r2d2.cells() if cell.name.endswith("tape")]
    for cell in [*batching.cells(), *tapes]:
        experiment = r2d2 if cell in tapes else batching
        task = experiment.TASKS[cell.task]
        level, sizes = getattr(task, "level", ""), dict(getattr(task, "sizes", ()))
        env, params = make(f"popgym-{level or cell.task}-v0", **sizes)
        changes = experiment.QUICK if quick else {}
        dqn.check(dataclasses.replace(cell.config, **changes), env, params)
