"""Figure and table for PPO with each memory: returns against steps, and the cost."""

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
    """Draw one learning curve per row.

    `rows` must be rows of `mmrl experiment ppo` for a single task. `label` returns the name of a
    row. Raises `ValueError` if two rows have the same name or different `env_steps`.
    """
    returns = {label(row): np.asarray(row["returns"], float) for row in rows}
    steps = {tuple(row["env_steps"]) for row in rows}
    if len(returns) < len(rows) or len(steps) != 1:
        raise ValueError(
            f"`rows` must have distinct names and equal `env_steps`; got {len(rows)} rows with "
            f"names {list(returns)} and {len(steps)} different values of `env_steps`. Choose rows "
            "of one task."
        )
    text: dict[str, Any] = {"title": title, "chance": chance, "best": best}
    return learning_curves(returns, np.array(steps.pop()), ax=ax, **text)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the last return, the learning rate and the cost of each row."""
    lines = []
    for row in rows:
        (low, high), steps = row["interval_95"], row["env_steps"][-1]
        score = f"{row['interquartile_mean']:8.2f}  [{low:7.2f}, {high:7.2f}]"
        lines.append(
            f"{row['cell']:47s}{score}  rate {row['learning_rate']:<8g}"
            f"{steps / 1000:6.0f} k steps{row['cpu_seconds'][-1]:6.1f} CPU-s"
        )
    return "\n".join(lines)
