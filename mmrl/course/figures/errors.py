"""Plots of errors on a logarithmic axis, and labels of the strategies for recurrent states."""

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
    """Plot each error against `x` (default: 0, 1, …) with a logarithmic vertical axis.

    Strategies are drawn first, in the order of `STRATEGIES`. Curves whose labels are in `bounds`
    are drawn as thin dark lines. If `log` is True, the horizontal axis is also logarithmic.
    """
    ax = figure()[1][0] if ax is None else ax
    looks = iter(STYLES)
    first = {label: curves[label] for label in STRATEGIES if label in curves}
    for label, line in {**first, **curves}.items():
        is_bound = label in bounds
        style: dict[str, Any] = {"color": INK, "linestyle": "-"} if is_bound else dict(next(looks))
        look: dict[str, Any] = {"linewidth": 1.0 if is_bound else 2.0, "markersize": 5}
        at, look["markevery"] = np.arange(len(line)) if x is None else x, max(1, len(line) // 10)
        ax.plot(at, line, label=STRATEGIES.get(label, label).replace("\n", " "), **look | style)
    ax.set_yscale("log")
    if log:
        ax.set_xscale("log")
    ax.set_xlabel(xlabel, color=INK)
    ax.legend(frameon=False, labelcolor=INK, fontsize=9)
    return dress(ax, title, ylabel, size=10)


def name_columns(ax: Axes, columns: Sequence[str]) -> None:
    """Label the columns of a plot with the names of their strategies."""
    ax.set_xticks(range(len(columns)), [STRATEGIES[name] for name in columns], color=INK)
    ax.set_xlim(-0.6, len(columns) - 0.4)
