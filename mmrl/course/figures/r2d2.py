"""Figures of recurrent replay: returns by strategy, and how far Q values stray."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from mmrl.show import INK, STYLES, dress, figure

STRATEGIES = {
    "zero": "zero",
    "burn_in": "burn-in",
    "stored": "stored",
    "stored_burn_in": "stored +\nburn-in",
    "tape": "tape",
}
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
    """Greedy return at the end of training: a column per strategy, a mark per memory, with seeds.

    `rows` are those of one task, as `mmrl experiment r2d2` writes them: mark and bar are
    `interquartile_mean` and `interval_95`, dots are the last evaluation of each seed.
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
    _columns(ax, columns)
    _legend(ax, memories)
    return dress(ax, title, "greedy return, last evaluation", size=10)


def replayed(
    values: Mapping[str, Mapping[str, Float[np.ndarray, " _seed"]]],
    *,
    title: str = "",
    least: float = 1e-4,
    ax: Axes | None = None,
) -> Axes:
    """ΔQ = ‖Q(ĥ) - Q(h)‖₂ / |max Q(h)| by strategy, at the first and the last trained step.

    `values[strategy]["first"]` and `["last"]` hold one value per seed: bars are medians, written
    above the dots, which are the seeds. The axis is logarithmic and begins at `least`; of a median
    below it only the number is shown.
    """
    ax = figure()[1][0] if ax is None else ax
    columns = [name for name in STRATEGIES if name in values]
    looks = (("first", "#0072B2", ""), ("last", "#E69F00", "///"))
    for k, (place, color, hatch) in enumerate(looks):
        for x, name in enumerate(columns):
            seeds = np.asarray(values[name][place], float)
            middle, at = float(np.median(seeds)), x + 0.38 * (k - 0.5)
            if middle < least:
                ax.annotate(_small(middle), (at, least), xytext=(0, 4), **_CENTER)
                continue
            ax.bar(at, middle - least, 0.34, least, color=color, hatch=hatch, edgecolor="white")
            ax.plot(np.full(len(seeds), at), seeds, ".", color=INK, markersize=3, alpha=0.6)
            ax.annotate(f"{middle:.2g}", (at, seeds.max()), xytext=(0, 4), **_CENTER)
        ax.bar(0, 0, color=color, hatch=hatch, edgecolor="white", label=f"{place} trained step")
    ax.set_yscale("log")
    ax.set_ylim(bottom=least)
    ax.legend(frameon=False, labelcolor=INK, loc="upper right", fontsize=9)
    _columns(ax, columns)
    return dress(ax, title, "ΔQ, relative to the largest Q", size=10)


def measured(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
    """ΔQ of all `rows` together, for `replayed`: their seeds one after another."""
    with_states = [row["delta_q"] for row in rows if row.get("delta_q")]
    return {
        name: {
            place: np.concatenate([row[name][place] for row in with_states if name in row])
            for place in ("first", "last")
        }
        for name in STRATEGIES
        if any(name in row for row in with_states)
    }


def errors(
    curves: Mapping[str, Float[np.ndarray, " _x"]],
    x: Float[np.ndarray, " _x"] | None = None,
    *,
    xlabel: str,
    ylabel: str,
    log: bool = False,
    bounds: Sequence[str] = (),
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """One line per label of an error over `x`, by default 0, 1, …, on a logarithmic axis.

    Strategies come in their usual order. The labels in `bounds` are drawn thin and dark. `log` is
    of the horizontal axis.
    """
    ax = figure()[1][0] if ax is None else ax
    looks = iter(STYLES)
    known = {label: curves[label] for label in STRATEGIES if label in curves}
    for label, line in {**known, **curves}.items():
        bound = label in bounds
        style: dict[str, Any] = {"color": INK, "linestyle": "-"} if bound else dict(next(looks))
        look: dict[str, Any] = {"linewidth": 1.0 if bound else 2.0, "markersize": 5}
        at, look["markevery"] = np.arange(len(line)) if x is None else x, max(1, len(line) // 10)
        ax.plot(at, line, label=STRATEGIES.get(label, label).replace("\n", " "), **look | style)
    ax.set_yscale("log")
    if log:
        ax.set_xscale("log")
    ax.set_xlabel(xlabel, color=INK)
    ax.legend(frameon=False, labelcolor=INK, fontsize=9)
    return dress(ax, title, ylabel, size=10)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per row: return with its interval, what was trained, and what it cost per seed."""
    lines = []
    for row in rows:
        low, high = row["interval_95"]
        trained, seconds = row["trained_transitions"][-1], row["cpu_seconds"][-1]
        lines.append(
            f"{row['cell']:45s}{row['interquartile_mean']:6.2f}  [{low:5.2f}, {high:5.2f}]"
            f"{trained / 1e6:8.2f} M steps trained{seconds:8.0f} CPU-s"
        )
    return "\n".join(lines)


_CENTER: dict[str, Any] = {
    "textcoords": "offset points", "ha": "center", "fontsize": 8, "color": INK,
}  # fmt: skip


def _present(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The strategies and the memories that there are, in their usual order."""
    found, memories = ({row[name] for row in rows} for name in ("strategy", "memory"))
    columns = [name for name in STRATEGIES if name in found]
    return columns, sorted(memories, key=lambda name: MARKS.get(name, len(MARKS)))


def _small(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}"


def _columns(ax: Axes, columns: Sequence[str]) -> None:
    ax.set_xticks(range(len(columns)), [STRATEGIES[name] for name in columns], color=INK)
    ax.set_xlim(-0.6, len(columns) - 0.4)


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
