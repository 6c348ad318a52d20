"""What compiled programs take of a machine: bytes by the size of an observation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mmrl.show.curves import INK, STYLES, apart, dress, figure


def footprints(
    lines: Mapping[str, Sequence[float]],
    widths: Sequence[int],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Bytes over the numbers in an observation, both on logarithmic axes: a line per label.

    The labels stand at the right ends. Raises `ValueError` for lines of another length than
    `widths`, or for more of them than there are styles.
    """
    if len(lines) > len(STYLES):
        raise ValueError(f"`lines` may hold {len(STYLES)}; got {len(lines)}.")
    for label, line in lines.items():
        if len(line) != len(widths):
            raise ValueError(f"`lines[{label!r}]` needs {len(widths)} entries; got {len(line)}.")
    ax = figure()[1][0] if ax is None else ax
    for (label, line), style in zip(lines.items(), STYLES, strict=False):
        look: dict[str, Any] = {"linewidth": 2, "markersize": 5, **style}
        ax.plot(widths, np.asarray(line) / 1e6, label=label, **look)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(widths, [str(width) for width in widths])
    ax.set_xlim(widths[0], widths[-1])
    _names(ax, {label: float(line[-1]) / 1e6 for label, line in lines.items()}, float(widths[-1]))
    return dress(ax, title, "megabytes", xlabel="numbers in an observation", size=10)


def _names(ax: Axes, ends: Mapping[str, float], end: float) -> None:
    """Each label beside the end of its line, moved apart where they overlap."""
    low, high = np.log(ax.get_ylim())
    order = sorted(ends, key=lambda label: ends[label])
    gap, heights = 0.06 * (high - low), [float(np.log(ends[label])) for label in order]
    for label, place in zip(order, np.exp(apart(heights, gap, high)), strict=True):
        color = STYLES[list(ends).index(label)]["color"]
        look: dict[str, Any] = {"va": "center", "color": color, "fontweight": "bold"}
        beside: dict[str, Any] = {"xytext": (8, 0), "textcoords": "offset points"}
        ax.annotate(label, (end, place), annotation_clip=False, **beside, **look)
    ax.tick_params(axis="y", which="minor", length=0, labelcolor=INK)
