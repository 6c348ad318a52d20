"""Tables of published rows, for the expressions in claims and verdicts."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.course.experiments import EXPERIMENTS
from mmrl.course.figures.scores import sampled_scores
from mmrl.runs.checkpoint import loads

BOOK = Path(__file__).parent.parent
Row = dict[str, Any]


class Rows(list[Row]):
    """Rows of one file, which can be indexed by cell: `rows["CartPole-v1, dqn, lru"]`."""

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return super().__getitem__(which)
        (row,) = (row for row in self if which in (row.get("cell"), row.get("name")))
        return row

    def __call__(self, **fields: Any) -> "Rows":
        """Return the rows whose fields have the given values.

        Raises `ValueError` if no row has one of the fields.
        """
        if self and (names := fields.keys() - {name for row in self for name in row}):
            raise ValueError(f"`fields` must be fields of the rows; got {sorted(names)}.")
        items = fields.items()
        return Rows(row for row in self if all(row.get(k) == value for k, value in items))

    def one(self, **fields: Any) -> Row:
        """Return the only row whose fields have the given values."""
        rows = self(**fields)
        if len(rows) != 1:
            raise ValueError(f"`rows` must have one row with {fields}; got {len(rows)}.")
        return rows[0]


@functools.cache
def read() -> dict[str, list[Row]]:
    """Read all published rows, keyed by file name. Names of GPU results begin with `gpu_`."""
    rows = {}
    for path in sorted(BOOK.glob("results/**/*.jsonl")):
        name = f"gpu_{path.stem}" if path.parent.name == "gpu" else path.stem
        rows[name] = [loads(line) for line in path.read_text("utf-8").splitlines()]
    entries = sorted(BOOK.glob("results/capstone/*.json"))
    return rows | {"capstone": [loads(path.read_text("utf-8")) for path in entries]}


def published_tables() -> dict[str, Rows]:
    """Return the tables of all experiments, which are empty for experiments without rows."""
    return {name: Rows() for name in EXPERIMENTS} | tables(read())


def tables(rows: Mapping[str, list[Row]]) -> dict[str, Rows]:
    """Convert rows to tables. Scores of sampled actions, if present, replace greedy scores."""
    return {
        name: Rows(sampled_scores(row) if "sampled" in row else row for row in each)
        for name, each in rows.items()
    }
