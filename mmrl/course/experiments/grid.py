"""One loop for all experiments: measure the cells that lack a row, while there is time.

A cell is a value with a `name`, by which its row is known. A study is a module with a `Grid`, which
says what its cells are, how some of them are measured, and how a row is told in a line:

    GRID = Grid("ppo", cells(), alone(measure), say)
    GRID.run(out, minutes, quick)       # appends to out/ppo.jsonl, a line of progress for each row
"""

import dataclasses
import pathlib
import shlex
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mmrl.course.experiments import tuning
from mmrl.course.results import revise
from mmrl.runs import append
from mmrl.runs.checkpoint import loads
from mmrl.runs.results import whole_lines

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


@dataclasses.dataclass(frozen=True)
class Grid:
    """An experiment: its cells, the most telling first, and how they become rows of a file."""

    name: str  # of the file, and of the command
    cells: Sequence[Any]
    measure: Callable[..., Iterable[Row]]  # (cells, rows so far, quick), and a folder if it `keeps`
    say: Callable[[Row], str]
    program: Callable[[Any], Hashable] = lambda cell: cell.name  # equal: measured together
    most: int | None = None  # that are measured together
    outdated: Callable[[Row, Rows], bool] = lambda row, found: False  # then it is measured anew
    cell_of: Callable[[Row], str] = lambda row: row["cell"]
    small: Sequence[Any] = ()  # the cells of a quick run, where they are others
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
        cells = self.small if quick and self.small else self.cells
        if not any(only in cell.name for cell in cells):
            raise ValueError(f"`only` must be in a name, like {cells[0].name!r}; got {only!r}.")
        cells = [cell for cell in cells if only in cell.name]
        began, longest, found = time.monotonic(), 0.0, self.read(out, quick)
        left = sorted(cells, key=lambda cell: self._turn(cell, found))
        while waiting := [cell for cell in left if self._lacks(cell, found)]:
            started = time.monotonic()
            if started + longest > began + 60 * minutes:
                break
            alike = [c for c in waiting if self.program(c) == self.program(waiting[0])]
            together = alike[: self.most]
            folder = [out / self.name] if self.keeps else []
            measured = list(self.measure(together, found, quick, *folder))
            seconds = time.monotonic() - started
            longest = max(longest, seconds)
            for row in measured:
                write = revise if self.cell_of(row) in self.read(out) else append
                write(out / f"{self.name}.jsonl", row)
                yield f"{self.cell_of(row)}: {self.say(row)}, {seconds / len(measured):.0f} s"
            left = [cell for cell in left if cell not in together]
            found = self.read(out, quick)
        yield from self.close(list(found.values()))
        yield f"{len(waiting)} of {len(cells)} cells remain{'' if waiting else ': all done'}."
        if waiting:
            some = f" --only {shlex.quote(only)}" if only else ""
            yield f"To go on: mmrl experiment {self.name} --out {out}{some}"

    def _lacks(self, cell: Any, found: Rows) -> bool:
        row = found.get(cell.name)
        return row is None or self.outdated(row, found)

    def _turn(self, cell: Any, found: Rows) -> int:
        if cell.name not in found:
            return 2
        return int(not (self._lacks(cell, found) and tuning.stands(found[cell.name])))


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
