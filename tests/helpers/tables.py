"""Tables of measured rows, and changes of rows that claims about them must notice."""

import functools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.course.figures.scores import sampled
from mmrl.runs.checkpoint import loads

BOOK = Path(__file__).parents[2] / "book"
Row = dict[str, Any]


class Rows(list[Row]):
    """Rows of one file, also by cell: `rows["CartPole-v1, dqn, lru"]`."""

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return super().__getitem__(which)
        (row,) = (row for row in self if which in (row.get("cell"), row.get("name")))
        return row

    def __call__(self, **fields: Any) -> "Rows":
        """Return the rows with these fields."""
        wanted = fields.items()
        return Rows(row for row in self if all(row.get(k) == value for k, value in wanted))

    def one(self, **fields: Any) -> Row:
        """Return the only row with these fields."""
        (row,) = self(**fields)
        return row


@functools.cache
def read() -> dict[str, list[Row]]:
    """Read all rows, by the name of their file; `gpu_` begins the names of a GPU's."""
    found = {}
    for path in sorted(BOOK.glob("results/**/*.jsonl")):
        name = f"gpu_{path.stem}" if path.parent.name == "gpu" else path.stem
        found[name] = [loads(line) for line in path.read_text("utf-8").splitlines()]
    entries = sorted(BOOK.glob("results/capstone/*.json"))
    return found | {"capstone": [loads(path.read_text("utf-8")) for path in entries]}


def tables(rows: Mapping[str, list[Row]]) -> dict[str, Rows]:
    """The names of tables in expressions; rows of forgetting are those of sampled actions."""
    return {
        name: Rows(map(sampled, each) if name == "forgetting" else each)
        for name, each in rows.items()
    }


class Noise:
    """Changes every number of these types in a value at random."""

    def __init__(self, *types: type):
        self.types, self.draw = types, random.Random(0).uniform

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self(each) for each in value]
        if type(value) not in self.types:
            return value
        moved = value + (2 * abs(value) + 0.5) * self.draw(-1, 1)
        return round(moved) if isinstance(value, int) else moved


def shorter(value: Any) -> Any:
    """Drop the last entry of a list or a dictionary, or the last letter of a text."""
    if isinstance(value, dict):
        return dict([*value.items()][:-1])
    return value[:-1] if isinstance(value, list | str) else value
