"""Batch size-invariance at a small scale: learning with batches that are c times smaller.

Reproduces Figures 2, 3 and 5 and Table 5 of Hilton et al. (2022). A cell is a task, an agent, a
condition and c. The agent is PPO-EWMA or PPG-EWMA with c times fewer environments. A condition
applies all adjustments of `rescale`, omits one, or changes one. Only the cell with c = 1 and every
adjustment is tuned, on seeds that are not reported, and all other cells use its learning rate. With
c = 1 all conditions are equal, except the one without an average.

As in the paper, a curve is the mean return of the training episodes that ended in each block, which
are hundreds of episodes. Returns are normalized so that a random policy has 0 and the best possible
return is 1. If the best return is unknown, a round number slightly above the return with c = 1 on
tuning seeds takes its place. The area under a curve is its mean, and the final return is the mean
of its last quarter.
"""

import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from mmrl.agents import ppo
from mmrl.agents.ppo import ppg
from mmrl.course import plain
from mmrl.course.experiments import stratified, tuning
from mmrl.course.experiments.fleet import env_steps
from mmrl.course.experiments.grid import Grid, Row, Rows
from mmrl.course.experiments.ledger import Block, Ledger, advance, noise_of
from mmrl.course.experiments.stratified import EVERY
from mmrl.course.invariance import rescale
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag, FlattenObservation

SEEDS = (0, 1, 2, 3, 4, 5)
TUNING_SEEDS = (1000, 1001)
FACTORS = (1, 4, 16, 64)  # c
ALL_RATES = (1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
NO_AVERAGE, LINEAR = "no average", "linear step size"
CONDITIONS: dict[str, dict[str, bool]] = {
    EVERY: {},
    "no step size": {"adam": False},
    "no advantage span": {"advantages": False},
    "no center of mass": {"prox": False},
    NO_AVERAGE: {},
    LINEAR: {"adam": False},
    "betas too": {"betas": True},
}
"""Arguments of `rescale`; the second to the fifth are the paper's ablations (a) to (d)."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A task, the settings that both agents use, and the scale of its returns."""

    env: str
    worst: float  # return of a random policy
    best: float
    rates: tuple[float, ...]  # Adam learning rates to try first with c = 1
    settings: dict[str, Any]
    seeds: tuple[int, ...] = SEEDS  # reported seeds


BASE: dict[str, Any] = {
    "memory": "none",
    "width": 32,
    "proximal": "ewma",
    "environments": 64,
    "rollout": 8,
    "minibatches": 8,
    "epochs": 1,
    "prox_center": 8.0,  # the number of minibatches, as in the paper
    "beta2": 0.99,  # for 1024 gradient steps; the paper uses 0.999 for 12 000
    "block": 8,
    "blocks": 16,
}
PHASES: dict[str, Any] = {
    "objective": "kl",
    "policy_iterations": 8,  # one phase per block
    "auxiliary_epochs": 6,
    "auxiliary_minibatches": 32,
}
TASKS = {
    "Catch": Task("Catch-bsuite", -0.6, 1.0, (5e-4, 1e-3, 2e-3), BASE),
    # This task uses the paper's β₂ and twice as many steps. It was planned after the results of
    # "Catch", so it uses new seeds.
    "CatchLong": Task(
        "Catch-bsuite",
        -0.6,
        1.0,
        (1e-3, 2e-3, 4e-3),
        {**BASE, "beta2": 0.999, "block": 16},
        (10, 11, 12, 13, 14, 15),
    ),
    "Breakout": Task(
        "Breakout-MinAtar",
        0.42,
        6.0,
        (5e-4, 1e-3, 2e-3),
        {**BASE, "rollout": 16, "shared": True},
    ),
    "RepeatPrevious": Task(
        "popgym-RepeatPreviousEasy-v0",
        -0.5,
        1.0,
        (1e-3, 2e-3, 4e-3),
        {
            **BASE,
            "memory": "lru",
            "memory_sizes": (("state_size", 32),),
            "shared": True,
            "minibatches": 1,  # each environment has a single tape
            "gamma": 0.9,
            "block": 32,
        },
    ),
}
QUICK: dict[str, Any] = {"blocks": 2, "width": 8, "rollout": 8}
NOISE_AT = (0.125, 0.5, 1.0)  # fractions of a run after which the gradient noise scale is measured


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task, an agent, a condition and a factor c."""

    task: str
    agent: str  # "ppo" or "ppg"
    condition: str
    c: int

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return f"{self.task}, {self.agent}, {self.condition}, c = {self.c}"

    @property
    def program(self) -> tuple[str, str, int, bool]:
        """Key that is equal for all cells that train in the same compiled program."""
        return self.task, self.agent, self.c, self.condition == NO_AVERAGE

    @property
    def base(self) -> "Cell":
        """Cell whose learning rate this cell uses."""
        return Cell(self.task, self.agent, EVERY, 1)

    def config(self, rate: float, quick: bool = False) -> ppo.Config:
        """Return the settings of the cell, given the learning rate of its base."""
        settings = {**TASKS[self.task].settings, **(QUICK if quick else {}), "learning_rate": rate}
        if self.condition == NO_AVERAGE:
            settings["proximal"] = "behavior"
        if self.agent == "ppg":
            config = dataclasses.replace(
                plain.PPG, **{**settings, **PHASES, "shared": False, "auxiliary_rate": rate}
            )
        else:
            config = dataclasses.replace(plain.PPO, **settings)
        config = rescale(config, self.c, **CONDITIONS[self.condition])
        if self.condition == LINEAR:
            config = dataclasses.replace(config, learning_rate=rate / self.c)
        return config


PAIRS = (
    ("Catch", "ppo"),
    ("Catch", "ppg"),
    ("Breakout", "ppo"),
    ("CatchLong", "ppo"),
    ("RepeatPrevious", "ppo"),
)


def cells() -> list[Cell]:
    """Return all cells, by task, starting with the base and the smallest batches."""
    return [
        Cell(task, agent, condition, c)
        for task, agent in PAIRS
        for average in (True, False)
        for c in (1, *reversed(FACTORS[1:]))
        for condition in CONDITIONS
        if average == (condition != NO_AVERAGE) and (c > 1 or condition in (EVERY, NO_AVERAGE))
    ]


def summarize(row: Row) -> str:
    """Summarize a row: the area under the curve, the final return and the cost."""
    area, final = stratified.area(row).mean(), stratified.final(row).mean()
    return f"area {area:.3f}, final {final:.3f}, {row['cpu_seconds']} s of CPU per agent"


def spreads(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the range of areas over batch sizes, for every task, agent and condition."""
    for agent, condition in dict.fromkeys((row["agent"], row["condition"]) for row in rows):
        for task, some in stratified.select(rows, agent, condition).items():
            yield f"{task}, {agent}, {condition}: spread of areas {stratified.spread(some):.3f}"


def measure(together: Sequence[Cell], by_name: Rows, quick: bool) -> list[Row]:
    """Train the agents of cells that share a program, and return their results."""
    base = together[0].base
    row_of_base = by_name.get(base.name)
    about = {"learning_rate": row_of_base["learning_rate"]} if row_of_base else tune(base, quick)
    rate = about["learning_rate"]
    configs = [cell.config(rate, quick) for cell in together]
    seeds = TASKS[base.task].seeds
    agents = [(config, seed) for config in configs for seed in seeds]
    blocks, noise, seconds = train(TASKS[base.task].env, base.agent, agents, base in together)
    cut = [jax.tree.map(lambda x, i=i: x[:, i], blocks) for i in _slices(len(agents), len(seeds))]
    return [
        {
            "cell": cell.name,
            **dataclasses.asdict(cell),
            **(about if cell == base else {"learning_rate": rate, "tuning": {}}),
            "tuning_seeds": list(TUNING_SEEDS),
            "seeds": list(seeds),
            "env_steps": env_steps(configs[0]),
            "worst": TASKS[cell.task].worst,
            "best": TASKS[cell.task].best,
            "returns": _table(np.where(np.logical_and.accumulate(own.finite), own.returns, np.nan)),
            "advantage_swing": _table(own.swing),
            "clipped": _table(own.clip_fraction.mean(1, keepdims=True))[0],
            "kl_behavior": _table(own.kl.mean(1, keepdims=True))[0],
            "noise_scale": noise if cell == base else [],
            "cpu_seconds": round(seconds / len(agents), 2),
            "settings": dataclasses.asdict(config),
            "quick": quick,
        }
        for cell, config, own in zip(together, configs, cut, strict=True)
    ]


def _slices(agents: int, size: int) -> list[slice]:
    return [slice(i, i + size) for i in range(0, agents, size)]


def _table(values: Float[np.ndarray, "eval seed"]) -> list[list[float]]:
    return np.round(values.T.astype(float), 5).tolist()


def tune(base: Cell, quick: bool) -> dict[str, Any]:
    """Choose the learning rate of the base, and return the record of the choice."""

    def returns(rates: Sequence[float], seeds: Sequence[int]) -> np.ndarray:
        configs = [base.config(rate, quick) for rate in rates]
        env, agents = TASKS[base.task].env, list(zip(configs, seeds, strict=True))
        return np.asarray(train(env, base.agent, agents)[0].returns).T

    rates, score = TASKS[base.task].rates, tuning.area
    return tuning.record(
        tuning.choose_rate(returns, rates, TUNING_SEEDS, grid=ALL_RATES, score=score)
    )


def train(
    env: str, agent: str, agents: Sequence[tuple[ppo.Config, int]], noise: bool = False
) -> tuple[Block, list[dict[str, Any]], float]:
    """Train one agent per pair of a config and a seed, on the environment with the id `env`.

    Returns blocks [eval, agent], measurements of the gradient noise scale, and CPU-seconds. Configs
    must agree in all static settings.
    """
    configs, seeds = zip(*agents, strict=True)
    init, block, measure_noise = _compile(env, agent, configs[0].memory != "none")
    stack = jax.tree.map(lambda *x: jnp.asarray(x, jnp.float32), *configs)
    state = init(stack, jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)))
    block = block.lower(stack, state).compile()
    outcomes, scales, seconds, count = [], [], 0.0, configs[0].blocks
    moments = [max(int(share * count), 1) for share in NOISE_AT if configs[0].minibatches > 1]
    for i in range(count):
        start_time = time.process_time()
        state, outcome = block(stack, state)
        outcomes.append(jax.device_get(outcome))
        seconds += time.process_time() - start_time
        if noise and i + 1 in moments:
            v, signal = (float(x) for x in measure_noise(stack, state))
            scales.append({"eval": i, "noise": v, "signal": signal, "scale": v / signal})
    return jax.tree.map(lambda *x: np.stack(x), *outcomes), scales, seconds


@functools.lru_cache(4)  # few, because compiled programs use a lot of memory
def _compile(env_id: str, agent: str, has_memory: bool):
    """Return jitted `init`, `block` and `noise`, vmapped over configs and keys."""
    env, params = make(env_id)
    if has_memory:
        env = BeginFlag(FlattenObservation(env))
    env, module = Ledger(env), {"ppo": ppo, "ppg": ppg}[agent]

    @jax.jit
    def init(configs, keys):
        return jax.vmap(lambda config, key: module.init(config, env, params, key))(configs, keys)

    @jax.jit
    def block(configs, state):
        return jax.vmap(lambda config, s: advance(config, env, params, s))(configs, state)

    @jax.jit
    def noise(configs, state):
        policy = state if agent == "ppo" else state.policy
        scales = jax.vmap(lambda config, s: noise_of(config, env, params, s))(configs, policy)
        return jax.tree.map(jnp.mean, scales)

    return init, block, noise


GRID = Grid(
    "invariance",
    cells(),
    measure,
    summarize,
    program=lambda cell: cell.program,
    after=lambda cell: [cell.base.name],  # this row records the learning rate
    close=spreads,
    about="PPO-EWMA and PPG-EWMA with batches up to 64 times smaller, and ablations.",
    decides="whether smaller batches learn equally well",
    turn=13,
)
