"""Learning from rollouts that are 1, 2, 4, 8 and 16 iterations old, with ten seeds.

This study repeats `staleness` (Hilton et al. 2022, Figure 1) at the paper's low values of S, on the
two tasks whose curves stay below their ceiling for most of the run. The seeds are new, because the
study was planned after the rows of `staleness`. Each cell is trained at its best learning rate, at
the rates next to it, and at the rate of its task without staleness.
"""

from collections.abc import Sequence

from mmrl.course.ch11_three_policies import experiment_staleness as staleness
from mmrl.course.ch11_three_policies.experiment_staleness import PROXIMAL, Cell
from mmrl.course.experiments.grid import Grid, Row, Rows

SEEDS = tuple(range(20, 30))
TASKS = ("Breakout", "RepeatPreviousEasy")
STALENESS = (1, 2, 4, 8, 16)  # S, iterations


def cells() -> list[Cell]:
    """Return all cells, starting with those without staleness."""
    stale = [Cell(task, p, s) for s in STALENESS for task in TASKS for p in PROXIMAL]
    return [*map(Cell, TASKS), *stale]


def measure(together: Sequence[Cell], by_name: Rows, quick: bool) -> list[Row]:
    """Measure each cell at its candidate rates and at its task's rate without staleness."""
    seeds = SEEDS[:2] if quick else SEEDS
    return [
        staleness.measure(
            cell, quick, by_name.get(cell.name), staleness.common_rate(cell.task, by_name), seeds
        )
        for cell in together
    ]


GRID = Grid(
    "staleness_ten",
    cells(),
    measure,
    staleness.summarize,
    outdated=staleness.is_stale,
    after=lambda cell: [Cell(cell.task).name],
    small=[Cell("Breakout"), *(Cell("Breakout", p, 1) for p in PROXIMAL)],
    limit=1800.0,
    about="PPO that learns from rollouts up to 16 iterations old, with ten seeds.",
    decides="at which staleness each proximal policy fails",
    turn=29,
)
