"""Tapes (TBB) against segments (SBB) of L steps: what the choice costs, at equal tuning.

A cell is a task, a memory and a way of batching. Every cell gets the same: one network, batch,
loss, number of steps and updates, and its own best learning rate, chosen from `RATES` on by the
rule of `tuning`, on seeds that are not among the reported ones. All agents of a cell train side by
side in one program.

The code of Morad et al. (2024) has two quirks that this repeats on request, to see whether the
conclusion hangs on them: "loss" takes the Huber loss of the mean absolute error on segments, but
the mean of Huber losses on the tape; "target" scans the next observations for the target's states,
which thus never see the first observation of an episode.
"""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mmrl.agents import dqn
from mmrl.agents.common import repeatable
from mmrl.course.experiments import quirks, tuning
from mmrl.course.experiments.resuming import resume
from mmrl.runs import interval, program

RATES = (1e-3, 3e-3, 1e-2)  # of Adam, the first that are tried
SEEDS = (0, 1, 2, 3, 4, 5)
TUNING_SEEDS = (1000, 1001)  # one agent each per rate: as many as there are seeds, one program
TAPE = 0  # the length that stands for whole episodes
LENGTHS = (10, 20, 50, 100)  # L, steps
MEMORIES = ("lru", "gru", "ffm", "s5", "linear_attention")


@dataclasses.dataclass(frozen=True)
class Task:
    """How a task is trained, whatever the batching."""

    name: str
    gamma: float = 0.5  # γ, chosen on tuning seeds
    previous_action: bool = False
    span: float = 2.0  # the best return less the worst
    blocks: int = 16
    epsilon_decay: float = 80.0  # iterations


TASKS = {
    task.name: task
    for task in (
        Task("RepeatPreviousPaper"),
        Task("RepeatFirstEasy"),
        Task("CountRecallEasy", previous_action=True),
        Task("PositionOnlyCartPoleEasy", gamma=0.99, previous_action=True, span=1.0),
    )
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One entry of the grid."""

    task: str
    memory: str
    length: int = TAPE  # L, or TAPE
    quirky: tuple[str, ...] = ()  # of quirks.NAMES
    sizes: tuple[tuple[str, int], ...] = ()  # of the memory, where they are not its own

    @property
    def name(self) -> str:
        """Says it in words; what a finished cell is known by."""
        batching = f"segments of {self.length}" if self.length else "tape"
        sizes = [f"{name} {value}" for name, value in self.sizes]
        return ", ".join([self.task, self.memory, *sizes, batching, *self.quirky])

    @property
    def config(self) -> dqn.Config:
        task = TASKS[self.task]
        return dqn.Config(
            memory=self.memory,
            memory_sizes=self.sizes,
            batching="segments" if self.length else "tape",
            segment_length=self.length or 1,
            gamma=task.gamma,
            blocks=task.blocks,
            epsilon_decay=task.epsilon_decay,
        )


def cells() -> list[Cell]:
    """The whole grid, the most telling cells first."""
    (lag, hold), rest = list(TASKS)[:2], list(TASKS)[2:]
    loss, target = quirks.NAMES
    main = [
        *(Cell(task, "lru", n) for task in (lag, hold) for n in (TAPE, 10, 50)),
        *(Cell(lag, "gru", n) for n in (TAPE, 10)),
        *(Cell(lag, "lru", n, q) for n, q in ((TAPE, (target,)), (10, (loss, target)))),
        *(Cell(task, "gru", n) for task in (hold, lag) for n in (TAPE, *LENGTHS)),
        *(Cell(task, "lru", n) for task in (lag, *rest) for n in (TAPE, *LENGTHS)),
        *(Cell(lag, "lru", 10, (q,)) for q in (loss, target)),
        *(Cell(lag, m, n) for m in ("ffm", "s5", "linear_attention") for n in (TAPE, 10)),
        *(Cell(hold, "lru", n, q) for n, q in ((TAPE, (target,)), (10, (loss, target)))),
    ]
    several = ((loss,), (target,), (loss, target))
    quirky = [Cell(task, "lru", n, q) for task in (lag, hold) for n in (10, 50) for q in several]
    whole = [Cell(t, m, n) for m in MEMORIES for t in TASKS for n in (TAPE, *LENGTHS)]
    return list(dict.fromkeys([*main, *whole, *quirky]))


def run(out: pathlib.Path, minutes: float, quick: bool) -> Iterator[str]:
    """Train every cell that `out/batching.jsonl` lacks, while there is time for another."""
    yield from resume("batching", out, cells(), measure, say, minutes, quick, tuning.outdated)


def say(row: dict[str, Any]) -> str:
    """A row in a line: the interquartile mean, its interval and the learning rate."""
    middle, (low, high) = row["interquartile_mean"], row["interval_95"]
    return f"{middle:.2f} [{low:.2f}, {high:.2f}] at {row['learning_rate']:g}"


def measure(cell: Cell, quick: bool = False, old: dict[str, Any] | None = None) -> dict[str, Any]:
    """Choose the learning rate of a cell, train its agents, and say what they reached.

    An `old` row of it keeps its agents if that rate is theirs.
    """
    began, cpu = time.perf_counter(), time.process_time()
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))
    span = TASKS[cell.task].span
    chosen = tuning.choose_rate(
        lambda rates, seeds: train(cell, config, rates, seeds)[0],
        RATES,
        TUNING_SEEDS,
        span=span,
        row=old,
    )
    if old and (row := tuning.grown(old, chosen)):
        return row
    rate = chosen.setting["learning_rate"]
    returns, metrics = train(cell, config, [rate] * len(SEEDS), SEEDS)
    middle, low, high = interval(returns[:, -1])
    steps = config.block * config.rollout * config.environments
    return {
        "cell": cell.name,
        "task": cell.task,
        "memory": cell.memory,
        "batching": config.batching,
        "segment_length": cell.length,
        "quirks": list(cell.quirky),
        **tuning.record(chosen),
        "tuning_seeds": list(TUNING_SEEDS),
        "seeds": list(SEEDS),
        "interquartile_mean": middle,
        "interval_95": [low, high],
        "env_steps": [steps * (i + 1) for i in range(config.blocks)],
        "returns": np.round(returns, 4).tolist(),
        "fill": round(float(np.mean(metrics["fill"])), 4),
        "gamma": config.gamma,
        "batch": config.batch,
        "updates": config.blocks * config.block * config.updates,
        "previous_action": TASKS[cell.task].previous_action,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "quick": quick,
    }


QUICK: dict[str, Any] = {"block": 1, "blocks": 2, "episodes": 4, "width": 8, "batch": 200}


def train(
    cell: Cell, config: dqn.Config, rates: Sequence[float], seeds: Sequence[int]
) -> tuple[Float[np.ndarray, "lane eval"], dict[str, np.ndarray]]:
    """One agent per rate and seed: greedy returns at every evaluation, and the other metrics.

    A loss that is no longer finite makes an agent's later returns NaN, never an error: a learning
    rate may be too high.
    """
    init, block = _compiled(cell.task, cell.quirky)
    blocks, config = config.blocks, repeatable(config)  # one program for all
    lanes = jnp.asarray(rates, jnp.float32)
    state = init(config, lanes, jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)))
    rows = []
    for _ in range(blocks):
        state, metrics = block(config, lanes, state)
        rows.append(jax.device_get(metrics))
    finite = np.logical_and.accumulate([row.finite for row in rows])
    returns = np.where(finite, [row.returns.mean(-1) for row in rows], np.nan).T
    return returns, {"fill": np.stack([row.fill for row in rows], 1)}


@functools.cache
def _compiled(name: str, quirky: tuple[str, ...]):
    """`init` and `block` of many agents that differ in learning rate and key."""
    task = TASKS[name]
    env, params, *_ = program("dqn", f"popgym-{name}-v0", task.previous_action, True)

    def at(config: dqn.Config, rate: Float[Array, ""]) -> dqn.Config:
        return dataclasses.replace(config, learning_rate=rate)

    @jax.jit
    def init(config, rates, keys):
        dqn.check(config, env, params)
        return jax.vmap(lambda r, k: dqn.init(at(config, r), env, params, k))(rates, keys)

    @jax.jit
    def block(config, rates, state):
        one = functools.partial(quirks.block, quirks=quirky) if quirky else dqn.block
        return jax.vmap(lambda r, s: one(at(config, r), env, params, s))(rates, state)

    return init, block
