"""One loop for all experiments: measure the cells that lack a row, while there is time.

A cell is a value with a `name`, by which its row is known. A study is a module with a `Grid`, which
says what its cells are, how some of them are measured, and how a row is told in a line:

    GRID = Grid("ppo", cells(), alone(measure), say, about="…", decides="…", turn=9)
    GRID.run(out, minutes, quick)       # appends to out/ppo.jsonl, a line of progress for each row

Jobs of a cluster measure the same cells by `parts` and `submit`, which share what is said here.
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
Rows = dict[str, Row]  # by the names of their cells


def rows(path: pathlib.Path) -> list[Row]:
    """The rows of a file of JSON lines; none if there is no file."""
    lines = whole_lines(path.read_bytes()).splitlines() if path.exists() else []
    return [loads(line) for line in lines if line]


def alone(
    measure: Callable[[Any, bool, Row | None], Row],
) -> Callable[[Sequence[Any], Rows, bool], list[Row]]:
    """How one cell is measured, from an earlier row of it or anew, as a `Grid` asks for it."""

    def measured(together: Sequence[Any], found: Rows, quick: bool) -> list[Row]:
        return [measure(cell, quick, found.get(cell.name)) for cell in together]

    return measured


def kept(
    measure: Callable[[Any, bool, pathlib.Path], Row],
) -> Callable[[Sequence[Any], Rows, bool, pathlib.Path], list[Row]]:
    """How one cell is measured in a folder of its own, as a `Grid` that `keeps` asks for it."""

    def measured(together: Sequence[Any], _: Rows, quick: bool, folder: pathlib.Path) -> list[Row]:
        names = [cell.name.replace(", ", "-") + "-quick" * quick for cell in together]
        return [measure(c, quick, folder / x) for c, x in zip(together, names, strict=True)]

    return measured


def spanning(cells: Sequence[Any]) -> list[Any]:
    """Return the cells that are the first with a value of some field: they have all values."""
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
    """An experiment: its cells, the most telling first, and how they become rows of a file."""

    name: str  # of the file, and of the command
    cells: Sequence[Any]
    measure: Callable[..., Iterable[Row]]  # (cells, rows so far, quick), and a folder if it `keeps`
    say: Callable[[Row], str]
    about: str = ""  # what it measures, for `mmrl experiment`
    decides: str = ""  # what its rows decide in the book, for the queue
    turn: int = 1000  # in the queue: the smallest first
    program: Callable[[Any], Hashable] = lambda cell: cell.name  # equal: measured together
    most: int | None = None  # that are measured together
    after: Callable[[Any], Iterable[str]] = lambda cell: ()  # cells whose rows it reads: names
    outdated: Callable[[Row, Rows], bool] = lambda row, found: False  # then it is measured anew
    cell_of: Callable[[Row], str] = lambda row: row["cell"]
    cost: Callable[[Any], float] = lambda cell: 1.0  # relative: how much a cell computes
    small: Sequence[Any] = ()  # cells of a quick run; default: those that `spanning` returns
    keeps: bool = False  # what it trains, in a folder beside the file
    close: Callable[[Sequence[Row]], Iterable[str]] = lambda found: ()  # said of all rows at last

    def read(self, out: pathlib.Path, quick: bool = True) -> Rows:
        """The rows that a folder has, or those that are not quick ones; the later of two."""
        found = rows(out / f"{self.name}.jsonl")
        return {self.cell_of(row): row for row in found if quick or not row.get("quick")}

    def run(self, out: pathlib.Path, minutes: float, quick: bool, only: str = "") -> Iterator[str]:
        """Measure every cell that `out/<name>.jsonl` lacks, while there is time for more.

        Of the cells those that have `only` in their names. Raises `ValueError` if there are none.

        Rows that are `outdated` come first, and of those the ones that need no training; they are
        replaced where they stand, as are those of quick runs when the run is not.
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
        """Measure and write those cells that no other process has measured; a line for each."""
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
        """The cells of a run that have `only` in their names. Raises `ValueError` without any."""
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
        """The cells of a run that have no row yet, or an outdated one, in the order of turns."""
        found = self.read(out, quick)
        lacking = [cell for cell in self.chosen(quick, only) if self.lacks(cell.name, found)]
        return sorted(lacking, key=lambda cell: self._turn(cell, found))

    def lacks(self, name: str, found: Rows) -> bool:
        """Whether a cell has no row yet, or an outdated one."""
        return name not in found or self.outdated(found[name], found)

    def units(self, cells: Sequence[Any]) -> list[list[Any]]:
        """The cells in groups that are measured together: of one program, and not too `most`."""
        alike: dict[Hashable, list[Any]] = {}
        for cell in cells:
            alike.setdefault(self.program(cell), []).append(cell)
        groups = [(group, self.most or len(group)) for group in alike.values()]
        cut = [group[i : i + most] for group, most in groups for i in range(0, len(group), most)]
        return sorted(cut, key=lambda unit: cells.index(unit[0]))

    def measured(
        self, out: pathlib.Path, together: Sequence[Any], found: Rows, quick: bool
    ) -> list[Row]:
        """The rows of cells that are measured now, together."""
        folder = [out / self.name] if self.keeps else []
        return list(self.measure(together, found, quick, *folder))

    @contextlib.contextmanager
    def locked(self, out: pathlib.Path) -> Iterator[None]:
        """Be the only process that writes to the file; wait while another one does.

        A kill lets it go. Raises `RunError` where there are no locks.
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
        """Be the only process that measures these cells; wait while another one measures one."""
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            file = (out / f".{self.name}.claims").open("ab")
        with file:
            # A byte stands for a cell; two cells of one byte would only wait in vain. All claim in
            # ascending order, so that no two processes wait for each other.
            for byte in sorted({zlib.crc32(name.encode()) for name in names}):
                with writing(out):
                    fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
            yield

    def write(self, out: pathlib.Path, row: Row) -> None:
        """Add a row to the file, or put it in the place of an earlier one; only while `locked`."""
        path = out / f"{self.name}.jsonl"
        if self.cell_of(row) in self.read(out):
            revise(path, row, self.cell_of)
        else:
            append(path, row)

    def tell(self, row: Row, seconds: float) -> str:
        """A row in a line, with the time that it took."""
        return f"{self.cell_of(row)}: {self.say(row)}, {seconds:.0f} s"

    def ending(
        self, out: pathlib.Path, quick: bool, only: str = "", how: str = ""
    ) -> Iterator[str]:
        """Lines on all rows, on what remains, and on `how` to go on with it."""
        yield from self.close(list(self.read(out, quick).values()))
        left, cells = self.lacking(out, quick, only), self.chosen(quick, only)
        yield f"{len(left)} of {len(cells)} cells remain{'' if left else ': all done'}."
        if left:
            yield f"To go on: {self.again(out, quick, only)}{how}"

    def again(self, out: pathlib.Path, quick: bool, only: str = "") -> str:
        """The command that measures what remains."""
        words = ["experiment", self.name, "--out", out, *["--quick"] * quick]
        return called(*words, *["--only", only] * bool(only))

    def _turn(self, cell: Any, found: Rows) -> int:
        if cell.name not in found:
            return 2
        return int(not (self.lacks(cell.name, found) and tuning.stands(found[cell.name])))


def by_an_earlier_rule(row: Row, found: Rows) -> bool:
    """Whether the learning rate of a row was chosen by an earlier rule than that of `tuning`."""
    return tuning.outdated(row)


def interval_at_rate(row: Row) -> str:
    """A row in a few words: the interquartile mean, its interval and the learning rate."""
    middle, (low, high) = row["interquartile_mean"], row["interval_95"]
    return f"{middle:.2f} [{low:.2f}, {high:.2f}] at {row['learning_rate']:g}"


def settings(config: Any) -> Row:
    """All of a configuration but the learning rate."""
    named = dataclasses.asdict(config)
    return {name: value for name, value in named.items() if name != "learning_rate"}


def rounded(values: Any) -> list[Any]:
    """Lists of numbers with 4 decimals."""
    return np.round(np.asarray(values, float), 4).tolist()
