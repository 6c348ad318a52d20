"""A tiny experiment, whose rows contain only the name of their cell."""

import dataclasses
from collections.abc import Sequence

from mmrl.course.experiments.grid import Grid, Row, Rows


@dataclasses.dataclass(frozen=True)
class Cell:
    name: str
    size: float = 1.0  # relative amount of computation


def measure(together: Sequence[Cell], rows: Rows, quick: bool) -> list[Row]:
    return [{"cell": cell.name} for cell in together]


def one(*cells: Cell) -> Grid:
    """Return an experiment named `one` with the given cells."""
    return Grid("one", cells, measure, lambda row: "done", cost=lambda cell: cell.size)
