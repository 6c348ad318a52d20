"""Table of the cells, the hours spent and the hours left of each experiment.

The table is computed from existing rows, without measuring any cells. The hours of a row are
processor time over all cores on a CPU, and elapsed time on a GPU. The time of a missing row is
estimated from all rows of the experiment, in proportion to the `cost` of its cell. An outdated row
is expected to take as long as before. This estimate is too high if the choice of its learning rate
is still valid, because then no agent is trained again. Rows without the fields `elapsed_s` and
`processor_s` contain only the training time, so estimates from them are too low. If no row of an
experiment records its time, the estimate of the queue is used. On a CPU, that estimate is elapsed
time instead of processor time, and the last line states how many of the hours are elapsed time. An
outdated row counts as not done, but its hours count as spent. "≥" precedes the hours spent if some
rows do not record their time.
"""

import pathlib
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mmrl.course.experiments.grid import Grid, Row
from mmrl.course.experiments.queue import Device, Queue, Unit

SECONDS = {"cpu": "processor_s", "gpu": "elapsed_s"}


class Estimate(NamedTuple):
    """Estimated seconds of the missing cells, and the source of the estimate."""

    seconds: dict[str, float]  # keyed by the name of a cell
    source: str
    elapsed: bool = False  # True if the estimate comes from the queue, in elapsed time


class Plan(NamedTuple):
    """Finished and remaining cells of an experiment."""

    grid: Grid
    cells: list[Any]  # all selected cells
    missing_cells: list[Any]  # cells without a row or with an outdated one, in order of priority
    failures: set[str]  # names of cells that failed in the queue at this revision
    spent_seconds: float  # seconds spent on rows of these cells, where they are recorded
    rows: int  # number of rows of these cells, including outdated ones
    timed_rows: int  # number of these rows that record their seconds
    estimate: Estimate

    @property
    def seconds(self) -> float:
        """Estimated seconds of all missing cells."""
        return sum(self.estimate.seconds.values())


def seconds_of(grid: Grid, row: Row, device: Device) -> float | None:
    """Return the seconds of a row, or else its training time, or None if it has neither."""
    if SECONDS[device] in row:
        return float(row[SECONDS[device]])
    training = row.get("cpu_seconds")
    if training is None or device == "gpu" or not isinstance(row.get("seeds"), list):
        return None
    return float(np.max(training)) * grid.agents(row)


def plan(grid: Grid, queue: Queue, only: str = "") -> Plan:
    """Return the plan of an experiment, for the folder and the device of a queue."""
    cells, by_name = grid.select(queue.quick, only), grid.read(queue.out, queue.quick)
    names = {cell.name for cell in cells}
    left = grid.missing_cells(queue.out, queue.quick, only)
    tries = [x for x in queue.tries if x.study == grid.name and x.failed]
    failures = {cell.name for cell in left} & {name for x in tries for name in x.cells}
    durations = {name: seconds_of(grid, row, queue.device) for name, row in by_name.items()}
    seconds = {name: x for name, x in durations.items() if x is not None}
    past = [seconds[name] for name in names & set(seconds)]
    estimate = _estimate(grid, queue, left, seconds)
    return Plan(
        grid, cells, left, failures, sum(past), len(names & set(by_name)), len(past), estimate
    )


def _estimate(grid: Grid, queue: Queue, left: Sequence[Any], seconds: dict[str, float]) -> Estimate:
    """Estimate the seconds of each missing cell from the seconds of all rows."""
    costs = {cell.name: grid.cost(cell) for cell in (*grid.cells, *grid.small)}
    rates = [x / costs[name] for name, x in seconds.items() if costs.get(name)]
    if rates:
        rate = statistics.median(rates)
        rows = f"{len(rates)} row{'s' * (len(rates) > 1)}"
        return Estimate(
            {cell.name: seconds.get(cell.name, rate * grid.cost(cell)) for cell in left}, rows
        )
    guesses = {cell.name: queue.seconds(Unit(grid, (cell.name,))) for cell in left}
    has_tries = any(x.study == grid.name for x in queue.tries)
    return Estimate(guesses, "tries of the queue" if has_tries else "a first guess", elapsed=True)


def lines(
    out: pathlib.Path,
    device: Device,
    quick: bool = False,
    only: str = "",
    grids: Sequence[Grid] | None = None,
) -> Iterator[str]:
    """Yield a table with a row per experiment, in the order of the queue.

    If there is only one experiment, its missing cells follow.
    """
    queue = Queue(out, device, quick, grids)
    plans = [plan(grid, queue, only) for grid in queue.grids]
    kind = "processor time" if device == "cpu" else "elapsed time"
    yield f"Rows in {out}; hours of {kind} on a {device}. Nothing is measured."
    heads = f"{'cells':>7s}{'done':>7s}{'left':>7s}{'spent':>11s}{'to go':>9s}"
    yield f"{'experiment':20s}{heads}  from"
    for one in plans:
        yield _line(one, device)
    yield _total(plans, device)
    if len(plans) == 1:
        yield from _cells(plans[0])


def _line(one: Plan, device: Device) -> str:
    past = _hours([one])
    source = one.estimate.source + ", elapsed" * (one.estimate.elapsed and device == "cpu")
    source = source if one.missing_cells else "all done"
    failures = f"; {len(one.failures)} failed" * bool(one.failures)
    return _columns(one.grid.name, len(one.cells), len(one.missing_cells), past, one.seconds) + (
        f"  {source}{failures}"
    )


def _total(plans: Sequence[Plan], device: Device) -> str:
    """Format the sums, and how much of the time is elapsed time although the rest is not."""
    cells, left = sum(len(one.cells) for one in plans), sum(len(one.missing_cells) for one in plans)
    seconds = sum(one.seconds for one in plans)
    wall = sum(one.seconds for one in plans if one.estimate.elapsed)
    is_mixed = device == "cpu" and wall > 0
    note = f"  {wall / 3600:.2f} h of these are elapsed time" * is_mixed
    return _columns("all", cells, left, _hours(plans), seconds) + note


def _hours(plans: Sequence[Plan]) -> str:
    """Format the hours spent, which are a lower bound if some rows do not record their time."""
    rows, count = sum(one.rows for one in plans), sum(one.timed_rows for one in plans)
    return f"{'≥ ' * (count < rows)}{sum(one.spent_seconds for one in plans) / 3600:.2f} h"


def _columns(name: str, cells: int, left: int, past: str, seconds: float) -> str:
    counts = f"{cells:7d}{cells - left:7d}{left:7d}"
    return f"{name:20s}{counts}{past:>11s}{f'{seconds / 3600:.2f} h':>9s}"


def _cells(one: Plan) -> Iterator[str]:
    """Yield a line for each missing cell."""
    for cell in one.missing_cells:
        failure = ", failed at this revision" * (cell.name in one.failures)
        yield f"Left: {cell.name}, about {one.estimate.seconds[cell.name]:.0f} s{failure}"
