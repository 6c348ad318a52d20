"""Fast and forgetful memory as the code of Morad et al. 2024 has it, and as Eq. 76 prints it.

`FFM` says what they differ in. Each form has its own learning rate on each task, by the rule and
on the tuning seeds of `batching`, and whole episodes on a tape.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

from mmrl.course.experiments import batching
from mmrl.course.experiments.batching import Cell
from mmrl.course.experiments.resuming import resume

TASKS = ("RepeatPreviousPaper", "CountRecallEasy", "RepeatFirstEasy")
FORMS = {"code": (), "printed": (("printed", 1),)}


def cells() -> list[Cell]:
    """The whole grid."""
    return [Cell(task, "ffm", sizes=sizes) for task in TASKS for sizes in FORMS.values()]


def run(out: pathlib.Path, minutes: float, quick: bool) -> Iterator[str]:
    """Train every cell that `out/ffm.jsonl` lacks, while there is time for another."""
    yield from resume("ffm", out, cells(), measure, batching.say, minutes, quick)


def measure(cell: Cell, quick: bool = False) -> dict[str, Any]:
    """A row of `batching`, and which form it is of."""
    (form,) = (name for name, sizes in FORMS.items() if sizes == cell.sizes)
    return {**batching.measure(cell, quick), "form": form}
