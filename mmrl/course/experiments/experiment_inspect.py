"""Measurements of `mmrl.inspect` on agents from the zoo, equal to those of `mmrl inspect zoo/NAME`.

A row contains the results for recall, decodability, ablations and saturation. `decides[t]` has an
entry for each observation up to step t: the fraction of actions at step t that change if the
observation is replaced. `slopes[t]` contains the corresponding gradients.
"""

import dataclasses
from typing import Any

import numpy as np

from mmrl import envs
from mmrl.course.experiments.grid import Grid, Row, one_by_one
from mmrl.envs.wrappers.observation import with_inputs
from mmrl.inspect import policy_subject, stages
from mmrl.runs import zoo

MOST_STEPS = 44  # maximum number of steps of an episode that a row contains
EPISODES, STEPS, SEED = 64, 100, 0
AGENTS = (
    "RepeatFirstEasy-dqn-lru",
    "RepeatPreviousEasy-r2d2-lru",
    "RepeatPreviousEasy-ppo-gru",
    "RepeatFirstEasy-dqn-none",
    "PositionOnlyCartPoleEasy-r2d2-gru",
    "RepeatPreviousEasy-pqn-window",
    "RepeatPreviousEasy-pqn-gtrxl",
    "RepeatPreviousPaper-pqn-lmu",
    "RepeatFirstEasy-pqn-s6",
    "RepeatFirstEasy-pqn-mlstm",
    "RepeatFirstEasy-pqn-window",
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """Cell that inspects one agent from the zoo."""

    name: str


def measure(cell: Cell, quick: bool, _: Row | None) -> Row:
    """Inspect an agent and return the row with the results."""
    policy = zoo.load(f"zoo/{cell.name}")
    about = policy.about
    env, params = envs.make(about["env"])
    env = with_inputs(env, params, about["observes"])
    episodes, steps = (4, 6) if quick else (EPISODES, STEPS)
    measures = stages(
        policy_subject(policy, env, params), env, params, seed=SEED, episodes=episodes, steps=steps
    )
    numbers = dict(measures)
    recall = numbers["recall"]
    return {
        "cell": cell.name,
        "env": about["env"],
        "agent": about["agent"],
        "memory": about["memory"],
        "seeds": [SEED],
        "episodes": episodes,
        "reach": recall["reach"],
        "flips": recall["flips"],
        "gradient": recall["gradient"],
        "ignores_memory": recall["ignores_memory"],
        "leak": numbers["leak"]["steps"],
        "decodability": numbers["decodability"],
        "ablations": {k: _brief(np.mean(x)) for k, x in numbers["ablations"].items()},
        "norm": numbers["saturation"]["norm"],
        "broken": max(numbers["saturation"]["nonfinite"]),
        "returns": [_brief(np.mean(x)) for x in numbers["saturation"]["returns"]],
        "decides": rows(recall["flips_at"]),
        "slopes": rows(recall["gradient_at"]),
        "quick": quick,
    }


def rows(table: list[list[float | None]]) -> list[list[float]]:
    """Convert a table [step, lag] to one row per step, over observations 0 … step, None as 0."""
    return [[_brief(x or 0.0) for x in row[t::-1]] for t, row in enumerate(table[:MOST_STEPS])]


def _brief(x: Any) -> float:
    return float(f"{float(x):.3g}")


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    reach = row["reach"]
    return f"actions reach {reach['flips']} observations back, gradients {reach['gradient']}"


GRID = Grid(
    "inspect",
    [Cell(name) for name in AGENTS],
    one_by_one(measure),
    summarize,
    about="What agents of the zoo remember, by the instruments of mmrl inspect.",
    decides="what the page on inspecting an agent states",
    turn=40,
    small=[Cell("RepeatFirstEasy-dqn-none")],
)
