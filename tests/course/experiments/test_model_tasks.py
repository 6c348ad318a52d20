"""The experiment on memories and tasks: its cells complete those of the baselines."""

from mmrl.course.experiments import experiment_baselines as baselines
from mmrl.course.experiments import experiment_model_tasks as model_tasks
from mmrl.memory import NAMES


def test_with_the_baselines_every_memory_is_on_every_task():
    pairs = [
        (cell.task, cell.memory)
        for cell in (*baselines.cells(), *model_tasks.cells())
        if (cell.agent, cell.helped) == ("pqn", False) and cell.task in model_tasks.TASKS
    ]
    assert sorted(pairs) == sorted((task, name) for task in model_tasks.TASKS for name in NAMES)


def test_cells_have_default_settings_except_for_the_memory():
    for cell in model_tasks.cells():
        setup = cell.setup()
        assert setup.config == type(setup.config)(memory=cell.memory)
        assert setup.seeds == baselines.SEEDS
