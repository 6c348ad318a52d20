"""Share of failures of every agent with default settings: 20 seeds, five tasks, two memories.

An interquartile mean over five seeds can hide a run that never learned, or that learned the task
and lost it again. The runs of this study differ from those of `experiment_baselines` only in their
seeds, on which no default was chosen. A seed fails if it does not both learn and stay, as defined
there. A failed seed "never learned" if no evaluation of its run reached the task's level; otherwise
it "fell".
"""

import dataclasses
import pathlib

import numpy as np
from jaxtyping import Float

from mmrl.agents import AGENTS
from mmrl.course.experiments import experiment_baselines as baselines
from mmrl.course.experiments.experiment_baselines import LEVELS, MEMORIES, Cell
from mmrl.course.experiments.grid import Grid, Row, in_folder

SEEDS = tuple(range(200, 220))
TASKS = tuple(task for task in LEVELS if task != "popgym-CountRecallEasy-v0")  # no agent learns it


def measure(cell: Cell, quick: bool, folder: pathlib.Path) -> Row:
    """Train the agents of a cell, or resume training, and return the row."""
    setup = dataclasses.replace(cell.setup(quick), seeds=SEEDS)
    row = baselines.trained_row(cell, setup, quick, folder)
    del row["helped"]
    return row | counts(cell.task, np.array(row["returns"]))


def counts(task: str, returns: Float[np.ndarray, "seed eval"]) -> Row:
    """Count the seeds that learned and stayed, that fell, and that never learned."""
    scores = baselines.scores(task, returns, np.arange(returns.shape[1], dtype=float))
    failures = len(returns) - scores["learned_and_stayed"]
    never = int((returns.max(1) < LEVELS[task][1]).sum())
    return {
        "learned_and_stayed": scores["learned_and_stayed"],
        "failures": failures,
        "fell": failures - never,
        "never_learned": never,
    }


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    seeds = len(row["seeds"])
    return (
        f"{row['failures']} of {seeds} seeds failed: {row['fell']} learned and fell, "
        f"{row['never_learned']} never learned"
    )


def cells() -> list[Cell]:
    """Return all cells, grouped by memory and then by task, the LRU first."""
    return [Cell(task, agent, m) for m in MEMORIES for task in TASKS for agent in AGENTS]


GRID = Grid(
    "failures",
    cells(),
    in_folder(measure),
    summarize,
    outdated=lambda row, _: baselines.has_other_settings(row, cells()),
    keeps=True,
    small=(Cell("Catch-bsuite", "ppo", "lru"), Cell("popgym-RepeatFirstEasy-v0", "pqn", "gru")),
    about="How many of 20 seeds fail with each agent's defaults: two memories, five tasks.",
    decides="how often each agent fails with its defaults",
    turn=23,
)
