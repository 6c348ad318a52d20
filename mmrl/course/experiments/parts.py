"""Rows that jobs write to separate files, and the merge of these files.

A job atomically writes each row to a separate file in the folder `out/<name>.jobs`. The process
that submitted the job, or a call of `merge`, moves the rows to `out/<name>.jsonl`. Only one process
at a time writes to that file.

A cell is locked while it is measured. Another process that needs the same cell waits for the lock,
finds the row and does not measure the cell again. The lock is released if the process is killed.
Every cell is therefore measured once and has one row, even if processes are killed and commands are
repeated.
"""

import pathlib
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mmrl.course.experiments.grid import Grid, Row, Stopwatch, complete
from mmrl.course.experiments.programs import forget_programs
from mmrl.runs import RunError, provenance
from mmrl.runs.checkpoint import dumps, loads
from mmrl.runs.files import replace, write_errors


class Part(NamedTuple):
    """A row that a job wrote."""

    row: Row
    seconds: float  # elapsed time of the measurement
    path: pathlib.Path


def folder(grid: Grid, out: pathlib.Path) -> pathlib.Path:
    """Return the folder to which the jobs of an experiment write their rows and logs."""
    return out / f"{grid.name}.jobs"


def measure(
    grid: Grid, out: pathlib.Path, names: Sequence[str], quick: bool = False
) -> Iterator[str]:
    """Measure the named cells that have no row, write a file per row, and yield summaries.

    Blocks while another process measures one of the cells. Raises `ValueError` for unknown names.
    """
    cells = {cell.name: cell for cell in grid.select(quick)}
    if missing := [name for name in names if name not in cells]:
        raise ValueError(
            f"`unit` must name cells, such as {next(iter(cells))!r}; got {missing[0]!r}."
        )
    with grid.claim(out, names):
        # Read the parts first: a merge in between moves a part to the results file.
        rows = [part.row for part in _parts(grid, out)]
        by_name = grid.read(out, quick)
        by_name |= {grid.cell_of(row): row for row in rows if quick or not row.get("quick")}
        lacking = [cells[name] for name in names if grid.lacks(name, by_name, quick)]
        for together in grid.units(lacking):
            watch = Stopwatch()
            results = grid.measure_together(out, together, by_name, quick)
            shares = watch.shares(len(results))
            seconds = shares["elapsed_s"]
            for row in results:
                whole = complete(row, **shares, **provenance())
                path = folder(grid, out) / f"{_file(grid.cell_of(row))}.json"
                with write_errors(path.parent):
                    path.parent.mkdir(exist_ok=True)
                    replace(path, dumps({"row": whole, "seconds": seconds}).encode())
                yield grid.line_of(row, seconds)
            forget_programs()


def merge(grid: Grid, out: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Move the rows of jobs to the results file, and yield summaries.

    If the results file already has a row of a cell, the row of the job is discarded. You can call
    this function again after a crash, and in several processes at once.
    """
    for one in _parts(grid, out):
        with grid.lock(out):
            part = _read(one.path)  # None if another process has already merged it
            if part is None:
                continue
            name, quick = grid.cell_of(part.row), bool(part.row.get("quick"))
            new = grid.lacks(name, grid.read(out, quick), quick)
            if new:
                grid.write(out, part.row)
            part.path.unlink()
        if new:
            yield name, grid.line_of(part.row, part.seconds)


def merge_messages(grid: Grid, out: pathlib.Path) -> Iterator[str]:
    """Run `merge` and yield its messages. Raises `RunError` if no job was submitted."""
    if not folder(grid, out).exists():
        raise RunError(
            f"`out` must be the results folder for which jobs of {grid.name} were submitted, got "
            f"{out}. Pass that folder with `--out`, or submit jobs with `--submit`."
        )
    lines = [line for _, line in merge(grid, out)]
    yield from lines
    count = f"{len(lines)} new row{'s' * (len(lines) != 1)}" if lines else "Nothing new"
    yield f"{count} for {out / grid.name}.jsonl."


def _parts(grid: Grid, out: pathlib.Path) -> list[Part]:
    """Read the rows that are not yet merged, in the order of the cells."""
    turns = {cell.name: turn for turn, cell in enumerate((*grid.cells, *grid.small))}
    jobs = folder(grid, out)
    if jobs.exists():  # chmod makes a network file system refresh its listing of the folder
        jobs.chmod(jobs.stat().st_mode)
    parts = [_read(path) for path in sorted(jobs.glob("*.json"))]
    return sorted(filter(None, parts), key=lambda part: turns.get(grid.cell_of(part.row), -1))


def _read(path: pathlib.Path) -> Part | None:
    try:
        data = loads(path.read_bytes())
        return Part(dict(data["row"]), float(data["seconds"]), path)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise RunError(
            f"{path} is damaged or was not written by a job. Delete it to measure its cell again."
        ) from None


def _file(name: str) -> str:
    return urllib.parse.quote(name, safe=" ,=")
