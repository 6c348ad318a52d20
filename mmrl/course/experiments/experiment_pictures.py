"""MinAtar with convolutions and with a flat network: R2D2, CLEAR and PPO-EWMA, five seeds.

Each pair of cells differs only in `encoder`. R2D2 and CLEAR play three games, PPO-EWMA plays
Breakout; all other settings are the agents' defaults, and each run has two million steps per seed.
The last pairs are memories from pixels: POPGym tasks that are shown as pictures and as vectors.
Every evaluation plays 32 episodes greedily; `returns` are [seed][evaluation].
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from mmrl.agents import find
from mmrl.course.experiments.experiment_baselines import train
from mmrl.course.experiments.grid import Grid, Row, kept, rounded, settings
from mmrl.runs import Setup, interval

SEEDS = (0, 1, 2, 3, 4)
GAMES = ("Breakout", "SpaceInvaders", "Freeway")
STEPS = 2_000_000
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "r2d2": ("r2d2", {}),
    "clear": ("clear", {"stored": "uint8"}),
    "ppo-ewma": ("ppo", {"proximal": "ewma", "objective": "kl"}),
}
"""Agent and settings of each method."""
QUICK: dict[str, Any] = {"block": 1, "blocks": 1, "episodes": 2, "width": 8, "environments": 2}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A method on a task, with one of two networks."""

    task: str
    method: str
    encoder: str  # of `Config`, auto or dense
    observe: str = "observation"  # or pixels

    @property
    def name(self) -> str:
        """The words by which a row is known."""
        shown = {"observation": ""}.get(self.observe, f", {self.observe}")
        return f"{self.task}, {self.method}, {self.encoder}{shown}"

    def setup(self, quick: bool = False) -> Setup:
        """Return the run of the cell."""
        agent, own = AGENTS[self.method]
        config = dataclasses.replace(find(agent).Config(), encoder=self.encoder, **own)
        config = config.for_steps(STEPS)
        if quick:
            small = {"capacity": 1280} if agent == "r2d2" else {}
            small |= {"minibatches": 1, "rollout": 8} if agent == "ppo" else {}
            config = dataclasses.replace(config, **QUICK, **small)
        return Setup(self.task, config, SEEDS, agent, observe=self.observe)


def cells() -> list[Cell]:
    """Return the whole grid: games first, then memories from pixels."""
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
    """Train the agents of a cell in a folder, from their last block on; return the row."""
    setup = cell.setup(quick)
    run, cpu = train(setup, folder)
    returns = np.array([row["returns"] for row in run.history]).T
    middle, *ends = interval(returns[:, -1])
    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        "seeds": list(SEEDS),
        "interquartile_mean": middle,
        "interval_95": ends,
        "returns": rounded(returns),
        "env_steps": [row["env_steps"] for row in run.history],
        "cpu_seconds": cpu,
        "settings": settings(setup.config) | {"learning_rate": setup.config.learning_rate},
        "quick": quick,
    }


def say(row: Row) -> str:
    """Return a row in a few words."""
    low, high = row["interval_95"]
    return f"{row['interquartile_mean']:.2f} [{low:.2f}, {high:.2f}]"


GRID = Grid(
    "pictures",
    cells(),
    kept(measure),
    say,
    keeps=True,
    small=(cells()[0],),
    about="MinAtar with convolutions and with a flat network, and memories from pixels.",
    decides="what convolutions gain on MinAtar",
    turn=24,
)
