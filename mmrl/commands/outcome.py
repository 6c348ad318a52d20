"""Summaries of finished runs and sweeps."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from rich.console import Console

from mmrl.checks.tracing import random_policy
from mmrl.commands.options import assignments, option, options_of
from mmrl.commands.progress import table
from mmrl.rollout import evaluate
from mmrl.runs import Run, Setup, interquartile_mean
from mmrl.runs.shell import command_line
from mmrl.runs.sweep import CLOSE

FILL = "fill: fraction of a batch that is not padding; 0 % before learning starts."
EPISODES = 64  # minimum number of episodes with random actions

Returns = Float[np.ndarray, "block seed"]


def show_outcome(run: Run, longer: str, console: Console) -> None:
    """Print a summary of a run, and commands to try next.

    `longer` is the command that continues the run.
    """
    returns, commands = np.array([row["returns"] for row in run.history]), []
    console.print(FILL)
    if not any(max(row["fill"]) for row in run.history):
        console.print("The agent has not learned yet, because a batch needs more steps.")
    # In a multi-process run, skip the comparison with random actions, because the other processes
    # would have to wait.
    elif jax.process_count() == 1 and (line := at_chance(run, returns)):
        console.print(line)
        commands.append(f"To continue: {longer}")
    scores = interquartile_mean(returns)
    best = int(np.argmax(scores))
    if scores[best] > scores[-1]:
        last = scores[-1]
        console.print(f"Best after block {best + 1}: {scores[best]:.2f}; at the end {last:.2f}.")
    if run.best is not None and (run.best.returns > returns[-1]).any():
        play = command_line("evaluate", run.path, "--best")
        score = interquartile_mean(run.best.returns)
        commands.append(f"To evaluate each seed's best network (IQM {score:.2f}): {play}")
    commands.append(f"Done. To evaluate the last networks: {command_line('evaluate', run.path)}")
    console.print(*commands, sep="\n", soft_wrap=True)


def show_verdict(run: Run, longer: str, devices: int | None, console: Console) -> None:
    """Print the table of a sweep, its best setting, and a command that trains this setting."""
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
    """Describe the best setting and how certain this choice is, with a command that trains it."""
    winner, edges, equals, ties = run.verdict()
    if not np.isfinite(winner.final):
        return "The loss of every setting diverged. Lower `learning_rate`."
    low, high = winner.interval
    lines = [f"Best: {assignments(winner.setting)}, {winner.final:.3f} [{low:.3f}, {high:.3f}]."]
    if ties:
        first = ", and of equal areas the first" * any(x.area == winner.area for x in ties)
        lines.append(
            f"A tie with {'; '.join(assignments(one.setting) for one in ties)}: scores within "
            f"{100 * CLOSE:g} % of the range of all returns are considered equal, and ties are "
            f"broken by the larger area under the curve{first}."
        )
    if equals:
        others = "; ".join(assignments(one.setting) for one in equals)
        lines.append(f"{len(equals)} other settings are not significantly worse: {others}.")
    if edges:
        names = " and ".join(edges).replace("_", "-")
        lines.append(f"At the edge of the range: {names}. Extend the range in this direction.")
    lines.append(f"Train it on other seeds: {to_train(run.setup, winner.setting, devices)}")
    return "\n".join(lines)


def to_train(setup: Setup, setting: Mapping[str, float], devices: int | None) -> str:
    """Return a command that trains a setting of a sweep with seeds that were not in the sweep."""
    words = [word for name, value in setting.items() for word in option(name, value)]
    defaults = {name: getattr(type(setup.config)(), name) for name in setting}
    others = dataclasses.replace(setup, config=dataclasses.replace(setup.config, **defaults))
    places = [] if devices is None else ["--devices", devices]
    seeds = []
    if {*setup.seeds} & {*Setup.seeds}:
        first = max(setup.seeds) + 1
        seeds = ["--seeds", *range(first, first + len(Setup.seeds))]
    return command_line("train", setup.env, *words, *options_of(others), *seeds, *places)


def at_chance(run: Run, returns: Returns) -> str:
    """Return a sentence if the agent is not better than random actions, otherwise "".

    Random actions are only played if returns have not increased since the first quarter of the run.
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
        f"Not better than random actions: {np.mean(last):.2f} in the last {quarter} of "
        f"{len(returns)} blocks, and {np.mean(chance):.2f} with random actions. {steps:,} steps "
        "per seed may not be enough."
    )


def random_returns(run: Run, seed: int = 0) -> Float[np.ndarray, " episodes"]:
    """Return the undiscounted returns of random actions.

    Legal actions are sampled uniformly, or from N(0, 1) if they are not bounded.
    """
    env, params, *_ = run.program
    steps, policy = params.max_steps_in_episode, random_policy(env, params)
    episodes = max(EPISODES, 4 * run.setup.config.episodes)

    @jax.jit
    def play(key: Any) -> Any:
        return evaluate(policy, env, params, (), key, episodes, steps).returns

    return np.asarray(play(jax.random.key(seed)))


def _above(high: np.ndarray, low: np.ndarray) -> bool:
    """Return True if the mean of `high` exceeds that of `low` by two standard errors (Welch)."""
    error = np.sqrt(np.var(high) / len(high) + np.var(low) / len(low))
    return bool(np.mean(high) - np.mean(low) > 2 * error)
