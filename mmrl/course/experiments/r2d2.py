"""R2D2's repairs of segments, one by one, against DQN on a tape.

A cell is a task, a memory and a strategy: where replayed sequences start from (the zero state, the
stored one, either with a burn-in) or whole episodes on a tape. Every cell trains on about the same
number of transitions per gradient step, for as many steps, with its own best learning rate,
chosen from `RATES` on by the rule of `tuning`, on seeds that are not among the reported ones. It
records what it took: trained transitions, without padding, and CPU-seconds after compilation.

Cells with stored states and a burn-in also record ΔQ of the trained agents, for all four starts on
the same sequences (`mmrl.agents.r2d2.staleness`).
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

from mmrl.agents import dqn, r2d2
from mmrl.agents.common import repeatable
from mmrl.agents.r2d2.staleness import STARTS, staleness
from mmrl.course.experiments import tuning
from mmrl.course.experiments.batching import say
from mmrl.course.experiments.resuming import resume
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag, PreviousAction, PreviousReward
from mmrl.runs import interval

RATES = (1e-3, 3e-3, 1e-2)  # of Adam, the first that are tried
SEEDS = (0, 1, 2, 3, 4, 5)
TUNING_SEEDS = (1000, 1001)
STRATEGIES = {
    "tape": {},
    "zero": {"start": "zero", "burn_in": 0},
    "stored": {"start": "stored", "burn_in": 0},
    "burn_in": {"start": "zero"},
    "stored_burn_in": {"start": "stored"},
}
"""What each changes of a task's settings; the tape is DQN's."""
MEMORIES = ("lru", "lstm")
SPAN = 2.0  # the best return less the worst
MEASURED = 256  # sequences per seed whose ΔQ is measured


@dataclasses.dataclass(frozen=True)
class Task:
    """How a task is cut, and how long it is trained, whatever the strategy."""

    name: str
    steps: int  # of an episode
    length: int
    overlap: int
    burn_in: int
    batch: int  # sequences
    reward_scale: float = 25.0  # as in the comparison of tapes and segments; a step pays ±0.25
    level: str = ""  # the environment's name, where it is not that of the task
    sizes: tuple[tuple[str, int], ...] = ()  # what makes the task of it
    capacity: int = 16_320
    gamma: float = 0.5  # γ, as in that comparison
    blocks: int = 16

    @property
    def transitions(self) -> int:
        """Steps of a batch, padding included."""
        return self.batch * self.length


TASKS = {
    task.name: task
    for task in (
        Task("RepeatPreviousPaper", 103, length=10, overlap=5, burn_in=5, batch=50),
        Task("RepeatFirstEasy", 51, length=10, overlap=5, burn_in=5, batch=50),
        Task(
            "RepeatPreviousLong",
            415,
            length=20,
            overlap=10,
            burn_in=10,
            batch=40,
            reward_scale=100.0,
            level="RepeatPreviousPaper",
            sizes=(("num_decks", 8),),
            capacity=32_640,
        ),
    )
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One entry of the grid."""

    task: str
    memory: str
    strategy: str

    @property
    def name(self) -> str:
        """Says it in words; what a finished cell is known by."""
        return f"{self.task}, {self.memory}, {self.strategy.replace('_', ' ')}"

    @property
    def config(self) -> dqn.Config | r2d2.Config:
        task = TASKS[self.task]
        shared: dict[str, Any] = {
            "memory": self.memory,
            "gamma": task.gamma,
            "reward_scale": task.reward_scale,
            "updates": 4,
            "blocks": task.blocks,
        }
        if self.strategy == "tape":
            return dqn.Config(**shared, batch=task.transitions, capacity=task.capacity)
        cut = {"length": task.length, "overlap": task.overlap, "burn_in": task.burn_in}
        changed = {**cut, **STRATEGIES[self.strategy]}
        return r2d2.Config(**shared, **changed, batch=task.batch, capacity=task.capacity)


def cells() -> list[Cell]:
    """The whole grid, task by task."""
    return [Cell(t, m, s) for t in TASKS for m in MEMORIES for s in STRATEGIES]


def run(out: pathlib.Path, minutes: float, quick: bool) -> Iterator[str]:
    """Train every cell that `out/r2d2.jsonl` lacks, while there is time for another."""
    yield from resume("r2d2", out, cells(), measure, say, minutes, quick, tuning.outdated)


QUICK: dict[str, Any] = {"block": 1, "blocks": 2, "episodes": 4, "width": 8}


def measure(cell: Cell, quick: bool = False, old: dict[str, Any] | None = None) -> dict[str, Any]:
    """Choose the learning rate of a cell, train its agents, and say what they reached.

    An `old` row of it keeps its agents if that rate is theirs.
    """
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))
    chosen = tuning.choose_rate(
        lambda rates, seeds: train(cell, config, rates, seeds)[0],
        RATES,
        TUNING_SEEDS,
        span=SPAN,
        row=old,
    )
    if old and (row := tuning.grown(old, chosen)):
        return row
    rate = chosen.setting["learning_rate"]
    returns, cost, state = train(cell, config, [rate] * len(SEEDS), SEEDS)
    middle, low, high = interval(returns[:, -1])
    steps = config.block * config.rollout * config.environments
    return {
        "cell": cell.name,
        "task": cell.task,
        "memory": cell.memory,
        "strategy": cell.strategy,
        **tuning.record(chosen),
        "tuning_seeds": list(TUNING_SEEDS),
        "seeds": list(SEEDS),
        "interquartile_mean": middle,
        "interval_95": [low, high],
        "env_steps": [steps * (i + 1) for i in range(config.blocks)],
        "returns": np.round(returns, 4).tolist(),
        **cost,
        "delta_q": _stale(cell, config, state),
        "settings": _settings(cell),
        "quick": quick,
    }


def _settings(cell: Cell) -> dict[str, Any]:
    """All of a configuration but the learning rate."""
    settings = dataclasses.asdict(cell.config)
    return {name: value for name, value in settings.items() if name != "learning_rate"}


def train(
    cell: Cell, config: Any, rates: Sequence[float], seeds: Sequence[int]
) -> tuple[Float[np.ndarray, "lane eval"], dict[str, Any], Any]:
    """One agent per rate and seed: greedy returns at every evaluation, what it cost, the agents.

    A loss that is no longer finite makes an agent's later returns NaN, never an error: a learning
    rate may be too high.
    """
    init, block = _compiled(cell.task, cell.strategy == "tape")
    blocks, config = config.blocks, repeatable(config)  # one program for all
    lanes = jnp.asarray(rates, jnp.float32)
    state = init(config, lanes, jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)))
    block = block.lower(config, lanes, state).compile()
    rows, cpu, began = [], [], time.process_time()
    for _ in range(blocks):
        state, metrics = block(config, lanes, state)
        rows.append(jax.device_get(metrics))
        cpu.append(time.process_time() - began)
    finite = np.logical_and.accumulate([row.finite for row in rows])
    returns = np.where(finite, [row.returns.mean(-1) for row in rows], np.nan).T
    fill = np.mean([row.fill for row in rows], axis=1)  # over the agents
    trained = np.cumsum(fill) * _window(config) * config.updates * config.block
    cost = {
        "trained_transitions": trained.round().tolist(),
        "cpu_seconds": np.round(np.array(cpu) / len(lanes), 2).tolist(),
    }
    return returns, cost, state


def _window(config: dqn.Config | r2d2.Config) -> int:
    """Steps of a batch, of which `fill` says how many are trained on."""
    if isinstance(config, dqn.Config):
        return config.batch
    return config.batch * config.length


def _stale(cell: Cell, config: Any, state: Any) -> dict[str, Any] | None:
    """Median ΔQ of each agent's sequences, by start, at the first and the last trained step."""
    if cell.strategy != "stored_burn_in":
        return None
    keys = jax.vmap(jax.random.key)(jnp.arange(len(SEEDS), dtype=jnp.uint32))
    prefix = TASKS[cell.task].steps
    found = jax.jit(jax.vmap(lambda s, k: staleness(s, k, MEASURED, prefix)))(state, keys)

    def medians(values: Array) -> list[list[float]]:
        shown = np.where(np.asarray(found.valid)[:, None], np.asarray(values), np.nan)
        return np.nanmedian(shown, axis=2).T.tolist() if np.any(found.valid) else []

    first, last = medians(found.first), medians(found.last)
    pairs = zip(STARTS, first, last, strict=True) if first else ()
    return {start: {"first": one, "last": two} for start, one, two in pairs}


@functools.cache
def _compiled(name: str, on_tape: bool):
    """`init` and `block` of many agents that differ in learning rate and key."""
    task = TASKS[name]
    env, params = make(f"popgym-{task.level or name}-v0", **dict(task.sizes))
    env = BeginFlag(PreviousReward(PreviousAction(env)))
    agent = dqn if on_tape else r2d2

    def at(config: Any, rate: Float[Array, ""]) -> Any:
        return dataclasses.replace(config, learning_rate=rate)

    @jax.jit
    def init(config, rates, keys):
        agent.check(config, env, params)
        return jax.vmap(lambda r, k: agent.init(at(config, r), env, params, k))(rates, keys)

    @jax.jit
    def block(config, rates, state):
        return jax.vmap(lambda r, s: agent.block(at(config, r), env, params, s))(rates, state)

    return init, block
