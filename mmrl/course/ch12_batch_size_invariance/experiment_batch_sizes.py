"""Batch size-invariance on four tasks, with batches up to 256 times smaller and ten seeds.

This study repeats `invariance` at the size of Hilton et al. (2022): 256 environments divided by
c = 4, 16, 64 and 256, PPO-EWMA and PPG-EWMA, and tasks on which no agent reaches the highest
return. There are two kinds of cells:

- A *scale* is measured before all other cells of its task and agent. It plays random actions, and
  chooses the learning rate with c = 1 on `TUNING_SEEDS`. Rates are added until the best one is
  neither the smallest nor the largest.
- An *arm* is a task, an agent, a condition and c. It uses the learning rate of its scale.

No score depends on a guess. A return is normalized so that random actions have 0. The value 1 is
the highest possible return if a task has one (`maximum`), and otherwise the final return of the
better agent in its scale. A row also records the standard deviation of random episodes, because an
agent whose return is within two of these deviations has not learned the task.

A run has 262 144 steps, and four times as many on NoisyCartPole. The runs are so short because the
number of gradient steps at c = 256 determines the cost, and because no task may reach its ceiling.
On one tuning seed, PPO with a learning rate of 0.004 ended with returns of 5.9 on Breakout, 20 on
SpaceInvaders, 0.9 on RepeatPrevious and 0.56 on NoisyCartPole, and all four still increased.
Asterix is not among the tasks, because after as many steps it ended with 1.1.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mmrl.agents import ppo
from mmrl.checks.tracing import random_policy
from mmrl.course import plain
from mmrl.course.ch12_batch_size_invariance import experiment_invariance as invariance
from mmrl.course.experiments import stratified, tuning
from mmrl.course.experiments.fleet import env_steps
from mmrl.course.experiments.grid import Grid, Row, Rows, round_list
from mmrl.course.experiments.stratified import EVERY
from mmrl.course.invariance import rescale
from mmrl.envs import make
from mmrl.rollout import evaluate

SEEDS = tuple(range(20, 30))
TUNING_SEEDS = (1000, 1001, 1002)
FACTORS = (1, 4, 16, 64, 256)  # c
RATES = (1e-3, 2e-3, 4e-3)  # Adam learning rates to try first
ALL_RATES = (1.25e-4, 2.5e-4, 5e-4, *RATES, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
EPISODES = 1024  # of random actions
LINEAR, WEAK = "linear step size", "weak penalty"
WEAK_FACTOR = 256  # with WEAK, the weight of the KL penalty is divided by this number
CONDITIONS: dict[str, dict[str, bool]] = {
    EVERY: {},
    "no step size": {"adam": False},
    LINEAR: {"adam": False},
    "beta2 only": {"beta2": True},
    "no advantage span": {"advantages": False},
    "no center of mass": {"prox": False},
}
"""Arguments of `rescale`. WEAK, a lower bound in Figure 2 of the paper, changes the base."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A task, the settings that both agents use, and the highest possible return, if known."""

    env: str
    settings: dict[str, Any]
    maximum: float | None = None


MINATAR: dict[str, Any] = {**invariance.BASE, "environments": 256, "beta2": 0.999, "shared": True}
MEMORY: dict[str, Any] = {
    **invariance.TASKS["RepeatPrevious"].settings,
    "environments": 256,
    "beta2": 0.999,
    "block": 8,
}
TASKS = {
    "Breakout": Task("Breakout-MinAtar", MINATAR),
    "SpaceInvaders": Task("SpaceInvaders-MinAtar", MINATAR),
    "RepeatPrevious": Task("popgym-RepeatPreviousEasy-v0", MEMORY, 1.0),
    # Its highest return is not known, because the observations contain noise.
    "NoisyCartPole": Task(
        "popgym-NoisyPositionOnlyCartPoleEasy-v0",
        {**MEMORY, "rollout": 16, "block": 16, "gamma": 0.99},
    ),
}
QUICK: dict[str, Any] = {"blocks": 2, "width": 8, "rollout": 8}
AGENTS = ("ppo", "ppg")


def base(task: str, agent: str, rate: float, quick: bool = False) -> Any:
    """Return the settings of a task and an agent with c = 1."""
    settings = {**TASKS[task].settings, **(QUICK if quick else {}), "learning_rate": rate}
    if agent == "ppo":
        return dataclasses.replace(plain.PPO, **settings)
    settings |= {**invariance.PHASES, "shared": False, "auxiliary_rate": rate}
    return dataclasses.replace(plain.PPG, **settings)


@dataclasses.dataclass(frozen=True)
class Scale:
    """The random return and the learning rate of a task and an agent."""

    task: str
    agent: str

    @property
    def name(self) -> str:
        """Name in the results."""
        return f"{self.task}, {self.agent}, scale"

    @property
    def program(self) -> tuple[Any, ...]:
        """Key that is different for each scale."""
        return self.task, self.agent


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task, an agent, a condition and a factor c."""

    task: str
    agent: str
    condition: str
    c: int

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return f"{self.task}, {self.agent}, {self.condition}, c = {self.c}"

    @property
    def program(self) -> tuple[Any, ...]:
        """Key that is equal for all cells that train in the same compiled program."""
        return self.task, self.agent, self.c

    def config(self, rate: float, quick: bool = False) -> ppo.Config:
        """Return the settings of the cell, given the learning rate of its scale."""
        config = base(self.task, self.agent, rate, quick)
        if self.condition == WEAK:
            return dataclasses.replace(config, kl_weight=config.kl_weight / WEAK_FACTOR)
        config = rescale(config, self.c, **CONDITIONS[self.condition])
        if self.condition == LINEAR:
            config = dataclasses.replace(config, learning_rate=rate / self.c)
        return config


def cells() -> list[Scale | Cell]:
    """Return all cells. The scales come first, followed by the base and the smallest batches."""
    scales = [Scale(task, agent) for agent in AGENTS for task in TASKS]
    bases = [Cell(x.task, x.agent, EVERY, 1) for x in scales]
    weak = [Cell(task, "ppg", WEAK, 1) for task in TASKS]
    rest = [
        Cell(x.task, x.agent, condition, c)
        for c in reversed(FACTORS[1:])
        for x in scales
        for condition in CONDITIONS
    ]
    return [*scales, *bases, *weak, *rest]


def after(cell: Scale | Cell) -> list[str]:
    """Return the names of the scales on which an arm depends."""
    return [] if isinstance(cell, Scale) else [Scale(cell.task, x).name for x in AGENTS]


def summarize(row: Row) -> str:
    """Summarize a row: the scale, or the area under the curve and the final return."""
    if "condition" not in row:
        edge = ", at the end of the grid" * row["tuning_at_bound"]
        return f"random {row['random']:.2f}, tuned {row['reached']:.2f}{edge}"
    area, final = stratified.area(row).mean(), stratified.final(row).mean()
    return f"area {area:.3f}, final {final:.3f}, {row['cpu_seconds']} s of CPU per agent"


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the largest Z of the design, and the Z and p of each condition at each c."""
    n = len(SEEDS)
    highest = reachable_z(n, len(TASKS))
    yield (
        f"{n} seeds on {len(TASKS)} tasks can reach Z = {highest:.2f}; "
        f"on one task, {reachable_z(n, 1):.2f}."
    )
    some = [row for row in rows if "condition" in row]
    for agent, condition, c in dict.fromkeys((x["agent"], x["condition"], x["c"]) for x in some):
        by_task = stratified.select(some, agent, EVERY).values()
        if condition not in (EVERY, WEAK) and any({1, c} <= set(x) for x in by_task):
            effect = stratified.effect(some, agent, condition, c, stratified.final)
            if effect.tasks:
                p = math.erfc(effect.z / math.sqrt(2)) / 2  # one-sided, as in the paper
                name = f"{agent}, {condition}, c = {c}"
                yield f"{name}: {effect.size:+.3f}, Z {effect.z:.2f}, p {p:.2g}"


def reachable_z(seeds: int, tasks: int) -> float:
    """Return van Elteren's Z if every seed of one arm is better than every seed of the other."""
    return stratified.van_elteren(tasks * [(np.arange(seeds) + seeds, np.arange(seeds))])


def measure(together: Sequence[Any], by_name: Rows, quick: bool) -> list[Row]:
    """Measure a scale, or train the agents of arms that share a program."""
    first = together[0]
    if isinstance(first, Scale):
        return [measure_scale(first, quick)]
    return measure_arms(together, by_name, quick)


def measure_scale(cell: Scale, quick: bool) -> Row:
    """Play random actions, choose the learning rate with c = 1, and return the row."""
    curves: dict[float, np.ndarray] = {}

    def train(rates: Sequence[float], seeds: Sequence[int]) -> np.ndarray:
        pairs = [
            (base(cell.task, cell.agent, r, quick), s) for r, s in zip(rates, seeds, strict=True)
        ]
        returns = finite_returns(invariance.train(TASKS[cell.task].env, cell.agent, pairs)[0])
        for rate in set(rates):
            curves[rate] = returns[np.array(rates) == rate]
        return np.nan_to_num(returns, nan=-1.0)  # the lowest return of all tasks

    seeds = TUNING_SEEDS[:1] if quick else TUNING_SEEDS
    choice = tuning.choose_rate(
        train, RATES, seeds, grid=RATES if quick else ALL_RATES, score=tuning.area
    )
    returns = random_returns(TASKS[cell.task].env, 4 if quick else EPISODES)
    own = curves[choice.setting["learning_rate"]]
    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        **tuning.record(choice),
        "tuning_seeds": list(seeds),
        "seeds": list(seeds),
        "random": round(float(returns.mean()), 4),
        "deviation": round(float(returns.std(ddof=1)), 4),
        "episodes": len(returns),
        "reached": round(float(own[:, -max(own.shape[1] // 4, 1) :].mean()), 4),
        "maximum": TASKS[cell.task].maximum,
        "quick": quick,
    }


def finite_returns(blocks: Any) -> np.ndarray:
    """Return the returns [agent, eval], which are NaN after a loss that was not finite."""
    return np.where(np.logical_and.accumulate(blocks.finite), blocks.returns, np.nan).T


@functools.lru_cache(2)
def random_returns(env_id: str, episodes: int) -> np.ndarray:
    """Return the returns of episodes with random actions."""
    env, params = make(env_id)
    policy = random_policy(env, params)
    steps = int(params.max_steps_in_episode)
    play = jax.jit(lambda key: evaluate(policy, env, params, (), key, episodes, steps).returns)
    return np.asarray(play(jax.random.key(0)), np.float64)


def measure_arms(together: Sequence[Cell], by_name: Rows, quick: bool) -> list[Row]:
    """Train the agents of cells that share a program, and return their rows."""
    task, agent = together[0].task, together[0].agent
    scales = [by_name[name] for name in after(together[0])]
    own = by_name[Scale(task, agent).name]
    rate, maximum = own["learning_rate"], TASKS[task].maximum
    configs = [cell.config(rate, quick) for cell in together]
    seeds = SEEDS[:2] if quick else SEEDS
    agents = [(config, seed) for config in configs for seed in seeds]
    blocks, _, seconds = invariance.train(TASKS[task].env, agent, agents)
    groups = [slice(i, i + len(seeds)) for i in range(0, len(agents), len(seeds))]
    parts = [jax.tree.map(lambda x, i=i: x[:, i], blocks) for i in groups]
    return [
        {
            "cell": cell.name,
            **dataclasses.asdict(cell),
            "learning_rate": rate,
            "tuning": own["tuning"],  # on other seeds, by the scale
            "seeds": list(seeds),
            "env_steps": env_steps(configs[0]),
            "worst": own["random"],
            "best": max(x["reached"] for x in scales) if maximum is None else maximum,
            "maximum": maximum,
            "deviation": own["deviation"],
            "returns": round_list(finite_returns(part)),
            "advantage_swing": round_list(part.swing.T),
            "clipped": round_list(part.clip_fraction.mean(1)),
            "kl_behavior": round_list(part.kl.mean(1)),
            "cpu_seconds": round(seconds / len(agents), 2),
            "settings": dataclasses.asdict(config),
            "quick": quick,
        }
        for cell, config, part in zip(together, configs, parts, strict=True)
    ]


GRID = Grid(
    "batch_sizes",
    cells(),
    measure,
    summarize,
    program=lambda cell: cell.program,
    after=after,
    close=lines,
    cost=lambda cell: 3.0 if isinstance(cell, Scale) else max(cell.c / 32, 1.0),
    small=[Scale("Breakout", x) for x in AGENTS]
    + [Cell("Breakout", "ppo", x, 16) for x in CONDITIONS],
    limit=1800.0,
    about="PPO-EWMA and PPG-EWMA on four tasks, with batches up to 256 times smaller.",
    decides="whether small batches learn equally well below the ceiling",
    turn=28,
)
