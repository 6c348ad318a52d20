"""Figures of how Q depends on the past: by age, and outside the segment."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from mmrl.runs import interval
from mmrl.show import GRID, INK, STYLES, dress, figure


def by_age(
    sizes: Mapping[str, Float[np.ndarray, "_seed _age"]],
    *,
    required_age: int | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the fraction of Σ_i |∂Q/∂o_i| that is due to observations of each age.

    `sizes` maps the name of an agent to one row per seed, and each row is divided by its sum. Thin
    lines are seeds, and thick lines their means. `required_age` marks the age of the observation
    that the task requires. The vertical axis is logarithmic and starts at 10⁻⁴. Raises `ValueError`
    if a row sums to 0.
    """
    ax = figure()[1][0] if ax is None else ax
    for (label, rows), style in zip(sizes.items(), STYLES, strict=False):
        share, ages = _shares(label, rows), np.arange(rows.shape[1])
        ax.plot(ages, share.T, color=style["color"], linewidth=0.5, alpha=0.3)
        look = {"linewidth": 1.8, "markersize": 5, "markevery": 0.1, **style}
        ax.plot(ages, share.mean(0), label=label, **look)
    if required_age is not None:
        ax.axvline(required_age, color=INK, linewidth=0.8, alpha=0.6, zorder=1)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        ax.annotate(" needed", (required_age, 1), xytext=(2, -10), color=INK, fontsize=9, **place)
    ax.set_yscale("log")
    ax.set_ylim(1e-4, 1.2)
    ax.set_xlabel("age of the observation in steps", color=INK)
    ax.set_ylabel("fraction of the sum", color=INK)
    ax.legend(frameon=False, labelcolor=INK, loc="upper right")
    dress(ax, title, size=10)
    return ax


def outside(
    shares: Mapping[str, Mapping[str, Float[np.ndarray, " _seed"]]],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the percentage outside the segment, with one line per agent and one mark per measure.

    `shares[agent][measure]` contains one fraction per seed. Marks are interquartile means, and bars
    are 95 % bootstrap intervals.
    """
    ax = figure()[1][0] if ax is None else ax
    measures = list(dict.fromkeys(name for row in shares.values() for name in row))
    for k, (name, style) in enumerate(zip(measures, STYLES, strict=False)):
        height = np.arange(len(shares)) + 0.18 * (k - (len(measures) - 1) / 2)
        values = np.array([interval(np.asarray(row[name])) for row in shares.values()]).T
        middle, low, high = 100 * values
        color = style["color"]
        ax.hlines(height, low, high, color=color, linewidth=2, alpha=0.6)
        ax.scatter(middle, height, s=50, color=color, marker=style["marker"], label=name)
    ax.set_yticks(range(len(shares)), list(shares), color=INK)
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of the sum", color=INK)
    ax.legend(frameon=False, labelcolor=INK, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    dress(ax, title, size=10)
    ax.grid(axis="x", color=GRID, linewidth=0.8)
    return ax


def _shares(label: str, rows: Float[np.ndarray, "seed age"]) -> Float[np.ndarray, "seed age"]:
    total = np.abs(rows).sum(axis=1, keepdims=True)
    if not (np.isfinite(total).all() and (total > 0).all()):
        raise ValueError(
            f"`sizes[{label!r}]` must have a finite sum above 0 in every row; got {total.ravel()}."
        )
    return np.abs(rows) / total
