"""Rows in separate files, which jobs write and which are merged into one file.

A job measures some cells into the folder `out/<name>.jobs`. It writes each row to a separate file,
atomically. The process that submitted the job, or `merge`, adds the rows to `out/<name>.jsonl`, one
process at a time. A lock marks a cell that is being measured and is released if the process is
killed; another process that needs the cell waits, finds its row, and does not measure it. So every
cell is measured once and has one line, even if processes are killed and commands repeated.
"""

import pathlib
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mmrl.course.experiments.grid import Grid, Row
from mmrl.course.experiments.programs import forget_programs
from mmrl.runs import RunError, provenance
from mmrl.runs.checkpoint import dumps, loads
from mmrl.runs.files import replace, writing


class Part(NamedTuple):
    """A row that a job wrote."""

    row: Row
    seconds: float  # time to measure the row
    path: pathlib.Path


def folder(grid: Grid, out: pathlib.Path) -> pathlib.Path:
    """Return the folder where the jobs of an experiment write their rows and logs."""
    return out / f"{grid.name}.jobs"


def measure(
    grid: Grid, out: pathlib.Path, names: Sequence[str], quick: bool = False
) -> Iterator[str]:
    """Measure the named cells that have no row yet, each into a file; yield a line for each.

    Waits while another process measures one of them. Raises `ValueError` for unknown names.
    """
    known = {cell.name: cell for cell in grid.chosen(quick)}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"`unit` must name cells, like {next(iter(known))!r}; got {unknown[0]!r}.")
    with grid.claimed(out, names):
        found = grid.read(out, quick)
        written = [part.row for part in _parts(grid, out)]
        found |= {grid.cell_of(row): row for row in written if quick or not row.get("quick")}
        lacking = [known[name] for name in names if grid.lacks(name, found)]
        for together in grid.units(lacking):
            began = time.monotonic()
            measured = grid.measured(out, together, found, quick)
            seconds = (time.monotonic() - began) / len(measured)
            for row in measured:
                whole = row if "date" in row else {**row, **provenance()}
                path = folder(grid, out) / f"{_file(grid.cell_of(row))}.json"
                with writing(path.parent):
                    path.parent.mkdir(exist_ok=True)
                    replace(path, dumps({"row": whole, "seconds": seconds}).encode())
                yield grid.tell(row, seconds)
            forget_programs()


def merge(grid: Grid, out: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Add the rows of jobs to the experiment's file; yield the cell and a line for each new row.

    Rows that the file already has are not added, so a repetition after a kill, or a second process
    at the same time, neither loses nor duplicates a row.
    """
    for one in _parts(grid, out):
        with grid.locked(out):
            part = _read(one.path)  # None if another process has already merged it
            if part is None:
                continue
            name, quick = grid.cell_of(part.row), bool(part.row.get("quick"))
            new = grid.lacks(name, grid.read(out, quick))
            if new:
                grid.write(out, part.row)
            part.path.unlink()
        if new:
            yield name, grid.tell(part.row, part.seconds)


def merged(grid: Grid, out: pathlib.Path) -> Iterator[str]:
    """Run `merge` for a command, and yield its lines. Raises `RunError` if no job was submitted."""
    if not folder(grid, out).exists():
        raise RunError(
            f"`out` must be a folder with rows of jobs of {grid.name}, got {out}. Give the "
            "folder of the results with `--out`, or start jobs with `--submit`."
        )
    lines = [line for _, line in merge(grid, out)]
    yield from lines
    count = f"{len(lines)} new row{'s' * (len(lines) != 1)}" if lines else "Nothing new"
    yield f"{count} for {out / grid.name}.jsonl."


def _parts(grid: Grid, out: pathlib.Path) -> list[Part]:
    """Return the rows that wait to be merged, in the order of the cells."""
    turns = {cell.name: turn for turn, cell in enumerate((*grid.cells, *grid.small))}
    jobs = folder(grid, out)
    if jobs.exists():  # changing a folder makes a network file system show its current contents
        jobs.chmod(jobs.stat().st_mode)
    found = [_read(path) for path in sorted(jobs.glob("*.json"))]
    return sorted(filter(None, found), key=lambda part: turns.get(grid.cell_of(part.row), -1))


def _read(path: pathlib.Path) -> Part | None:
    try:
        told = loads(path.read_bytes())
        return Part(dict(told["row"]), float(told["seconds"]), path)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise RunError(
            f"{path} is damaged, or no job wrote it: remove it, and its cell is measured again."
        ) from None


def _file(name: str) -> str:
    return urllib.parse.quote(name, safe=" ,=")
