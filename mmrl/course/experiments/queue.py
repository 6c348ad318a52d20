"""A queue that measures the missing rows of all experiments until the time limit.

The queue measures experiments in the order of their `turn`, which is their priority. Each unit of
cells that share a program is measured in a separate process, which is stopped after `Grid.limit`
seconds per row. If a compilation never ends or the device runs out of memory, only that unit is
lost. On a CPU the limit applies to the processor time over all cores, so that a busy machine does
not cause a timeout. An experiment that keeps its runs continues from their checkpoints in the next
try.

The file `queue.jsonl` next to the results records every try. The queue uses it to estimate times
and to skip units that failed at the same revision. Remove the file to try these units again.
"""

import dataclasses
import datetime
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from mmrl.course import experiments
from mmrl.course.experiments import cluster, parts
from mmrl.course.experiments.grid import Grid, Row, rows
from mmrl.course.experiments.submit import ready
from mmrl.runs import append
from mmrl.runs.results import revision

Device = Literal["cpu", "gpu"]
START_LIMIT = 300  # seconds until a device must have started
SLOWER = 10  # limit of elapsed time on a CPU, as a multiple of `Grid.limit`
FIRST_GUESS = {"cpu": 120.0, "gpu": 45.0}  # seconds per row, before the first try
LATE = "the time of the queue was over"
PLATFORMS = {"cpu": "cpu", "gpu": "cuda"}


def studies() -> list[Grid]:
    """Return all experiments, in order of priority."""
    return sorted(map(experiments.load, experiments.EXPERIMENTS), key=lambda grid: grid.turn)


@dataclasses.dataclass(frozen=True)
class Unit:
    """Cells of an experiment that are measured together."""

    grid: Grid
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """A title with the experiment, the first cell and the number of other cells."""
        first, *more = self.names
        return f"{self.grid.name}: {first}{f' and {len(more)} more' if more else ''}"


class Try(NamedTuple):
    """An attempt to measure a unit."""

    study: str  # name of the experiment
    cells: list[str]
    outcome: str  # "measured", or the reason for a failure
    seconds: float

    @property
    def measured(self) -> bool:
        """True if every row was measured."""
        return self.outcome == "measured"

    @property
    def failed(self) -> bool:
        """True if the unit failed for a reason other than a lack of time."""
        return self.outcome not in ("measured", LATE)


class Queue:
    """Queue of the missing rows in a folder, for one kind of device."""

    def __init__(
        self,
        out: pathlib.Path,
        device: Device,
        quick: bool = False,
        grids: Sequence[Grid] | None = None,
    ):
        self.out, self.quick = out, quick
        self.grids = studies() if grids is None else grids
        self.device: Device = device
        self.tries = self._earlier()
        self.new: list[Try] = []

    def pending_units(self) -> list[Unit]:
        """Return the missing units in order of priority.

        On a CPU, the cheaper units of an experiment come first. Units that failed at this revision
        are omitted, unless they have checkpoints.
        """
        failures = {name for x in self.tries if x.failed for name in _cells(x)}
        units = [unit for grid in self.grids for unit in self._units(grid)]
        return [unit for unit in units if not failures & _cells(unit)]

    def run(self, minutes: float = math.inf) -> Iterator[str]:
        """Measure units until the time limit; yield a message per row, and finally a table."""
        end = time.monotonic() + 60 * minutes
        if self.device == "gpu" and (
            error := _run_command(_LOOK, "gpu", START_LIMIT, 60 * minutes)
        ):
            yield f"Nothing was measured, because JAX cannot start a GPU here: {error}"
            return
        yield from self._left_over()
        while (unit := self._next(end)) is not None:
            yield from self._attempt(unit, end)
        if not self.new and self.pending_units():
            yield f"Nothing was measured: each remaining unit may take over {minutes:g} minutes."
        yield from self.table()

    def seconds(self, unit: Unit) -> float:
        """Estimate the duration of a unit from earlier tries of its experiment, or guess it."""
        durations = [x.seconds / len(x.cells) for x in self.tries if x.study == unit.grid.name]
        guess = FIRST_GUESS[self.device] / (6 if self.quick else 1)
        row = statistics.median(durations) if durations else guess
        return row * len(unit.names)

    def table(self) -> Iterator[str]:
        """Yield a summary of the measured rows, the failed units and the next units."""
        count = sum(len(x.cells) for x in self.new if x.measured)
        yield f"{count} rows measured in {sum(x.seconds for x in self.new):.0f} s."
        for failure in (x for x in self.new if not x.measured):
            yield f"Not measured: {failure.study}: {failure.cells[0]}: {failure.outcome}"
        units = self.pending_units()
        yield f"{sum(len(unit.names) for unit in units)} rows remain."
        for unit in units[:5]:
            estimate = f"about {self.seconds(unit):.0f} s"
            yield f"Next: {unit.title}, {estimate}. It shows {unit.grid.decides}."

    def _earlier(self) -> list[Try]:
        """Read the earlier tries on this device, without failures at other revisions."""
        now, resumable = revision(), {grid.name for grid in self.grids if grid.keeps}
        tries = []
        for row in rows(self.out / "queue.jsonl"):
            counts = row["outcome"] in ("measured", LATE) or row["revision"] == now
            if counts and row["on"] == self.device and row["quick"] == self.quick:
                tries.append(Try(*(row[name] for name in Try._fields)))
        return [x for x in tries if not x.failed or x.study not in resumable]

    def _units(self, grid: Grid) -> list[Unit]:
        units = ready(grid, self.out, self.quick)
        if self.device == "cpu":
            units.sort(key=lambda unit: sum(map(grid.cost, unit)))
        return [Unit(grid, tuple(cell.name for cell in unit)) for unit in units]

    def _next(self, end: float) -> Unit | None:
        """Return the first unit whose estimated duration fits into the remaining time."""
        left = end - time.monotonic()
        return next((unit for unit in self.pending_units() if self.seconds(unit) <= left), None)

    def _left_over(self) -> Iterator[str]:
        """Merge the rows of an earlier queue that was killed before it could merge them."""
        for grid in self.grids:
            for _, line in parts.merge(grid, self.out):
                yield f"{grid.name}: {line}"

    def _attempt(self, unit: Unit, end: float) -> Iterator[str]:
        """Measure a unit in a separate process, record the outcome, and yield messages."""
        start_time, most = time.monotonic(), unit.grid.limit * len(unit.names)
        error = _run_command(self._command(unit), self.device, most, end - start_time)
        if error and time.monotonic() >= end:
            error = LATE
        lines = [line for _, line in parts.merge(unit.grid, self.out)]
        lacking = {x.name for x in unit.grid.missing_cells(self.out, self.quick)}
        outcome = (error or "it wrote no row") if lacking & set(unit.names) else "measured"
        new = Try(
            unit.grid.name, list(unit.names), outcome, round(time.monotonic() - start_time, 1)
        )
        self.tries.append(new)
        self.new.append(new)
        append(self.out / "queue.jsonl", {**new._asdict(), **self._origin()})
        yield from (f"{unit.grid.name}: {line}" for line in lines)
        if not new.measured:
            yield f"{unit.title}: not measured: {outcome}"

    def _origin(self) -> Row:
        """Return the fields of a try that describe its origin."""
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return {"on": self.device, "quick": self.quick, "revision": revision(), "date": date}

    def _command(self, unit: Unit) -> list[str]:
        return [*cluster.words(unit.grid.name, self.out, self.quick), *unit.names]


def _run_command(command: Sequence[str], device: Device, limit: float, left: float) -> str:
    """Run a command with time limits; return its error message, or "" if it succeeded.

    The command is stopped after `limit` seconds or after `left` seconds, whichever is less. On
    a CPU, `limit` is in seconds of processor time per core, and `left` in elapsed seconds. The
    limits also apply if the current process is killed.
    """
    environment = {**os.environ, "JAX_PLATFORMS": PLATFORMS[device]}
    is_shared = device == "cpu"
    seconds = min(limit * (SLOWER if is_shared else 1), left)
    of_cores = limit * len(cluster.cores()) if is_shared else 0  # 0 means no limit
    bounds = [str(math.ceil(x)) for x in (seconds, of_cores)]
    words = [sys.executable, "-c", _ALARM, *bounds, *command]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
        )
        errors.seek(0)
        lines = [line.strip() for line in errors if line.strip()]
    if process.returncode == -signal.SIGALRM:
        return f"it took more than {bounds[0]} s"
    if process.returncode == -signal.SIGPROF:
        return f"it took more than {bounds[1]} s of processor time"
    message = lines[-1] if lines else f"it ended with exit code {process.returncode}"
    return message[:300] if process.returncode else ""


_LOOK = (sys.executable, "-c", "import jax; jax.devices()")
_ALARM = """
import os, signal, sys
signal.alarm(int(sys.argv[1]))
signal.setitimer(signal.ITIMER_PROF, int(sys.argv[2]))
os.execv(sys.argv[3], sys.argv[3:])
"""


def _cells(of: Try | Unit) -> set[str]:
    study = of.study if isinstance(of, Try) else of.grid.name
    names = of.cells if isinstance(of, Try) else of.names
    return {f"{study}: {name}" for name in names}
