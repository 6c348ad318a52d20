"""Figures of how Q depends on the past: by age, and outside the segment."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from mmrl.runs import interval
from mmrl.show import GRID, INK, STYLES, dress, figure, learning_curves


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


def over_training(
    row: Mapping[str, Any], measures: Mapping[str, Any], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Draw measures of a row of `gradients` against the environment steps of training.

    `measures` maps a label to values [time][seed], such as the cosines `row["cosine"]["10"]`, or
    the fraction `row["outside"]` of the gradient on old observations. Lines are interquartile means
    over seeds, with 95 % bootstrap intervals.
    """
    curves = {label: np.array(values, float).T for label, values in measures.items()}
    ax = learning_curves(curves, np.array(row["measured_at"]), title=title, ax=ax)
    ax.set_ylabel("cosine or fraction", color=INK)
    return ax


def truncated_gradients(row: Mapping[str, Any], axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Draw Figures 3 and 7 of Morad et al. (2024) for the agents of a row of `gradients`.

    The three panels are separate figures unless `axes` is given, because only the first one is
    logarithmic. It shows ‖∂Q/∂o‖ by age after training. The second panel shows the fractions of the
    sum on old observations during training, and the third one shows the cosines between whole and
    truncated gradients.
    """
    axes = [figure()[1][0] for _ in range(3)] if axes is None else axes
    first = by_age({row["memory"]: np.array(row["gradient"], float)}, ax=axes[0], title=row["cell"])
    shares = {"10 steps or older": row["outside"], "first observation": row["oldest"]}
    cosines = {f"L = {n}": values for n, values in row["cosine"].items()}
    cosines["another batch"] = row["resampled"]
    return [
        first,
        over_training(row, shares, title="old observations", ax=axes[1]),
        over_training(row, cosines, title="cosine with the whole gradient", ax=axes[2]),
    ]


def _shares(label: str, rows: Float[np.ndarray, "seed age"]) -> Float[np.ndarray, "seed age"]:
    total = np.abs(rows).sum(axis=1, keepdims=True)
    if not (np.isfinite(total).all() and (total > 0).all()):
        raise ValueError(
            f"`sizes[{label!r}]` must have a finite sum above 0 in every row; got {total.ravel()}."
        )
    return np.abs(rows) / total
