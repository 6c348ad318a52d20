"""Catastrophic forgetting, and what stops it.  Rolnick et al. 2019, Figures 1-8 and 13, small.

A cell is a family of tasks, a protocol and a method. One network meets tasks in cycles, and every
evaluation is of all tasks, with frozen weights. "V-trace" is the actor-critic without replay. Of
"separate" there are as many networks as tasks, each with as many steps of its task as it has in
other protocols; their steps are added up. "probed" puts one more task between the others.

Settings were found on seeds of the 1000s and 1100s. What is swept here, on `TUNING_SEEDS`, is in
`tuning`, with the mean score over all times and tasks: the strength of consolidation, the learning
rate of the knowledge base, and that of an agent with a memory.

`scores` are [seed][time][task], the first before all training; `cumulative` is their mean over time
[seed][task], as in Figure 8; `shares` what is left of each stage's gain two stages of other tasks
later, [seed][stage], and `retained` the mean of those, [seed]. What EWC and Progress & Compress do
when a task ends plays `boundary_steps` more, which `env_steps` leaves out. CPU-seconds are per
network, after compilation, with evaluations.
"""

import dataclasses
import functools
import pathlib
import time
import types
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from mmrl.agents import clear, consolidation, continual, progress
from mmrl.agents.continual import Curves
from mmrl.envs import continual as tasks
from mmrl.envs import make
from mmrl.envs.wrappers import FlattenObservation, ObservationWrapper
from mmrl.runs import append, interval
from mmrl.runs.experiments.invariance import rows
from mmrl.runs.experiments.staleness import rounded

SEEDS = (0, 1, 2, 3, 4)
TUNING_SEEDS = (1000, 1001)
TOGETHER = 4  # cells that train side by side, at most
TASKS = 3  # of a cycle; in "probed" there is one more
POSITIONS = (0, 3, 6, 9)  # of the probe, in stages

# 72 000 steps in a stage, 864 000 in four cycles.
CATCH = clear.Config(
    memory="none",
    environments=12,
    rollout=10,
    capacity=48_000,  # 1/18 of all steps
    stored="uint8",
    block=100,
    blocks=6,
    learning_rate=1e-2,
    entropy_weight=0.2,
)
STEPS = 864_000
LRU = dataclasses.replace(CATCH, memory="lru", memory_sizes=(("state_size", 32),), width=32)
QUICK: dict[str, Any] = {"block": 1, "blocks": 2, "episodes": 2, "width": 8}
BASES = {"Catch": (CATCH, 4), "Dark": (LRU, 2)}
"""The settings in a family, and cycles."""


class Fading(ObservationWrapper):
    """Catch in the dark: the ball is seen when an episode begins, and then no more."""

    def view(self, key: Any, obs: Any, state: Any, cause: Any, params: Any) -> Any:
        paddle = jnp.arange(len(obs))[:, None] == len(obs) - 1  # the last row is its own
        return jnp.where(paddle | (state.time == 0), obs, jnp.zeros_like(obs))


def family(name: str, count: int) -> tuple[Any, Any]:
    """`count` disguises of Catch with 7 rows, and their parameters; "Dark" needs a memory."""
    if name == "Catch":
        return tasks.permuted_catch(count, rows=7)
    env = tasks.Permuted(FlattenObservation(Fading(make("Catch-bsuite", rows=7)[0])), count)
    return env, env.default_params


class Rates(progress.Config):
    """Those of Progress & Compress, whose knowledge base learns at a rate of its own."""

    compress_rate: float = 3e-3


def compress(config: Rates, env: Any, params: Any, state: progress.State) -> progress.State:
    """`progress.leave` at that rate."""
    slower = eqx.tree_at(lambda c: c.learning_rate, config, config.compress_rate)
    return progress.leave(slower, env, params, state)


AGENTS: dict[str, tuple[Any, type[clear.Config]]] = {
    "clear": (clear, clear.Config),
    "consolidation": (consolidation, consolidation.Config),
    "progress": (types.SimpleNamespace(**{**vars(progress), "leave": compress}), Rates),
}
ALONE: dict[str, Any] = {"capacity": 0, "replay_fraction": 0.0}
METHODS: dict[str, dict[str, Any]] = {
    "V-trace": {"replay_fraction": 0.0},
    "CLEAR": {},
    "without cloning": {"policy_cloning": 0.0, "value_cloning": 0.0},
    "25 % replay": {"replay_fraction": 0.25},  # the paper's 75-25
    "100 % replay": {"replay_fraction": 1.0},
    "75 % replay": {"replay_fraction": 0.75},
    "policy cloning only": {"value_cloning": 0.0},
    "EWC": ALONE,
    "Progress & Compress": {**ALONE, "compress": 300},
    "reservoir 1/200": {"capacity": STEPS // 200},
    "reservoir 1/2": {"capacity": STEPS // 2},
    "value cloning only": {"policy_cloning": 0.0},
    "cloning 0.01": {"policy_cloning": 0.01, "value_cloning": 0.005},  # the paper's
    "cloning 0.1": {"policy_cloning": 0.1, "value_cloning": 0.05},  # CLEAR has .3 and .15
    "cloning 1": {"policy_cloning": 1.0, "value_cloning": 0.5},
}
"""What each has another way than `CATCH`, the most telling first."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One entry of the grid."""

    method: str
    protocol: str = "sequential"  # or separate, simultaneous, probed
    family: str = "Catch"
    position: int = 0  # of the probe, in stages

    @property
    def name(self) -> str:
        """Says it in words; what a finished cell is known by."""
        where = f" at {self.position}" if self.protocol == "probed" else ""
        return f"{self.family}, {self.protocol}{where}, {self.method}"

    @property
    def agent(self) -> str:
        return {"EWC": "consolidation", "Progress & Compress": "progress"}.get(self.method, "clear")

    @property
    def tasks(self) -> int:
        return TASKS + (self.protocol == "probed")

    @property
    def plans(self) -> Int[np.ndarray, "network stage env"]:
        """The schedule of each network: one, or in separate training one for each task."""
        base, cycles = BASES[self.family]
        width = base.environments
        if self.protocol == "separate":
            return np.stack([tasks.separate(task, cycles, width) for task in range(TASKS)])
        if self.protocol == "simultaneous":
            return tasks.simultaneous(TASKS, TASKS * cycles, width)[None]
        if self.protocol == "probed":
            return tasks.probed(range(TASKS), 3, width, probe=TASKS, position=self.position)[None]
        return tasks.sequential(range(TASKS), cycles, width)[None]

    @property
    def order(self) -> list[int]:
        """The task of each stage, if they follow each other."""
        return self.plans[0, :, 0].tolist() if self.protocol in ("sequential", "probed") else []

    def config(self, chosen: dict[str, float], quick: bool = False) -> Any:
        """The settings, given those of a sweep."""
        base = BASES[self.family][0]
        settings: dict[str, Any] = dataclasses.asdict(base) | METHODS[self.method] | chosen
        if self.protocol == "separate":  # evaluated about as often in as many steps of all
            settings |= {**ALONE, "block": base.block // 4, "blocks": 4 * base.blocks}
        if quick:
            settings |= {**QUICK, "capacity": min(settings["capacity"], 480)}
        return AGENTS[self.agent][1](**settings)

    @property
    def program(self) -> tuple[Any, ...]:
        """Cells for which this is equal train side by side."""
        shape = self.plans.shape[:2]
        return self.family, self.agent, self.tasks, shape, jax.tree.structure(self.config({}))


def cells() -> list[Cell]:
    """The whole grid, the most telling cells first."""
    probed = ("CLEAR", "100 % replay", "V-trace")
    probes = [Cell(m, "probed", position=stage) for m in probed for stage in POSITIONS]
    catch = [Cell(method) for method in METHODS]
    dark = [Cell(method, "sequential", "Dark") for method in list(METHODS)[:3]]
    bounds = [Cell("V-trace", "simultaneous"), *catch[:3], Cell("V-trace", "separate")]
    early, late = probes[: 2 * len(POSITIONS)], probes[2 * len(POSITIONS) :]
    return [*bounds, *catch[3:], *early, Cell("V-trace", "simultaneous", "Dark"), *dark, *late]


RATES, DARK = (1e-3, 3e-3, 1e-2), Cell("V-trace", "simultaneous", "Dark")
HELD = [{"consolidation": x, "compress_rate": rate} for x in (10.0, 100.0, 1e3) for rate in RATES]
SWEEPS: dict[tuple[str, str], tuple[Cell, list[dict[str, float]]]] = {
    ("Catch", "consolidation"): (Cell("EWC"), [{"consolidation": 10.0**n} for n in range(5)]),
    ("Catch", "progress"): (Cell("Progress & Compress"), HELD),
    ("Dark", "clear"): (DARK, [{"learning_rate": rate} for rate in RATES]),
}
"""Of a family and an agent, the cell whose tuning decides, and what it chooses from."""


def run(out: pathlib.Path, minutes: float, quick: bool) -> Iterator[str]:
    """Train every cell that `out/forgetting.jsonl` lacks, while there is time for more."""
    path, began, last = out / "forgetting.jsonl", time.monotonic(), 0.0
    found = rows(path)
    waiting = [cell for cell in cells() if cell.name not in {row["cell"] for row in found}]
    while waiting:
        started = time.monotonic()
        if started + last > began + 60 * minutes:
            break
        together = [cell for cell in waiting if cell.program == waiting[0].program][:TOGETHER]
        for row in measure(together, found, quick):
            append(path, row)
            found.append(row)
            kept = f"keeps {np.mean(row['retained']):.2f}, " if row["order"] else ""
            yield f"{row['cell']}: {row['interquartile_mean']}, {kept}{row['cpu_seconds']} s"
        waiting = [cell for cell in waiting if cell not in together]
        last = time.monotonic() - started
    yield f"{len(waiting)} of {len(cells())} cells remain{'' if waiting else ': all done'}."
    if waiting:
        yield f"To go on: mmrl experiment forgetting --out {out}"


def measure(
    together: Sequence[Cell], found: Sequence[dict[str, Any]], quick: bool
) -> list[dict[str, Any]]:
    """Train the agents of cells that share a program, and say what they were like."""
    chosen, tuning = choose(together[0], found, quick)
    configs = [cell.config(chosen, quick) for cell in together]
    curves, seconds = train(together, configs, SEEDS)
    about = {"chosen": chosen, "tuning": tuning, "cpu_seconds": round(seconds, 2), "quick": quick}
    each = [jax.tree.map(lambda x, i=i: np.asarray(x[i]), curves) for i in range(len(together))]
    return [tell(*one) | about for one in zip(together, configs, each, strict=True)]


def tell(cell: Cell, config: Any, curves: Curves) -> dict[str, Any]:
    """What a cell's agents were like. `curves` are [network, seed, ...]."""
    begin, scores = (
        # Each task is played by the network that is trained on it.
        np.stack([x[task if len(x) > 1 else 0, ..., task] for task in range(cell.tasks)], axis=-1)
        for x in (np.asarray(curves.begin), np.asarray(curves.scores))
    )
    times = np.concatenate([begin[:, None], scores.reshape(len(begin), -1, cell.tasks)], axis=1)
    cumulative = np.array([continual.cumulative(seed)[-1] for seed in times])
    seeds = zip(scores, begin, strict=True)
    shares = [continual.retained(*seed, cell.order) for seed in seeds if cell.order]
    gained = [x[np.isfinite(x)] for x in shares]
    middle, *ends = interval(cumulative.mean(1))
    steps = config.environments * config.rollout
    after = getattr(config, "fisher_unrolls", 0) + getattr(config, "compress", 0)
    said = curves.measures._asdict().items()
    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        "agent": cell.agent,
        "seeds": list(SEEDS),
        "tuning_seeds": list(TUNING_SEEDS),
        "order": cell.order,
        "env_steps": [steps * config.block * len(cell.plans) * i for i in range(times.shape[1])],
        "boundary_steps": steps * after,
        "scores": rounded(times),
        "cumulative": rounded(cumulative),
        "interquartile_mean": round(middle, 4),  # of the mean over tasks
        "interval_95": rounded(ends),
        "shares": rounded(shares),
        "retained": rounded([x.mean() if x.size else np.nan for x in gained]),
        "finite": np.all(curves.finite, axis=0).tolist(),
        "diagnostics": {k: rounded(x.mean((0, 1)).ravel()) for k, x in said},  # of each block
        "settings": dataclasses.asdict(config),
    }


def choose(
    cell: Cell, found: Sequence[dict[str, Any]], quick: bool
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """The best setting of the sweep on the tuning seeds, and the score of each; or nothing."""
    which = cell.family, cell.agent
    known = [row for row in found if row["tuning"] and (row["family"], row["agent"]) == which]
    if known or which not in SWEEPS:
        return (known[0]["chosen"], known[0]["tuning"]) if known else ({}, [])
    base, settings = SWEEPS[which]
    configs = [base.config(setting, quick) for setting in settings]
    curves, _ = train([base] * len(configs), configs, TUNING_SEEDS)
    means = np.where(curves.finite, curves.scores.mean((-3, -2, -1)), -np.inf).mean((1, 2))
    tuning = [{**s, "score": float(x)} for s, x in zip(settings, means, strict=True)]
    return settings[int(np.argmax(means))], tuning


def train(
    together: Sequence[Cell], configs: Sequence[Any], seeds: Sequence[int]
) -> tuple[Curves, float]:
    """Curves of [cell, network, seed, ...], and CPU-seconds per network."""
    cell, plans = together[0], np.stack([cell.plans for cell in together])
    size = (*plans.shape[:2], len(seeds))
    of = np.indices(size).reshape(3, -1)  # each lane: its cell, network and seed
    numbers = np.array([jax.tree.leaves(config) for config in configs], np.float32)
    keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)[of[2]])
    structure, schedules = jax.tree.structure(configs[0]), plans[of[0], of[1]]
    go = _compiled(cell.family, cell.agent, cell.tasks, structure, schedules.shape)
    lanes = jax.tree.unflatten(structure, list(jnp.asarray(numbers[of[0]].T)))
    began = time.process_time()
    curves = jax.device_get(go(lanes, schedules, keys))
    seconds = (time.process_time() - began) / len(schedules)
    return jax.tree.map(lambda x: x.reshape(*size, *x.shape[1:]), curves), seconds


@functools.cache
def _compiled(name: str, agent: str, count: int, structure: Any, shape: tuple[int, ...]):
    """The program of whole cycles, in `shape` = (lanes, stages, environments)."""
    env, params = family(name, count)

    @jax.jit
    def cycles(configs, plans, keys):
        def one(config, plan, key):
            return continual.cycle(AGENTS[agent][0], config, env, params, plan, count, key)[1]

        return jax.vmap(one)(configs, plans, keys)

    numbers = [jax.ShapeDtypeStruct(shape[:1], jnp.float32)] * structure.num_leaves
    keys = jax.ShapeDtypeStruct(shape[:1], jax.random.key(0).dtype)
    plans = jax.ShapeDtypeStruct(shape, jnp.int32)
    return cycles.lower(jax.tree.unflatten(structure, numbers), plans, keys).compile()
