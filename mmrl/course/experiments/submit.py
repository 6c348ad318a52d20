"""Run the cells of an experiment as parallel jobs, and merge their rows as they arrive.

Cells that share a program form a unit, which runs as one job, `mmrl experiment NAME --unit
CELL...`. The number of jobs that are queued or running never exceeds the requested number. A cell
that depends on other rows, for example because they determine its learning rate, waits until these
rows are merged. If the submitting process is killed, its jobs continue. The same command, or
`--merge`, then merges their rows.
"""

import math
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from mmrl.course.experiments import parts
from mmrl.course.experiments.grid import Grid
from mmrl.runs import RunError

Start = Callable[[Sequence[str], int], Any]  # (names of cells, slot of the job) -> submitit.Job


class Submission(NamedTuple):
    """A submitted job and the cells that it measures."""

    job: Any
    names: list[str]
    since: float  # time of submission, in seconds of the monotonic clock


def submit_jobs(
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
    """Measure the cells of `Grid.run` in jobs, and merge their rows; yield the same messages.

    At most `jobs` jobs are queued or running at a time. A job is submitted only if it would end
    within `minutes`, assuming that it takes as long as the longest job so far. `how` is appended to
    the command that continues the experiment. `pause` is the interval between two merges in
    seconds. Closing this iterator, as Ctrl-C does, cancels all jobs. Raises `RunError` at the end
    if a job ended without writing its rows.
    """
    start_time, longest = time.monotonic(), 0.0
    running: dict[int, Submission] = {}  # running jobs, keyed by slot
    attempts, finished_names, losses = set[str](), set[str](), list[str]()
    grid.select(quick, only)
    yield from (line for _, line in parts.merge(grid, out))  # rows of earlier jobs
    try:
        while True:
            in_time = time.monotonic() + longest <= start_time + 60 * minutes
            waiting = ready(grid, out, quick, only, attempts) if in_time else []
            for together in waiting[: jobs - len(running)]:
                names = [cell.name for cell in together]
                place = min(set(range(jobs)) - set(running))
                running[place] = Submission(start(names, place), names, time.monotonic())
                attempts |= set(names)
            if not running:
                break
            places, new = [], {}
            while not places and not new:
                time.sleep(pause)
                places = [place for place, one in running.items() if one.job.done()]
                new = dict(parts.merge(grid, out))
            finished_names |= set(new)
            yield from new.values()
            lacking = {cell.name for cell in grid.missing_cells(out, quick, only)} - finished_names
            for one in [running.pop(place) for place in places]:
                longest = max(longest, time.monotonic() - one.since)
                if missing := [name for name in one.names if name in lacking]:
                    losses += missing
                    yield f"{'; '.join(missing)}: not measured, see {one.job.paths.stderr}"
                else:
                    _forget(one.job)
    finally:
        for one in running.values():
            one.job.cancel(check=False)
    yield from grid.closing_lines(out, quick, only, how)
    if losses:
        raise RunError(
            f"The jobs of {len(losses)} cells ended without writing their rows, so these cells "
            "still have to be measured. Run the command again."
        )


def ready(
    grid: Grid, out: pathlib.Path, quick: bool, only: str = "", attempts: set[str] | None = None
) -> list[list[Any]]:
    """Return the units that can be measured now, because all rows that they need are present."""
    lacking = grid.missing_cells(out, quick, only)
    missing = {cell.name for cell in lacking}
    units = grid.units([cell for cell in lacking if cell.name not in (attempts or set())])
    return [
        together
        for together in units
        if not {name for cell in together for name in grid.after(cell)}
        & (missing - {cell.name for cell in together})
    ]


def _forget(job: Any) -> None:
    """Remove the files that submitit wrote for a finished job."""
    for path in job.paths.folder.glob(f"{job.job_id}_*"):
        path.unlink(missing_ok=True)
