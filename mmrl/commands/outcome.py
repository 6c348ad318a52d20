"""The outcome of a run or a sweep in words, compared with random actions and other settings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from rich.console import Console

from mmrl.checks.tracing import random_action
from mmrl.commands.options import assignments, option, options_of
from mmrl.commands.progress import table
from mmrl.rollout import evaluate
from mmrl.runs import Run, Setup, interquartile_mean
from mmrl.runs.shell import called
from mmrl.runs.sweep import CLOSE

FILL = "fill: the share of real steps in a batch, the rest is padding; 0 % before learning starts."
EPISODES = 64  # episodes of random actions, or of four evaluations if that is more

Returns = Float[np.ndarray, "block seed"]


def show_outcome(run: Run, longer: str, console: Console) -> None:
    """Print the returns of a run, and the commands that follow; `longer` continues it."""
    returns, commands = np.array([row["returns"] for row in run.history]), []
    console.print(FILL)
    if not any(max(row["fill"]) for row in run.history):
        console.print("The agent has not learned yet: too few steps were played to fill a batch.")
    elif jax.process_count() == 1 and (line := at_chance(run, returns)):  # others would wait
        console.print(line)
        commands.append(f"To continue: {longer}")
    scores = interquartile_mean(returns)
    best = int(np.argmax(scores))
    if scores[best] > scores[-1]:
        last = scores[-1]
        console.print(f"Best after block {best + 1}: {scores[best]:.2f}; at the end {last:.2f}.")
    if run.best is not None and (run.best.returns > returns[-1]).any():
        score, play = interquartile_mean(run.best.returns), called("evaluate", run.path, "--best")
        commands.append(f"Each seed's best (IQM {score:.2f}) is kept: {play}")
    commands.append(f"Done. See how well it plays: {called('evaluate', run.path)}")
    console.print(*commands, sep="\n", soft_wrap=True)


def show_verdict(run: Run, longer: str, devices: int | None, console: Console) -> None:
    """Print the table of a sweep, its best setting, and the command that trains it."""
    console.print(table(run))
    console.print(verdict(run, devices), highlight=False, soft_wrap=True)
    returns = run.curves[run.settings.index(run.verdict().winner.setting)].T
    if (
        np.isfinite(returns).all()
        and jax.process_count() == 1
        and (line := at_chance(run, returns))
    ):
        console.print(line)
        console.print(f"To continue: {longer}", soft_wrap=True)


def verdict(run: Run, devices: int | None = None) -> str:
    """Return the winner in words, how certain it is, and the command that trains it."""
    winner, edges, equals, tied = run.verdict()
    if not np.isfinite(winner.final):
        return "The loss of every setting diverged: lower `learning_rate`."
    low, high = winner.interval
    lines = [f"Best: {assignments(winner.setting)}, {winner.final:.3f} [{low:.3f}, {high:.3f}]."]
    if tied:
        first = ", and of equal areas the first" * any(x.area == winner.area for x in tied)
        lines.append(
            f"A tie with {'; '.join(assignments(one.setting) for one in tied)}: scores within "
            f"{100 * CLOSE:g} % of the span of all returns count as equal, and among these the "
            f"larger area under the curve decides{first}."
        )
    if equals:
        others = "; ".join(assignments(one.setting) for one in equals)
        lines.append(f"These seeds do not separate it from {len(equals)} of the others: {others}.")
    if edges:
        names = " and ".join(edges).replace("_", "-")
        lines.append(f"At the edge of the values tried: {names}. Try values beyond it.")
    lines.append(f"Train it on other seeds: {to_train(run.setup, winner.setting, devices)}")
    return "\n".join(lines)


def to_train(setup: Setup, setting: Mapping[str, float], devices: int | None) -> str:
    """Return the command that trains a setting of the sweep on the seeds of `mmrl train`."""
    chosen = [word for name, value in setting.items() for word in option(name, value)]
    fixed = {name: getattr(type(setup.config)(), name) for name in setting}
    others = dataclasses.replace(setup, config=dataclasses.replace(setup.config, **fixed))
    places = [] if devices is None else ["--devices", devices]
    return called("train", setup.env, *chosen, *options_of(others), *places)


def at_chance(run: Run, returns: Returns) -> str:
    """Return a sentence if training has not risen above random actions, which are played for it.

    If the last quarter of the blocks is not above the first, it is compared with random actions.
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
    """Return True if `high` exceeds `low` in the mean by over two standard errors (Welch)."""
    error = np.sqrt(np.var(high) / len(high) + np.var(low) / len(low))
    return bool(np.mean(high) - np.mean(low) > 2 * error)
