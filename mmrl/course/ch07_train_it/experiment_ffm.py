"""Fast and forgetful memory as in the code of Morad et al. 2024, and as printed in Eq. 76.

`FFM` documents the differences. Each form has its own learning rate on each task, chosen by the
rule and on the tuning seeds of `batching`, and trains on whole episodes on a tape.
"""

from mmrl.course.ch07_train_it import experiment_batching as batching
from mmrl.course.ch07_train_it.experiment_batching import Cell
from mmrl.course.experiments.grid import Grid, Row, alone, interval_at_rate

TASKS = ("RepeatPreviousPaper", "CountRecallEasy", "RepeatFirstEasy")
FORMS = {"code": (), "printed": (("printed", 1),)}


def cells() -> list[Cell]:
    """Return all cells."""
    return [Cell(task, "ffm", sizes=sizes) for task in TASKS for sizes in FORMS.values()]


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Return a row of `batching`, with the form of the memory."""
    (form,) = (name for name, sizes in FORMS.items() if sizes == cell.sizes)
    return {**batching.measure(cell, quick), "form": form}


GRID = Grid(
    "ffm",
    cells(),
    alone(measure),
    interval_at_rate,
    about="Fast and forgetful memory as in the code of its paper, and as printed.",
    decides="whether the printed and the published FFM differ",
    turn=16,
)
