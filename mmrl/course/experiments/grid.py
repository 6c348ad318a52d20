"""The loop of all experiments: measure the cells that lack a row, while time is left.

A cell is a value with a `name`, which identifies its row. An experiment is a module with a `Grid`,
which contains the cells, the function that measures some of them, and the function that summarizes
a row in a line:

    GRID = Grid("ppo", cells(), alone(measure), say, about="…", decides="…", turn=9)
    GRID.run(out, minutes, quick)       # appends to out/ppo.jsonl, a line of progress for each row

Jobs of a cluster measure the same cells by `parts` and `submit`, which use this `Grid`.
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
from mmrl.runs.files import writing
from mmrl.runs.results import whole_lines
from mmrl.runs.shell import called

Row = dict[str, Any]
Rows = dict[str, Row]  # rows by cell name


def rows(path: pathlib.Path) -> list[Row]:
    """Read the rows of a file of JSON lines; return an empty list if the file does not exist."""
    lines = whole_lines(path.read_bytes()).splitlines() if path.exists() else []
    return [loads(line) for line in lines if line]


def alone(
    measure: Callable[[Any, bool, Row | None], Row],
) -> Callable[[Sequence[Any], Rows, bool], list[Row]]:
    """Adapt a function that measures one cell, given its earlier row or None, for a `Grid`."""

    def measured(together: Sequence[Any], found: Rows, quick: bool) -> list[Row]:
        return [measure(cell, quick, found.get(cell.name)) for cell in together]

    return measured


def kept(
    measure: Callable[[Any, bool, pathlib.Path], Row],
) -> Callable[[Sequence[Any], Rows, bool, pathlib.Path], list[Row]]:
    """Adapt a function that measures one cell in a separate folder, for a `Grid` that `keeps`."""

    def measured(together: Sequence[Any], _: Rows, quick: bool, folder: pathlib.Path) -> list[Row]:
        names = [cell.name.replace(", ", "-") + "-quick" * quick for cell in together]
        return [measure(c, quick, folder / x) for c, x in zip(together, names, strict=True)]

    return measured


def spanning(cells: Sequence[Any]) -> list[Any]:
    """Return the cells that are first to have some field's value; together they have all values."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for cell in cells:
        fields = getattr(cell, "_asdict", lambda cell=cell: vars(cell))()
        values = {(name, repr(value)) for name, value in fields.items()}
        if not values <= seen:
            kept.append(cell)
            seen |= values
    return kept


@dataclasses.dataclass(frozen=True)
class Grid:
    """An experiment: its cells, most informative first, and the function that measures them."""

    name: str  # name of the file and of the command
    cells: Sequence[Any]
    measure: Callable[..., Iterable[Row]]  # (cells, rows so far, quick), and a folder if it `keeps`
    say: Callable[[Row], str]
    about: str = ""  # the measured quantity, for `mmrl experiment`
    decides: str = ""  # the statements in the book that its rows decide, for the queue
    turn: int = 1000  # position in the queue
    # Cells with equal values are measured together.
    program: Callable[[Any], Hashable] = lambda cell: cell.name
    most: int | None = None  # most cells that are measured together
    # Names of the cells whose rows a cell reads.
    after: Callable[[Any], Iterable[str]] = lambda cell: ()
    outdated: Callable[[Row, Rows], bool] = lambda row, found: False  # True: measure the cell again
    cell_of: Callable[[Row], str] = lambda row: row["cell"]
    cost: Callable[[Any], float] = lambda cell: 1.0  # relative amount of computation
    small: Sequence[Any] = ()  # cells of a quick run; default: those that `spanning` returns
    keeps: bool = False  # True: keep trained agents in a folder next to the file
    # Closing lines about all rows.
    close: Callable[[Sequence[Row]], Iterable[str]] = lambda found: ()

    def read(self, out: pathlib.Path, quick: bool = True) -> Rows:
        """Read the latest row of each cell in a folder, without quick rows if `quick` is False."""
        found = rows(out / f"{self.name}.jsonl")
        return {self.cell_of(row): row for row in found if quick or not row.get("quick")}

    def run(self, out: pathlib.Path, minutes: float, quick: bool, only: str = "") -> Iterator[str]:
        """Measure every cell that `out/<name>.jsonl` lacks, while time is left.

        With `only`, measure the cells whose names contain it. Raises `ValueError` if there are
        none.

        Cells with `outdated` rows come first, starting with those that need no training. A new row
        replaces the outdated one in its place. A full run also replaces the rows of quick runs.
        """
        cells = self.chosen(quick, only)
        began, longest, found = time.monotonic(), 0.0, self.read(out, quick)
        left = sorted(cells, key=lambda cell: self._turn(cell, found))
        while waiting := [cell for cell in left if self.lacks(cell.name, found)]:
            started = time.monotonic()
            if started + longest > began + 60 * minutes:
                break
            together = self.units(waiting)[0]
            yield from self._rows(out, together, quick)
            longest = max(longest, time.monotonic() - started)
            left = [cell for cell in left if cell not in together]
            found = self.read(out, quick)
        yield from self.ending(out, quick, only)

    def _rows(self, out: pathlib.Path, together: Sequence[Any], quick: bool) -> Iterator[str]:
        """Measure and write the cells that no other process has measured; yield a line for each."""
        with self.claimed(out, [cell.name for cell in together]):
            found = self.read(out, quick)
            lacking = [cell for cell in together if self.lacks(cell.name, found)]
            began = time.monotonic()
            measured = self.measured(out, lacking, found, quick) if lacking else []
            seconds = time.monotonic() - began
            for row in measured:
                with self.locked(out):
                    self.write(out, row)
                yield self.tell(row, seconds / len(measured))

    def chosen(self, quick: bool, only: str = "") -> list[Any]:
        """Return the cells whose names contain `only`. Raises `ValueError` if there are none."""
        cells = (self.small or self._few()) if quick else self.cells
        if not any(only in cell.name for cell in cells):
            raise ValueError(f"`only` must be in a name, like {cells[0].name!r}; got {only!r}.")
        return [cell for cell in cells if only in cell.name]

    def _few(self) -> list[Any]:
        """Return cells that have every value of every field, and those whose rows they read."""
        few = spanning(self.cells)
        read = {name for cell in few for name in self.after(cell)}
        return [cell for cell in self.cells if cell in few or cell.name in read]

    def lacking(self, out: pathlib.Path, quick: bool, only: str = "") -> list[Any]:
        """Return the cells of a run without a row or with an outdated row, in order of priority."""
        found = self.read(out, quick)
        lacking = [cell for cell in self.chosen(quick, only) if self.lacks(cell.name, found)]
        return sorted(lacking, key=lambda cell: self._turn(cell, found))

    def lacks(self, name: str, found: Rows) -> bool:
        """Return True if a cell has no row, or an outdated one."""
        return name not in found or self.outdated(found[name], found)

    def units(self, cells: Sequence[Any]) -> list[list[Any]]:
        """Group the cells that share a program and are measured together, `most` at a time."""
        alike: dict[Hashable, list[Any]] = {}
        for cell in cells:
            alike.setdefault(self.program(cell), []).append(cell)
        groups = [(group, self.most or len(group)) for group in alike.values()]
        cut = [group[i : i + most] for group, most in groups for i in range(0, len(group), most)]
        return sorted(cut, key=lambda unit: cells.index(unit[0]))

    def measured(
        self, out: pathlib.Path, together: Sequence[Any], found: Rows, quick: bool
    ) -> list[Row]:
        """Measure cells together and return their rows."""
        folder = [out / self.name] if self.keeps else []
        return list(self.measure(together, found, quick, *folder))

    @contextlib.contextmanager
    def locked(self, out: pathlib.Path) -> Iterator[None]:
        """Lock the file so that only this process writes to it; wait while another process does.

        The lock is released if the process is killed. Raises `RunError` if the file system has no
        locks.
        """
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            file = (out / f".{self.name}.lock").open("ab")
        with file:
            with writing(out):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def claimed(self, out: pathlib.Path, names: Sequence[str]) -> Iterator[None]:
        """Lock these cells so that only this process measures them; wait while another one does."""
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            file = (out / f".{self.name}.claims").open("ab")
        with file:
            # Each cell locks a byte; if two cells share one, the only effect is a needless wait.
            # All processes lock in ascending order, so that no two wait for each other.
            for byte in sorted({zlib.crc32(name.encode()) for name in names}):
                with writing(out):
                    fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
            yield

    def write(self, out: pathlib.Path, row: Row) -> None:
        """Add a row to the file, or replace an earlier row in its place. Requires `locked`."""
        path = out / f"{self.name}.jsonl"
        if self.cell_of(row) in self.read(out):
            revise(path, row, self.cell_of)
        else:
            append(path, row)

    def tell(self, row: Row, seconds: float) -> str:
        """Summarize a row in a line, with the time that it took."""
        return f"{self.cell_of(row)}: {self.say(row)}, {seconds:.0f} s"

    def ending(
        self, out: pathlib.Path, quick: bool, only: str = "", how: str = ""
    ) -> Iterator[str]:
        """Yield lines about all rows and the remaining cells, and `how` to continue."""
        yield from self.close(list(self.read(out, quick).values()))
        left, cells = self.lacking(out, quick, only), self.chosen(quick, only)
        yield f"{len(left)} of {len(cells)} cells remain{'' if left else ': all done'}."
        if left:
            yield f"To go on: {self.again(out, quick, only)}{how}"

    def again(self, out: pathlib.Path, quick: bool, only: str = "") -> str:
        """Return the command that measures the remaining cells."""
        words = ["experiment", self.name, "--out", out, *["--quick"] * quick]
        return called(*words, *["--only", only] * bool(only))

    def _turn(self, cell: Any, found: Rows) -> int:
        if cell.name not in found:
            return 2
        return int(not (self.lacks(cell.name, found) and tuning.stands(found[cell.name])))


def by_an_earlier_rule(row: Row, found: Rows) -> bool:
    """Return True if a row's learning rate was chosen by a rule that `tuning` has replaced."""
    return tuning.outdated(row)


def interval_at_rate(row: Row) -> str:
    """Summarize a row: the interquartile mean, its interval and the learning rate."""
    middle, (low, high) = row["interquartile_mean"], row["interval_95"]
    return f"{middle:.2f} [{low:.2f}, {high:.2f}] at {row['learning_rate']:g}"


def settings(config: Any) -> Row:
    """Return all settings of a configuration except the learning rate."""
    named = dataclasses.asdict(config)
    return {name: value for name, value in named.items() if name != "learning_rate"}


def rounded(values: Any) -> list[Any]:
    """Return lists of numbers, rounded to 4 decimals."""
    return np.round(np.asarray(values, float), 4).tolist()
