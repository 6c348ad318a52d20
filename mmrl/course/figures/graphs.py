"""Plots of execution orders, which show when values are computed and when they are last read."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Integer
from matplotlib.axes import Axes

from mmrl.pdg.build.graph import Point
from mmrl.show import INK, STYLES, dress, figure

Order = Sequence[tuple[str, Point]]  # pairs (operation, point), in the order of execution


def places(order: Order, name: str) -> dict[Point, int]:
    """Return the position in `order` of each point of an operation.

    Raises `ValueError` if the order does not contain the operation.
    """
    by_point = {point: place for place, (op, point) in enumerate(order) if op == name}
    if not by_point:
        names = sorted({op for op, _ in order})
        raise ValueError(
            f"`name` must be an operation in `order`, got {name!r}; select one of {names}."
        )
    return by_point


def waiting_times(order: Order, write: str, read: str) -> Integer[np.ndarray, " place"]:
    """Count the values of `write` that `read` has not used yet, at each place in the order.

    A value is counted from its computation until `read` is executed at the same point. Entry i is
    the count before the operation at place i is executed. Values that are never read are not
    counted.
    """
    change = np.zeros(len(order) + 1, int)
    first, last = places(order, write), places(order, read)
    for point in first.keys() & last.keys():
        change[first[point] + 1] += 1
        change[last[point] + 1] -= 1
    return np.cumsum(change)[:-1]


def lifetimes(
    order: Order,
    write: str,
    read: str,
    *,
    labels: tuple[str, str] = ("made", "last read"),
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the lifetime of each step's value, from `write` to `read`, as a horizontal line.

    The title states the maximum number of values alive at the same time.
    """
    ax = figure()[1][0] if ax is None else ax
    first, last = places(order, write), places(order, read)
    points = sorted(first.keys() & last.keys())
    start, end = (np.array([by_point[p] for p in points]) for by_point in (first, last))
    steps = np.arange(len(points))
    ax.hlines(steps, start, end, color=INK, alpha=0.35, linewidth=2)
    for label, x, style in zip(labels, (start, end), STYLES, strict=False):
        look = {"color": style["color"], "marker": style["marker"], "linestyle": ""}
        ax.plot(x, steps, markersize=6, label=label, zorder=3, **look)
    most = int(waiting_times(order, write, read).max())
    title = f"{title}: {most} at once" if title else f"{most} at once"
    dress(ax, title, "step t", xlabel="place in the order of execution", grid="x", size=10)
    ax.set_yticks(steps[:: max(1, len(steps) // 6)])
    ax.legend(loc="upper left", frameon=False, labelcolor=INK, fontsize=9)
    return ax
