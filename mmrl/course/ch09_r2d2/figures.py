"""Figure and table for R2D2: the return and the cost of each strategy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mmrl.course.figures.errors import STRATEGIES, name_columns
from mmrl.show import INK, STYLES, dress, figure

MARKS = {"lstm": 0, "lru": 1, "gru": 2, "ffm": 3, "s5": 4}
WORDS = {"lstm": "LSTM", "lru": "LRU", "gru": "GRU", "ffm": "FFM", "s5": "S5"}


def strategies(
    rows: Sequence[Mapping[str, Any]],
    *,
    chance: float | None = None,
    best: float | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the final greedy return, with one column per strategy and one mark per memory.

    `rows` must be rows of `mmrl experiment r2d2` for a single task. The mark shows
    `interquartile_mean`, the bar `interval_95`, and the dots the last evaluation of each seed.
    """
    ax = figure()[1][0] if ax is None else ax
    columns, memories = _present(rows)
    for row in rows:
        k = memories.index(row["memory"])
        x = columns.index(row["strategy"]) + 0.16 * (k - (len(memories) - 1) / 2)
        style, (low, high) = STYLES[MARKS.get(row["memory"], 6)], row["interval_95"]
        color = style["color"]
        seeds = np.array(row["returns"])[:, -1]
        ax.plot(np.full(len(seeds), x + 0.05), seeds, ".", color=color, markersize=3, alpha=0.5)
        ax.plot([x, x], [low, high], color=color, linewidth=2, solid_capstyle="butt")
        mark = {"color": color, "marker": style["marker"], "markersize": 7, "linestyle": ""}
        ax.plot(x, row["interquartile_mean"], zorder=3, **mark)
    _references(ax, {"chance": chance, "best": best})
    name_columns(ax, columns)
    _legend(ax, memories)
    return dress(ax, title, "greedy return, last evaluation", size=10)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the return, its interval, and the cost of each row."""
    lines = []
    for row in rows:
        low, high = row["interval_95"]
        transitions, seconds = row["trained_transitions"][-1], row["cpu_seconds"][-1]
        lines.append(
            f"{row['cell']:45s}{row['interquartile_mean']:6.2f}  [{low:5.2f}, {high:5.2f}]"
            f"{transitions / 1e6:8.2f} M steps trained{seconds:8.0f} CPU-s"
        )
    return "\n".join(lines)


def _present(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the strategies and the memories in `rows`, in their usual order."""
    strategies, memories = ({row[name] for row in rows} for name in ("strategy", "memory"))
    columns = [name for name in STRATEGIES if name in strategies]
    return columns, sorted(memories, key=lambda name: MARKS.get(name, len(MARKS)))


def _references(ax: Axes, heights: Mapping[str, float | None]) -> None:
    for name, height in heights.items():
        if height is not None:
            ax.axhline(height, color=INK, linewidth=0.8, alpha=0.6, zorder=1)
            ax.annotate(
                name, (-0.58, height), xytext=(0, 3), textcoords="offset points", fontsize=8
            )


def _legend(ax: Axes, memories: Sequence[str]) -> None:
    for name in memories:
        style = STYLES[MARKS.get(name, 6)]
        look = {"color": style["color"], "marker": style["marker"], "linestyle": ""}
        ax.plot([], [], label=WORDS.get(name, name), **look)
    ax.legend(frameon=False, labelcolor=INK, fontsize=9, loc="best")
