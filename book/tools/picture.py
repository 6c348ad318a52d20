"""Plot learning curves from published rows to book/static/curves.svg, which the README shows."""

import json
from pathlib import Path

import matplotlib
import numpy as np

from mmrl import show

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "book" / "results" / "batching.jsonl"
PICTURE = ROOT / "book" / "static" / "curves.svg"
CELLS = ("tape", "segments of 20", "segments of 10")


def main() -> None:
    """Plot the learning curves of DQN with an LRU on RepeatPrevious, with tapes and segments."""
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "mmrl"}
    lines = ROWS.read_text("utf-8").splitlines()
    rows = {row["cell"]: row for row in map(json.loads, lines)}
    cells = {name: rows[f"RepeatPreviousPaper, lru, {name}"] for name in CELLS}
    curves = {name: np.array(row["returns"]) for name, row in cells.items()}
    steps = np.array(cells["tape"]["env_steps"])
    fig, (ax,) = show.figure(width=7.2, height=3.3)
    title = "RepeatPrevious: DQN with a linear recurrent unit"
    show.learning_curves(curves, steps, title=title, ax=ax, chance=-0.5, best=1.0)
    fig.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
