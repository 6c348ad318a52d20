"""Figures of the cost of a smaller batch and of the scale of advantages, and a table of effects."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from mmrl.course.experiments import stratified
from mmrl.runs.results import RESAMPLES
from mmrl.show import INK, STYLES, dress, figure, label_ends, learning_curves

Row = dict[str, Any]

CONDITIONS = (
    stratified.EVERY, "no step size", "no advantage span", "no center of mass", "no average",
    "linear step size", "betas too",
)  # fmt: skip
"""Conditions of `mmrl experiment invariance`, whose order determines their styles."""


def costs(
    rows: Sequence[Row], agent: str, task: str, measure: stratified.Figure = stratified.area
) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Compute the decrease of the mean `measure` from c = 1 to each c, by condition.

    Returns (decrease, low, high), where low and high are a 95 % bootstrap interval over the seeds
    of both rows.
    """
    by_condition = {}
    for condition in dict.fromkeys(row["condition"] for row in rows if row["agent"] == agent):
        by_factor = stratified.select(rows, agent, condition).get(task, {})
        smaller = sorted(c for c in by_factor if c > 1)
        if 1 in by_factor and smaller:
            base = measure(by_factor[1])
            by_condition[condition] = {c: _cost(base, measure(by_factor[c])) for c in smaller}
    return by_condition


def differences(
    costs: Mapping[str, Mapping[int, tuple[float, float, float]]],
    *,
    title: str = "",
    label: str = "area",
    names: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the cost of a batch that is c times smaller, one line per condition.

    Pass the result of the function `costs`. Zero means invariance, and below zero the smaller batch
    is better. Bars are 95 % intervals. `names` adds the name of each condition at the end of its
    line.
    """
    ax = figure()[1][0] if ax is None else ax
    factors = sorted({c for by_factor in costs.values() for c in by_factor})
    end, ends = len(factors) - 0.7, {}
    for condition, by_factor in costs.items():
        k = CONDITIONS.index(condition)
        x = [factors.index(c) + 0.06 * (k - len(CONDITIONS) // 2) for c in by_factor]
        middle, low, high = np.array(list(by_factor.values())).T
        style = STYLES[k]
        ax.vlines(x, low, high, color=style["color"], alpha=0.6, linewidth=1.5)
        look: dict[str, Any] = {"markersize": 6, "linewidth": 1.5, "zorder": 3, **style}
        ax.plot(x, middle, **look)
        ends[condition] = float(middle[-1])
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_xticks(range(len(factors)), [f"÷ {c}" for c in factors], color=INK)
    ax.set_xlim(-0.3, end)
    ax.set_xlabel("batch", color=INK)
    if names:
        label_ends(ax, end, ends, [STYLES[CONDITIONS.index(name)] for name in ends])
    dress(ax, title, f"{label}: c = 1 minus c", size=10).label_outer()
    return ax


def swing_curves(
    rows: Sequence[Row], agent: str, task: str, factors: Sequence[int], *, ax: Axes | None = None
) -> Axes:
    """Draw how much the standard deviation of advantages changes within each block of training.

    A curve is log₁₀ of the largest standard deviation divided by the smallest, as the interquartile
    mean over seeds with a 95 % interval. There is one curve for c = 1, which the rules do not
    change, and two for each of the `factors`: with all rules, and without that of the span. Hilton
    et al. (2022), Figure 13, shows the standard deviation itself.
    """
    every, without = (
        stratified.select(rows, agent, x)[task] for x in (stratified.EVERY, "no advantage span")
    )
    chosen = {"c = 1": every[1]}
    for c in factors:
        chosen |= {f"÷ {c}, all rules": every[c], f"÷ {c}, no span": without[c]}
    curves = {name: np.log10(np.array(row["advantage_swing"])) for name, row in chosen.items()}
    steps = np.array(every[1]["env_steps"])
    ax = learning_curves(curves, steps, title=f"{task}, {agent.upper()}", ax=ax)
    ax.set_xlabel("steps", color=INK)
    ax.set_ylabel("log₁₀ of largest / smallest σ" if ax is ax.figure.axes[0] else "")
    return ax


def effects(
    rows: Sequence[Row], agent: str, conditions: Sequence[str], measure: stratified.Figure
) -> str:
    """Return a table of effect sizes with Z in parentheses, as in Table 5 of the paper."""
    factors = sorted({row["c"] for row in rows if row["agent"] == agent} - {1})
    lines = ["batch   " + "".join(f"{condition:>22s}" for condition in conditions)]
    for c in factors:
        sizes = [stratified.effect(rows, agent, condition, c, measure) for condition in conditions]
        entries = (f"{one.size:+.3f} ({one.z:+.2f})" for one in sizes)
        lines.append(f"÷ {c:<6d}" + "".join(f"{entry:>22s}" for entry in entries))
    return "\n".join(lines)


def _cost(
    large: Float[np.ndarray, " _seed"], small: Float[np.ndarray, " _other"]
) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    means = [x[rng.integers(len(x), size=(RESAMPLES, len(x)))].mean(axis=1) for x in (large, small)]
    low, high = np.percentile(means[0] - means[1], (2.5, 97.5))
    return float(large.mean() - small.mean()), float(low), float(high)
