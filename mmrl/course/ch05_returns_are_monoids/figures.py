"""Figures for returns: the time of each method, and the values that critics learn."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from mmrl.runs import interval
from mmrl.show import GRID, INK, STYLES, dress, figure


def timing(
    rows: Sequence[Mapping[str, Any]], *, reference: str, title: str = "", ax: Axes | None = None
) -> Axes:
    """Draw the speed of each method relative to `reference`, with one mark per batch.

    `rows` are the rows of `mmrl experiment returns_timing`. Each contains "episodes", "longest" and
    "ms", the time of each method. The axis is logarithmic.
    """
    ax = figure()[1][0] if ax is None else ax
    speed = {
        name: [row["ms"][reference] / row["ms"][name] for row in rows] for name in rows[0]["ms"]
    }
    names = sorted(speed, key=lambda name: -np.mean(np.log(speed[name])))
    for i, name in enumerate(names):
        ax.plot((min(speed[name]), max(speed[name])), (i, i), color=GRID, linewidth=6, zorder=1)
    for j, (row, style) in enumerate(zip(rows, STYLES, strict=False)):
        steps = f"{row['episodes']} episodes of 1 to {row['longest'] - 1} steps"
        ax.plot(
            [speed[name][j] for name in names],
            range(len(names)),
            linestyle="none",
            color=style["color"],
            marker=style["marker"],
            markersize=7,
            label=steps,
        )
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}×")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel(f"times as fast as a {reference}", color=INK)
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2, frameon=False, labelcolor=INK)
    return dress(ax, title, grid="x")


def error_by_trace(
    errors: Float[np.ndarray, "_trace _seed"],
    lams: Float[np.ndarray, " _trace"],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the error at each λ: the interquartile mean over seeds, with its 95 % interval."""
    ax = figure()[1][0] if ax is None else ax
    middle, low, high = np.array([interval(row) for row in errors]).T
    places = np.arange(len(lams))  # A linear axis would crowd the values near 1.
    color = STYLES[0]["color"]
    ax.plot(np.repeat(places, errors.shape[1]), errors.ravel(), ".", color=color, alpha=0.25)
    ax.errorbar(places, middle, (middle - low, high - middle), color=color, marker="o", linewidth=2)
    best = int(np.argmin(middle))
    ax.annotate(
        f"minimum: λ = {lams[best]:g}",
        (best, 0),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        color=color,
        fontweight="bold",
    )
    ax.set_xticks(places, [f"{lam:g}" for lam in lams])
    ax.set_ylim(bottom=0)
    ax.set_xlabel(
        f"λ, each with its best learning rate\n{errors.shape[1]} seeds: interquartile mean, 95 % "
        "bootstrap interval",
        color=INK,
    )
    ax.set_ylabel("error of the values (root mean square)", color=INK)
    return dress(ax, title)


def state_values(
    estimates: Mapping[str, Float[np.ndarray, "_seed _state"]],
    truth: Float[np.ndarray, " _state"],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the true value of each state, and the learned values with 95 % intervals over seeds."""
    ax = figure()[1][0] if ax is None else ax
    states = np.arange(1, len(truth) + 1)
    ax.plot(states, truth, color=INK, linewidth=1.2, label="truth")
    for (label, values), style in zip(estimates.items(), STYLES, strict=False):
        middle, low, high = np.array([interval(column) for column in values.T]).T
        ax.fill_between(states, low, high, color=style["color"], alpha=0.18, linewidth=0)
        ax.plot(
            states,
            middle,
            color=style["color"],
            linestyle=style["linestyle"],
            marker=style["marker"],
            markersize=5,
            markevery=2,
            linewidth=2,
            label=label,
        )
    ax.axhline(0, color=GRID, linewidth=0.8)
    seeds = {len(values) for values in estimates.values()}
    ax.set_xlabel(
        f"state\n{min(seeds)} seeds: interquartile mean, 95 % bootstrap interval", color=INK
    )
    ax.set_ylabel("value", color=INK)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False, labelcolor="linecolor")
    return dress(ax, title)
