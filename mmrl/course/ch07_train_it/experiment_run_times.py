"""Time of complete training runs on tapes and on segments (Table 1 of Morad et al., 2024).

A run includes acting, storage, sampling, gradient steps and evaluations, but not compilation. The
five batching methods are timed in turns, once per seed, so that a busy machine slows all of them
equally, and the seconds of one turn can be compared in pairs.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from mmrl.agents import dqn
from mmrl.course import plain
from mmrl.course.ch07_train_it.experiment_training_times import ENV, Cell, cells
from mmrl.course.experiments.grid import Grid, Row, Rows, round_list
from mmrl.runs import program

SEEDS = tuple(range(10))
BLOCKS = 4  # 10 240 steps and four evaluations
QUICK: dict[str, Any] = {"block": 1, "episodes": 4, "width": 8, "batch": 200}


def summarize(row: Row) -> str:
    """Summarize a row: the mean and the standard deviation of the seconds."""
    return f"{row['mean']:.2f} s, standard deviation {row['deviation']:.2f} s"


def measure(together: Sequence[Cell], _by_name: Rows, quick: bool) -> list[Row]:
    """Time runs of all batching methods with one memory, in turns."""
    configs = [_config(cell, quick) for cell in together]
    runs = [_run(config) for config in configs]
    seconds = np.zeros((len(together), len(SEEDS)))
    for turn, seed in enumerate(SEEDS):
        for i, run in enumerate(runs):
            start_time = time.perf_counter()
            run(seed)
            seconds[i, turn] = time.perf_counter() - start_time
    return [
        {
            "cell": cell.name,
            "memory": cell.memory,
            "batching": config.batching,
            "segment_length": cell.length,
            "seeds": list(SEEDS),
            "seconds": round_list(own),
            "mean": round(float(own.mean()), 4),
            "deviation": round(float(own.std(ddof=1)), 4),
            "env_steps": config.blocks * config.block * config.rollout * config.environments,
            "env": ENV,
            "settings": dataclasses.asdict(config),
            "quick": quick,
        }
        for cell, config, own in zip(together, configs, seconds, strict=True)
    ]


def _config(cell: Cell, quick: bool) -> dqn.Config:
    batching = {"batching": "segments" if cell.length else "tape"}
    sizes = {"segment_length": cell.length or 1, "blocks": BLOCKS, **(QUICK if quick else {})}
    return dataclasses.replace(plain.DQN, memory=cell.memory, **batching, **sizes)


def _run(config: dqn.Config) -> Callable[[int], None]:
    """Return a function that trains an agent from a seed, after compiling the programs."""
    env, params, *_ = program("dqn", ENV)
    dqn.check(config, env, params)
    init = jax.jit(lambda key: dqn.init(config, env, params, key))
    block = jax.jit(lambda state: dqn.block(config, env, params, state))

    def run(seed: int) -> None:
        state = init(jax.random.key(seed))
        for _ in range(config.blocks):
            state, metrics = block(state)
            jax.device_get(metrics)  # waits, as a run does that prints its returns

    run(0)
    return run


GRID = Grid(
    "run_times",
    cells(),
    measure,
    summarize,
    program=lambda cell: cell.memory,
    about="Seconds of complete training runs on tapes and on segments.",
    decides="whether training on tapes takes as long as on segments",
    turn=22,
)
