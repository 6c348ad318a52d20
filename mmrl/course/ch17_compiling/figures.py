"""Figures that compare compiled and hand-written programs by time and memory."""

from collections.abc import Mapping, Sequence
from statistics import mode
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from mmrl.show import INK, STYLES, apart, dress, figure

SIZES = ("T", "batch", "width", "hidden", "depth")
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


def shares(
    rows: Sequence[Mapping[str, Any]],
    what: Literal["ms", "bytes"],
    over: Literal["T", "batch", "width", "hidden", "depth"],
    kind: Literal["time", "bytes", "ppo"] | None = None,
) -> dict[str, dict[int, float]]:
    """Return the cost of each program divided by that of the hand-written program.

    The result maps labels to {size: ratio}. `kind` selects rows of `mmrl experiment graphs`: by
    default "time" for milliseconds and "bytes" for memory. If the other sizes vary between rows,
    only rows with their most frequent values are used. Labels contain the number of steps per tile.
    Monte-Carlo returns, whose tiles are complete episodes, have the label "r[t:T]".
    """
    kind = kind or ("time" if what == "ms" else "bytes")
    rows = [row for row in rows if row["kind"] == kind]
    names = [name for name in SIZES if name != over and all(name in row for row in rows)]
    usual = {name: mode(row[name] for row in rows) for name in names}
    lines: dict[str, dict[int, float]] = {}
    for row in sorted(rows, key=lambda row: (row.get("n") is None, row[over])):
        if all(row[name] == size for name, size in usual.items()):
            for name, number in row[what].items():
                if name != "by hand":
                    ratio = number / row[what]["by hand"]
                    lines.setdefault(_label(row, name), {})[row[over]] = ratio
    return lines


def _label(row: Mapping[str, Any], name: str) -> str:
    if "n" not in row:
        return name
    steps = name.removeprefix("ours, m = ")
    return "r[t:T]" if row["n"] is None else "m = T" if steps == str(row["T"]) else f"m = {steps}"


def by_window(
    rows: Sequence[Mapping[str, Any]], what: Literal["ms", "bytes"]
) -> dict[str, dict[int, float]]:
    """Return the relative cost of learning n steps behind acting, by T and n.

    The result has the form {"T = 64": {n: ratio}}, with costs divided by those of the hand-written
    program. Only rows of kind "window" are used. n = None, which includes all later rewards, is
    replaced by T.
    """
    lines: dict[str, dict[int, float]] = {}
    for row in sorted(rows, key=lambda row: (row.get("T", 0), row.get("n") or row.get("T", 0))):
        if row["kind"] == "window":
            ours = next(x for name, x in row[what].items() if name != "by hand")
            line = lines.setdefault(f"T = {row['T']}", {})
            line[row["n"] or row["T"]] = ours / row[what]["by hand"]
    return lines


def _apart(sizes: Sequence[int]) -> list[int]:
    """Return the sizes whose labels fit side by side on a logarithmic axis."""
    labels = sizes[:1]
    for size in sizes[1:]:
        if (size / labels[-1]) ** 8 >= sizes[-1] / sizes[0]:  # at least an eighth of the axis
            labels = [*labels, size]
    return list(labels)


def ratios(
    lines: Mapping[str, Mapping[int, float]],
    *,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw ratios to the hand-written program against a size, on logarithmic axes.

    `name_ends` adds the labels of the lines. Raises `ValueError` for more lines than styles.
    """
    if len(lines) > len(STYLES):
        raise ValueError(f"`lines` must have at most {len(STYLES)} entries, got {len(lines)}.")
    ax = figure()[1][0] if ax is None else ax
    sizes = sorted({size for line in lines.values() for size in line})
    ax.axhline(1, color=INK, linewidth=1)
    for (label, line), style in zip(lines.items(), STYLES, strict=False):
        look: dict[str, Any] = {"linewidth": 2, "markersize": 5, **style}
        ax.plot(list(line), list(line.values()), label=label, **look)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    labels = _apart(sizes)
    ax.set_xticks(sizes, [str(size) if size in labels else "" for size in sizes])
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(FixedLocator(TICKS))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    return dress(ax, title, ylabel, xlabel=xlabel, size=10)


def name_ends(axes: Sequence[Axes]) -> None:
    """Write the label of each line next to its end, without overlap. Call this last."""
    for ax in axes:
        (low, high), end = np.log(ax.get_ylim()), ax.get_xlim()[1]
        lines = sorted(ax.get_lines()[1:], key=lambda line: float(np.asarray(line.get_ydata())[-1]))
        heights = [float(np.log(np.asarray(line.get_ydata())[-1])) for line in lines]
        places = apart(heights, 0.06 * (high - low), np.inf)
        places -= np.mean(places - heights)  # center the labels on the ends
        for line, place in zip(lines, np.exp(places), strict=True):
            look: dict[str, Any] = {"va": "center", "color": line.get_color(), "fontsize": 9}
            beside: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points"}
            words = str(line.get_label())
            ax.annotate(words, (end, place), annotation_clip=False, **beside, **look)
