"""Figure of half-lives: how long each unit of a memory remembers."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from mmrl.show import INK, STYLES, dress, figure


def half_lives(
    lives: Mapping[str, Float[np.ndarray, " unit"]], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Draw one row per memory, with a tick at the half-life of each unit and a mark at the median.

    A unit that never forgets has an infinite half-life and is drawn at the right edge.
    """
    ax = figure()[1][0] if ax is None else ax
    finite = np.concatenate([x[np.isfinite(x)] for x in lives.values()])
    edge = 10 * finite.max()
    for row, (values, style) in enumerate(zip(lives.values(), STYLES, strict=False)):
        values, color = np.minimum(values, edge), style["color"]
        ax.plot(values, np.full(len(values), row), "|", color=color, markersize=26)
        middle = float(np.median(values))
        ax.plot([middle], [row], marker=style["marker"], color=color, markersize=9, mec="white")
        words = "never" if middle >= edge else f"median {middle:.3g} steps"
        ax.annotate(
            words,
            (middle, row),
            xytext=(0, 18),
            textcoords="offset points",
            ha="right" if middle >= edge else "center",
            color=INK,
        )
    ax.set_xscale("log")
    ax.set_yticks(range(len(lives)), list(lives))
    ax.set_ylim(len(lives) - 0.5, -0.7)
    return dress(ax, title, xlabel="half-life of a unit, in steps", grid="x")
