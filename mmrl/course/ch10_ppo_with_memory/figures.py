"""Figures of PPO with each memory: returns by steps, and their costs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mmrl.show import learning_curves


def curves(
    rows: Sequence[Mapping[str, Any]],
    label: Callable[[Mapping[str, Any]], str],
    *,
    title: str = "",
    chance: float | None = None,
    best: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw learning curves of rows that were evaluated after the same numbers of steps.

    `rows` must be of one task, as `mmrl experiment ppo` writes them; `label` names each. Raises
    `ValueError` if two rows have the same name, or if their steps differ.
    """
    returns = {label(row): np.asarray(row["returns"], float) for row in rows}
    steps = {tuple(row["env_steps"]) for row in rows}
    if len(returns) < len(rows) or len(steps) != 1:
        raise ValueError(
            f"`rows` must have one name each and the same `env_steps`; got {len(rows)} rows with "
            f"names {list(returns)} and {len(steps)} kinds of steps. Choose rows of one task."
        )
    text: dict[str, Any] = {"title": title, "chance": chance, "best": best}
    return learning_curves(returns, np.array(steps.pop()), ax=ax, **text)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per row: last return with its interval, learning rate, steps and cost."""
    lines = []
    for row in rows:
        (low, high), steps = row["interval_95"], row["env_steps"][-1]
        returned = f"{row['interquartile_mean']:8.2f}  [{low:7.2f}, {high:7.2f}]"
        lines.append(
            f"{row['cell']:47s}{returned}  rate {row['learning_rate']:<8g}"
            f"{steps / 1000:6.0f} k steps{row['cpu_seconds'][-1]:6.1f} CPU-s"
        )
    return "\n".join(lines)
