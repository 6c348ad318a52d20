"""Figures for batching: returns on tapes and on segments, and the time of a gradient step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mmrl.show import GRID, INK, STYLES, dress, figure

MARKS = {"lru": 0, "gru": 1, "ffm": 2, "s5": 3, "linear_attention": 4}

WORDS = {
    "lru": "LRU",
    "gru": "GRU",
    "ffm": "FFM",
    "s5": "S5",
    "linear_attention": "linear attention",
}


def label(row: Mapping[str, Any]) -> str:
    """Return a short label for the batching of a row."""
    return f"L = {row['segment_length']}" if row["segment_length"] else "tape"


def outcomes(rows: Sequence[Mapping[str, Any]], *, chance: float, best: float, ax: Axes) -> Axes:
    """Draw interquartile means with intervals, in one column per batching method.

    `rows` must be rows of `mmrl experiment batching` for a single task. Each memory has its own
    mark.
    """
    lengths = sorted({row["segment_length"] for row in rows}, key=lambda n: n or np.inf)
    memories = [name for name in MARKS if any(row["memory"] == name for row in rows)]
    for row in rows:
        shift = 0.13 * (memories.index(row["memory"]) - (len(memories) - 1) / 2)
        _mark(ax, lengths.index(row["segment_length"]) + shift, row, STYLES[MARKS[row["memory"]]])
    for height, word in ((chance, "chance"), (best, "best")):
        ax.axhline(height, color=INK, linewidth=0.8, alpha=0.6, zorder=1)
        ax.annotate(word, (-0.45, height), xytext=(0, 3), textcoords="offset points", fontsize=8)
    ax.set_xticks(range(len(lengths)), [f"L = {n}" if n else "tape" for n in lengths])
    ax.set_xlim(-0.5, len(lengths) - 0.5)
    _legend(ax, [(WORDS[name], STYLES[MARKS[name]]) for name in memories])
    return dress(
        ax,
        ylabel="greedy return, last evaluation",
        xlabel="segments of L steps, or complete episodes",
    )


def quirks(rows: Sequence[Mapping[str, Any]], *, ax: Axes) -> Axes:
    """Draw interquartile means with intervals, one line per combination of quirks and batching."""
    names = [_setting(row) for row in rows]
    for height, (row, style) in enumerate(zip(rows, map(_side, rows), strict=True)):
        low, high = row["interval_95"]
        middle = row["interquartile_mean"]
        ax.plot(
            [low, high], [-height] * 2, color=style["color"], linewidth=2, solid_capstyle="butt"
        )
        ax.plot(middle, -height, markersize=7, linestyle="", **_point(style))
        ax.annotate(
            f"{middle:.2f}", (high, -height), xytext=(8, -3), textcoords="offset points", fontsize=9
        )
    ax.set_yticks([-i for i in range(len(rows))], names)
    ax.set_ylim(-len(rows) + 0.4, 0.6)
    return dress(ax, xlabel="greedy return, last evaluation", grid="x")


def times(rows: Sequence[Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """Draw milliseconds per gradient step, with one line per memory and one mark per batching."""
    ax = figure()[1][0] if ax is None else ax
    memories = [name for name in MARKS if any(row["memory"] == name for row in rows)]
    lengths = sorted({row["segment_length"] for row in rows})
    for height, memory in enumerate(memories):
        mine = [row for row in rows if row["memory"] == memory]
        values = [1000 * row["seconds"] for row in mine]
        ax.plot([min(values), max(values)], [-height] * 2, color=GRID, linewidth=3, zorder=1)
        for row, value in zip(mine, values, strict=True):
            style = STYLES[lengths.index(row["segment_length"])]
            ax.plot(value, -height, markersize=7, linestyle="", **_point(style))
    ax.set_yticks([-i for i in range(len(memories))], [WORDS[name] for name in memories])
    ax.set_xlim(left=0)
    names = ["tape" if n == 0 else f"segments, L = {n}" for n in lengths]
    _legend(ax, list(zip(names, STYLES, strict=False)))
    return dress(ax, xlabel="milliseconds per gradient step", grid="x")


def _setting(row: Mapping[str, Any]) -> str:
    return f"{label(row)}: {' and '.join(row['quirks']) or 'no quirk'}"


def _side(row: Mapping[str, Any]) -> dict[str, Any]:
    return STYLES[1 if row["segment_length"] else 0]


def _mark(ax: Axes, x: float, row: Mapping[str, Any], style: Mapping[str, Any]) -> None:
    low, high = row["interval_95"]
    ax.plot([x, x], [low, high], color=style["color"], linewidth=2, solid_capstyle="butt", zorder=2)
    ax.plot(x, row["interquartile_mean"], markersize=6, linestyle="", zorder=3, **_point(style))


def _point(style: Mapping[str, Any]) -> dict[str, Any]:
    return {"color": style["color"], "marker": style["marker"]}


def _legend(ax: Axes, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    for name, style in entries:
        ax.plot([], [], linestyle="", label=name, **_point(style))
    ax.legend(frameon=False, fontsize=9, labelcolor=INK, loc="best")
