"""Figure of a hidden state, its observations, and the belief about it."""

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from mmrl.show import GRID, INK, STYLES, figure


def belief_over_time(
    states: Int[np.ndarray, " time"],
    obs: Int[np.ndarray, " time"],
    belief: Float[np.ndarray, " time"],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the belief P(s_t = 1 | o_0, …, o_t) together with the hidden states and observations.

    States and observations are 0 or 1. Crosses mark the observations that differ from the state.
    """
    ax = figure(width=7.6, height=3.2)[1][0] if ax is None else ax
    time, blue, orange = np.arange(len(states)), STYLES[0]["color"], STYLES[1]["color"]
    ax.fill_between(time, states, step="mid", color=GRID, linewidth=0)
    ax.plot(time, belief, color=blue, linewidth=2)
    right = obs == states
    ax.plot(time[right], obs[right], "o", color=INK, markersize=4, clip_on=False)
    ax.plot(time[~right], obs[~right], "X", color=orange, markersize=7, clip_on=False)
    ax.axhline(0.5, color=INK, linewidth=0.6, alpha=0.5)
    end = float(time[-1]) + 1
    # Height of the legend, which must not overlap the label at the end of the belief's line.
    top = 0.36 if belief[-1] > 0.5 else 0.92
    labels = (
        (belief[-1], "belief", blue),
        (top, "gray: state is 1", INK),
        (top - 0.14, "● correct observation", INK),
        (top - 0.28, "✖ wrong observation", orange),
    )
    for height, text, color in labels:
        ax.annotate(
            text, (end, float(height)), color=color, fontsize=9, va="center", annotation_clip=False
        )
    ax.set_xlabel("step t", color=INK)
    ax.set_ylabel("probability that the state is 1", color=INK)
    ax.set_xlim(0, end - 1)
    ax.set_ylim(-0.02, 1.02)
    ax.tick_params(colors=INK, length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(INK)
    return ax
