"""Figure of learning curves by batch size."""

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
    """Draw normalized returns against environment steps, one curve per c.

    `by_factor` maps c to a row. Raises `ValueError` if the rows differ in `env_steps`.
    """
    steps = {tuple(row["env_steps"]) for row in by_factor.values()}
    if len(steps) != 1:
        raise ValueError(
            f"`by_factor` must contain rows with equal `env_steps`; got {len(steps)} different "
            "values. Choose rows of one task, agent and condition."
        )
    returns = {f"c = {c}": stratified.curves(by_factor[c]) for c in sorted(by_factor)}
    ax = learning_curves(returns, np.array(steps.pop()), title=title, best=best, ax=ax)
    ax.set_ylabel("normalized return in training", color=INK)
    seeds = len(next(iter(returns.values())))
    ax.set_xlabel(f"environment steps\n{seeds} seeds: IQM, 95 % interval", color=INK)
    ax.label_outer()
    return ax
