"""Main loop of every experiment, which measures the missing cells until the time limit.

A cell is an object with a `name` that identifies its row in the results. An experiment is a module
with a `Grid`, which contains the cells, a function that measures cells, and a function that
summarizes a row:

    GRID = Grid("ppo", cells(), one_by_one(measure), summarize, about="…", decides="…", turn=9)
    for line in GRID.run(out, minutes, quick):  # appends rows to out/ppo.jsonl
        print(line)

`parts` and `submit` measure the cells of a `Grid` in the jobs of a cluster.
"""

import contextlib
import dataclasses
import fcntl
import pathlib
import time
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mmrl.course.experiments import tuning
from mmrl.course.results import revise
from mmrl.runs import append
from mmrl.runs.checkpoint import loads
from mmrl.runs.files import write_errors
from mmrl.runs.results import whole_lines
from mmrl.runs.shell import command_line

Row = dict[str, Any]
Rows = dict[str, Row]  # rows by cell name


def rows(path: pathlib.Path) -> list[Row]:
    """Read the rows of a JSON lines file. Return an empty list if the file does not exist."""
    lines = whole_lines(path.read_bytes()).splitlines() if path.exists() else []
    return [loads(line) for line in lines if line]


def one_by_one(
    measure: Callable[[Any, bool, Row | None], Row],
) -> Callable[[Sequence[Any], Rows, bool], list[Row]]:
    """Convert a function that measures one cell to the signature that `Grid.measure` requires."""

    def each(together: Sequence[Any], by_name: Rows, quick: bool) -> list[Row]:
        return [measure(cell, quick, by_name.get(cell.name)) for cell in together]

    return each


def in_folder(
    measure: Callable[[Any, bool, pathlib.Path], Row],
) -> Callable[[Sequence[Any], Rows, bool, pathlib.Path], list[Row]]:
    """Convert a function that measures one cell in a folder, for a `Grid` that `keeps` agents."""

    def each(together: Sequence[Any], _: Rows, quick: bool, folder: pathlib.Path) -> list[Row]:
        names = [cell.name.replace(", ", "-") + "-quick" * quick for cell in together]
        return [measure(c, quick, folder / x) for c, x in zip(together, names, strict=True)]

    return each


def representatives(cells: Sequence[Any]) -> list[Any]:
    """Return a subset of the cells that contains every value of every field."""
    union: set[tuple[str, str]] = set()
    choice = []
    for cell in cells:
        fields = getattr(cell, "_asdict", lambda cell=cell: vars(cell))()
        values = {(name, repr(value)) for name, value in fields.items()}
        if not values <= union:
            choice.append(cell)
            union |= values
    return choice


class Stopwatch:
    """A stopwatch that starts when it is created."""

    def __init__(self) -> None:
        self._began = time.monotonic(), time.process_time()

    def shares(self, count: int) -> dict[str, float]:
        """Return the elapsed and the processor seconds so far, divided by `count`.

        Processor seconds are summed over the threads of this process, without child processes.
        """
        seconds = (time.monotonic() - self._began[0], time.process_time() - self._began[1])
        names = ("elapsed_s", "processor_s")
        shares = (float(f"{x / max(count, 1):.3g}") for x in seconds)
        return dict(zip(names, shares, strict=True))


def complete(row: Row, **fields: Any) -> Row:
    """Add fields such as the measured seconds to a new row.

    A row that has a date was measured earlier, and is returned unchanged.
    """
    return row if "date" in row else {**row, **fields}


@dataclasses.dataclass(frozen=True)
class Grid:
    """An experiment, which consists of cells and the function that measures them."""

    name: str  # name of the results file and argument of `mmrl experiment`
    cells: Sequence[Any]  # most informative first
    measure: Callable[..., Iterable[Row]]  # (cells, rows so far, quick), and a folder if it `keeps`
    summarize: Callable[[Row], str]
    about: str = ""  # description in the list that `mmrl experiment` prints
    decides: str = ""  # what the book concludes from the rows; the queue prints it
    turn: int = 1000  # position in the queue
    # Cells for which this function returns equal values are measured together.
    program: Callable[[Any], Hashable] = lambda cell: cell.name
    most: int | None = None  # maximum number of cells that are measured together
    # Returns the names of cells whose rows must be measured before a cell.
    after: Callable[[Any], Iterable[str]] = lambda cell: ()
    outdated: Callable[[Row, Rows], bool] = lambda row, rows: False  # True: measure the cell again
    cell_of: Callable[[Row], str] = lambda row: row["cell"]
    cost: Callable[[Any], float] = lambda cell: 1.0  # relative amount of computation
    # Returns the number of agents in a row, each of which took `cpu_seconds`.
    agents: Callable[[Row], int] = lambda row: len(row["seeds"])
    small: Sequence[Any] = ()  # cells of a quick run; if empty, `representatives` selects them
    limit: float = 300.0  # seconds per row after which the queue stops a measurement
    keeps: bool = False  # True: save trained agents in a folder next to the results file
    # Yields lines about the results, which are printed at the end of a run.
    close: Callable[[Sequence[Row]], Iterable[str]] = lambda found: ()

    def read(self, out: pathlib.Path, quick: bool = True) -> Rows:
        """Read the latest row of each cell. Rows of quick runs are skipped if `quick` is False."""
        results = rows(out / f"{self.name}.jsonl")
        return {self.cell_of(row): row for row in results if quick or not row.get("quick")}

    def run(self, out: pathlib.Path, minutes: float, quick: bool, only: str = "") -> Iterator[str]:
        """Measure the cells that have no row in `out/<name>.jsonl`, until the time limit.

        If `only` is given, measure only the cells whose names contain it. Raises `ValueError` if
        there are none.

        Cells with outdated rows come first, starting with those that need no training. The new row
        replaces the outdated one. A full run also replaces the rows of quick runs.
        """
        cells = self.select(quick, only)
        run_start, longest, by_name = time.monotonic(), 0.0, self.read(out, quick)
        left = sorted(cells, key=lambda cell: self._turn(cell, by_name, quick))
        while waiting := [cell for cell in left if self.lacks(cell.name, by_name, quick)]:
            start = time.monotonic()
            if start + longest > run_start + 60 * minutes:
                break
            together = self.units(waiting)[0]
            yield from self._rows(out, together, quick)
            longest = max(longest, time.monotonic() - start)
            left = [cell for cell in left if cell not in together]
            by_name = self.read(out, quick)
        yield from self.closing_lines(out, quick, only)

    def _rows(self, out: pathlib.Path, together: Sequence[Any], quick: bool) -> Iterator[str]:
        """Measure cells that still have no row, write the rows, and yield a summary of each."""
        with self.claim(out, [cell.name for cell in together]):
            by_name = self.read(out, quick)
            lacking = [cell for cell in together if self.lacks(cell.name, by_name, quick)]
            watch = Stopwatch()
            results = self.measure_together(out, lacking, by_name, quick) if lacking else []
            seconds = watch.shares(len(results))
            for row in results:
                with self.lock(out):
                    self.write(out, complete(row, **seconds))
                yield self.line_of(row, seconds["elapsed_s"])

    def select(self, quick: bool, only: str = "") -> list[Any]:
        """Return the cells whose names contain `only`, and the cells that they depend on.

        Raises `ValueError` if there are none.
        """
        cells = self._of_run(quick)
        if matches := [cell for cell in cells if only in cell.name]:
            return self._complete(matches, cells)
        where = ""
        if any(only in cell.name for cell in self._of_run(not quick)):
            kind, remedy = ("full", "Omit") if quick else ("quick", "Add")
            where = f", which is part of a name only in the {kind} run. {remedy} `--quick`"
        name = cells[0].name
        raise ValueError(f"`only` must be part of a name, such as {name!r}; got {only!r}{where}.")

    def _of_run(self, quick: bool) -> Sequence[Any]:
        """Return the cells of a quick or a full run."""
        return (self.small or self._few()) if quick else self.cells

    def _few(self) -> list[Any]:
        """Return the cells that `representatives` selects, and the cells that they depend on."""
        return self._complete(representatives(self.cells), self.cells)

    def _complete(self, few: Sequence[Any], cells: Sequence[Any]) -> list[Any]:
        """Return `few` of the cells, and the cells that they depend on, in the order of `cells`."""
        names, size = {cell.name for cell in few}, 0
        while len(names) > size:
            size = len(names)
            names |= {name for cell in cells if cell.name in names for name in self.after(cell)}
        return [cell for cell in cells if cell.name in names]

    def missing_cells(self, out: pathlib.Path, quick: bool, only: str = "") -> list[Any]:
        """Return the cells without a row or with an outdated one, in order of priority."""
        by_name = self.read(out, quick)
        cells = self.select(quick, only)
        lacking = [cell for cell in cells if self.lacks(cell.name, by_name, quick)]
        return sorted(lacking, key=lambda cell: self._turn(cell, by_name, quick))

    def lacks(self, name: str, by_name: Rows, quick: bool) -> bool:
        """Return True if a cell has no row or an outdated one.

        A full row is never outdated in a quick run, which would replace it.
        """
        if name not in by_name:
            return True
        row = by_name[name]
        return not (quick and not row.get("quick")) and self.outdated(row, by_name)

    def units(self, cells: Sequence[Any]) -> list[list[Any]]:
        """Group cells that share a program into units of at most `most` cells."""
        alike: dict[Hashable, list[Any]] = {}
        for cell in cells:
            alike.setdefault(self.program(cell), []).append(cell)
        groups = [(group, self.most or len(group)) for group in alike.values()]
        cut = [group[i : i + most] for group, most in groups for i in range(0, len(group), most)]
        return sorted(cut, key=lambda unit: cells.index(unit[0]))

    def measure_together(
        self, out: pathlib.Path, together: Sequence[Any], by_name: Rows, quick: bool
    ) -> list[Row]:
        """Measure cells together and return their rows."""
        folder = [out / self.name] if self.keeps else []
        return list(self.measure(together, by_name, quick, *folder))

    @contextlib.contextmanager
    def lock(self, out: pathlib.Path) -> Iterator[None]:
        """Lock the results file for writing. Blocks while another process has the lock.

        The lock is released if the process is killed. Raises `RunError` if the file system does not
        support locks.
        """
        with write_errors(out):
            out.mkdir(parents=True, exist_ok=True)
            file = (out / f".{self.name}.lock").open("ab")
        with file:
            with write_errors(out):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def claim(self, out: pathlib.Path, names: Sequence[str]) -> Iterator[None]:
        """Lock cells for a measurement. Blocks while another process has locked one of them."""
        with write_errors(out):
            out.mkdir(parents=True, exist_ok=True)
            file = (out / f".{self.name}.claims").open("ab")
        with file:
            # Each cell is a byte of the file, given by a hash of its name. If two names have the
            # same hash, a process may wait without need. Locking in ascending order prevents
            # deadlocks.
            for byte in sorted({zlib.crc32(name.encode()) for name in names}):
                with write_errors(out):
                    fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
            yield

    def write(self, out: pathlib.Path, row: Row) -> None:
        """Append a row to the results file, or replace the row of its cell. Requires `lock`."""
        path = out / f"{self.name}.jsonl"
        if self.cell_of(row) in self.read(out):
            revise(path, row, self.cell_of)
        else:
            append(path, row)

    def line_of(self, row: Row, seconds: float) -> str:
        """Summarize a row in a line, with the seconds that it took."""
        return f"{self.cell_of(row)}: {self.summarize(row)}, {seconds:.0f} s"

    def closing_lines(
        self, out: pathlib.Path, quick: bool, only: str = "", how: str = ""
    ) -> Iterator[str]:
        """Yield the closing lines, the number of cells that remain, and the command to continue."""
        yield from self.close(list(self.read(out, quick).values()))
        left, cells = self.missing_cells(out, quick, only), self.select(quick, only)
        yield f"{len(left)} of {len(cells)} cells remain{'' if left else ': all done'}."
        if left:
            yield f"To continue: {self.again(out, quick, only)}{how}"

    def again(self, out: pathlib.Path, quick: bool, only: str = "") -> str:
        """Return the command that measures the remaining cells."""
        words = ["experiment", self.name, "--out", out, *["--quick"] * quick]
        return command_line(*words, *["--only", only] * bool(only))

    def _turn(self, cell: Any, by_name: Rows, quick: bool) -> int:
        if cell.name not in by_name:
            return 2
        return int(
            not (self.lacks(cell.name, by_name, quick) and tuning.stands(by_name[cell.name]))
        )


def by_an_earlier_rule(row: Row, by_name: Rows) -> bool:
    """Return True if a row's learning rate was chosen by an earlier rule."""
    return tuning.is_stale(row)


def interval_at_rate(row: Row) -> str:
    """Summarize a row by its interquartile mean, the interval and the learning rate."""
    middle, (low, high) = row["interquartile_mean"], row["interval_95"]
    return f"{middle:.2f} [{low:.2f}, {high:.2f}] at {row['learning_rate']:g}"


def settings(config: Any) -> Row:
    """Return the fields of a config as a dictionary, without the learning rate."""
    fields = dataclasses.asdict(config)
    return {name: value for name, value in fields.items() if name != "learning_rate"}


def round_list(values: Any) -> list[Any]:
    """Convert an array to nested lists of floats, rounded to 4 decimals."""
    return np.round(np.asarray(values, float), 4).tolist()
