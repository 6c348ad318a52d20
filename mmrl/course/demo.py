"""The demo, which shows the effect of memory and of complete episodes in a few minutes.

It trains three agents on two tasks that require memory. The agents are a recurrent network trained
on tapes (complete episodes), the same network trained on segments of 10 steps, and a network
without memory. All three have the same loss and the same number of steps in each update.

In RepeatPreviousPaper the agent must name the card that was shown 9 steps ago. In a segment of 10
steps, this card is available only to the last step, because the card is at the first step. The
agent therefore learns from a tenth of its steps, and it learns slowly and incompletely. With
segments of 9 steps it could not learn the task at all.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np
from jaxtyping import Float

from mmrl.agents.dqn import Config
from mmrl.course import plain
from mmrl.runs import Run, Setup, interquartile_mean, interval
from mmrl.show import figure, learning_curves

TASKS = ("RepeatPreviousPaper", "RepeatFirstEasy")
LENGTH = 10  # steps in a segment
ARMS: dict[str, dict[str, Any]] = {
    "LRU, tape": {},
    f"LRU, segments of {LENGTH}": {"batching": "segments", "segment_length": LENGTH},
    "no memory, tape": {"memory": "none"},
}
CHANCE, BEST = -0.5, 1.0  # returns of both tasks: four suits, total reward ±1
THRESHOLD = 0.95

Names = tuple[str, str]
"""The name of a task and the name of an agent."""
Plan = dict[Names, Setup]


def setups(seeds: tuple[int, ...], config: Config | None = None) -> Plan:
    """Return the setups of the demo, keyed by task and agent.

    The batch size is rounded down to a multiple of the segment length.
    """
    config = plain.DQN if config is None else config
    config = dataclasses.replace(config, batch=config.batch and config.batch // LENGTH * LENGTH)
    return {
        (task, arm): Setup(
            env=f"popgym-{task}-v0", config=dataclasses.replace(config, **changes), seeds=seeds
        )
        for task in TASKS
        for arm, changes in ARMS.items()
    }


def learning_curve(run: Run) -> Float[np.ndarray, " block"]:
    """Return the interquartile mean of the returns over seeds after each block."""
    return np.array([interquartile_mean(np.array(row["returns"])) for row in run.history])


def outcome(task: str, arm: str, run: Run) -> dict[str, Any]:
    """Return the row of the results for one task and one agent."""
    final = np.array(run.history[-1]["returns"])
    middle, low, high = interval(final)
    return {
        "task": task,
        "agent": arm,
        "interquartile_mean": middle,
        "interval_95": [low, high],
        "min_over_seeds": float(final.min()),
        "returns": final.tolist(),
        "seeds": list(run.setup.seeds),
        "episodes": run.setup.config.episodes,
        "env_steps": run.history[-1]["env_steps"],
        "seconds": round(sum(row["seconds"] for row in run.history), 1),
    }


def draw(runs: dict[Names, Run], path: pathlib.Path) -> None:
    """Plot the learning curves, with a panel per task, and save the figure."""
    tasks = list(dict.fromkeys(task for task, _ in runs))
    fig, axes = figure(len(tasks))
    for task, ax in zip(tasks, axes, strict=True):
        histories = {arm: run.history for (of, arm), run in runs.items() if of == task}
        curves = {arm: np.array([row["returns"] for row in h]).T for arm, h in histories.items()}
        steps = np.array([row["env_steps"] for row in next(iter(histories.values()))])
        learning_curves(curves, steps, title=task, ax=ax, chance=CHANCE, best=BEST)
    fig.savefig(path)
