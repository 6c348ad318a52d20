"""Comparison of tapes with segments, at budgets at which agents solve each task from tapes.

The cells are those of Figures 5 and 6 of Morad et al. (2024), and a GRU: five memories, four tasks,
and tapes or segments of 10 to 100 steps, with ten seeds. They differ from the cells of `batching`
only in their numbers of steps and seeds. `tuning` chooses the learning rate of each cell on seeds
that are not reported.

Additional cells use the paper's algorithms as printed, with the target r + γ max_a Q⁻(s', a) and
without a dueling head: Algorithm 1 on tapes, Algorithm 2 on segments, and Algorithm 3 without
memory. The printed loss of Algorithm 3 contains Q_φ(s_j, a_j), which does not depend on θ; we read
it as Q_θ(s_j, a_j).
"""

import dataclasses
from typing import Any

from mmrl.agents import dqn
from mmrl.course import plain
from mmrl.course.ch07_train_it import experiment_batching as batching
from mmrl.course.ch07_train_it.experiment_batching import LENGTHS, MEMORIES, TAPE, TASKS
from mmrl.course.experiments.grid import Grid, Row, interval_at_rate, one_by_one

SEEDS = tuple(range(10))
SIZES = {name: getattr(plain.LONG_DQN, name) for name in ("environments", "block", "epsilon_decay")}
LONGER: dict[str, dict[str, Any]] = {"CountRecallEasy": {"block": 62}}  # 507 904 steps in all
AS_IN_PAPER: dict[str, Any] = {"target": "max", "dueling": False}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task, a memory and a batching method, with our algorithm or with the printed one."""

    task: str
    memory: str
    length: int = TAPE  # L, or TAPE
    printed: bool = False
    quirky: tuple[str, ...] = ()  # none

    @property
    def short(self) -> batching.Cell:
        """The cell of `batching` with fewer steps and the algorithm of its config."""
        return batching.Cell(self.task, self.memory, self.length)

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return self.short.name + ", as printed" * self.printed

    @property
    def config(self) -> dqn.Config:
        """Settings of the cell."""
        changes = SIZES | LONGER.get(self.task, {}) | (AS_IN_PAPER if self.printed else {})
        return dataclasses.replace(self.short.config, **changes)


def cells() -> list[Cell]:
    """Return all cells, the most informative first."""
    tasks = [*TASKS]
    every = [Cell(t, m, n) for m in MEMORIES for t in tasks for n in (TAPE, *LENGTHS)]
    tapes = [cell for cell in every if cell.length == TAPE]
    printed = [Cell(t, "lru", n, printed=True) for t in tasks for n in (TAPE, 10)]
    printed += [Cell(t, "none", TAPE, printed=True) for t in tasks]
    shortest = [cell for cell in every if cell.length == LENGTHS[0]]
    return list(dict.fromkeys([*tapes, *shortest, *printed, *every]))


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Choose the learning rate of a cell, train its agents, and return their results."""
    about = {"printed": cell.printed, "settings": dataclasses.asdict(cell.config)}
    return {**batching.measure(cell, quick, row, SEEDS), **about}


def cost(cell: Cell) -> float:
    """Return the relative cost of a cell, which is proportional to its number of steps."""
    return cell.config.block / plain.LONG_DQN.block


GRID = Grid(
    "budgets",
    cells(),
    one_by_one(measure),
    interval_at_rate,
    agents=lambda row: 1,  # `cpu_seconds` is the time of all agents
    cost=cost,
    limit=1800.0,
    about="Tapes against segments, at budgets at which tapes solve each task.",
    decides="whether tapes learn better than segments when both have time to learn",
    turn=19,
)
