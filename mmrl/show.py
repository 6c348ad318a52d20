"""Learning curves with confidence intervals over seeds, and a common style for figures."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Integer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from mmrl.runs import interval

# Colorblind-safe palette of Okabe & Ito; line styles and markers also differ.
STYLES = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    {"color": "#CC79A7", "linestyle": ":", "marker": "D"},
    {"color": "#E69F00", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#56B4E9", "linestyle": (0, (8, 2)), "marker": "P"},
    {"color": "#000000", "linestyle": "-", "marker": "X"},
)
INK, GRID = "#333333", "#E6E6E6"


def figure(
    panels: int = 1, *, width: float = 6.0, height: float = 4.2
) -> tuple[Figure, list[Axes]]:
    """Create a figure with `panels` axes that share the vertical axis.

    `width` and `height` are the size of each panel in inches. The figure is not registered with
    pyplot; save it with `fig.savefig(path)`.

        >>> fig, (left, right) = figure(2, width=3.0)
        >>> fig.get_size_inches()
        array([6. , 4.2])
    """
    fig = _DisplayFigure(figsize=(width * panels, height), layout="constrained", dpi=150)
    axes = fig.subplots(1, panels, sharey=True, squeeze=False)[0]
    return fig, list(axes)


class _DisplayFigure(Figure):
    """Figure that a notebook displays as the output of a cell, without pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        wide, high = self.get_size_inches() * 100
        return buffer.getvalue(), {"width": round(wide), "height": round(high)}


def learning_curves(
    returns: Mapping[str, Float[np.ndarray, "_seed _eval"]],
    env_steps: Integer[np.ndarray, " eval"],
    *,
    title: str = "",
    ax: Axes | None = None,
    chance: float | None = None,
    best: float | None = None,
) -> Axes:
    """Plot the interquartile mean of the return over seeds, with 95 % confidence intervals.

    `returns` maps each label to curves of shape [seed, eval], and `env_steps` counts the steps of
    one seed. Thin lines show the seeds, and the band shows the interval of a percentile bootstrap
    (Agarwal et al. 2021). Horizontal lines mark `chance` and `best`. Raises `ValueError` if there
    are more than seven labels, or if lengths differ.

        >>> returns = {"LRU": np.array([[0.0, 0.5, 1.0], [0.1, 0.7, 0.9]])}  # two seeds
        >>> axes = learning_curves(returns, np.array([100, 200, 300]), best=1.0)
    """
    if not 1 <= len(returns) <= len(STYLES):
        raise ValueError(f"`returns` must have 1 to {len(STYLES)} labels; got {len(returns)}.")
    for label, curves in returns.items():
        if curves.ndim != 2 or curves.shape[1] != len(env_steps):
            raise ValueError(
                f"`returns[{label!r}]` must have shape [seed, {len(env_steps)}], one column per "
                f"entry of `env_steps`; got {list(curves.shape)}."
            )
    ax = figure()[1][0] if ax is None else ax
    ends = {
        label: _curve(ax, env_steps, curves, style)
        for (label, curves), style in zip(returns.items(), STYLES, strict=False)
    }
    _references(ax, {"best": best, "chance": chance})
    ax.set_xlim(0, float(env_steps[-1]))
    name_axes(ax, title, {len(curves) for curves in returns.values()})
    label_ends(ax, float(env_steps[-1]), ends)
    return ax


def _curve(ax: Axes, env_steps, curves, style) -> float:
    """Plot the curves of one label; return the last value of their interquartile mean."""
    middle, low, high = np.array([interval(column) for column in curves.T]).T
    color = style["color"]
    ax.plot(env_steps, curves.T, color=color, linewidth=0.6, alpha=0.35)
    ax.fill_between(env_steps, low, high, color=color, alpha=0.18, linewidth=0)
    ax.plot(
        env_steps,
        middle,
        linewidth=2,
        markersize=5,
        markevery=0.12,
        clip_on=False,
        zorder=3,
        **style,
    )
    return float(middle[-1])


def _references(ax: Axes, heights: Mapping[str, float | None]) -> None:
    for name, height in heights.items():
        if height is not None:
            ax.axhline(height, color=INK, linewidth=0.8, alpha=0.6, zorder=1)
            text = ax.annotate(
                name,
                (0, height),
                xycoords=("axes fraction", "data"),
                xytext=(3, 3 if name == "best" else -9),
                textcoords="offset points",
                color=INK,
                fontsize=8,
            )
            text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def dress(
    ax: Axes,
    title: str = "",
    ylabel: str = "",
    *,
    xlabel: str = "",
    grid: Literal["x", "y"] = "y",
    size: float | int | None = None,
) -> Axes:
    """Apply the common style to axes: a left-aligned title, a light grid, and one spine.

    An empty title or label leaves the current one unchanged.
    """
    if title:
        text = ax.set_title(title, loc="left", color=INK, fontweight="bold")
        text.set_fontsize(size or text.get_fontsize())
    if ylabel:
        ax.set_ylabel(ylabel, color=INK)
    if xlabel:
        ax.set_xlabel(xlabel, color=INK)
    ax.tick_params(colors=INK, length=0)
    ax.grid(axis=grid, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(INK)
    return ax


def name_axes(ax: Axes, title: str, seeds: set[int]) -> None:
    """Set the title and the axis labels of learning curves, including the number of seeds."""
    number = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    many = "1 seed" if seeds == {1} else f"{number} seeds"
    what = f"{many}: interquartile mean, 95 % bootstrap interval"
    dress(ax, title, "mean return of an episode", xlabel=f"environment steps per seed\n{what}")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g} k" if x else "0")


def label_ends(
    ax: Axes,
    end: float,
    heights: Mapping[str, float],
    styles: Sequence[Mapping[str, Any]] = STYLES,
) -> None:
    """Write each label next to the end of its curve, moving labels apart if they overlap."""
    low, high = ax.get_ylim()
    gap = 0.055 * (high - low)
    order = sorted(zip(heights.items(), styles, strict=False), key=lambda item: item[0][1])
    places = apart([height for (_, height), _ in order], gap, high)
    for ((label, _), style), place in zip(order, places, strict=True):
        ax.annotate(
            label,
            (end, place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=style["color"],
            fontweight="bold",
            annotation_clip=False,
        )


def apart(heights: Sequence[float], gap: float, top: float) -> np.ndarray:
    """Shift ascending heights so that they are at least `gap` apart and at most `top`.

    Heights are first moved up, and then moved down where they would exceed `top`.
    """
    steps = gap * np.arange(len(heights))
    places = np.maximum.accumulate(np.asarray(heights) - steps) + steps
    return np.minimum(places, top - gap * np.arange(len(heights))[::-1])


def provenance_note(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe how rows were measured: seeds, devices, dates and commands.

    >>> row = {"date": "2026-11-22", "device": "one CPU", "command": "mmrl experiment ffm"}
    >>> print(provenance_note([{"seeds": [0, 1], **row}]))
    Seeds 0, 1.
    Measured on one CPU, 2026-11-22, with
        mmrl experiment ffm
    """
    seeds = sorted({seed for row in rows for seed in row.get("seeds", ())})
    dates = sorted({row["date"][:10] for row in rows})
    lines = [
        f"Seeds {', '.join(map(str, seeds))}." if seeds else "",
        f"Measured on {'; '.join(sorted({row['device'] for row in rows}))}, "
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, with",
        *(f"    {command}" for command in dict.fromkeys(row["command"] for row in rows)),
    ]
    return "\n".join(filter(None, lines))
