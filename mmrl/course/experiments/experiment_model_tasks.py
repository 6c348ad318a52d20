"""Every memory on five tasks, trained with PQN and its default settings.

`experiment_baselines` measures an LRU and a GRU with all agents. This experiment measures the other
memories in the same way, with the agent that takes the least time.
"""

from mmrl.course.experiments import experiment_baselines as baselines
from mmrl.course.experiments.experiment_baselines import MEMORIES, Cell
from mmrl.course.experiments.experiment_failures import TASKS
from mmrl.course.experiments.grid import Grid, in_folder
from mmrl.memory import NAMES

AGENT = "pqn"


def cells() -> list[Cell]:
    """Return all cells, grouped by task."""
    others = [name for name in NAMES if name not in MEMORIES]
    return [Cell(task, AGENT, memory) for task in TASKS for memory in others]


GRID = Grid(
    "model_tasks",
    cells(),
    in_folder(baselines.measure),
    baselines.summarize,
    outdated=lambda row, _: baselines.has_other_settings(row, cells()),
    keeps=True,
    small=(Cell("Catch-bsuite", AGENT, "none"), Cell("popgym-RepeatFirstEasy-v0", AGENT, "window")),
    about="What PQN reaches with each memory and its defaults: five tasks, five seeds.",
    decides="what PQN reaches with each memory",
    turn=32,
)
