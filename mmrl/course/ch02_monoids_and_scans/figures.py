"""Figures for scans: run times, rounding errors, and learned half-lives."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullLocator

from mmrl.show import GRID, INK, STYLES, dress, figure


def rounding(
    errors: Mapping[str, Float[np.ndarray, " time"]], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Draw each method's largest relative error among the prefixes 2ᵏ ≤ t < 2ᵏ⁺¹, for each k.

    Both axes are logarithmic. Incomplete ranges and ranges without any error are omitted. A thin
    line marks 2⁻²⁴, the largest relative error of rounding one float32 number.
    """
    ax = figure()[1][0] if ax is None else ax
    for (name, error), style in zip(errors.items(), STYLES, strict=False):
        ends = 2 ** np.arange(int(np.log2(len(error))))
        most = np.array([np.max(error[end - 1 : 2 * end - 1]) for end in ends])
        _line(ax, ends[most > 0], most[most > 0], style, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.axhline(2.0**-24, color=INK, linewidth=0.8, alpha=0.6)
    _write(ax, "one rounding", 2.0**-24, INK)
    ax.set_xlabel("length of the prefix in elements", color=INK)
    ax.set_ylabel("relative error", color=INK)
    ax.legend(frameon=False, labelcolor=INK)
    dress(ax, title)
    return ax


def race(
    seconds: Mapping[str, float], reference: str, *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Draw one bar per method, labeled with its time and its ratio to `reference`."""
    ax = figure()[1][0] if ax is None else ax
    names, times = list(seconds), 1000 * np.array(list(seconds.values()))
    colors = [STYLES[1 if name == reference else 0]["color"] for name in names]
    hatches = ["//" if name == reference else "" for name in names]
    ax.barh(names, times, color=colors, hatch=hatches, edgecolor="white", height=0.7)
    for i, ms in enumerate(times):
        number = f"{ms:,.0f}" if ms >= 100 else f"{ms:.2g}"
        words = f"{number} ms ({ms / (1000 * seconds[reference]):.2g}×)"
        ax.annotate(
            words, (ms, i), xytext=(4, 0), textcoords="offset points", va="center", color=INK
        )
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0, 1.5 * times.max())
    ax.set_xlabel("milliseconds (lower is better)", color=INK)
    dress(ax, title)
    ax.grid(axis="x", color=GRID, linewidth=0.8)
    ax.grid(visible=False, axis="y")
    return ax


def half_lives(
    path: Float[np.ndarray, "_step _unit"],
    goals: Float[np.ndarray, " _unit"],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw half-lives, in steps of the tape, against steps of gradient descent."""
    ax = figure()[1][0] if ax is None else ax
    for column, goal, style in zip(path.T, goals, STYLES, strict=False):
        ax.axhline(goal, color=INK, linewidth=0.8, alpha=0.6)
        _line(ax, np.arange(len(column)), column, style, markevery=0.1)
        _write(ax, f"target: {goal:g}", goal, style["color"])
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("steps of gradient descent", color=INK)
    ax.set_ylabel("half-life of the filter (steps)", color=INK)
    dress(ax, title)
    return ax


def _line(ax: Axes, x, y, style, **kwargs) -> None:
    ax.plot(x, y, linewidth=2, markersize=5, **kwargs, **style)


def _write(ax: Axes, words: str, height: float, color: str) -> None:
    """Write `words` just above the right end of a horizontal line."""
    text = ax.annotate(
        words,
        (1, height),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 8),
        textcoords="offset points",
        ha="right",
        color=color,
        fontweight="bold",
    )
    text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
