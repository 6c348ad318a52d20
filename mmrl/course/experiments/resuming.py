"""Go on with an experiment where it stopped: first what an earlier rule chose, then new rows."""

import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mmrl.course.experiments import tuning
from mmrl.runs import append, revise
from mmrl.runs.checkpoint import loads


def read(path: pathlib.Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by their cells; none if there is no file."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {row["cell"]: row for row in (loads(line) for line in lines if line)}


def resume(
    name: str,
    out: pathlib.Path,
    cells: Sequence[Any],
    measure: Callable[..., dict[str, Any]],
    say: Callable[[dict[str, Any]], str],
    minutes: float,
    quick: bool,
    outdated: Callable[[dict[str, Any]], bool] = lambda row: False,
) -> Iterator[str]:
    """Measure every cell that `out/<name>.jsonl` lacks, while there is time for another.

    Rows that are `outdated` come first, and of those the ones that need no training:
    `measure(cell, quick, row)` brings one up to date.
    """
    path, began, last = out / f"{name}.jsonl", time.monotonic(), 0.0
    there, remain = read(path), 0

    def turn(cell: Any) -> int:
        row = there.get(cell.name)
        return 2 if row is None else int(not tuning.stands(row))

    for cell in sorted(cells, key=turn):
        row, started = read(path).get(cell.name), time.monotonic()
        if row is not None and not outdated(row):
            continue
        if remain or started + last > began + 60 * minutes:
            remain += 1
            continue
        if row is None:
            row = measure(cell, quick)
            append(path, row)
        else:
            row = measure(cell, quick, row)
            revise(path, row)
        last = time.monotonic() - started
        yield f"{row['cell']}: {say(row)}, {last:.0f} s"
    yield f"{remain} of {len(cells)} cells remain{'' if remain else ': all done'}."
    if remain:
        yield f"To go on: mmrl experiment {name} --out {out}"
