"""An experiment of four cells that measures nothing: run this as `mmrl`, with `experiment tiny`.

It says in `started` which cells it begins to measure and in which process, and goes on once there
is a file `go`; both are in the folder of the results.
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


def measure(out: pathlib.Path, together: Sequence[Cell], found: Rows, quick: bool) -> list[Row]:
    with (out / "started").open("a") as file:
        file.write("".join(f"{cell.name} {os.getpid()}\n" for cell in together))
    while not (out / "go").exists():
        time.sleep(0.02)
    about = {"quick": quick, "cores": sorted(os.sched_getaffinity(0)), "pid": os.getpid()}
    return [{"cell": cell.name, **about, "threads": os.environ.get("NPROC")} for cell in together]


def tiny(out: pathlib.Path, **changes: Any) -> Grid:
    """Cells of one letter are measured together."""
    about = {"program": lambda cell: cell.name[0]} | changes
    return Grid("tiny", CELLS, lambda *x: measure(out, *x), lambda row: "done", **about)


def command(out: pathlib.Path, *words: str) -> list[str]:
    """What a process is told, so that it does `mmrl experiment tiny`."""
    return [sys.executable, __file__, "experiment", "tiny", "--out", str(out), *words]


def as_a_program() -> int:
    """Run `mmrl` with one experiment more."""
    out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
    module = types.ModuleType("mmrl.course.experiments.tiny")
    module.GRID = tiny(out)  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    experiments.EXPERIMENTS["tiny"] = module.__name__
    cluster.words = lambda name, out, quick: command(out, *["--quick"] * quick, "--unit")
    return mmrl.__main__.main()


if __name__ == "__main__":
    sys.exit(as_a_program())
