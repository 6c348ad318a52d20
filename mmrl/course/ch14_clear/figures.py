"""CLEAR: who a reservoir keeps, what each part of the method does, and the paper's tables beside.

Rows are those that `mmrl experiment forgetting` writes, of the greedy policy, or of sampled actions
if `figures.forgetting.sampled` has made them so; then greedy scores are beside them. Of a row's
`cumulative` [seed, task] the mean over tasks is drawn; of its `retained` the mean over seeds.
Tables of Rolnick et al. 2019 are `FIGURE_8`, cumulative performance on three tasks of DMLab, and
`FIGURE_13`, on six of Atari.
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
"""The nine rows: protocol and method of ours, and the paper's scores. Its reservoirs of 450, 50 and
5 million frames are 1/2, 1/18 and 1/180 of the 900 million played; our smallest is 1/200."""

GAMES = ("space_invaders", "krull", "beam_rider", "hero", "star_gunner", "ms_pacman")
FIGURE_13: dict[str, tuple[str, tuple[float, ...]]] = {
    "baseline": ("tuned V-trace", (346.47, 5512.36, 952.72, 2737.32, 1065.20, 753.83)),
    "CLEAR": ("tuned CLEAR", (426.72, 8845.12, 585.05, 8106.22, 991.74, 1222.82)),
    "EWC": ("EWC", (549.22, 5352.92, 432.78, 4499.35, 704.20, 639.75)),
    "P&C": ("Progress & Compress", (455.34, 7025.40, 743.38, 3433.10, 1261.86, 924.52)),
}
"""The four rows: method of ours, each tuned for itself, and the paper's scores in the order of
`GAMES`. The paper's CLEAR is 75-25 there, ours has as much replay as new experience."""

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
"""What is varied, and the method at each setting."""


def find(
    rows: Sequence[Row], method: str, protocol: str = "sequential", family: str = "Catch"
) -> Row:
    """The row of a method. Raises `ValueError` if there is none, or more than one."""
    wanted = (family, protocol, method)
    found = [row for row in rows if (row["family"], row["protocol"], row["method"]) == wanted]
    if len(found) != 1:
        raise ValueError(f"`rows` must have one row of {', '.join(wanted)}; got {len(found)}.")
    return found[0]


def first_lessons(row: Row) -> Float[np.ndarray, " seed"]:
    """The mean score on a task while it is trained for the first time, over the first cycle."""
    scores, order = np.asarray(row["scores"], float), list(row["order"])
    stages = scores[:, 1:].reshape(len(scores), len(order), -1, scores.shape[-1])
    cells = [stages[:, stage, :, task] for stage, task in enumerate(order[: len(set(order))])]
    return np.mean(cells, axis=(0, 2))


def table(rows: Sequence[Row], chance: float = 0.0) -> str:
    """Figure 8 in words: shares of simultaneous training, ours and the range of the paper's three.

    Ours are the mean over seeds and tasks: as the scores are, above `chance`, and this of greedy
    actions too if `rows` are of sampled ones.
    """
    theirs, best = np.array(FIGURE_8["simultaneous"][2]), _greedy(rows)
    head = f"{'cumulative performance / simultaneous':39s}ours   above chance"
    lines = [head + "  greedy" * bool(best) + "  paper"]
    for name, (protocol, method, scores) in FIGURE_8.items():
        low, high = np.sort(scores / theirs)[[0, -1]]
        got, above = (_shares(rows, method, protocol, zero).mean() for zero in (0.0, chance))
        said = f"{name:37s}{got:6.2f}{above:12.2f}"
        if best:
            said += f"{_shares(best, method, protocol, chance).mean():10.2f}"
        lines.append(f"{said}{low:10.2f} to {high:.2f}")
    return "\n".join(lines)


# Who is kept


def inclusion(
    frequencies: Mapping[str, Float[np.ndarray, " position"]],
    even: float,
    deviation: float,
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """How often each position of a stream was kept, one line per label.

    The band is `even` ± 2 `deviation`, where 95 % of the points lie if all are kept alike.
    """
    ax = figure(width=7.0, height=3.6)[1][0] if ax is None else ax
    for (label, line), style in zip(frequencies.items(), STYLES, strict=False):
        at = np.arange(1, len(line) + 1)
        look: dict[str, Any] = {"markersize": 4, "linewidth": 1.2, "label": label}
        ax.plot(at, line, **{**style, **look})
    ax.axhspan(even - 2 * deviation, even + 2 * deviation, color=INK, alpha=0.12, linewidth=0)
    ax.set_ylim(0, None)
    ax.legend(frameon=False, labelcolor=INK, fontsize=9)
    return dress(
        ax, title, "kept, share of the runs", xlabel="position in the stream, 1: the first"
    )


# One part at a time


def sweep(rows: Sequence[Row], which: str, *, names: bool = True, ax: Axes | None = None) -> Axes:
    """Three measures at each setting of `SWEEPS[which]` that has a row; thin lines are intervals.

    Cumulative performance, the share retained, and the score while a task is first trained; the
    best score is 1. Dotted beside those of sampled actions are those of greedy ones. Dots are
    seeds, large marks interquartile means; settings in several lines are not joined. `names` shows
    what is what.
    """
    ax = figure()[1][0] if ax is None else ax
    known = {row["method"] for row in rows if row["protocol"] == "sequential"}
    settings = {label: name for label, name in SWEEPS[which].items() if name in known}
    measures = {
        "cumulative performance": lambda row: np.mean(row["cumulative"], axis=1),
        "share retained": lambda row: np.asarray(row["retained"], float),
        "score in first lessons": first_lessons,
    }
    for k, ((label, measure), style) in enumerate(zip(measures.items(), STYLES, strict=False)):
        values = [measure(find(rows, name)) for name in settings.values()]
        points = [(at + 0.13 * (k - 1), seeds) for at, seeds in enumerate(values)]
        joined = sum("\n" not in setting for setting in settings)
        _points(ax, points, style, label, joined)
        if best := _greedy([find(rows, name) for name in settings.values()]):
            middles = [interval(measure(row))[0] for row in best[:joined]]
            x = [at for at, _ in points[:joined]]
            ax.plot(x, middles, color=style["color"], linewidth=1.0, linestyle=BESIDE)
    ax.set_xticks(range(len(settings)), list(settings))
    ax.set_xlim(-0.5, len(settings) - 0.5)
    if names:
        ax.legend(frameon=False, labelcolor=INK, fontsize=8, loc="upper left")
    text = {
        "replay": ("Replay (Figure 3)", "share of replay in a batch"),
        "cloning": (
            "Cloning (Figure 2)",
            "weight of policy cloning (value: half of it)",
        ),
        "room": ("Room (Figure 4)", "room in the reservoir, share of all steps"),
    }
    return dress(
        ax,
        text[which][0],
        f"score, {policy(rows)}; or share" if names else "",
        xlabel=text[which][1],
    )


def _points(
    ax: Axes,
    points: Sequence[tuple[float, Float[np.ndarray, " _seed"]]],
    style: Mapping[str, Any],
    label: str,
    joined: int,
) -> None:
    """Interquartile means over seeds with 95 % intervals; the first `joined` on a line."""
    color, middles = style["color"], []
    for at, seeds in points:
        middle, low, high = interval(seeds)
        middles.append(middle)
        ax.plot([at, at], [low, high], color=color, linewidth=2, solid_capstyle="butt")
        ax.plot(np.full(len(seeds), at), seeds, ".", color=color, markersize=3, alpha=0.5)
    x = [at for at, _ in points]
    look: dict[str, Any] = {**style, "markersize": 6}
    ax.plot(x[:joined], middles[:joined], linewidth=1.4, label=label, **look)
    ax.plot(x[joined:], middles[joined:], **{**look, "linestyle": ""})


# Beside the paper


def figure_8(
    rows: Sequence[Row], chance: float = 0.0, *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Cumulative performance as a share of simultaneous training: ours, and the paper's Figure 8.

    Filled circles are means over our tasks, above `chance`, with dots for seeds, and below those of
    sampled actions hollow ones of greedy actions; hollow squares are the paper's three tasks.
    Raises `ValueError` if one of the nine rows is missing.
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
    return dress(ax, title, xlabel="cumulative performance, share of simultaneous", grid="x")


def _shares(
    rows: Sequence[Row], method: str, protocol: str, chance: float
) -> Float[np.ndarray, " _seed"]:
    """Cumulative performance above chance, as a share of simultaneous training's."""
    at_once = np.mean(find(rows, "V-trace", "simultaneous")["cumulative"])
    mine = np.mean(find(rows, method, protocol)["cumulative"], axis=1)
    return (mine - chance) / (at_once - chance)


def _greedy(rows: Sequence[Row]) -> list[Row]:
    """The greedy rows beside those of sampled actions; nothing if these are greedy."""
    return [row["greedy"] for row in rows] if all("greedy" in row for row in rows) else []


def side_by_side(
    scores: Mapping[str, Float[np.ndarray, " _task"] | Sequence[float]],
    tasks: Sequence[str],
    *,
    title: str = "",
    names: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Scores of several methods on each task, as shares of the best one's: the form of Figure 13.

    Scores should be 0 by chance. Raises `ValueError` for more than seven methods.
    """
    if not 1 <= len(scores) <= len(STYLES):
        raise ValueError(f"`scores` must hold 1 to {len(STYLES)} methods; got {len(scores)}.")
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
    return dress(ax, title, "share of the best on that task")


def figure_13(rows: Sequence[Row], chance: float = 0.0) -> dict[str, Float[np.ndarray, " task"]]:
    """Our scores for `side_by_side`: cumulative performance above `chance`, means over seeds."""
    return {
        name: np.mean(find(rows, method)["cumulative"], axis=0) - chance
        for name, (method, _) in FIGURE_13.items()
    }
