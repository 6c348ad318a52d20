"""MinAtar games in sequence: V-trace, CLEAR, and one network per game.

These are small versions of Figures 1, 2 and 6 of Rolnick et al. (2019), with the games of Young &
Tian (2019) instead of DMLab and Atari. The games have only their spaces in common: 10 channels and
6 actions. Every evaluation covers all games, without learning. "separate" trains one network per
game, with as many steps of the game as in sequence. `env_steps` is the sum over all networks.
V-trace is the actor-critic without replay.

A network without convolutions learns these games within a minute on a CPU. Other games are harder:
on Asterix it scored 1 after 768 000 steps, and a random policy scores 0.4. Two learning rates and
two entropy weights were tried on seed 1000. The cloning weights were not tuned. SpaceInvaders has
no randomness, so all greedy episodes are equal and its scores jump.

`scores` [seed][time][game] contains the scores of the greedy policy, starting before all training.
`cumulative` [seed][game] is their mean over time. `shares` [seed][stage] is the fraction of each
stage's gain that is retained after two stages of other games, or NaN without a gain. `retained`
[seed] is the mean of `shares`. `sampled` has the same fields for sampled actions, and the oldest
rows lack it. The games have different scales of rewards, so nothing is averaged over games.
CPU-seconds are per seed and include compilation. `steps_per_cpu_second` is the median over blocks
and includes evaluations.
"""

import dataclasses
import itertools
import time
from typing import Any

import jax
import numpy as np

from mmrl.agents import clear
from mmrl.course import plain
from mmrl.course.continual import cycles
from mmrl.course.continual.cycles import Curves, PolicyScores
from mmrl.course.experiments.grid import Grid, Row, one_by_one, round_list
from mmrl.envs.continual import minatar

GAMES = ("Breakout", "SpaceInvaders", "Freeway")
CYCLES = 2
SEEDS = (0, 1, 2)

# A stage has 384 000 steps, and two cycles have 2.3 million.
CONFIG = dataclasses.replace(
    plain.CLEAR,
    memory="none",
    environments=32,
    rollout=10,
    capacity=64_000,  # 1/36 of all steps
    storage_dtype="uint8",
    block=300,
    blocks=4,
    episodes=16,
    learning_rate=3e-3,
    entropy_weight=0.003,
)
QUICK: dict[str, Any] = {"block": 1, "blocks": 1, "episodes": 2, "width": 8, "capacity": 640}
METHODS: dict[str, dict[str, Any]] = {
    "V-trace": {"capacity": 0, "replay_fraction": 0.0},
    "CLEAR": {},
}
"""Settings that each method changes in `CONFIG`."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A method and a protocol."""

    method: str
    protocol: str = "sequential"  # or "separate"

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return f"MinAtar, {self.protocol}, {self.method}"

    @property
    def order(self) -> list[int]:
        """Index of the game of each stage; empty if the networks are separate."""
        return [] if self.protocol == "separate" else list(range(len(GAMES))) * CYCLES

    def config(self, quick: bool = False) -> clear.Config:
        """Return the settings of the cell."""
        settings: dict[str, Any] = dataclasses.asdict(CONFIG) | METHODS[self.method]
        if self.protocol == "separate":
            # Evaluate at the same intervals, in environment steps summed over all networks.
            blocks = len(GAMES) * CONFIG.blocks
            settings |= {"block": CONFIG.block // len(GAMES), "blocks": blocks}
        if quick:
            settings |= {**QUICK, "capacity": min(settings["capacity"], QUICK["capacity"])}
        return clear.Config(**settings)


def cells() -> list[Cell]:
    """Return all cells, the most informative first."""
    return [Cell("V-trace"), Cell("CLEAR"), Cell("V-trace", "separate")]


def summarize(row: Row) -> str:
    """Summarize a row: the mean score in each game, and the fraction of the gains retained."""
    means = np.mean(row["cumulative"], axis=0)
    each = ", ".join(f"{game} {x:.2f}" for game, x in zip(row["games"], means, strict=True))
    left = [x for x in row["retained"] if np.isfinite(x)]
    share = f", keeps {np.mean(left):.2f}" if left else ""
    return f"{each}{share}, {row['steps_per_cpu_second']} steps/s"


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Train the agents of a cell, and return their row."""
    config = cell.config(quick)
    start_time, results, speeds = time.process_time(), [], []
    for seed in SEEDS:
        curves, fast = train(cell, config, seed)
        results.append(curves)
        speeds.append(fast)
    seconds = (time.process_time() - start_time) / len(SEEDS)
    about = {"cpu_seconds": round(seconds, 2), "steps_per_cpu_second": round(np.median(speeds))}
    return to_row(cell, config, results) | about | {"quick": quick}


def train(cell: Cell, config: clear.Config, seed: int) -> tuple[Curves, list[float]]:
    """Train one seed, and return its curves and the steps per CPU-second of each block."""
    key, games, times = jax.random.key(seed), [minatar(game) for game in GAMES], []

    def report(*_: Any) -> None:
        times.append(time.process_time())

    def go(games: Any, order: list[int]) -> Curves:
        return jax.device_get(cycles.tour(clear, config, games, order, key, report)[1])

    if cell.order:
        curves = go(games, cell.order)
    else:
        curves = beside([go([game], [0] * CYCLES) for game in games])
    steps = config.environments * config.rollout * config.block
    return curves, [steps / max(b - a, 1e-9) for a, b in itertools.pairwise(times)]


def beside(alone: list[Curves]) -> Curves:
    """Combine the curves of networks for single games into curves over all games."""
    each = [one.by_policy for one in alone]
    scores = jax.tree.map(lambda *x: np.concatenate(list(map(np.asarray, x)), axis=-1), *each)
    measures = jax.tree.map(lambda *x: np.mean(x, axis=0), *[one.measures for one in alone])
    return Curves(scores, measures, np.asarray(all(one.finite for one in alone)))


def to_row(cell: Cell, config: clear.Config, results: list[Curves]) -> dict[str, Any]:
    """Return the row of a cell, given the curves of each seed."""
    steps = config.environments * config.rollout * config.block
    steps *= 1 if cell.order else len(GAMES)
    means = jax.tree.map(lambda *x: np.mean(x, axis=0).ravel(), *[c.measures for c in results])
    sampled, greedy = (
        score_fields(cell, [c.by_policy[name] for c in results]) for name in ("sampled", "greedy")
    )
    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        "games": list(GAMES),
        "seeds": list(SEEDS),
        "order": cell.order,
        "env_steps": [steps * i for i in range(len(greedy["scores"][0]))],
        **greedy,
        "sampled": sampled,
        "finite": [bool(curves.finite) for curves in results],
        "diagnostics": {k: round_list(x) for k, x in means._asdict().items()},  # per block
        "settings": dataclasses.asdict(config),
    }


def score_fields(cell: Cell, scores: list[PolicyScores]) -> dict[str, Any]:
    """Return the fields of a row that describe the scores of one policy."""
    times = np.stack([cycles.flat(one) for one in scores])
    shares = [cycles.retention(*one, cell.order) for one in scores if cell.order]
    finite = [x[np.isfinite(x)] for x in shares]
    return {
        "scores": round_list(times),
        "cumulative": round_list(times.mean(1)),
        "shares": round_list(shares),
        "retained": round_list([x.mean() if x.size else np.nan for x in finite]),
    }


GRID = Grid(
    "minatar",
    cells(),
    one_by_one(measure),
    summarize,
    about="MinAtar games in cycles: V-trace, CLEAR, and one network per game.",
    decides="what CLEAR keeps of MinAtar games",
    turn=17,
)
