"""Comparison of two forms of FFM: the code of Morad et al. (2024), and Eq. 76 as printed.

The docstring of `FFM` lists the differences. Both forms train on tapes of complete episodes. Each
form has its own learning rate on each task, chosen as in `batching` and on the same tuning seeds.
"""

from mmrl.course.ch07_train_it import experiment_batching as batching
from mmrl.course.ch07_train_it.experiment_batching import Cell
from mmrl.course.experiments.grid import Grid, Row, interval_at_rate, one_by_one

TASKS = ("RepeatPreviousPaper", "CountRecallEasy", "RepeatFirstEasy")
FORMS = {"code": (), "printed": (("use_mlp", 1),)}


def cells() -> list[Cell]:
    """Return all cells."""
    return [Cell(task, "ffm", sizes=sizes) for task in TASKS for sizes in FORMS.values()]


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Return a row of `batching` that also records the form of the memory."""
    (form,) = (name for name, sizes in FORMS.items() if sizes == cell.sizes)
    return {**batching.measure(cell, quick), "form": form}


GRID = Grid(
    "ffm",
    cells(),
    one_by_one(measure),
    interval_at_rate,
    agents=lambda row: 1,  # because `cpu_seconds` is already the total of all agents
    about="Fast and forgetful memory as in the code of its paper, and as printed.",
    decides="whether the printed and the published FFM differ",
    turn=16,
)
