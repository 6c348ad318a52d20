"""Experiments of the course: every number and curve of the book comes from one of these.

A file `experiment_<name>.py`, in this folder or in a chapter's, contains a `GRID`, which
describes the cells and their rows in `out/<name>.jsonl`, each with its provenance. A run skips rows
that the file has, stops before `minutes` are over, and ends with a list of what remains. `quick`
selects sizes that only show that everything runs; such rows contain `"quick": true`.
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
"""The module of each experiment by name, in the order of chapters."""


def run(
    name: str,
    out: pathlib.Path,
    minutes: float = float("inf"),
    quick: bool = False,
    only: str = "",
) -> Iterator[str]:
    """Run an experiment, and yield lines of progress. Raises `ValueError` for an unknown name."""
    for line in load(name).run(out, minutes, quick, only):
        yield line
        forget_programs()


def load(name: str) -> Any:
    """Return the `grid.Grid` of an experiment. Raises `ValueError` for an unknown name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"`name` must be one of {', '.join(EXPERIMENTS)}; got {name!r}.")
    return importlib.import_module(EXPERIMENTS[name]).GRID
