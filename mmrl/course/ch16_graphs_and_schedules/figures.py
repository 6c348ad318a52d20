"""Figure of live memory while a program runs, with the times of acting and learning."""

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Bool, Integer
from matplotlib.axes import Axes

from mmrl.pdg.plan.code import Event
from mmrl.show import INK, STYLES, dress, figure

Array = np.ndarray
TOP = 0.1  # height of each strip, as a fraction of the axes


def at_work(events: Sequence[Event], names: Collection[str]) -> Bool[Array, " event"]:
    """Return a mask of the events that run one of the operations in `names`."""
    # `what` is a pair for deallocations, which are never in `names`.
    return np.array([what in names for _, what, _ in events], bool)


def memory_over_time(
    live: Integer[Array, " event"],
    acting: Bool[Array, " _"],
    learning: Bool[Array, " _"],
    *,
    title: str = "",
    most: int | None = None,
    names: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the live bytes after every event, below two strips for acting and learning.

    The upper strip shows acting, and the lower strip learning. `names` labels the strips. `most`
    sets the height of the axis in bytes, so that panels can be compared. The title contains the
    peak. Raises `ValueError` if the three arrays differ in length.
    """
    if not len(live) == len(acting) == len(learning):
        lengths = [len(live), len(acting), len(learning)]
        raise ValueError(f"`live`, `acting` and `learning` must have equal lengths, got {lengths}.")
    ax = figure()[1][0] if ax is None else ax
    kilobytes, events = np.asarray(live) / 1000, np.arange(len(live) + 1)
    high = (kilobytes.max() if most is None else most / 1000) / (1 - 2.6 * TOP)
    purple = STYLES[3]["color"]
    ax.stairs(kilobytes, events, fill=True, color=purple, alpha=0.25)
    ax.stairs(kilobytes, events, color=purple, linewidth=1.2)
    for k, (name, when) in enumerate({"acting": acting, "learning": learning}.items()):
        bottom, color = 1 - (k + 1) * 1.2 * TOP, STYLES[k]["color"]
        ax.vlines(
            np.flatnonzero(when) + 0.5,
            bottom,
            bottom + TOP,
            transform=ax.get_xaxis_transform(),
            color=color,
            linewidth=0.4,
        )
        place = {"xycoords": "axes fraction", "va": "center", "ha": "right", "fontsize": 8}
        if names:
            ax.annotate(name, (-0.02, bottom + TOP / 2), color=color, **place)
    ax.set_xlim(0, len(live))
    ax.set_ylim(0, high)
    ax.set_yticks([tick for tick in ax.get_yticks() if tick <= high * (1 - 2.6 * TOP) + 1e-9])
    peak = f"peak {kilobytes.max():.0f} kB"
    dress(ax, f"{title}: {peak}" if title else peak, "live memory, kB", size=10)
    ax.set_xlabel("runs, deallocations and moves", color=INK)
    return ax
