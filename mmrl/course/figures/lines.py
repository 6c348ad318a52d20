"""Line plots with labels at the ends of the lines."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from mmrl.show import INK, STYLES, dress, figure, label_ends, learning_curves

LOOKS: Sequence[dict[str, Any]] = STYLES


def by_step(
    values: Mapping[str, Float[np.ndarray, " time"]],
    *,
    ylabel: str,
    chance: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot each series against the steps of an episode, with labels at the ends."""
    ax = figure()[1][0] if ax is None else ax
    ends: dict[str, float] = {}
    most = 0
    for (label, line), style in zip(values.items(), LOOKS, strict=False):
        time = np.arange(len(line))
        ax.plot(time, line, linewidth=2, markersize=5, markevery=0.1, clip_on=False, **style)
        ends[label], most = float(line[-1]), max(most, len(line))
    if chance is not None:
        ax.axhline(chance, color=INK, linewidth=0.8, alpha=0.6)
        ax.annotate("chance", (0, chance), xytext=(3, -11), textcoords="offset points", fontsize=8)
    ax.set_xlim(0, most - 1)
    ax.set_ylim(bottom=0)
    label_ends(ax, most - 1, ends, LOOKS)
    return dress(ax, ylabel=ylabel, xlabel="step of the episode, t")


def lines(
    curves: Mapping[str, Float[np.ndarray, " _x"]],
    x: Integer[np.ndarray, " _x"],
    *,
    xlabel: str,
    ylabel: str,
    log: bool = False,
    references: Mapping[str, float] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot each curve against `x`, and draw thin horizontal lines at `references`.

    Labels are drawn at the ends of the curves. If `log` is True, the horizontal axis is
    logarithmic.
    """
    ax = figure()[1][0] if ax is None else ax
    for (_, values), style in zip(curves.items(), STYLES, strict=False):
        ax.plot(x, values, color=style["color"], linestyle=style["linestyle"], linewidth=1.8)
    label_ends(ax, float(x[-1]), {label: float(values[-1]) for label, values in curves.items()})
    for label, height in (references or {}).items():
        ax.axhline(height, color=INK, linewidth=0.8, alpha=0.6, zorder=1)
        below = height == min((references or {}).values())
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data")}
        place |= {"xytext": (0, -12 if below else 4), "textcoords": "offset points"}
        ax.annotate(label, (0.45, height), color=INK, fontsize=9, **place)
    if log:
        ax.set_xscale("log")
    ax.set_xlim(float(x[0]), float(x[-1]))
    ax.set_xlabel(xlabel, color=INK)
    ax.set_ylabel(ylabel, color=INK)
    dress(ax, title, size=10)
    return ax


def paths(
    lines: Mapping[str, Float[np.ndarray, " _x"]],
    x: Mapping[str, Float[np.ndarray, " _x"]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot each series against a separate `x`, with labels at the right ends."""
    ax = figure()[1][0] if ax is None else ax
    for (label, line), style in zip(lines.items(), STYLES, strict=False):
        look: dict[str, Any] = {"linewidth": 2, "markersize": 5, **style}
        ax.plot(x[label], line, markevery=max(1, len(line) // 8), **look)
    end = max(float(np.max(x[label])) for label in lines)
    ax.set_xlim(0, end)
    ax.set_xlabel(xlabel, color=INK)
    label_ends(ax, end, {label: float(line[-1]) for label, line in lines.items()})
    return dress(ax, title, ylabel, size=10)


def recall_curves(
    returns: Mapping[str, Float[np.ndarray, "_seed _eval"]],
    env_steps: Integer[np.ndarray, " eval"],
    blind: float,
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw `learning_curves`, and a line at `blind`, the best return if order is not remembered."""
    by_label = {name.replace("_", " "): curves for name, curves in returns.items()}
    ax = learning_curves(by_label, env_steps, title=title, ax=ax, chance=-0.5, best=1.0)
    ax.axhline(blind, color=INK, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
    text = ax.annotate(
        "best without order",
        (0.98, blind),
        xycoords=("axes fraction", "data"),
        xytext=(0, 5),
        textcoords="offset points",
        ha="right",
        color=INK,
        fontsize=8,
    )
    text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
    return ax
