"""Reference scores of every agent with default settings, on six tasks with two memories.

Each row has five seeds. Only the agent, the memory and the task are set, so `mmrl train` reproduces
a row. The defaults were tuned on seeds starting at 100. If the defaults are not sufficient on
a task, an additional row has the changes in `HELPS`.

An agent counts as having learned a task if its last evaluation reaches the level in `LEVELS`. It
counts as having kept what it learned ("stayed") if its last evaluation is at least 95 % of the way
from the worst return to the best evaluation of this run. Each evaluation plays 32 episodes
greedily.
"""

import dataclasses
import itertools
import pathlib
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float

from mmrl.agents import AGENTS, find
from mmrl.course.experiments.grid import Grid, Row, in_folder, round_list, settings
from mmrl.runs import Run, RunError, Setup, describe, interval
from mmrl.runs.checkpoint import dumps, loads
from mmrl.runs.earlier import current_names
from mmrl.runs.folder import Folder
from mmrl.runs.identity import check_same

SEEDS = (0, 1, 2, 3, 4)
MEMORIES = ("lru", "gru")
LEVELS = {
    "CartPole-v1": (0.0, 475.0),
    "Catch-bsuite": (-1.0, 0.9),
    "popgym-RepeatFirstEasy-v0": (-1.0, 0.9),
    "popgym-RepeatPreviousEasy-v0": (-1.0, 0.9),
    "popgym-PositionOnlyCartPoleEasy-v0": (0.0, 0.9),
    "popgym-CountRecallEasy-v0": (-1.0, 0.9),
}
"""Worst possible return of each task, and the return at which the task counts as learned."""
HELPS: dict[tuple[str, str, str], dict[str, Any]] = {
    ("popgym-RepeatFirstEasy-v0", "ppo", "lru"): {"blocks": 48},
    **{("popgym-RepeatPreviousEasy-v0", a, "gru"): {"gamma": 0.5} for a in ("dqn", "r2d2", "ppg")},
    **{
        ("popgym-CountRecallEasy-v0", agent, m): {"gamma": 0.5} | longer
        for agent, longer in (
            *(("dqn", {"blocks": 192}), ("r2d2", {"blocks": 192})),
            *(("ppo", {"blocks": 64}), ("clear", {}), ("ppg", {})),
        )
        for m in MEMORIES
    },
}
"""Changes to the defaults for (task, agent, memory) where the defaults are not sufficient.

On other seeds, they were tried with DQN, R2D2 and PPG on RepeatPrevious, and with DQN, PPO and
CLEAR with an LRU on CountRecall. The remaining entries were chosen by analogy.
"""
STAY_LEVEL = 0.95
QUICK: dict[str, Any] = {"blocks": 2, "episodes": 4, "width": 8}


@dataclasses.dataclass(frozen=True)
class Cell:
    """An agent with a memory on a task, with default settings or with the changes in `HELPS`."""

    task: str
    agent: str
    memory: str
    helped: bool = False

    @property
    def changes(self) -> dict[str, Any]:
        """The settings that differ from the agent's defaults."""
        return HELPS[self.task, self.agent, self.memory] if self.helped else {}

    @property
    def name(self) -> str:
        """A description in words, which identifies the cell in the results."""
        changes = (f"{name}={value}" for name, value in self.changes.items())
        return ", ".join((self.task, self.agent, self.memory, *changes))

    def setup(self, quick: bool = False) -> Setup:
        """Return the `Setup` that trains this cell."""
        changes = {"memory": self.memory} | self.changes | (QUICK if quick else {})
        config = dataclasses.replace(find(self.agent).Config(), **changes)
        return Setup(env=self.task, agent=self.agent, config=config, seeds=SEEDS)


def cells() -> list[Cell]:
    """Return the cells with default settings, grouped by task, and then those in `HELPS`."""
    grid = [Cell(task, agent, m) for task in LEVELS for agent in AGENTS for m in MEMORIES]
    return [*grid, *(Cell(*which, helped=True) for which in HELPS)]


def train(setup: Setup, folder: pathlib.Path) -> tuple[Run, list[float] | None]:
    """Train a run to its end, resuming from a checkpoint if there is one.

    Returns the run and the CPU-seconds up to each evaluation. These are per seed, include
    compilation, and are None if the run was resumed. The folder of a run with other settings, whose
    row is outdated, is renamed.
    """
    there = Folder(folder).description()
    resume = there is not None and continues(there, describe(setup))
    if there is not None and not resume:
        numbers = (folder.with_name(f"{folder.name}-earlier-{i}") for i in itertools.count(1))
        folder.rename(next(path for path in numbers if not path.exists()))
    run, cpu = Run(setup, folder, resume=resume), []
    whole, began = not run.history, time.process_time()
    for _ in run:
        cpu.append(round((time.process_time() - began) / len(setup.seeds), 2))
    return run, cpu if whole else None


def continues(before: Row, now: Row) -> bool:
    """Return True if a run can be resumed: of its setup, only the number of blocks may grow."""
    try:
        check_same("", before, now)
    except RunError:
        return False
    return before["config"]["blocks"] <= now["config"]["blocks"]


def trained_row(cell: Any, setup: Setup, quick: bool, folder: pathlib.Path) -> Row:
    """Train the agents of a cell to the end of the run, and return the row."""
    run, cpu = train(setup, folder)
    returns = np.array([row["returns"] for row in run.history]).T
    middle, *ends = interval(returns[:, -1])
    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        "seeds": list(setup.seeds),
        "interquartile_mean": middle,
        "interval_95": ends,
        "returns": round_list(returns),
        "env_steps": [row["env_steps"] for row in run.history],
        "cpu_seconds": cpu,
        "settings": settings(setup.config) | {"learning_rate": setup.config.learning_rate},
        "quick": quick,
    }


def measure(cell: Cell, quick: bool, folder: pathlib.Path) -> Row:
    """Train the agents of a cell, or resume training, and return the row."""
    setup = cell.setup(quick)
    run, cpu = train(setup, folder)
    returns = np.array([row["returns"] for row in run.history]).T
    return {
        "cell": cell.name,
        **{"task": cell.task, "agent": cell.agent, "memory": cell.memory, "seeds": list(SEEDS)},
        "changes": cell.changes,
        **scores(cell.task, returns, np.array([row["env_steps"] for row in run.history])),
        "returns": round_list(returns),
        "env_steps": [row["env_steps"] for row in run.history],
        "cpu_seconds": cpu,
        "settings": settings(setup.config) | {"learning_rate": setup.config.learning_rate},
        "quick": quick,
    }


def scores(
    task: str, returns: Float[np.ndarray, "seed eval"], env_steps: Float[np.ndarray, " eval"]
) -> Row:
    """Compute the scores of a row from its returns."""
    worst, level = LEVELS[task]
    final, best = returns[:, -1], returns.max(1)
    learned, stays = final >= level, final - worst >= STAY_LEVEL * (best - worst)
    blocks = [np.flatnonzero(curve >= level) for curve in returns]
    middle, *ends = interval(final)
    return {
        "interquartile_mean": middle,
        "interval_95": ends,
        "final": round_list(final),
        "best": round_list(best),
        "area": round_list(returns.mean(1)),
        "learned_and_stayed": int((learned & stays).sum()),
        "steps_to_level": [int(env_steps[i[0]]) if i.size else None for i in blocks],
    }


def has_other_settings(row: Row, cells: Iterable[Cell]) -> bool:
    """Return True if a row was measured with other settings than its cell has now.

    Settings that the row does not record, because they are newer, do not count. Earlier rows
    contain 0 where settings are now None.
    """
    for cell in cells:
        if cell.name == row["cell"]:
            config = cell.setup(row["quick"]).config
            now = loads(dumps(dataclasses.asdict(config)))
            before = current_names(row["settings"])
            return any((before[x] or None) != (now[x] or None) for x in before.keys() & now.keys())
    return False


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    low, high = row["interval_95"]
    share = f"{row['learned_and_stayed']} of {len(row['seeds'])} learned and stayed"
    return f"{row['interquartile_mean']:.2f} [{low:.2f}, {high:.2f}], {share}"


SMALL = (Cell("Catch-bsuite", "ppo", "lru"), Cell("popgym-RepeatPreviousEasy-v0", "dqn", "gru"))
GRID = Grid(
    "baselines",
    cells(),
    in_folder(measure),
    summarize,
    outdated=lambda row, _: has_other_settings(row, cells()),
    keeps=True,
    small=SMALL,
    about="What every agent reaches with its defaults: two memories, six tasks, five seeds.",
    decides="what each agent reaches with its defaults",
    turn=15,
)
