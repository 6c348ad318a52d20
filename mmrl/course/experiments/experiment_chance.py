"""Mean and standard deviation of the returns of random actions on every POPGym task.

Actions are uniform in the action space. Returns are undiscounted, and each of `EPISODES`
environments plays one episode.
"""

import dataclasses
import functools

import jax
import numpy as np

from mmrl.checks.tracing import random_policy
from mmrl.course.experiments.grid import Grid, Row, one_by_one
from mmrl.envs import popgym
from mmrl.rollout import evaluate

EPISODES, SEED = 1024, 0


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task at one level of difficulty."""

    task: str
    level: str

    @property
    def name(self) -> str:
        """The part of the environment's id between "popgym-" and "-v0"."""
        return f"{self.task}{self.level}"


def measure(cell: Cell, quick: bool, _: Row | None) -> Row:
    """Play random actions on a task and return the row with statistics of the episodes."""
    env = popgym.SPECS[f"popgym-{cell.name}-v0"]()
    params, episodes = env.default_params, 4 if quick else EPISODES
    play = functools.partial(evaluate, random_policy(env, params), env, params, ())
    result = jax.jit(lambda key: play(key, episodes, env.num_steps))(jax.random.key(SEED))
    returns = np.asarray(result.returns, np.float64)
    deviation = float(returns.std(ddof=1))
    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        "episodes": episodes,
        "seeds": [SEED],
        "chance": round(float(returns.mean()), 4),
        "deviation": round(deviation, 4),
        "error": round(deviation / episodes**0.5, 4),
        "steps": round(float(np.mean(result.lengths)), 1),
        "quick": quick,
    }


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    return f"{row['chance']:.3f} ± {row['error']:.3f}, {row['steps']:.0f} steps"


GRID = Grid(
    "chance",
    [Cell(task, level) for level in ("Easy", "Medium", "Hard") for task in popgym.LEVELS],
    one_by_one(measure),
    summarize,
    about="What random actions return on every task of POPGym.",
    decides="the returns of random actions on each task of POPGym",
    turn=18,
    small=[Cell("RepeatFirst", "Easy")],
)
