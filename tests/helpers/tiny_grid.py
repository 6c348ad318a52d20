"""An experiment with four cells for tests, which runs as `tiny_grid.py experiment tiny`.

When a measurement starts, its cells and process id are appended to the file `started` in the
results folder. The measurement ends when the results folder contains a file `go`.
"""

import dataclasses
import os
import pathlib
import sys
import time
import types
from collections.abc import Sequence
from typing import Any

import mmrl.__main__
from mmrl.course import experiments
from mmrl.course.experiments import cluster
from mmrl.course.experiments.grid import Grid, Row, Rows


@dataclasses.dataclass(frozen=True)
class Cell:
    name: str


CELLS = [Cell(name) for name in ("a1", "a2", "b1", "b2")]


def measure(out: pathlib.Path, together: Sequence[Cell], rows: Rows, quick: bool) -> list[Row]:
    with (out / "started").open("a") as file:
        file.write("".join(f"{cell.name} {os.getpid()}\n" for cell in together))
    while not (out / "go").exists():
        time.sleep(0.02)
    about = {"quick": quick, "cores": sorted(os.sched_getaffinity(0)), "pid": os.getpid()}
    return [{"cell": cell.name, **about, "threads": os.environ.get("NPROC")} for cell in together]


def tiny(out: pathlib.Path, **changes: Any) -> Grid:
    """Return the grid, in which cells with the same first letter are measured together."""
    about = {"program": lambda cell: cell.name[0]} | changes
    return Grid("tiny", CELLS, lambda *x: measure(out, *x), lambda row: "done", **about)


def command(out: pathlib.Path, *words: str) -> list[str]:
    """Return the command that runs `mmrl experiment tiny` in a separate process."""
    return [sys.executable, __file__, "experiment", "tiny", "--out", str(out), *words]


def as_a_program() -> int:
    """Run `mmrl` with the additional experiment `tiny`."""
    out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
    module = types.ModuleType("mmrl.course.experiments.tiny")
    module.GRID = tiny(out)  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    experiments.EXPERIMENTS["tiny"] = module.__name__
    cluster.words = lambda name, out, quick: command(out, *["--quick"] * quick, "--unit")
    return mmrl.__main__.main()


if __name__ == "__main__":
    sys.exit(as_a_program())
