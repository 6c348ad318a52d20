"""Experiments of the course, which produce the numbers and curves in the book.

Each experiment is a module `experiment_<name>.py` with a `GRID`, in this folder or in the folder of
a chapter. The grid describes the cells, whose rows are written to `out/<name>.jsonl` with their
provenance. A run skips cells that already have a row, stops before `minutes` have passed, and
reports how many cells remain. With `quick`, sizes are so small that a run only shows that the code
works, and its rows contain `"quick": true`.
"""

import importlib
import pathlib
from collections.abc import Iterator
from typing import Any

from mmrl.course.experiments.programs import forget_programs

_FILES = sorted(pathlib.Path(__file__).parent.parent.glob("*/experiment_*.py"))
EXPERIMENTS = {
    path.stem.removeprefix("experiment_"): f"mmrl.course.{path.parent.name}.{path.stem}"
    for path in _FILES
}
"""Module of each experiment, keyed by name, in the order of the chapters."""


def run(
    name: str,
    out: pathlib.Path,
    minutes: float = float("inf"),
    quick: bool = False,
    only: str = "",
) -> Iterator[str]:
    """Run an experiment and yield progress messages. Raises `ValueError` for an unknown name."""
    for line in load(name).run(out, minutes, quick, only):
        yield line
        forget_programs()


def load(name: str) -> Any:
    """Return the `grid.Grid` of an experiment. Raises `ValueError` for an unknown name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"`name` must be one of {', '.join(EXPERIMENTS)}; got {name!r}.")
    return importlib.import_module(EXPERIMENTS[name]).GRID
