"""Figures for resets: which observations affect each state, and the cost of wrong flags."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Integer
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import FixedLocator

from mmrl.show import INK, STYLES, figure, learning_curves

OWN_COLOR, LEAK_COLOR, LOSS_COLOR = STYLES[0]["color"], STYLES[1]["color"], "#BBBBBB"


def counts(
    influence: Float[np.ndarray, "time time"], begin: Bool[np.ndarray, " time"]
) -> tuple[int, int]:
    """Count the leaked and the lost entries of ∂h_t/∂x_s.

    A leaked entry is nonzero although s is in an earlier episode than t. A lost entry is 0 although
    both steps are in the same episode.
    """
    own, other = _belongs(np.asarray(begin))
    nonzero = np.asarray(influence) != 0
    return int((nonzero & other).sum()), int((~nonzero & own).sum())


def influence(
    matrix: Float[np.ndarray, "time time"],
    begin: Bool[np.ndarray, " time"],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw |∂h_t/∂x_s| with rows t and columns s, and mark leaked and lost entries.

    `begin` marks the true starts of episodes. Leaked entries are marked ×, and lost entries ○.
    Darker means stronger.
    """
    ax = figure()[1][0] if ax is None else ax
    matrix, begin = np.abs(np.asarray(matrix)), np.asarray(begin)
    own, other = _belongs(begin)
    strength = (0.25 + 0.75 * matrix / max(matrix.max(), 1e-12))[..., None]
    image = np.ones((*matrix.shape, 3))
    for where, color in ((own, OWN_COLOR), (other, LEAK_COLOR)):
        tint = 1 - strength * (1 - np.array(to_rgb(color)))
        image = np.where((where & (matrix > 0))[..., None], tint, image)
    ax.imshow(image, interpolation="nearest")
    rows, columns = np.nonzero(other & (matrix > 0))
    ax.scatter(columns, rows, s=9, marker="x", color=INK, linewidths=0.8)
    rows, columns = np.nonzero(own & (matrix == 0))
    ax.scatter(
        columns, rows, s=9, marker="o", facecolors="none", edgecolors=LEAK_COLOR, linewidths=0.8
    )
    starts = np.flatnonzero(begin)[1:] - 0.5
    for start in starts:
        ax.axhline(start, color=INK, linewidth=0.8, alpha=0.5)
        ax.axvline(start, color=INK, linewidth=0.8, alpha=0.5)
    leaks, losses = counts(matrix, begin)
    ax.set_title(f"{title}\n{leaks} leaked ×, {losses} lost ○", loc="left", color=INK, fontsize=10)
    ax.set_xlabel("observation at step s", color=INK)
    ax.set_ylabel("state at step t", color=INK)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator([0, *(starts + 0.5)]))
    ax.tick_params(colors=INK, length=0)
    ax.spines[:].set_color(LOSS_COLOR)
    return ax


def training_curves(
    returns: Mapping[str, Float[np.ndarray, "_seed _eval"]],
    updates: Integer[np.ndarray, " eval"],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw one learning curve over gradient steps for each variant of the training flags."""
    ax = learning_curves(returns, updates, title=title, ax=ax, chance=0.0, best=1.0)
    seeds = {len(curves) for curves in returns.values()}
    ax.set_xlabel(
        f"gradient steps\n{min(seeds)} seeds: interquartile mean, 95 % bootstrap interval",
        color=INK,
    )
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    return ax


def _belongs(
    begin: Bool[np.ndarray, " time"],
) -> tuple[Bool[np.ndarray, "time time"], Bool[np.ndarray, "time time"]]:
    """Return masks of the pairs (t, s) with s ≤ t within one episode, and across episodes."""
    episode = np.cumsum(begin)
    same, past = episode[:, None] == episode, np.tri(len(begin), dtype=bool)
    return same & past, ~same & past
