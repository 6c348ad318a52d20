"""Figures of learning curves by batch size."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mmrl.course.experiments import stratified
from mmrl.show import INK, learning_curves

Row = dict[str, Any]


def curves(
    by_factor: Mapping[int, Row],
    *,
    best: float | None = 1.0,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw normalized returns by environment steps, one curve per c; `by_factor` maps c to a row.

    Raises `ValueError` if the rows were not evaluated after the same numbers of steps.
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
