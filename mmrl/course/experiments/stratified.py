"""Comparison of learning curves, and a statistical test that is stratified by environment.

These are the quantities of Hilton et al. 2022, Figure 3, Table 5 and Appendix E. They are computed
from the rows of `invariance.jsonl`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

EVERY = "every adjustment"
Row = dict[str, Any]
Figure = Callable[[Row], Float[np.ndarray, " seed"]]


def curves(row: Row) -> Float[np.ndarray, "seed eval"]:
    """Normalize returns to 0 for a random policy and 1 for the best policy."""
    return (np.array(row["returns"]) - row["worst"]) / (row["best"] - row["worst"])


def area(row: Row) -> Float[np.ndarray, " seed"]:
    """Compute the mean of each seed's normalized curve."""
    return curves(row).mean(1)


def final(row: Row) -> Float[np.ndarray, " seed"]:
    """Compute the mean over the last quarter of each seed's normalized curve."""
    values = curves(row)
    return values[:, -max(values.shape[1] // 4, 1) :].mean(1)


def select(rows: Sequence[Row], agent: str, condition: str) -> dict[str, dict[int, Row]]:
    """Return the rows of an agent and a condition, keyed by task and then by c.

    If a condition has no row at c = 1, the row with all adjustments is used.
    """
    own = [row for row in rows if (row["agent"], row["condition"]) == (agent, condition)]
    base = [row for row in rows if (row["agent"], row["condition"]) == (agent, EVERY)]
    by_task: dict[str, dict[int, Row]] = {row["task"]: {} for row in own}
    for row in [*(row for row in base if row["c"] == 1), *own]:
        if row["task"] in by_task:
            by_task[row["task"]][row["c"]] = row
    return by_task


def spread(by_factor: dict[int, Row], figure: Figure = area) -> float:
    """Compute the maximum minus the minimum, over all c, of the mean over seeds."""
    means = [figure(row).mean() for row in by_factor.values()]
    return float(max(means) - min(means))


def distance(by_factor: dict[int, Row], c: int) -> float:
    """Compute the mean absolute difference between the mean curves at c and at 1."""
    return float(np.abs(curves(by_factor[c]).mean(0) - curves(by_factor[1]).mean(0)).mean())


def losses(by_factor: dict[int, Row], c: int, figure: Figure) -> Float[np.ndarray, " seed"]:
    """Return how much `figure` drops for each seed when the batch size is divided by c."""
    return figure(by_factor[1]) - figure(by_factor[c])


class Effect(NamedTuple):
    """Effect of an ablation on how much a figure of merit drops with a smaller batch."""

    size: float  # additional drop with the ablation, averaged over tasks
    z: float  # statistic of a one-tailed test, large if the drop is larger with the ablation
    tasks: tuple[str, ...]  # tasks that were compared, the strata of the test


def effect(
    rows: Sequence[Row], agent: str, condition: str, c: int, figure: Figure = area
) -> Effect:
    """Test whether an ablation increases the drop caused by dividing the batch size by c."""
    ablation, whole = select(rows, agent, condition), select(rows, agent, EVERY)
    both = [t for t in whole if {1, c} <= set(whole[t]) & set(ablation.get(t, ()))]
    pairs = [(losses(ablation[t], c, figure), losses(whole[t], c, figure)) for t in both]
    size = float(np.mean([a.mean() - b.mean() for a, b in pairs]))
    return Effect(size, van_elteren(pairs), tuple(both))


def van_elteren(strata: Sequence[tuple[Any, Any]]) -> float:
    """Compute Z for H₀: in each stratum (a, b), P(a > b) = P(b > a).  Van Elteren 1960.

        Z = Σ (U - mn/2) / (N + 1)  /  √ Σ Var U / (N + 1)²,   N = m + n

    U is the number of pairs with a > b, where a tie counts as one half. Its variance is corrected
    for ties. With a single stratum, this is the Mann-Whitney test without a continuity correction.
    The weights 1 / (N + 1) are optimal if the effect is equal in all strata. NaN, the loss of a
    seed that diverged, ranks as the largest value.
    """
    total = variance = 0.0
    for a, b in strata:
        a, b = (np.nan_to_num(np.asarray(x, float), nan=np.inf, posinf=np.inf) for x in (a, b))
        m, n, size = len(a), len(b), len(a) + len(b)
        wins = np.sum((a[:, None] > b) + 0.5 * (a[:, None] == b))
        ties = np.unique(np.concatenate([a, b]), return_counts=True)[1]
        excess = np.sum(ties**3 - ties) / (size * (size - 1))
        total += (wins - m * n / 2) / (size + 1)
        variance += m * n / 12 * (size + 1 - excess) / (size + 1) ** 2
    return float(total / np.sqrt(variance)) if variance > 0 else 0.0


def summary(rows: Sequence[Row]) -> str:
    """Format a table of final returns by c and their spread, per task, agent and condition."""
    factors = sorted({row["c"] for row in rows})
    head = f"{'':40s}" + "".join(f"c = {c:<5d}" for c in factors) + "spread of finals  of areas"
    lines = []
    for agent, condition in dict.fromkeys((row["agent"], row["condition"]) for row in rows):
        for task, by_factor in select(rows, agent, condition).items():
            finals = {c: final(row).mean() for c, row in by_factor.items()}
            entries = (f"{finals[c]:<9.3f}" if c in finals else " " * 9 for c in factors)
            spreads = spread(by_factor, final), spread(by_factor)
            line = f"{f'{task}, {agent}, {condition}':40s}" + "".join(entries)
            lines.append(f"{line}{spreads[0]:<18.3f}{spreads[1]:.3f}")
    return "\n".join([head, *sorted(lines)])
