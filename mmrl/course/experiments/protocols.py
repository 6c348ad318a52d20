"""Cells of the experiment on forgetting: task families, protocols, methods and their settings.

A cell combines a family, a protocol and a method. "V-trace" is the actor-critic without replay.
"separate" trains one network per task, with the same number of steps on that task as in the other
protocols; `env_steps` is the sum over all networks. "probed" inserts an additional task between the
others.

The settings were chosen on seeds in the 1000s and 1100s. The entropy weight of `CATCH` is
a compromise. With a smaller weight, V-trace did not learn its second task at this learning rate.
With a larger weight, the policy of CLEAR remained so random that sampled actions scored much less
than greedy ones. The rows of these trials were not saved.

Because of this compromise, the experiment also tunes the cells in `SWEEPS` separately on tuning
seeds, including the learning rate and the entropy weight. These cells are EWC, Progress & Compress,
an additional CLEAR and an additional V-trace. In the family "Dark", the settings of all cells are
tuned with simultaneous V-trace.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from mmrl.agents import clear
from mmrl.course import plain
from mmrl.course.continual import ewc, progress, schedules
from mmrl.envs import continual as tasks
from mmrl.envs import make
from mmrl.envs.wrappers import FlattenObservation, ObservationWrapper

TASKS = 3  # tasks in a cycle, without the probe
POSITIONS = (0, 3, 6, 9)  # positions of the probe, in stages

# A stage has 72 000 steps, and four cycles have 864 000 steps.
CATCH = dataclasses.replace(
    plain.CLEAR,
    memory="none",
    environments=12,
    rollout=10,
    capacity=48_000,  # 1/18 of all steps
    storage_dtype="uint8",
    block=100,
    blocks=6,
    learning_rate=3e-3,
    entropy_weight=0.1,
)
STEPS = 864_000
LEAST = CATCH.environments * CATCH.rollout  # steps in one unroll of all environments
LRU = dataclasses.replace(CATCH, memory="lru", memory_sizes=(("state_size", 32),), width=32)
QUICK: dict[str, Any] = {"block": 1, "blocks": 2, "episodes": 2, "width": 8}
BASES = {"Catch": (CATCH, 4), "Dark": (LRU, 2)}
"""Base config and number of cycles of each family."""


class HiddenBall(ObservationWrapper):
    """Wrapper of Catch that hides the ball except at the beginning of an episode."""

    def view(self, key: Any, obs: Any, state: Any, cause: Any, params: Any) -> Any:
        """Return the board, without the ball unless the episode begins."""
        paddle = jnp.arange(len(obs))[:, None] == len(obs) - 1  # the paddle is in the last row
        return jnp.where(paddle | (state.time == 0), obs, jnp.zeros_like(obs))


@functools.cache  # JAX caches programs by the identity of the environment
def family(name: str, count: int) -> tuple[Any, Any]:
    """Return a family of `count` permuted Catch tasks with 7 rows, and its parameters.

    In the family "Dark", the ball is hidden after the first step, so that a memory is required.
    """
    if name == "Catch":
        return tasks.permuted_catch(count, rows=7)
    env = tasks.PermutedTasks(
        FlattenObservation(HiddenBall(make("Catch-bsuite", rows=7)[0])), count
    )
    return env, env.default_params


AGENTS: dict[str, tuple[Any, type[clear.Config]]] = {
    "clear": (clear, clear.Config),
    "consolidation": (ewc, ewc.Config),
    "progress": (progress, progress.Config),
}
ALONE: dict[str, Any] = {"capacity": 0, "replay_fraction": 0.0}
METHODS: dict[str, dict[str, Any]] = {
    "V-trace": {"replay_fraction": 0.0},
    "CLEAR": {},
    "without cloning": {"policy_cloning": 0.0, "value_cloning": 0.0},
    "25 % replay": {"replay_fraction": 0.25},  # 75-25 in the paper
    "100 % replay": {"replay_fraction": 1.0},
    "75 % replay": {"replay_fraction": 0.75},
    "policy cloning only": {"value_cloning": 0.0},
    "EWC": ALONE,
    "Progress & Compress": {**ALONE, "compress": 300},
    "tuned CLEAR": {},
    "tuned V-trace": {"replay_fraction": 0.0},
    # The smallest possible reservoir contains one unroll of every environment.
    "reservoir 1/7200": {"capacity": LEAST},
    "reservoir 1/2400": {"capacity": 3 * LEAST},
    "reservoir 1/720": {"capacity": 10 * LEAST},
    "reservoir 1/200": {"capacity": STEPS // 200},
    "reservoir 1/2": {"capacity": STEPS // 2},
    "value cloning only": {"policy_cloning": 0.0},
    "cloning 0.01": {"policy_cloning": 0.01, "value_cloning": 0.005},  # values in the paper
    "cloning 0.1": {"policy_cloning": 0.1, "value_cloning": 0.05},  # CLEAR has .3 and .15
    "cloning 1": {"policy_cloning": 1.0, "value_cloning": 0.5},
}
"""Changes to the base config for each method, most informative first."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A method, with a protocol and a family of tasks."""

    method: str
    protocol: str = "sequential"  # or "separate", "simultaneous", "probed"
    family: str = "Catch"  # or "Dark"
    position: int = 0  # position of the probe, in stages

    @property
    def name(self) -> str:
        """A description in words, which identifies the cell in the results."""
        where = f" at {self.position}" if self.protocol == "probed" else ""
        return f"{self.family}, {self.protocol}{where}, {self.method}"

    @property
    def agent(self) -> str:
        """The key of the agent in `AGENTS`."""
        return {"EWC": "consolidation", "Progress & Compress": "progress"}.get(self.method, "clear")

    @property
    def judge(self) -> "Cell":
        """The cell whose sweep determines this cell's settings."""
        return Cell("V-trace", "simultaneous", "Dark") if self.family == "Dark" else self

    @property
    def tasks(self) -> int:
        """The number of tasks, including the probe."""
        return TASKS + (self.protocol == "probed")

    @property
    def plans(self) -> Int[np.ndarray, "network stage env"]:
        """The schedule of each network. There is one network, or one per task if separate."""
        base, cycles = BASES[self.family]
        width = base.environments
        if self.protocol == "separate":
            return np.stack([schedules.separate(task, cycles, width) for task in range(TASKS)])
        if self.protocol == "simultaneous":
            return schedules.simultaneous(TASKS, TASKS * cycles, width)[None]
        if self.protocol == "probed":
            probe = {"probe": TASKS, "position": self.position}
            return schedules.with_probe(range(TASKS), 3, width, **probe)[None]
        return schedules.sequential(range(TASKS), cycles, width)[None]

    @property
    def order(self) -> list[int]:
        """The task of each stage, or an empty list unless the tasks are trained in sequence."""
        return self.plans[0, :, 0].tolist() if self.protocol in ("sequential", "probed") else []

    def config(self, setting: dict[str, float], quick: bool = False) -> Any:
        """Return the config of the cell, including the `setting` that a sweep chose."""
        base = BASES[self.family][0]
        settings: dict[str, Any] = dataclasses.asdict(base) | METHODS[self.method] | setting
        # Shorter blocks give about as many evaluations per network as in other protocols.
        if self.protocol == "separate":
            settings |= {**ALONE, "block": base.block // 4, "blocks": 4 * base.blocks}
        if quick:
            settings |= {**QUICK, "capacity": min(settings["capacity"], 480)}
        return AGENTS[self.agent][1](**settings)

    @property
    def program(self) -> tuple[Any, ...]:
        """A key that is equal for cells that share tuned settings and a compiled program."""
        judge, shape = self.judge.name if self.judge in SWEEPS else "", self.plans.shape[:2]
        structure = jax.tree.structure(self.config({}))
        return judge, self.family, self.agent, self.tasks, shape, structure


def cells() -> list[Cell]:
    """Return all cells, most informative first."""
    methods = ("CLEAR", "100 % replay", "V-trace")
    probes = [Cell(m, "probed", position=stage) for m in methods for stage in POSITIONS]
    catch = [Cell(method) for method in METHODS]
    dark = [Cell(method, "sequential", "Dark") for method in list(METHODS)[:3]]
    bounds = [Cell("V-trace", "simultaneous"), *catch[:3], Cell("V-trace", "separate")]
    early, late = probes[: 2 * len(POSITIONS)], probes[2 * len(POSITIONS) :]
    alike = [cell for cell in catch[3:] if cell.agent == "clear"]
    others = [cell for cell in catch if cell.agent != "clear"]
    dark = [Cell("V-trace", "simultaneous", "Dark"), *dark]
    return [*bounds, *alike, *early, *late, *others, *dark]


def each(values: dict[str, tuple[float, ...]]) -> list[dict[str, float]]:
    """Return every combination of the values, keyed by name."""
    return [dict(zip(values, x, strict=True)) for x in itertools.product(*values.values())]


SWEEPS: dict[Cell, list[dict[str, float]]] = {
    Cell("tuned CLEAR"): each(
        {"learning_rate": (3e-3, 1e-2, 3e-2), "entropy_weight": (0.01, 0.05, 0.1)}
    ),
    Cell("tuned V-trace"): each(
        {"learning_rate": (1e-4, 3e-4, 1e-3), "entropy_weight": (0.01, 0.03, 0.1)}
    ),
    Cell("EWC"): each(
        {
            "consolidation": (3.0, 30.0, 100.0),
            "learning_rate": (1e-3, 1e-2),
            "entropy_weight": (0.03, 0.1),
        }
    ),
    Cell("Progress & Compress"): each(
        {
            "consolidation": (1.0, 3.0, 10.0),
            "learning_rate": (1e-3, 1e-2),
            "entropy_weight": (0.1, 0.2),
        }
    ),
    Cell("V-trace", "simultaneous", "Dark"): each(
        {"learning_rate": (3e-4, 1e-3, 3e-3), "entropy_weight": (0.03, 0.1)}
    ),
}
"""Settings that are tried for each tuned cell."""
