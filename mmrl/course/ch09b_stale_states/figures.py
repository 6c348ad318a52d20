"""Figure for stale states: the error of their Q values."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from mmrl.course.figures.errors import STRATEGIES, name_columns
from mmrl.show import INK, dress, figure

_CENTER: dict[str, Any] = {
    "textcoords": "offset points", "ha": "center", "fontsize": 8, "color": INK,
}  # fmt: skip


def delta_q_bars(
    values: Mapping[str, Mapping[str, Float[np.ndarray, " _seed"]]],
    *,
    title: str = "",
    least: float = 1e-4,
    ax: Axes | None = None,
) -> Axes:
    """Draw ΔQ at the first and the last trained step, by strategy.

    ΔQ = ‖Q(ĥ) - Q(h)‖₂ / |max Q(h)|. `values[strategy]["first"]` and `values[strategy]["last"]`
    contain one value per seed. Dots are seeds, and bars are medians, labeled with their values. The
    axis is logarithmic and starts at `least`. A median below `least` has a label but no bar.
    """
    ax = figure()[1][0] if ax is None else ax
    columns = [name for name in STRATEGIES if name in values]
    looks = (("first", "#0072B2", ""), ("last", "#E69F00", "///"))
    for k, (place, color, hatch) in enumerate(looks):
        for x, name in enumerate(columns):
            seeds = np.asarray(values[name][place], float)
            middle, at = float(np.median(seeds)), x + 0.38 * (k - 0.5)
            if middle < least:
                ax.annotate(_small(middle), (at, least), xytext=(0, 4), **_CENTER)
                continue
            ax.bar(at, middle - least, 0.34, least, color=color, hatch=hatch, edgecolor="white")
            ax.plot(np.full(len(seeds), at), seeds, ".", color=INK, markersize=3, alpha=0.6)
            ax.annotate(f"{middle:.2g}", (at, seeds.max()), xytext=(0, 4), **_CENTER)
        ax.bar(0, 0, color=color, hatch=hatch, edgecolor="white", label=f"{place} trained step")
    ax.set_yscale("log")
    ax.set_ylim(bottom=least)
    ax.legend(frameon=False, labelcolor=INK, loc="upper right", fontsize=9)
    name_columns(ax, columns)
    return dress(ax, title, "ΔQ, relative to the largest Q", size=10)


def delta_q_by_start(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
    """Concatenate the ΔQ of the seeds of all `rows`, in the format of `delta_q_bars`."""
    with_states = [row["delta_q"] for row in rows if row.get("delta_q")]
    return {
        name: {
            place: np.concatenate([row[name][place] for row in with_states if name in row])
            for place in ("first", "last")
        }
        for name in STRATEGIES
        if any(name in row for row in with_states)
    }


def _small(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}"
