"""The cells of an experiment as jobs, which run side by side and are merged as they come.

A unit of cells that share a program is a job, `mmrl experiment NAME --unit CELL...`. As many as are
asked for wait or run at a time, and whoever submits them merges what they write. A cell that reads
the rows of others, as one does whose learning rate they chose, waits until those are merged. Who
submits may be killed: its jobs go on, and the same command, or `--merge`, finds what they wrote.
"""

import math
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from mmrl.course.experiments import parts
from mmrl.course.experiments.grid import Grid
from mmrl.runs import RunError

Start = Callable[[Sequence[str], int], Any]  # (cells, place among those that run): a submitit.Job


class Running(NamedTuple):
    """A job, the cells that it measures, and when it was submitted."""

    job: Any
    names: list[str]
    since: float  # seconds of a monotonic clock


def submitted(
    grid: Grid,
    out: pathlib.Path,
    start: Start,
    jobs: int,
    minutes: float = math.inf,
    quick: bool = False,
    only: str = "",
    how: str = "",
    pause: float = 0.2,
) -> Iterator[str]:
    """Measure what `Grid.run` would, in jobs, and merge their rows: the same lines, as they come.

    At most `jobs` wait or run at a time, and none is submitted that would end after `minutes` if it
    took as long as the longest so far. `how` is what the command to go on ends in, and `pause` is
    in seconds. Who leaves this iterator, as Ctrl-C does, cancels all jobs. Raises `RunError` at
    last if a job ended without its rows.
    """
    began, longest = time.monotonic(), 0.0
    running: dict[int, Running] = {}  # by its place
    tried, done, lost = set[str](), set[str](), list[str]()
    grid.chosen(quick, only)
    yield from (line for _, line in parts.merge(grid, out))  # what earlier jobs left
    try:
        while True:
            in_time = time.monotonic() + longest <= began + 60 * minutes
            waiting = ready(grid, out, quick, only, tried) if in_time else []
            for together in waiting[: jobs - len(running)]:
                names = [cell.name for cell in together]
                place = min(set(range(jobs)) - set(running))
                running[place] = Running(start(names, place), names, time.monotonic())
                tried |= set(names)
            if not running:
                break
            ended, new = [], {}
            while not ended and not new:
                time.sleep(pause)
                ended = [place for place, one in running.items() if one.job.done()]
                new = dict(parts.merge(grid, out))
            done |= set(new)
            yield from new.values()
            lacking = {cell.name for cell in grid.lacking(out, quick, only)} - done
            for one in [running.pop(place) for place in ended]:
                longest = max(longest, time.monotonic() - one.since)
                if missing := [name for name in one.names if name in lacking]:
                    lost += missing
                    yield f"{'; '.join(missing)}: not measured, see {one.job.paths.stderr}"
                else:
                    _forget(one.job)
    finally:
        for one in running.values():
            one.job.cancel(check=False)
    yield from grid.ending(out, quick, only, how)
    if lost:
        raise RunError(f"The jobs of {len(lost)} cells ended without their rows: they remain.")


def ready(
    grid: Grid, out: pathlib.Path, quick: bool, only: str = "", tried: set[str] | None = None
) -> list[list[Any]]:
    """The units that may be measured now: none waits for the row of a cell outside of it."""
    lacking = grid.lacking(out, quick, only)
    missing = {cell.name for cell in lacking}
    units = grid.units([cell for cell in lacking if cell.name not in (tried or set())])
    return [
        together
        for together in units
        if not {name for cell in together for name in grid.after(cell)}
        & (missing - {cell.name for cell in together})
    ]


def _forget(job: Any) -> None:
    """Remove what submitit kept of a job that has done its work."""
    for path in job.paths.folder.glob(f"{job.job_id}_*"):
        path.unlink(missing_ok=True)
