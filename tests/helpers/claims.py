"""What tests of claims share: the text of a chapter, and the figures that it takes from rows."""

import json
import pathlib
from typing import Any

import numpy as np

from mmrl.runs import interquartile_mean

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "notebooks"


def prose(name: str) -> str:
    """All text of a chapter, as one line."""
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    return " ".join(" ".join("".join(cell["source"]).split()) for cell in cells)


def ends(row: dict[str, Any]) -> float:
    """The interquartile mean over seeds of the last return."""
    return row["interquartile_mean"]


def area(row: dict[str, Any]) -> float:
    """The interquartile mean over seeds of the mean over a run."""
    return float(interquartile_mean(np.mean(row["returns"], axis=1)))


def apart(low: dict[str, Any], high: dict[str, Any]) -> bool:
    """Whether the interval of one lies below that of the other."""
    return low["interval_95"][1] < high["interval_95"][0]


def written(number: float, places: int = 2) -> str:
    """A number as chapters write it."""
    return f"{number:.{places}f}".replace("-", "−")
