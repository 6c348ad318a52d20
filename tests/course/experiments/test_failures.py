"""The experiment on failures: its cells and seeds, and its counts against a plain loop."""

import dataclasses

import numpy as np

from mmrl.course.experiments import experiment_baselines as baselines
from mmrl.course.experiments import experiment_failures as failures


def test_cells_differ_from_the_baselines_only_in_seeds():
    by_name = {cell.name: cell for cell in baselines.cells()}
    assert len(failures.cells()) == 60
    for cell in failures.cells():
        setup, other = cell.setup(), by_name[cell.name].setup()
        assert dataclasses.replace(setup, seeds=other.seeds) == other
    assert len(set(failures.SEEDS)) == 20
    assert not {*failures.SEEDS} & {*baselines.SEEDS, *range(100, 110)}


def test_every_seed_succeeds_falls_or_never_learns():
    task = "popgym-RepeatFirstEasy-v0"  # worst -1, learned at .9
    curves = {
        "success": [[0.0, 0.95, 1.0], [-0.5, 0.9, 0.9], [0.0, 1.0, 0.91]],
        "fell": [[0.0, 1.0, 0.89], [0.95, -0.5, 0.0]],
        "never": [[-0.5, -0.4, -0.4], [0.0, 0.5, 0.89]],
    }
    returns = np.array([curve for each in curves.values() for curve in each])
    counts = failures.counts(task, returns)
    assert counts == {"learned_and_stayed": 3, "failures": 4, "fell": 2, "never_learned": 2}


def test_a_seed_that_learned_may_still_fall_by_more_than_a_twentieth():
    counts = failures.counts("CartPole-v1", np.array([[500.0, 475.0], [500.0, 474.9]]))
    assert (counts["learned_and_stayed"], counts["fell"]) == (1, 1)


def test_rows_of_other_settings_are_outdated():
    cell = failures.GRID.small[0]
    for quick in (False, True):
        config = cell.setup(quick).config
        settings = dataclasses.asdict(config)
        row = {"cell": cell.name, "quick": quick, "settings": settings}
        assert not failures.GRID.outdated(row, {})
        assert not failures.GRID.outdated({**row, "settings": {"horizon": 0, "gone": 1}}, {})
        other = settings | {"learning_rate": 2 * config.learning_rate}
        assert failures.GRID.outdated({**row, "settings": other}, {})
    assert failures.GRID.lacks(cell.name, {}, quick=False)
