"""R2D2, CLEAR and PPO-EWMA on MinAtar, with convolutions and with a dense network.

The cells of a pair differ only in `encoder`. R2D2 and CLEAR play three games, and PPO-EWMA plays
Breakout. All other settings are the agents' defaults. Each run has five seeds. R2D2 trains on
twenty times as many steps as it plays, so its runs are shorter. The last pairs compare POPGym tasks
observed as images and as vectors. Each evaluation plays 32 episodes greedily, and `returns` has
shape [seed][evaluation].
"""

import dataclasses
import pathlib
from typing import Any

from mmrl.agents import find
from mmrl.course.experiments.experiment_baselines import trained_row
from mmrl.course.experiments.grid import Grid, Row, in_folder
from mmrl.runs import Setup

SEEDS = (0, 1, 2, 3, 4)
GAMES = ("Breakout", "SpaceInvaders", "Freeway")
STEPS = {"ppo-ewma": 500_000, "clear": 500_000, "r2d2": 150_000}
"""Environment steps per seed."""
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "r2d2": ("r2d2", {}),
    "clear": ("clear", {"storage_dtype": "uint8"}),
    "ppo-ewma": ("ppo", {"proximal": "ewma", "objective": "kl"}),
}
"""Agent and changed settings of each method."""
QUICK: dict[str, Any] = {"block": 1, "blocks": 1, "episodes": 2, "width": 8, "environments": 2}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of the experiment: a method, a task, and one of the two encoders."""

    task: str
    method: str
    encoder: str  # "auto" (convolutions for images) or "dense"
    observe: str = "observation"  # or "pixels"

    @property
    def name(self) -> str:
        """A description in words, which identifies the cell in the results."""
        observed_as = {"observation": ""}.get(self.observe, f", {self.observe}")
        return f"{self.task}, {self.method}, {self.encoder}{observed_as}"

    def setup(self, quick: bool = False) -> Setup:
        """Return the `Setup` that trains this cell."""
        agent, own = AGENTS[self.method]
        config = dataclasses.replace(find(agent).Config(), encoder=self.encoder, **own)
        config = config.for_steps(STEPS[self.method])
        if quick:
            small = {"capacity": 1280} if agent == "r2d2" else {}
            small |= {"minibatches": 1, "rollout": 8} if agent == "ppo" else {}
            config = dataclasses.replace(config, **QUICK, **small)
        return Setup(self.task, config, SEEDS, agent, observe=self.observe)


def cells() -> list[Cell]:
    """Return all cells: the MinAtar games first, and then the POPGym tasks."""
    pairs = [(game, "r2d2") for game in GAMES] + [(game, "clear") for game in GAMES]
    games = [
        Cell(f"{game}-MinAtar", method, encoder)
        for game, method in [(GAMES[0], "ppo-ewma"), *pairs]
        for encoder in ("auto", "dense")
    ]
    memories = [
        Cell(f"popgym-{task}Easy-v0", "ppo-ewma", "auto", observe)
        for task in ("RepeatPrevious", "Concentration")
        for observe in ("pixels", "observation")
    ]
    return [*games, *memories]


def measure(cell: Cell, quick: bool, folder: pathlib.Path) -> Row:
    """Train the agents of a cell, or resume training, and return the row."""
    return trained_row(cell, cell.setup(quick), quick, folder)


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    low, high = row["interval_95"]
    return f"{row['interquartile_mean']:.2f} [{low:.2f}, {high:.2f}]"


GRID = Grid(
    "pictures",
    cells(),
    in_folder(measure),
    summarize,
    keeps=True,
    small=(cells()[0],),
    about="MinAtar with convolutions and with a flat network, and memories from pixels.",
    decides="what convolutions gain on MinAtar",
    turn=24,
)
