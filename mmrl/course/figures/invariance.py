"""Batch size-invariance: curves by the size of the batch, and what a smaller batch costs."""

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
"""Those of `mmrl experiment invariance`; each looks the same in every panel."""


def curves(
    by_factor: Mapping[int, Row],
    *,
    best: float | None = 1.0,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Normalized returns by environment steps, one curve per c; `by_factor` holds a row of each.

    Raises `ValueError` if they were not evaluated after the same numbers of steps.
    """
    steps = {tuple(row["env_steps"]) for row in by_factor.values()}
    if len(steps) != 1:
        raise ValueError(
            "`by_factor` must hold rows with the same `env_steps`, of one task, agent and "
            f"condition; got {len(steps)} kinds."
        )
    returns = {f"c = {c}": stratified.curves(by_factor[c]) for c in sorted(by_factor)}
    ax = learning_curves(returns, np.array(steps.pop()), title=title, best=best, ax=ax)
    ax.set_ylabel("normalized return in training", color=INK)
    seeds = len(next(iter(returns.values())))
    ax.set_xlabel(f"environment steps\n{seeds} seeds: IQM, 95 % interval", color=INK)
    ax.label_outer()
    return ax


def costs(
    rows: Sequence[Row], agent: str, task: str, measure: stratified.Figure = stratified.area
) -> dict[str, dict[int, tuple[float, float, float]]]:
    """The mean `measure` at c = 1 less that at c, and its interval: by condition and c > 1.

    A 95 % percentile bootstrap of the seeds of both.
    """
    found = {}
    for condition in dict.fromkeys(row["condition"] for row in rows if row["agent"] == agent):
        by_factor = stratified.select(rows, agent, condition).get(task, {})
        smaller = sorted(c for c in by_factor if c > 1)
        if 1 in by_factor and smaller:
            base = measure(by_factor[1])
            found[condition] = {c: _cost(base, measure(by_factor[c])) for c in smaller}
    return found


def differences(
    costs: Mapping[str, Mapping[int, tuple[float, float, float]]],
    *,
    title: str = "",
    label: str = "area",
    names: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """The cost of a batch c times smaller, one line per condition, as `costs` gives it.

    Zero is invariance; below it the smaller batch did better. Bars are the intervals. `names`: are
    the conditions named at the right ends?
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
    dress(ax, title, f"{label}: c = 1 less c", size=10).label_outer()
    return ax


def summary(rows: Sequence[Row]) -> str:
    """A line per task, agent and condition: the final return by c, and how far both spread."""
    factors = sorted({row["c"] for row in rows})
    head = f"{'':40s}" + "".join(f"c = {c:<5d}" for c in factors) + "spread of finals  of areas"
    lines = []
    for agent, condition in dict.fromkeys((row["agent"], row["condition"]) for row in rows):
        for task, by_factor in stratified.select(rows, agent, condition).items():
            finals = {c: stratified.final(row).mean() for c, row in by_factor.items()}
            entries = (f"{finals[c]:<9.3f}" if c in finals else " " * 9 for c in factors)
            spreads = stratified.spread(by_factor, stratified.final), stratified.spread(by_factor)
            line = f"{f'{task}, {agent}, {condition}':40s}" + "".join(entries)
            lines.append(f"{line}{spreads[0]:<18.3f}{spreads[1]:.3f}")
    return "\n".join([head, *sorted(lines)])


def effects(
    rows: Sequence[Row], agent: str, conditions: Sequence[str], measure: stratified.Figure
) -> str:
    """Effect sizes and, in parentheses, Z, as in the paper's Table 5: a line per c."""
    factors = sorted({row["c"] for row in rows if row["agent"] == agent} - {1})
    lines = ["batch   " + "".join(f"{condition:>22s}" for condition in conditions)]
    for c in factors:
        found = [stratified.effect(rows, agent, condition, c, measure) for condition in conditions]
        entries = (f"{one.size:+.3f} ({one.z:+.2f})" for one in found)
        lines.append(f"÷ {c:<6d}" + "".join(f"{entry:>22s}" for entry in entries))
    return "\n".join(lines)


def paths(
    lines: Mapping[str, Float[np.ndarray, " _x"]],
    x: Mapping[str, Float[np.ndarray, " _x"]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """One line per label over its own `x`; the labels stand at the right ends."""
    ax = figure()[1][0] if ax is None else ax
    for (label, line), style in zip(lines.items(), STYLES, strict=False):
        look: dict[str, Any] = {"linewidth": 2, "markersize": 5, **style}
        ax.plot(x[label], line, markevery=max(1, len(line) // 8), **look)
    end = max(float(np.max(x[label])) for label in lines)
    ax.set_xlim(0, end)
    ax.set_xlabel(xlabel, color=INK)
    label_ends(ax, end, {label: float(line[-1]) for label, line in lines.items()})
    return dress(ax, title, ylabel, size=10)


def _cost(
    large: Float[np.ndarray, " _seed"], small: Float[np.ndarray, " _other"]
) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    drawn = [x[rng.integers(len(x), size=(RESAMPLES, len(x)))].mean(axis=1) for x in (large, small)]
    low, high = np.percentile(drawn[0] - drawn[1], (2.5, 97.5))
    return float(large.mean() - small.mean()), float(low), float(high)
