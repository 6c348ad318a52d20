"""Compare what a run has reached with its best block and with random actions."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from rich.console import Console

from mmrl.checks.tracing import random_action
from mmrl.rollout import evaluate
from mmrl.runs import Run, interquartile_mean

EPISODES = 64  # of random actions, or four evaluations if that is more
FILL = "fill: the share of real steps in a batch, the rest is padding; 0 % before learning starts."

Returns = Float[np.ndarray, "block seed"]


def curve(history: Sequence[dict[str, Any]]) -> str:
    """Return a line if the last block was not the best one, by the column IQM."""
    scores = [float(interquartile_mean(np.array(row["returns"]))) for row in history]
    best = int(np.argmax(scores))
    if scores[best] == scores[-1]:
        return ""
    return f"Best after block {best + 1}: {scores[best]:.2f}; at the end {scores[-1]:.2f}.\n"


def tell_chance(run: Run, returns: Returns, longer: str, console: Console) -> None:
    """Print that training is still at chance, if it is, and `longer`, the command to continue."""
    if line := at_chance(run, returns):
        console.print(line)
        console.print(f"To continue: {longer}", soft_wrap=True)


def at_chance(run: Run, returns: Returns) -> str:
    """Return a sentence if training has not come above random actions, which are played for it.

    It compares the last quarter of the blocks with the first and, if it has not risen, with random
    actions.
    """
    quarter = max(1, len(returns) // 4)
    last = np.ravel(returns[-quarter:])
    if len(returns) > 1 and _above(last, np.ravel(returns[:quarter])):
        return ""
    chance = random_returns(run)
    if not np.isfinite(chance).all() or _above(last, chance):
        return ""
    steps = run.history[-1]["env_steps"]
    return (
        f"Still at chance: {np.mean(last):.2f} in the last {quarter} of {len(returns)} blocks, and "
        f"{np.mean(chance):.2f} by random actions. {steps:,} steps per seed may be too few."
    )


def random_returns(run: Run, seed: int = 0) -> Float[np.ndarray, " episodes"]:
    """Return the undiscounted returns of random actions: uniform, or N(0, 1) without bounds."""
    env, params, *_ = run.program
    space, steps = env.action_space(params), params.max_steps_in_episode
    episodes = max(EPISODES, 4 * run.setup.config.episodes)

    def policy(state: Any, obs: Any, begin: Any, key: Any) -> tuple[Any, Any]:
        return state, random_action(space, key)

    @jax.jit
    def play(key: Any) -> Any:
        return evaluate(policy, env, params, (), key, episodes, steps).returns

    return np.asarray(play(jax.random.key(seed)))


def _above(high: np.ndarray, low: np.ndarray) -> bool:
    """True if `high` exceeds `low` in the mean by more than two standard errors (Welch)."""
    error = np.sqrt(np.var(high) / len(high) + np.var(low) / len(low))
    return bool(np.mean(high) - np.mean(low) > 2 * error)
