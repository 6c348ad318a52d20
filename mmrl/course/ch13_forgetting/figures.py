"""Figures for forgetting: scores, fractions retained, and probes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from mmrl.course.continual import cycles
from mmrl.course.figures.scores import BESIDE, policy, scores_by_task
from mmrl.runs import interquartile_mean, interval
from mmrl.show import INK, STYLES, dress, figure, label_ends, name_axes

Row = dict[str, Any]


def published_scores(row: Row, **settings: Any) -> Axes:
    """Draw the scores of a published row.

    If the row contains scores of sampled actions, these are solid lines, and greedy scores are
    dotted.
    """
    scores, steps = np.array(row["scores"]), np.array(row["env_steps"])
    best = np.array(row["greedy"]["scores"]) if "greedy" in row else None
    ax = scores_by_task(scores, steps, row["order"], greedy=best, **settings)
    if best is None:
        ax.set_ylabel("mean return, greedy actions", color=INK)
    return ax


def retention(
    shares: Mapping[str, Float[np.ndarray, " _seed"]],
    *,
    title: str = "",
    limits: Sequence[float] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw the fraction of each gain that is retained, one row per label.

    Dots are seeds, and bars are means. Lines mark 0 (everything is forgotten), 1 (everything is
    retained), and `limits`.
    """
    ax = figure(height=1.2 + 0.42 * len(shares))[1][0] if ax is None else ax
    for place, (label, values) in enumerate(shares.items()):
        style = STYLES[place % len(STYLES)]
        heights = place + 0.18 * np.linspace(-1, 1, len(values))
        look: dict[str, Any] = {"color": style["color"], "marker": style["marker"], "alpha": 0.75}
        ax.plot(values, heights, linestyle="none", markersize=6, label=label, **look)
        ax.vlines(np.mean(values), place - 0.32, place + 0.32, color=INK, linewidth=2)
    for at in (0, 1, *limits):
        dash = "-" if at in (0, 1) else "--"
        ax.axvline(at, color=INK, linewidth=0.8, linestyle=dash, alpha=0.7, zorder=1)
    ax.set_yticks(range(len(shares)), list(shares), color=INK)
    ax.set_ylim(len(shares) - 0.4, -0.6)
    seeds = max(len(values) for values in shares.values())
    dress(ax, title, grid="x", xlabel=f"fraction of the gain retained; {seeds} seeds, bar: mean")
    return ax


def cumulatives(rows: Mapping[str, Row], *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw the cumulative performance (1/t) Σ_{s<t} r_s over all tasks, one line per label.

    This is the measure of Appendix C of Rolnick et al. (2019). Lines are interquartile means with
    95 % intervals. Rows may have different times.
    """
    ax = figure()[1][0] if ax is None else ax
    ends, last = {}, 0.0

    def curve(row):
        """Return cumulative scores with shape [seed, time]."""
        each = [np.asarray(cycles.cumulative(np.array(seed))).mean(-1) for seed in row["scores"]]
        return np.array(each)

    for (label, row), style in zip(rows.items(), STYLES, strict=False):
        steps = np.array(row["env_steps"])
        middle, low, high = np.array([interval(column) for column in curve(row).T]).T
        if "greedy" in row:
            best = interquartile_mean(curve(row["greedy"]).T)
            ax.plot(steps, best, color=style["color"], linewidth=1.0, linestyle=BESIDE)
        ax.fill_between(steps, low, high, color=style["color"], alpha=0.18, linewidth=0)
        look: dict[str, Any] = {"linewidth": 2, "markersize": 5, "markevery": 0.12, **style}
        ax.plot(steps, middle, **look)
        ends[label], last = float(middle[-1]), max(last, float(steps[-1]))
    ax.set_xlim(0, last)
    name_axes(ax, title, {len(row["scores"]) for row in rows.values()})
    ax.set_ylabel(f"performance, {policy(rows.values())}", color=INK)
    label_ends(ax, last, ends)
    return ax


def in_its_stage(row: Row) -> Float[np.ndarray, "seed block"]:
    """Return the scores on the probe task during its stage, which is at `position`."""
    scores, place = np.array(row["scores"]), row["position"]
    blocks = (scores.shape[1] - 1) // len(row["order"])
    return scores[:, 1 + place * blocks : 1 + (place + 1) * blocks, row["order"][place]]


def probes(
    curves: Mapping[str, Mapping[int, Float[np.ndarray, " _seed"]]],
    *,
    title: str = "",
    label: str = "score in the probe's stage",
    ax: Axes | None = None,
) -> Axes:
    """Draw values by the position of the probe, with dots for seeds, means and 95 % intervals."""
    ax = figure()[1][0] if ax is None else ax
    ends, furthest = {}, max(position for of in curves.values() for position in of)
    for k, ((name, of), style) in enumerate(zip(curves.items(), STYLES, strict=False)):
        x = np.array(sorted(of)) + 0.12 * (k - (len(curves) - 1) / 2)
        entries = [np.asarray(of[position]) for position in sorted(of)]
        for at, values in zip(x, entries, strict=True):
            ax.plot(np.full(len(values), at), values, ".", color=style["color"], alpha=0.45)
        middles, low, high = np.array([_mean(values) for values in entries]).T
        ax.vlines(x, low, high, color=style["color"], linewidth=1.6)
        look: dict[str, Any] = {"linewidth": 2, "markersize": 6, "zorder": 3, **style}
        ax.plot(x, middles, **look)
        ends[name] = float(middles[-1])
    ax.set_xticks(sorted({position for of in curves.values() for position in of}))
    ax.set_xlim(-0.4, furthest + 0.4)
    dress(ax, title, label, xlabel="stages of other tasks before the probe\nmean, 95 % interval")
    label_ends(ax, furthest + 0.4, ends)
    return ax


def _mean(values: Float[np.ndarray, " _seed"]) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(2000, len(values)))].mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(values.mean()), float(low), float(high)
