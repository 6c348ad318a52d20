"""Figures for proximal policies: staleness, gains per task, and weight against average."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from mmrl.show import INK, STYLES, dress, figure

PROXIMAL = ("decoupled", "recent", "behavior")


def area_by_staleness(
    rows: Sequence[Mapping[str, Any]],
    rate: float | None = None,
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the area under the learning curve against staleness, one line per proximal policy.

    `rows` must be rows of `mmrl experiment staleness` for a single task. `rate` is the learning
    rate, by default the best rate of each row. Lines are interquartile means with 95 % intervals,
    and dots are seeds. All lines start at the same point, because without staleness all policies
    are equal. Raises `ValueError` for rows of several tasks, or if there is not exactly one row
    with staleness 0.
    """
    tasks, fresh = {row["task"] for row in rows}, [row for row in rows if row["staleness"] == 0]
    if len(tasks) != 1 or len(fresh) != 1:
        raise ValueError(
            "`rows` must have a single task and one row with staleness 0, got tasks "
            f"{sorted(tasks)} and {len(fresh)} rows with staleness 0."
        )
    ax = figure()[1][0] if ax is None else ax
    columns = sorted({row["staleness"] for row in rows})
    for k, name in enumerate(PROXIMAL):
        mine = sorted(
            (row for row in rows if row["staleness"] and row["proximal"] == name),
            key=lambda row: row["staleness"],
        )
        if not mine:
            continue
        x = [columns.index(row["staleness"]) + 0.08 * (k - 1) for row in (*fresh, *mine)]
        _line(ax, x, [_at(row, rate) for row in (*fresh, *mine)], STYLES[k], name)
    ax.set_xticks(range(len(columns)), [str(value) for value in columns])
    ax.set_xlim(-0.3, len(columns) - 0.7)
    ax.set_xlabel("staleness, iterations", color=INK)
    ax.legend(frameon=False, labelcolor=INK, fontsize=9)
    return dress(ax, title, "area under the learning curve, normalized")


def _at(row: Mapping[str, Any], rate: float | None) -> tuple[float, Sequence[float], Any]:
    """Return the mean, the interval and the seeds of a row at a learning rate."""
    k = row["rates"].index(row["learning_rate"] if rate is None else rate)
    return row["interquartile_mean"][k], row["interval_95"][k], row["areas"][k]


def _line(ax: Axes, x: Sequence[float], points: Sequence[Any], style: Any, label: str) -> None:
    color = style["color"]
    for at, (_, (low, high), seeds) in zip(x, points, strict=True):
        ax.plot([at, at], [low, high], color=color, linewidth=2, solid_capstyle="butt")
        ax.plot(np.full(len(seeds), at), seeds, ".", color=color, markersize=3, alpha=0.5)
    ax.plot(x, [middle for middle, *_ in points], linewidth=1.6, markersize=6, label=label, **style)


def gains(rows: Sequence[Mapping[str, Any]], *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw the gain in area from the average, per task, with 95 % intervals.

    `rows` are the comparisons of `mmrl experiment ewma`. The legend shows the p-value of each test
    over all tasks.
    """
    ax = figure()[1][0] if ax is None else ax
    tasks = list(dict.fromkeys(task for row in rows for task in row["tasks"]))
    for k, row in enumerate(rows):
        style = STYLES[k]
        name = f"{row['cell']}, p = {row['p']['area']:.2g}"
        x = [tasks.index(task) + 0.16 * (k - (len(rows) - 1) / 2) for task in row["tasks"]]
        for at, (low, high) in zip(x, row["area_interval_95"], strict=True):
            ax.plot([at, at], [low, high], color=style["color"], linewidth=2)
        mark = {**style, "linestyle": "", "markersize": 7}
        ax.plot(x, row["area_difference"], zorder=3, label=name, **mark)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_xticks(range(len(tasks)), tasks)
    ax.set_xlim(-0.5, len(tasks) - 0.5)
    ax.legend(frameon=False, labelcolor=INK, fontsize=9)
    return dress(ax, title, "gain in area, normalized")


def bands(
    values: Float[np.ndarray, "weight center"],
    weights: Sequence[float],
    centers: Sequence[float],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw `values` as a heat map over KL weight β (upward) and center of mass (to the right).

    Dark cells are high. If both axes are powers of the same number, β · COM is constant along
    diagonals from the upper left to the lower right. A quantity that depends only on this product
    shows diagonal bands.
    """
    ax = figure()[1][0] if ax is None else ax
    ax.imshow(values, origin="lower", aspect="auto", cmap="cividis_r")
    middle = (np.min(values) + np.max(values)) / 2
    for (i, k), value in np.ndenumerate(np.asarray(values)):
        color = "white" if value > middle else "black"
        ax.text(k, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=color)
    ax.set_xticks(range(len(centers)), [f"{center:g}" for center in centers])
    ax.set_yticks(range(len(weights)), [f"{weight:g}" for weight in weights])
    ax.set_xlabel("center of mass of the average, gradient steps", color=INK)
    dress(ax, title, "KL weight β")
    ax.grid(visible=False)
    return ax
