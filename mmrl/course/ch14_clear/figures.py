"""Figures for CLEAR: the contents of a reservoir, ablations, and comparisons with the paper.

Rows come from `mmrl experiment forgetting`, with the scores of the greedy policy.
`figures.forgetting.sampled` turns them into rows of sampled actions, which also contain the greedy
scores. Figures show the mean of `cumulative` [seed, task] over tasks, and `retained` [seed].
`FIGURE_8` and `FIGURE_13` contain the cumulative performance that Rolnick et al. (2019) report on
three DMLab tasks and on six Atari games.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from mmrl.course.figures.scores import BESIDE, policy
from mmrl.runs import interval
from mmrl.show import INK, STYLES, dress, figure

Row = Mapping[str, Any]
Row8 = tuple[str, str, tuple[float, float, float]]

FIGURE_8: dict[str, Row8] = {
    "separate": ("separate", "V-trace", (29.24, 8.79, 19.91)),
    "simultaneous": ("simultaneous", "V-trace", (32.35, 8.81, 20.56)),
    "sequential": ("sequential", "V-trace", (17.99, 5.01, 10.87)),
    "CLEAR, room for 1/2": ("sequential", "reservoir 1/2", (31.40, 8.00, 18.13)),
    "CLEAR without cloning": ("sequential", "without cloning", (28.66, 7.79, 16.63)),
    "CLEAR, 75-25": ("sequential", "25 % replay", (30.28, 7.83, 17.86)),
    "CLEAR, 100 % replay": ("sequential", "100 % replay", (31.09, 7.48, 13.39)),
    "CLEAR, room for 1/180": ("sequential", "reservoir 1/200", (30.33, 8.00, 18.07)),
    "CLEAR, room for 1/18": ("sequential", "CLEAR", (30.82, 7.99, 18.21)),
}
"""Our protocol and method, and the paper's scores, for each row of the figure.

The paper plays 900 million frames, with reservoirs of 450, 50 and 5 million frames: 1/2, 1/18 and
1/180. We use 1/200 instead of 1/180.
"""

GAMES = ("space_invaders", "krull", "beam_rider", "hero", "star_gunner", "ms_pacman")
FIGURE_13: dict[str, tuple[str, tuple[float, ...]]] = {
    "baseline": ("tuned V-trace", (346.47, 5512.36, 952.72, 2737.32, 1065.20, 753.83)),
    "CLEAR": ("tuned CLEAR", (426.72, 8845.12, 585.05, 8106.22, 991.74, 1222.82)),
    "EWC": ("EWC", (549.22, 5352.92, 432.78, 4499.35, 704.20, 639.75)),
    "P&C": ("Progress & Compress", (455.34, 7025.40, 743.38, 3433.10, 1261.86, 924.52)),
}
"""Our method and the paper's scores, in the order of `GAMES`, for each row of the figure.

CLEAR uses a ratio of 75-25 in this figure of the paper. Ours uses equal amounts of replay and new
experience.
"""

SWEEPS: dict[str, dict[str, str]] = {
    "replay": {
        "0": "V-trace", "25 %": "25 % replay", "50 %": "CLEAR", "75 %": "75 % replay",
        "100 %": "100 % replay",
    },
    "cloning": {
        "0": "without cloning", "0.01": "cloning 0.01", "0.1": "cloning 0.1", "0.3": "CLEAR",
        "1": "cloning 1", "0.3\npolicy\nonly": "policy cloning only",
        "0.15\nvalue\nonly": "value cloning only",
    },
    "room": {
        "1/7200": "reservoir 1/7200", "1/2400": "reservoir 1/2400", "1/720": "reservoir 1/720",
        "1/200": "reservoir 1/200", "1/18": "CLEAR", "1/2": "reservoir 1/2",
    },
}  # fmt: skip
"""Method at each value of a varied setting."""


def find(
    rows: Sequence[Row], method: str, protocol: str = "sequential", family: str = "Catch"
) -> Row:
    """Return the only row of a method, and raise `ValueError` if there is not exactly one."""
    names = (family, protocol, method)
    matches = [row for row in rows if (row["family"], row["protocol"], row["method"]) == names]
    if len(matches) != 1:
        raise ValueError(
            f"`rows` must have exactly one row of {', '.join(names)}, got {len(matches)}."
        )
    return matches[0]


def first_lessons(row: Row) -> Float[np.ndarray, " seed"]:
    """Compute the mean score during the first stage of each task, averaged over tasks."""
    scores, order = np.asarray(row["scores"], float), list(row["order"])
    stages = scores[:, 1:].reshape(len(scores), len(order), -1, scores.shape[-1])
    cells = [stages[:, stage, :, task] for stage, task in enumerate(order[: len(set(order))])]
    return np.mean(cells, axis=(0, 2))


def table(rows: Sequence[Row], chance: float = 0.0) -> str:
    """Return Figure 8 as a table of performance relative to simultaneous training.

    Two columns contain our means over seeds and tasks, before and after subtracting `chance`. If
    `rows` contain scores of sampled actions, a third column contains the means of greedy actions
    after subtracting `chance`. The last column is the paper's range over its three tasks.
    """
    theirs, best = np.array(FIGURE_8["simultaneous"][2]), _greedy(rows)
    head = f"{'cumulative performance / simultaneous':39s}ours   above chance"
    lines = [head + "  greedy" * bool(best) + "  paper"]
    for name, (protocol, method, scores) in FIGURE_8.items():
        low, high = np.sort(scores / theirs)[[0, -1]]
        got, above = (_shares(rows, method, protocol, zero).mean() for zero in (0.0, chance))
        line = f"{name:37s}{got:6.2f}{above:12.2f}"
        if best:
            line += f"{_shares(best, method, protocol, chance).mean():10.2f}"
        lines.append(f"{line}{low:10.2f} to {high:.2f}")
    return "\n".join(lines)


# Contents of a reservoir


def inclusion(
    frequencies: Mapping[str, Float[np.ndarray, " position"]],
    even: float,
    deviation: float,
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw how often each position of a stream is kept, one line per label.

    The band is `even` ± 2 `deviation`. It contains 95 % of the points if all positions are equally
    likely.
    """
    ax = figure(width=7.0, height=3.6)[1][0] if ax is None else ax
    for (label, line), style in zip(frequencies.items(), STYLES, strict=False):
        at = np.arange(1, len(line) + 1)
        look: dict[str, Any] = {"markersize": 4, "linewidth": 1.2, "label": label}
        ax.plot(at, line, **{**style, **look})
    ax.axhspan(even - 2 * deviation, even + 2 * deviation, color=INK, alpha=0.12, linewidth=0)
    ax.set_ylim(0, None)
    ax.legend(frameon=False, labelcolor=INK, fontsize=9)
    return dress(ax, title, "frequency of being kept", xlabel="position in the stream (1 is first)")


# Effect of one part at a time


def sweep(rows: Sequence[Row], which: str, *, names: bool = True, ax: Axes | None = None) -> Axes:
    """Draw three measures at each value of `SWEEPS[which]` that has a row, with intervals.

    The measures are cumulative performance, the fraction of gains retained, and the score in the
    first stage of a task. The best score is 1. Dots are seeds, large marks are interquartile means,
    and thin lines are intervals. If rows contain scores of sampled actions, the means of greedy
    actions are dotted lines. Values with labels of several lines are not connected. `names` adds a
    legend.
    """
    ax = figure()[1][0] if ax is None else ax
    methods = {row["method"] for row in rows if row["protocol"] == "sequential"}
    settings = {label: name for label, name in SWEEPS[which].items() if name in methods}
    measures = {
        "cumulative performance": lambda row: np.mean(row["cumulative"], axis=1),
        "fraction retained": lambda row: np.asarray(row["retained"], float),
        "score in first stages": first_lessons,
    }
    for k, ((label, measure), style) in enumerate(zip(measures.items(), STYLES, strict=False)):
        values = [measure(find(rows, name)) for name in settings.values()]
        points = [(at + 0.13 * (k - 1), seeds) for at, seeds in enumerate(values)]
        count = sum("\n" not in setting for setting in settings)
        _points(ax, points, style, label, count)
        if best := _greedy([find(rows, name) for name in settings.values()]):
            middles = [interval(measure(row))[0] for row in best[:count]]
            x = [at for at, _ in points[:count]]
            ax.plot(x, middles, color=style["color"], linewidth=1.0, linestyle=BESIDE)
    ax.set_xticks(range(len(settings)), list(settings))
    ax.set_xlim(-0.5, len(settings) - 0.5)
    if names:
        ax.legend(frameon=False, labelcolor=INK, fontsize=8, loc="upper left")
    text = {
        "replay": ("Replay (Figure 3)", "fraction of replay in a batch"),
        "cloning": (
            "Cloning (Figure 2)",
            "weight of policy cloning (value cloning: half)",
        ),
        "room": ("Room (Figure 4)", "size of the reservoir, fraction of all steps"),
    }
    return dress(
        ax,
        text[which][0],
        f"score, {policy(rows)}; or fraction" if names else "",
        xlabel=text[which][1],
    )


def _points(
    ax: Axes,
    points: Sequence[tuple[float, Float[np.ndarray, " _seed"]]],
    style: Mapping[str, Any],
    label: str,
    count: int,
) -> None:
    """Draw interquartile means with 95 % intervals, and connect the first `count`."""
    color, middles = style["color"], []
    for at, seeds in points:
        middle, low, high = interval(seeds)
        middles.append(middle)
        ax.plot([at, at], [low, high], color=color, linewidth=2, solid_capstyle="butt")
        ax.plot(np.full(len(seeds), at), seeds, ".", color=color, markersize=3, alpha=0.5)
    x = [at for at, _ in points]
    look: dict[str, Any] = {**style, "markersize": 6}
    ax.plot(x[:count], middles[:count], linewidth=1.4, label=label, **look)
    ax.plot(x[count:], middles[count:], **{**look, "linestyle": ""})


# Comparison with the paper


def figure_8(
    rows: Sequence[Row], chance: float = 0.0, *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Draw cumulative performance relative to simultaneous training: ours and Figure 8.

    Filled circles are our means over tasks, relative to `chance`, and dots are seeds. If `rows`
    contain scores of sampled actions, hollow circles below them show those of greedy actions.
    Hollow squares are the paper's three tasks. Raises `ValueError` if one of the nine rows is
    missing.
    """
    ax = figure(width=8.0, height=4.2)[1][0] if ax is None else ax
    theirs = np.array(FIGURE_8["simultaneous"][2])
    paper: dict[str, Any] = {"color": STYLES[1]["color"], "fillstyle": "none", "markersize": 8}
    ours: dict[str, Any] = {"color": STYLES[0]["color"]}
    best = _greedy(rows)
    for at, (protocol, method, scores) in enumerate(FIGURE_8.values()):
        first = at == 0
        ax.plot(scores / theirs, [at - 0.2] * 3, "s", label="paper, 3 tasks" * first, **paper)
        shares = _shares(rows, method, protocol, chance)
        ax.plot(shares, np.full(len(shares), at + 0.1), ".", markersize=4, alpha=0.6, **ours)
        name = ("ours, sampled" if best else "ours, greedy") * first
        ax.plot(shares.mean(), at + 0.1, "o", markersize=7, label=name, **ours)
        if best:
            middle = _shares(best, method, protocol, chance).mean()
            look: dict[str, Any] = {**ours, "fillstyle": "none", "markersize": 6}
            ax.plot(middle, at + 0.34, "o", label="ours, greedy" * first, **look)
    ax.axvline(1, color=INK, linewidth=0.8)
    ax.set_yticks(range(len(FIGURE_8)), list(FIGURE_8))
    ax.invert_yaxis()
    ax.set_xlim(0, None)
    ax.legend(frameon=False, labelcolor=INK, fontsize=9, loc="lower left")
    return dress(ax, title, xlabel="cumulative performance relative to simultaneous", grid="x")


def _shares(
    rows: Sequence[Row], method: str, protocol: str, chance: float
) -> Float[np.ndarray, " _seed"]:
    """Compute cumulative performance above chance, relative to simultaneous training."""
    at_once = np.mean(find(rows, "V-trace", "simultaneous")["cumulative"])
    mine = np.mean(find(rows, method, protocol)["cumulative"], axis=1)
    return (mine - chance) / (at_once - chance)


def _greedy(rows: Sequence[Row]) -> list[Row]:
    """Return the greedy counterparts of sampled rows, or an empty list."""
    return [row["greedy"] for row in rows] if all("greedy" in row for row in rows) else []


def side_by_side(
    scores: Mapping[str, Float[np.ndarray, " _task"] | Sequence[float]],
    tasks: Sequence[str],
    *,
    title: str = "",
    names: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the score of each method on each task relative to the best method, as in Figure 13.

    Scores must be relative to chance. Raises `ValueError` for more than seven methods.
    """
    if not 1 <= len(scores) <= len(STYLES):
        raise ValueError(f"`scores` must have 1 to {len(STYLES)} methods, got {len(scores)}.")
    ax = figure(width=7.0, height=3.8)[1][0] if ax is None else ax
    values = np.array([list(x) for x in scores.values()], float)
    shares = values / values.max(axis=0)
    for k, (label, line) in enumerate(zip(scores, shares, strict=True)):
        x = np.arange(len(tasks)) + 0.16 * (k - (len(scores) - 1) / 2)
        look: dict[str, Any] = {**STYLES[k], "linestyle": "", "markersize": 7}
        ax.plot(x, line, label=label, **look)
    ax.set_xticks(range(len(tasks)), [task.replace("_", "\n") for task in tasks])
    ax.set_xlim(-0.5, len(tasks) - 0.5)
    ax.set_ylim(0, 1.08)
    if names:
        ax.legend(frameon=False, labelcolor=INK, fontsize=9, loc="lower right")
    return dress(ax, title, "fraction of the task's best score")


def figure_13(rows: Sequence[Row], chance: float = 0.0) -> dict[str, Float[np.ndarray, " task"]]:
    """Return our mean cumulative performance above `chance`, for `side_by_side`."""
    return {
        name: np.mean(find(rows, method)["cumulative"], axis=0) - chance
        for name, (method, _) in FIGURE_13.items()
    }
