"""Figures of forgetting: scores in all tasks at all times, shares that are left, probes.

Scores are [seed, time, task], the first before all training, and `env_steps` says when; `order` is
the task of each stage, of equally many evaluations, or empty if all tasks are trained throughout.
Rows of `published("forgetting")` have these of the greedy policy, and `sampled` makes of each one
the row of sampled actions, beside which greedy scores are drawn dotted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from matplotlib.axes import Axes

from mmrl.course.continual import cycles
from mmrl.runs import interquartile_mean, interval
from mmrl.show import INK, STYLES, dress, figure, label_ends, name_axes

Row = dict[str, Any]
TRAINED, AT_REST = 3.4, 1.2  # widths of a line, in points
BESIDE = (0, (1, 1.2))  # dashes of the greedy policy's scores beside sampled ones


def scores_by_task(
    scores: Float[np.ndarray, "seed time task"],
    env_steps: Integer[np.ndarray, " _time"],
    order: Sequence[int] = (),
    *,
    greedy: Float[np.ndarray, "seed time task"] | None = None,
    title: str = "",
    chance: float | None = None,
    names: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """A line per task: thick while it is trained, thin while it is only evaluated (Figure 1).

    Interquartile mean over seeds, and its 95 % interval. Bands behind say which task is trained, in
    its color and by its name at the top. Dotted beside sampled scores: those of the `greedy`
    policy. Raises `ValueError` if the sizes do not fit together.
    """
    scores, env_steps = np.asarray(scores), np.asarray(env_steps)
    _check(scores, env_steps, order)
    ax = figure()[1][0] if ax is None else ax
    names = names or [f"task {task + 1}" for task in range(scores.shape[2])]
    blocks = (len(env_steps) - 1) // max(len(order), 1)
    for stage, task in enumerate(order):
        begin, end = (float(env_steps[s * blocks]) for s in (stage, stage + 1))
        _band(ax, begin, end, names[task], task)
    if order:  # room for the names of stages, without fixing the limits that panels share
        ax.update_datalim([(0.0, scores.max() + 0.12 * np.ptp(scores))])
    for task, style in zip(range(scores.shape[2]), STYLES, strict=False):
        middle, low, high = np.array([interval(column) for column in scores[:, :, task].T]).T
        color = style["color"]
        ax.fill_between(env_steps, low, high, color=color, alpha=0.15, linewidth=0)
        ax.plot(env_steps, middle, color=color, linewidth=AT_REST, linestyle=style["linestyle"])
        if greedy is not None:
            best = interquartile_mean(np.asarray(greedy)[:, :, task].T)
            ax.plot(env_steps, best, color=color, linewidth=1.0, linestyle=BESIDE)
        for stage in (s for s, trained in enumerate(order or [task]) if trained == task):
            part = slice(stage * blocks, (stage + 1) * blocks + 1)
            look: dict[str, Any] = {"linewidth": TRAINED, "solid_capstyle": "round", "zorder": 3}
            ax.plot(env_steps[part], middle[part], color=color, **look)
    if chance is not None:
        ax.axhline(chance, color=INK, linewidth=0.8, alpha=0.6, linestyle=":")
    ax.set_xlim(0, float(env_steps[-1]))
    name_axes(ax, title, {len(scores)})
    if greedy is not None:
        ax.set_ylabel("mean return, sampled (dotted: greedy)", color=INK)
    last = {name: float(np.mean(scores[:, -1, k])) for k, name in enumerate(names)}
    label_ends(ax, float(env_steps[-1]), last)
    return ax


def sampled(row: Mapping[str, Any]) -> Row:
    """The row of a published one's sampled actions, with the `greedy` row beside it."""
    return {**row, **row["sampled"], "greedy": row}


def published_scores(row: Row, **settings: Any) -> Axes:
    """Draw the scores of a published row; of `sampled` actions with greedy ones dotted."""
    scores, steps = np.array(row["scores"]), np.array(row["env_steps"])
    best = np.array(row["greedy"]["scores"]) if "greedy" in row else None
    ax = scores_by_task(scores, steps, row["order"], greedy=best, **settings)
    if best is None:
        ax.set_ylabel("mean return, greedy actions", color=INK)
    return ax


def kept(
    shares: Mapping[str, Float[np.ndarray, " _seed"]],
    *,
    title: str = "",
    limits: Sequence[float] = (),
    ax: Axes | None = None,
) -> Axes:
    """The share that is left of each gain: a dot per seed, a bar for their mean; a row per label.

    Lines mark 0, all is forgotten, 1, nothing is, and the `limits`.
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
    dress(ax, title, grid="x", xlabel=f"share of the gain that is left; {seeds} seeds, bar: mean")
    return ax


def policy(rows: Iterable[Mapping[str, Any]]) -> str:
    """Says whose scores are drawn of these rows."""
    return "sampled (dotted: greedy)" if all("greedy" in row for row in rows) else "greedy"


def cumulatives(rows: Mapping[str, Row], *, title: str = "", ax: Axes | None = None) -> Axes:
    """(1/t) Σ_{s<t} r_s over all tasks, a line per label: Appendix C. One value per seed and time.

    Each row has its own times. Lines are interquartile means with 95 % intervals.
    """
    ax = figure()[1][0] if ax is None else ax
    ends, last = {}, 0.0

    def curve(row):
        """[seed, time]"""
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
    """Scores in the probe task while it is trained: those of the stage at `position`."""
    scores, place = np.array(row["scores"]), row["position"]
    blocks = (scores.shape[1] - 1) // len(row["order"])
    return scores[:, 1 + place * blocks : 1 + (place + 1) * blocks, row["order"][place]]


def probes(
    found: Mapping[str, Mapping[int, Float[np.ndarray, " _seed"]]],
    *,
    title: str = "",
    label: str = "score in the probe's stage",
    ax: Axes | None = None,
) -> Axes:
    """A number per seed by the probe's position in stages: dots, mean and its 95 % interval."""
    ax = figure()[1][0] if ax is None else ax
    ends, furthest = {}, max(position for of in found.values() for position in of)
    for k, ((name, of), style) in enumerate(zip(found.items(), STYLES, strict=False)):
        x = np.array(sorted(of)) + 0.12 * (k - (len(found) - 1) / 2)
        entries = [np.asarray(of[position]) for position in sorted(of)]
        for at, values in zip(x, entries, strict=True):
            ax.plot(np.full(len(values), at), values, ".", color=style["color"], alpha=0.45)
        middles, low, high = np.array([_mean(values) for values in entries]).T
        ax.vlines(x, low, high, color=style["color"], linewidth=1.6)
        look: dict[str, Any] = {"linewidth": 2, "markersize": 6, "zorder": 3, **style}
        ax.plot(x, middles, **look)
        ends[name] = float(middles[-1])
    ax.set_xticks(sorted({position for of in found.values() for position in of}))
    ax.set_xlim(-0.4, furthest + 0.4)
    dress(ax, title, label, xlabel="stages of other tasks before the probe\nmean, 95 % interval")
    label_ends(ax, furthest + 0.4, ends)
    return ax


def summary(rows: Sequence[Row]) -> str:
    """A line per row: final cumulative performance by task and in the mean, and what is kept."""
    width = max(len(row["cell"]) for row in rows)
    tasks = max(np.shape(row["cumulative"])[1] for row in rows)
    head = f"{'':{width}s}" + "".join(f"{f'task {k + 1}':>8s}" for k in range(tasks))
    lines = [f"{head}{'mean':>8s}  95 % interval     kept: mean, least and most of seeds"]
    for row in rows:
        each = [f"{x:8.3f}" for x in np.mean(row["cumulative"], axis=0)]
        low, high = row["interval_95"]
        middle = f"{row['interquartile_mean']:8.3f}  [{low:.3f}, {high:.3f}]"
        left = np.array(row["retained"], float)
        said = f"{left.mean():9.2f}  [{left.min():.2f}, {left.max():.2f}]" if left.size else ""
        entries = "".join(each) + " " * 8 * (tasks - len(each))
        lines.append(f"{row['cell']:{width}s}{entries}{middle}{said}".rstrip())
    return "\n".join(lines)


def _band(ax: Axes, begin: float, end: float, name: str, task: int) -> None:
    color = STYLES[task]["color"]
    ax.axvspan(begin, end, color=color, alpha=0.10, linewidth=0, zorder=0)
    where = ((begin + end) / 2, 0.985)
    short = name.removeprefix("task ")
    ax.annotate(
        short, where, xycoords=("data", "axes fraction"), ha="center", va="top", color=color,
        fontweight="bold", fontsize=9,
    )  # fmt: skip


def _mean(values: Float[np.ndarray, " _seed"]) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    drawn = values[rng.integers(len(values), size=(2000, len(values)))].mean(axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return float(values.mean()), float(low), float(high)


def _check(scores: np.ndarray, env_steps: np.ndarray, order: Sequence[int]) -> None:
    if scores.ndim != 3 or scores.shape[1] != len(env_steps) or scores.shape[2] > len(STYLES):
        raise ValueError(
            f"`scores` must have shape [seed, {len(env_steps)}, task], one entry per entry of "
            f"`env_steps` and at most {len(STYLES)} tasks; got {list(scores.shape)}."
        )
    if order and (len(env_steps) - 1) % len(order):
        raise ValueError(
            f"`order` must divide the {len(env_steps) - 1} evaluations after the first into equal "
            f"stages; got {len(order)} stages."
        )
