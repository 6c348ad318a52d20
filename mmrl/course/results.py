"""Access to the published rows of the course's experiments."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmrl.course.experiments.tuning import is_stale
from mmrl.runs import provenance
from mmrl.runs.checkpoint import dumps, loads
from mmrl.runs.files import expand, open_exclusive, replace, write_errors
from mmrl.runs.results import whole_lines

RESULTS = pathlib.Path(__file__).parent / "published"  # a symbolic link to the book's results


def published_rows(name: str) -> list[dict[str, Any]]:
    """Read the published rows of one experiment, oldest first.

    Raises `ValueError` for a name without published rows.
    """
    try:
        lines = (RESULTS / f"{name}.jsonl").read_text("utf-8").splitlines()
    except FileNotFoundError:
        names = sorted(path.stem for path in RESULTS.glob("*.jsonl"))
        raise ValueError(f"`name` must be one of {', '.join(names)}; got {name!r}.") from None
    return [loads(line) for line in lines]


def tuning_note(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe how the learning rates of the rows were chosen."""
    sweeps = [row for row in rows if row.get("tuning")]
    older = [row for row in sweeps if is_stale(row)]
    newer = [row for row in sweeps if not is_stale(row)]
    lines = []
    if newer:
        at_end = sum(row["tuning_at_bound"] for row in newer)
        but = f", except for {at_end} at the end of the grid" * (at_end > 0)
        lines.append(
            f"{len(newer)} of {len(sweeps)} learning rates were chosen by score, then by area, "
            f"after trying both neighbors on the grid{but}."
        )
    if older:
        grids = [[float(rate) for rate in row["tuning"]] for row in older]
        edge = sum(
            r["learning_rate"] in (min(x), max(x)) for r, x in zip(older, grids, strict=True)
        )
        lines.append(
            f"{len(older)} of {len(sweeps)} learning rates are the best of a few by an earlier "
            f"rule; {edge} of these are the smallest or the largest, so others may be better."
        )
    return "\n".join(lines)


def revise(
    path: str | os.PathLike,
    row: dict[str, Any],
    cell_of: Callable[[dict[str, Any]], str] = lambda row: row["cell"],
) -> None:
    """Replace the last row of the same cell in a file.

    If the row already has a date, its provenance is kept; otherwise the current provenance is
    added. Raises `RunError` if the file cannot be written, and `ValueError` if the file has no row
    of this cell.
    """
    path = expand(path)
    with write_errors(path.parent), open_exclusive(path):
        lines = whole_lines(path.read_bytes()).splitlines()
        places = [i for i, line in enumerate(lines) if cell_of(loads(line)) == cell_of(row)]
        if not places:
            raise ValueError(f"`row` must belong to a cell in {path}; got {cell_of(row)!r}.")
        lines[places[-1]] = dumps(row if "date" in row else {**row, **provenance()}).encode()
        replace(path, b"\n".join(lines) + b"\n")
