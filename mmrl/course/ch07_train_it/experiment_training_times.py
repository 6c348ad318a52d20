"""Time of a gradient step on a tape and on segments (cf. Table 1 of Morad et al., 2024).

The time includes sampling the batch. The five batching methods are timed in alternation, so that a
busy machine slows all of them equally. The time of a method is its shortest turn.
"""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from mmrl._dtypes import whole
from mmrl.agents import dqn
from mmrl.agents.common import scan_learning
from mmrl.course import plain
from mmrl.course.ch07_train_it.experiment_batching import LENGTHS, MEMORIES, TAPE
from mmrl.course.experiments.grid import Grid, Row, Rows
from mmrl.runs import program

ENV = "popgym-RepeatFirstEasy-v0"
STEPS = 20  # gradient steps in a turn
TURNS = 15


class Cell(NamedTuple):
    """A memory and a batching method."""

    memory: str
    length: int  # L of segments, or TAPE

    @property
    def batching(self) -> str:
        """Name of the batching method."""
        return f"segments of {self.length}" if self.length else "tape"

    @property
    def name(self) -> str:
        """Name of the cell in the results."""
        return f"{self.memory}, {self.batching}"


def cells() -> list[Cell]:
    """Return all cells, memory by memory."""
    return [Cell(memory, length) for memory in MEMORIES for length in (TAPE, *LENGTHS)]


def summarize(row: Row) -> str:
    """Summarize a row: the time of a gradient step."""
    return f"{1000 * row['seconds']:.2f} ms"


def measure(together: Sequence[Cell], _by_name: Rows, quick: bool) -> list[Row]:
    """Time all batching methods with one memory, in turns."""
    sizes = {"width": 8, "batch": 200, "capacity": 4096} if quick else {}
    configs = [_config(*cell, **sizes) for cell in together]
    steps = [_steps(config) for config in configs]
    timings: list[list[tuple[float, float]]] = [[] for _ in together]
    for _ in range(2 if quick else TURNS):
        for turn, times in zip(steps, timings, strict=True):
            start_time, cpu_start_time = time.perf_counter(), time.process_time()
            turn()
            wall, cpu = time.perf_counter() - start_time, time.process_time() - cpu_start_time
            times.append((wall / STEPS, cpu / STEPS))
    return [
        {
            "memory": cell.memory,
            "batching": config.batching,
            "batching_name": cell.batching,
            "segment_length": cell.length,
            "seconds": min(wall for wall, _ in times),
            "cpu_seconds": min(cpu for _, cpu in times),
            "batch": config.batch,
            "width": config.width,
            "env": ENV,
            "turns": len(times),
            "quick": quick,
        }
        for cell, config, times in zip(together, configs, timings, strict=True)
    ]


def _config(memory: str, length: int, **changes: Any) -> dqn.Config:
    config = dataclasses.replace(
        plain.DQN, memory=memory, batching="segments" if length else "tape", **changes
    )
    return dataclasses.replace(config, segment_length=length or 1)


def _steps(config: dqn.Config):
    """Return a compiled function that takes `STEPS` gradient steps on a full tape."""
    env, params, *_ = program("dqn", ENV)
    dqn.check(config, env, params)
    rollouts = 2 * whole("capacity", config.capacity) // (config.environments * config.rollout)

    @jax.jit
    def fill(key):
        state = dqn.init(config, env, params, key)
        act = functools.partial(dqn.act_and_store, config, env, params)
        keys = jax.random.split(key, rollouts)
        return jax.lax.scan(lambda s, k: (act(s, k)[0], None), state, keys)[0]

    @jax.jit
    def turn(state, key):
        keys = jax.random.split(key, STEPS)
        learn = functools.partial(dqn.learn, config)
        return dqn.learner_state(scan_learning(learn, state, dqn.learner_state, keys)[0])

    state = fill(jax.random.key(0))

    def again() -> None:
        jax.block_until_ready(jax.tree.leaves(turn(state, jax.random.key(1))))

    again()
    return again


def _cell_of(row: Row) -> str:
    return Cell(row["memory"], row["segment_length"]).name


GRID = Grid(
    "training_times",
    cells(),
    measure,
    summarize,
    program=lambda cell: cell.memory,
    cell_of=_cell_of,
    about="Seconds per gradient step, on a tape and on segments.",
    decides="whether a gradient step on a tape is as fast as on segments",
    turn=3,
)
