"""Run the cells of an experiment as parallel jobs, and merge their rows as they arrive.

A unit of cells that share a program is a job, `mmrl experiment NAME --unit CELL...`. At most the
requested number of jobs waits or runs at a time, and the submitting process merges their rows. A
cell that reads the rows of others, for example because they chose its learning rate, waits until
those are merged. The submitting process may be killed: its jobs continue, and the same command, or
`--merge`, finds their rows.
"""

import math
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from mmrl.course.experiments import parts
from mmrl.course.experiments.grid import Grid
from mmrl.runs import RunError

Start = Callable[[Sequence[str], int], Any]  # (cells, place among the running jobs) -> submitit.Job


class Running(NamedTuple):
    """A job, the cells that it measures, and the time of its submission."""

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
    """Measure the cells of `Grid.run` in jobs, and merge their rows; yield the same lines.

    At most `jobs` wait or run at a time, and no job is submitted that would end after `minutes` if
    it took as long as the longest so far. `how` ends the command that continues, and `pause` is in
    seconds. Closing this iterator, as Ctrl-C does, cancels all jobs. Raises `RunError` at the end
    if a job ended without its rows.
    """
    began, longest = time.monotonic(), 0.0
    running: dict[int, Running] = {}  # running jobs by place
    tried, done, lost = set[str](), set[str](), list[str]()
    grid.chosen(quick, only)
    yield from (line for _, line in parts.merge(grid, out))  # rows of earlier jobs
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
    """Return the units that may be measured now, because no cell waits for another unit's row."""
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
    """Remove the files that submitit keeps for a finished job."""
    for path in job.paths.folder.glob(f"{job.job_id}_*"):
        path.unlink(missing_ok=True)
