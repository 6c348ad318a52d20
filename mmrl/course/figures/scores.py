"""Plots of the score on every task at every evaluation.

Scores have shape [seed, time, task], and `env_steps` contains the environment steps at each time.
The first evaluation precedes all training. `order` lists the task of each stage; all stages have
equal length. `order` is empty if all tasks are trained throughout.

Rows of `published_rows("forgetting")` contain scores of the greedy policy. `sampled_scores` returns
the same row with scores of sampled actions. In a plot of sampled scores, greedy scores are dotted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from matplotlib.axes import Axes

from mmrl.runs import interquartile_mean, interval
from mmrl.show import INK, STYLES, figure, label_ends, name_axes

Row = dict[str, Any]

BOLD, AT_REST = 3.4, 1.2  # line widths in points, while a task is trained and otherwise

BESIDE = (0, (1, 1.2))  # dash pattern of greedy scores in a plot of sampled scores


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
    """Plot the scores on each task over time (Figure 1).

    Lines are interquartile means over seeds, with 95 % intervals. Colored bands with names at the
    top show which task is trained. If `greedy` is given, these scores of the greedy policy are
    drawn as dotted lines. Raises `ValueError` if the shapes are inconsistent.
    """
    scores, env_steps = np.asarray(scores), np.asarray(env_steps)
    _check(scores, env_steps, order)
    ax = figure()[1][0] if ax is None else ax
    names = names or [f"task {task + 1}" for task in range(scores.shape[2])]
    blocks = (len(env_steps) - 1) // max(len(order), 1)
    for stage, task in enumerate(order):
        begin, end = (float(env_steps[s * blocks]) for s in (stage, stage + 1))
        _band(ax, begin, end, names[task], task)
    if order:  # extend the data limits, so that the names of stages do not cover the lines
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
            look: dict[str, Any] = {"linewidth": BOLD, "solid_capstyle": "round", "zorder": 3}
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


def sampled_scores(row: Mapping[str, Any]) -> Row:
    """Return a published row with scores of sampled actions; `greedy` holds the original row."""
    return {**row, **row["sampled"], "greedy": row}


def policy(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a label for the policies whose scores are drawn from these rows."""
    return "sampled (dotted: greedy)" if all("greedy" in row for row in rows) else "greedy"


def summary(rows: Sequence[Row]) -> str:
    """Format a table of cumulative performance per task, its mean, and the fraction retained."""
    width = max(len(row["cell"]) for row in rows)
    tasks = max(np.shape(row["cumulative"])[1] for row in rows)
    head = f"{'':{width}s}" + "".join(f"{f'task {k + 1}':>8s}" for k in range(tasks))
    lines = [f"{head}{'mean':>8s}  95 % interval     retained: mean, min and max of seeds"]
    for row in rows:
        each = [f"{x:8.3f}" for x in np.mean(row["cumulative"], axis=0)]
        low, high = row["interval_95"]
        middle = f"{row['interquartile_mean']:8.3f}  [{low:.3f}, {high:.3f}]"
        left = np.array(row["retained"], float)
        text = f"{left.mean():9.2f}  [{left.min():.2f}, {left.max():.2f}]" if left.size else ""
        entries = "".join(each) + " " * 8 * (tasks - len(each))
        lines.append(f"{row['cell']:{width}s}{entries}{middle}{text}".rstrip())
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


def _check(scores: np.ndarray, env_steps: np.ndarray, order: Sequence[int]) -> None:
    if scores.ndim != 3 or scores.shape[1] != len(env_steps) or scores.shape[2] > len(STYLES):
        raise ValueError(
            f"`scores` must have shape [seed, {len(env_steps)}, task], where the second size is "
            f"that of `env_steps`, and at most {len(STYLES)} tasks; got {list(scores.shape)}."
        )
    if order and (len(env_steps) - 1) % len(order):
        raise ValueError(
            f"`order` must divide the {len(env_steps) - 1} evaluations after the first one into "
            f"stages of equal length; got {len(order)} stages."
        )
