"""Modifications of measured rows, which test whether the claims about these rows fail."""

import random
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "book" / "tools")]
from ledgers import Row, Rows, read, tables  # noqa: E402

__all__ = ["Noise", "Row", "Rows", "read", "shorter", "tables"]


class Noise:
    """Function that randomly changes every number of the given types in a nested value."""

    def __init__(self, *types: type):
        self.types, self.draw = types, random.Random(0).uniform

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self(each) for each in value]
        if type(value) not in self.types:
            return value
        other = value + (2 * abs(value) + 0.5) * self.draw(-1, 1)
        return round(other) if isinstance(value, int) else other


def shorter(value: Any) -> Any:
    """Drop the last entry of a list or a dictionary, or the last character of a string."""
    if isinstance(value, dict):
        return dict([*value.items()][:-1])
    return value[:-1] if isinstance(value, list | str) else value
