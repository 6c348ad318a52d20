"""PPO with a memory that scans, with one that walks, and with none; and rollouts cut short.

A cell is a task, a memory and how rollouts are learned from. All cells of a task see the same
number of steps and take the same number of gradient steps, each with its own best learning rate,
chosen from `RATES` on by the rule of `tuning`, on seeds that are not among the reported ones.
CPU-seconds are counted after compilation, per agent, evaluations included.

"carried" is PPO as it should be: a tape is replayed from the state that the actor had at its start.
"forgotten" replays it from zero, as if every rollout began an episode.
"""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mmrl.agents import ppo
from mmrl.course.experiments import tuning
from mmrl.course.experiments.batching import say
from mmrl.course.experiments.resuming import resume
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag, FlattenObservation
from mmrl.runs import interval

RATES = (3e-4, 1e-3, 3e-3)  # of Adam, the first that are tried
SEEDS = (0, 1, 2, 3, 4, 5)
TUNING_SEEDS = (1000, 1001)
SPAN = 2.0  # the best return less the worst, where the rate is tuned
MEMORIES = ("lru", "gru", "none")
STARTS = ("carried", "forgotten")
BATCH = 2048  # steps of an iteration

POPGYM = ppo.Config(
    rollout=64,
    environments=BATCH // 64,
    normalize_rewards=True,
    gamma=0.9,
    max_grad_norm=0.5,
    block=3,
    blocks=12,
)
# Of purejaxrl/ppo.py. Its value loss has a half, and a clip, which we leave out; it normalizes
# advantages per minibatch, we per iteration; it takes a truncation for an end, we bootstrap.
CART_POLE = ppo.Config(
    environments=4,
    rollout=128,
    learning_rate=2.5e-4,
    anneal=1.0,
    adam_eps=1e-5,
    max_grad_norm=0.5,
    value_weight=0.25,
    block=122,
    blocks=8,
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One entry of the grid."""

    task: str
    memory: str
    rollout: int = 64  # T, steps; not of the cart pole
    start: str = "carried"

    @property
    def name(self) -> str:
        """Says it in words; what a finished cell is known by."""
        return f"{self.task}, {self.memory}, {self.config.rollout} steps {self.start}"

    @property
    def config(self) -> ppo.Config:
        if self.task.startswith("CartPole"):
            return dataclasses.replace(CART_POLE, memory=self.memory)
        shape = {"rollout": self.rollout, "environments": BATCH // self.rollout}
        return dataclasses.replace(POPGYM, memory=self.memory, **shape)

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates to choose from: the cart pole has PureJaxRL's."""
        return (CART_POLE.learning_rate,) if self.task.startswith("CartPole") else RATES


def cells() -> list[Cell]:
    """The whole grid, the most telling cells first."""
    lag, first = "RepeatPreviousPaper", "RepeatFirstEasy"
    return [
        *(Cell(lag, memory) for memory in MEMORIES),
        *(Cell(lag, "lru", 16, start) for start in STARTS),
        *(Cell(first, memory) for memory in MEMORIES),
        Cell("CartPole-v1", "none"),
    ]


def run(out: pathlib.Path, minutes: float, quick: bool) -> Iterator[str]:
    """Train every cell that `out/ppo.jsonl` lacks, while there is time for another."""
    yield from resume("ppo", out, cells(), measure, say, minutes, quick, tuning.outdated)


QUICK: dict[str, Any] = {"block": 1, "blocks": 2, "episodes": 4, "width": 8}


def measure(cell: Cell, quick: bool = False, old: dict[str, Any] | None = None) -> dict[str, Any]:
    """Choose the learning rate of a cell, train its agents, and say what they reached.

    An `old` row of it keeps its agents if that rate is theirs.
    """
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))
    rate, about = cell.rates[0], {"learning_rate": cell.rates[0], "tuning": {}}
    if len(cell.rates) > 1:
        chosen = tuning.choose_rate(
            lambda rates, seeds: train(cell, config, rates, seeds)[0],
            cell.rates,
            TUNING_SEEDS,
            span=SPAN,
            row=old,
        )
        if old and (row := tuning.grown(old, chosen)):
            return row
        rate, about = chosen.setting["learning_rate"], tuning.record(chosen)
    returns, seconds = train(cell, config, [rate] * len(SEEDS), SEEDS)
    middle, low, high = interval(returns[:, -1])
    steps = config.block * config.rollout * config.environments
    return {
        "cell": cell.name,
        "task": cell.task,
        "memory": cell.memory,
        "rollout": config.rollout,
        "start": cell.start,
        **about,
        "tuning_seeds": list(TUNING_SEEDS) if about["tuning"] else [],
        "seeds": list(SEEDS),
        "interquartile_mean": middle,
        "interval_95": [low, high],
        "env_steps": [steps * (i + 1) for i in range(config.blocks)],
        "returns": np.round(returns, 4).tolist(),
        "cpu_seconds": seconds,
        "settings": _settings(cell),
        "quick": quick,
    }


def _settings(cell: Cell) -> dict[str, Any]:
    """All of a configuration but the learning rate."""
    settings = dataclasses.asdict(cell.config)
    return {name: value for name, value in settings.items() if name != "learning_rate"}


def train(
    cell: Cell, config: ppo.Config, rates: Sequence[float], seeds: Sequence[int]
) -> tuple[Float[np.ndarray, "lane eval"], list[float]]:
    """One agent per rate and seed: greedy returns at every evaluation, CPU-seconds per agent."""
    init, block = _compiled(cell.task, cell.start)
    trained = Fleet(config, init, block).train({"learning_rate": rates}, seeds)
    return trained.returns, trained.cpu_seconds


@functools.cache
def _compiled(task: str, start: str):
    """`init` and `block` of many agents that differ in learning rate and key."""
    env, params = make(task if task.startswith("CartPole") else f"popgym-{task}-v0")
    if not task.startswith("CartPole"):
        env = BeginFlag(FlattenObservation(env))
    return side_by_side(ppo, env, params, ppo.block if start == "carried" else forgetful)


def side_by_side(agent: Any, env: Any, params: Any, block: Callable | None = None):
    """`init` and `block` of many agents that differ in key and in `lanes`, numbers of `Config`.

    `agent` is a module as `ppo` and `ppg` are; `block` may be another one than its own.
    """

    def at(config: Any, lane: Mapping[str, Float[Array, ""]]) -> Any:
        names = list(lane)
        return eqx.tree_at(
            lambda c: [getattr(c, name) for name in names], config, [lane[name] for name in names]
        )

    @jax.jit
    def start(config, lanes, keys):
        return jax.vmap(lambda x, k: agent.init(at(config, x), env, params, k))(lanes, keys)

    @jax.jit
    def go_on(config, lanes, state):
        one = block or agent.block
        return jax.vmap(lambda x, s: one(at(config, x), env, params, s))(lanes, state)

    return start, go_on


class Trained(NamedTuple):
    """What agents that were trained side by side were like at every evaluation."""

    returns: Float[np.ndarray, "lane eval"]  # of the greedy policy
    diagnostics: Any  # the agent's, each [lane, eval]
    cpu_seconds: list[float]  # per agent so far, [eval]; compilation is not counted


class Fleet:
    """Agents that train side by side, in a program that is compiled once.

    A loss that is no longer finite makes an agent's later returns NaN, never an error: a learning
    rate may be too high.
    """

    def __init__(self, config: Any, init: Callable, block: Callable):
        self.config, self.init, self.block = config, init, block
        self.programs: dict[int, Any] = {}  # by the number of agents

    def train(self, lanes: Mapping[str, Sequence[float]], seeds: Sequence[int]) -> Trained:
        """One agent per seed, with its entry of every number in `lanes`."""
        numbers = {name: jnp.asarray(values, jnp.float32) for name, values in lanes.items()}
        keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))
        state = self.init(self.config, numbers, keys)
        if len(seeds) not in self.programs:
            lowered = self.block.lower(self.config, numbers, state)
            self.programs[len(seeds)] = lowered.compile()
        block, rows, cpu, began = self.programs[len(seeds)], [], [], time.process_time()
        for _ in range(self.config.blocks):
            state, metrics = block(self.config, numbers, state)
            rows.append(jax.device_get((metrics.returns.mean(-1), metrics.finite)))
            rows[-1] += (jax.device_get(metrics.diagnostics),)
            cpu.append(round((time.process_time() - began) / len(seeds), 3))
        returns, finite, diagnostics = zip(*rows, strict=True)
        return Trained(
            np.where(np.logical_and.accumulate(finite), returns, np.nan).T,
            jax.tree.map(lambda *x: np.stack(x, axis=1), *diagnostics),
            cpu,
        )


def forgetful(config: ppo.Config, env: Any, params: Any, state: ppo.State):
    """`ppo.block`, but learning starts every rollout from the zero state, unlike acting."""

    def iterate(state, _):
        act_key, learn_key, key = jax.random.split(state.key, 3)
        state, rollout = ppo.act(config, env, params, state, act_key)
        fresh = jax.vmap(lambda _: state.net.init())(jnp.arange(config.environments))
        learned, outcome = ppo.learn(config, state, rollout._replace(state=fresh), learn_key)
        finite = jnp.all(jnp.isfinite(rollout.steps.reward)) & jnp.all(jnp.isfinite(outcome[0]))
        learned = dataclasses.replace(learned, key=key, iteration=state.iteration + 1)
        return learned, (*outcome, finite)

    state, outcome = jax.lax.scan(iterate, state, None, config.block)
    return ppo.evaluate(config, env, params, state, outcome)
