"""Leaderboard figure of the capstone: return (with 95 % interval) against CPU-seconds."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator

from mmrl.course.capstone.entries import control
from mmrl.show import INK, STYLES, dress, figure


def leaderboard(entries: Sequence[Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """Draw the return of each entry, with its 95 % interval, against CPU-seconds.

    The horizontal axis is logarithmic, and controls have hollow marks. Raises `ValueError` without
    entries.
    """
    if not entries:
        raise ValueError("`entries` must not be empty; create an entry with `mmrl capstone run`.")
    ax = figure(width=7.0)[1][0] if ax is None else ax
    by_score = sorted(entries, key=lambda entry: entry["score"])
    for i, entry in enumerate(by_score):
        style = STYLES[i % len(STYLES)]
        color = INK if control(dict(entry)) else style["color"]
        low, high = entry["interval_95"]
        ax.errorbar(
            entry["cpu_seconds"],
            entry["score"],
            yerr=[[entry["score"] - low], [high - entry["score"]]],
            color=color,
            marker=style["marker"],
            markerfacecolor="white" if control(dict(entry)) else color,
            markersize=7,
            capsize=4,
            linestyle="none",
        )
    for entry in by_score:
        left = any(_beside(entry, other) for other in by_score)
        text = ax.annotate(
            entry["name"],
            (entry["cpu_seconds"], entry["score"]),
            xytext=(-9 if left else 9, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            color=INK,
        )
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
    times = [entry["cpu_seconds"] for entry in by_score]
    ax.set_xscale("log")
    ax.set_xlim(min(times) / 1.3, max(times) * 1.6)
    ax.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.minorticks_off()
    seeds = sorted({len(entry["seeds"]) for entry in by_score})
    what = f"{' or '.join(map(str, seeds))} seeds: interquartile mean, 95 % bootstrap interval"
    return dress(ax, "", "mean return on held-out tasks", xlabel=f"CPU-seconds of training\n{what}")


def _beside(entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if another mark overlaps the name of an entry, to its right."""
    factor = other["cpu_seconds"] / entry["cpu_seconds"]
    return 1 < factor < 1.35 and abs(other["score"] - entry["score"]) < 0.08
