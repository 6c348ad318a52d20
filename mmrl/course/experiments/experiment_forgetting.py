"""Catastrophic forgetting and methods against it, after Rolnick et al. 2019, Figures 1-8 and 13.

The experiment is a small version of the paper's. A network is trained on tasks in cycles, and every
evaluation covers all tasks with frozen weights. `protocols` contains the methods and settings.

`tuning` records each setting that was tried for a cell, its mean score with sampled and with greedy
actions over all tasks and evaluations, and the number of seeds. The score of sampled actions
selects a setting. All settings were evaluated on `TUNING_SEEDS`. The best settings were evaluated
again on `FINAL_SEEDS`, because with only two seeds, the best of many settings owes a part of its
score to chance.

The other fields of a row:

- `scores`: scores of the greedy policy, [seed][time][task], starting before all training
- `cumulative`: their mean over time, [seed][task], as in Figure 8
- `shares`: the fraction of each stage's gain that is retained after two stages of other tasks
- `retained`: the mean of `shares`, [seed]
- `sampled`: the same fields for sampled actions, which the paper uses
- `boundary_steps`: steps at the end of a task for EWC and Progress & Compress, not in `env_steps`
- `cpu_seconds`: CPU-seconds per network with evaluations, without compilation

Eight published rows were measured at revision c82e49a4c3b3. In the current history, commit e03b267
makes the same change to a reorganized package.
"""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.course.continual import cycles as continual
from mmrl.course.continual.cycles import Curves, PolicyScores
from mmrl.course.experiments.grid import Grid, Row, Rows, round_list
from mmrl.course.experiments.protocols import AGENTS, SWEEPS, Cell, cells, family
from mmrl.course.experiments.protocols import CATCH as CATCH  # re-exported
from mmrl.runs import interval

SEEDS = (0, 1, 2, 3, 4)
TUNING_SEEDS = (1000, 1001)
FINAL_SEEDS = (1100, 1101, 1102, 1103)
FINALISTS = 3
TOGETHER = 4  # maximum number of cells in one compiled program


def summarize(row: Row) -> str:
    """Summarize a row by its score and the fraction of the gain that is retained."""
    share = f", keeps {np.mean(row['retained']):.2f}" if row["order"] else ""
    return f"{row['interquartile_mean']}{share}, {row['cpu_seconds']} s of CPU per network"


def measure(together: Sequence[Cell], by_name: Rows, quick: bool) -> list[Row]:
    """Train the agents of cells that share a compiled program, and return their rows."""
    setting, tuning = choose(together[0], by_name, quick)
    configs = [cell.config(setting, quick) for cell in together]
    curves, seconds = train(together, configs, SEEDS)
    about = {"chosen": setting, "tuning": tuning, "cpu_seconds": round(seconds, 2), "quick": quick}
    each = [jax.tree.map(lambda x, i=i: np.asarray(x[i]), curves) for i in range(len(together))]
    return [to_row(*one) | about for one in zip(together, configs, each, strict=True)]


def to_row(cell: Cell, config: Any, curves: Curves) -> dict[str, Any]:
    """Return the row of a cell. The arrays in `curves` have shape [network, seed, ...]."""
    stages, networks = cell.plans.shape[1], len(cell.plans)
    steps = config.environments * config.rollout
    after = getattr(config, "fisher_unrolls", 0) + getattr(config, "compress", 0)
    items = curves.measures._asdict().items()
    times = range(1 + stages * config.blocks)
    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        "agent": cell.agent,
        "seeds": list(SEEDS),
        "tuning_seeds": [*TUNING_SEEDS, *FINAL_SEEDS],
        "order": cell.order,
        "env_steps": [steps * config.block * networks * i for i in times],
        "boundary_steps": steps * after,
        **score_fields(cell, curves.by_policy["greedy"]),
        "sampled": score_fields(cell, curves.by_policy["sampled"]),
        "finite": np.all(curves.finite, axis=0).tolist(),
        "diagnostics": {k: round_list(x.mean((0, 1)).ravel()) for k, x in items},  # per block
        "settings": dataclasses.asdict(config),
    }


def score_fields(cell: Cell, curve: PolicyScores) -> dict[str, Any]:
    """Return the fields of a row with the scores of one policy.

    The arrays in `curve` have shape [network, seed, ...].
    """
    scores, begin = (
        # If there is one network per task, each network is scored on its own task.
        np.stack([x[task if len(x) > 1 else 0, ..., task] for task in range(cell.tasks)], axis=-1)
        for x in map(np.asarray, curve)
    )
    times = np.concatenate([begin[:, None], scores.reshape(len(begin), -1, cell.tasks)], axis=1)
    cumulative = np.array([continual.cumulative(seed)[-1] for seed in times])
    seeds = zip(scores, begin, strict=True)
    shares = [continual.retention(*seed, cell.order) for seed in seeds if cell.order]
    finite = [x[np.isfinite(x)] for x in shares]
    middle, *ends = interval(cumulative.mean(1))
    return {
        "scores": round_list(times),
        "cumulative": round_list(cumulative),
        "interquartile_mean": round(middle, 4),  # over seeds, of the mean over tasks
        "interval_95": round_list(ends),
        "shares": round_list(shares),
        "retained": round_list([x.mean() if x.size else np.nan for x in finite]),
    }


def choose(
    cell: Cell, by_name: Rows, quick: bool
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Run the sweep of a cell; return the best setting and the scores of all settings.

    Settings are compared by their score with sampled actions on tuning seeds. If the cell has no
    sweep, the result is empty. If `cell.judge` already has a row, the results in that row are
    returned.
    """
    judge = cell.judge
    settings = SWEEPS.get(judge, [])
    if not settings:
        return {}, []
    if judge.name in by_name:
        return by_name[judge.name]["chosen"], by_name[judge.name]["tuning"]

    def play(trials: Sequence[dict[str, float]], seeds: Sequence[int]) -> np.ndarray:
        """Return scores of shape [setting, policy, seed]."""
        configs = [judge.config(setting, quick) for setting in trials]
        curves, _ = train([judge] * len(configs), configs, seeds)
        scores = (
            curves.by_policy[name].scores.mean((-3, -2, -1)) for name in ("sampled", "greedy")
        )
        return np.stack([np.where(curves.finite, x, -np.inf).mean(1) for x in scores], axis=1)

    scores = list(play(settings, TUNING_SEEDS))
    best = np.argsort([-one[0].mean() for one in scores], kind="stable")[:FINALISTS]
    for at, more in zip(best, play([settings[at] for at in best], FINAL_SEEDS), strict=True):
        scores[at] = np.concatenate([scores[at], more], axis=1)
    tuning = [
        {
            **setting,
            "score": float(one[0].mean()),
            "greedy": float(one[1].mean()),
            "seeds": one[0].size,
        }
        for setting, one in zip(settings, scores, strict=True)
    ]
    return settings[max(best, key=lambda at: tuning[at]["score"])], tuning


def train(
    together: Sequence[Cell], configs: Sequence[Any], seeds: Sequence[int]
) -> tuple[Curves, float]:
    """Train all cells, networks and seeds in one program.

    Returns curves of shape [cell, network, seed, ...], and the CPU-seconds per network.
    """
    cell, plans = together[0], np.stack([cell.plans for cell in together])
    size = (*plans.shape[:2], len(seeds))
    of = np.indices(size).reshape(3, -1)  # the cell, network and seed of each agent
    numbers = np.array([jax.tree.leaves(config) for config in configs], np.float32)
    keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)[of[2]])
    structure, schedules = jax.tree.structure(configs[0]), plans[of[0], of[1]]
    go = _compile(cell.family, cell.agent, cell.tasks, structure, schedules.shape)
    settings = jax.tree.unflatten(structure, list(jnp.asarray(numbers[of[0]].T)))
    start_time = time.process_time()
    curves = jax.device_get(go(settings, schedules, keys))
    seconds = (time.process_time() - start_time) / len(schedules)
    return jax.tree.map(lambda x: x.reshape(*size, *x.shape[1:]), curves), seconds


@functools.lru_cache(4)  # limited, because compiled programs use a lot of memory
def _compile(name: str, agent: str, count: int, structure: Any, shape: tuple[int, ...]):
    """Compile the training of agents on schedules of shape (agents, stages, environments)."""
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


GRID = Grid(
    "forgetting",
    cells(),
    measure,
    summarize,
    program=lambda cell: cell.program,
    most=TOGETHER,
    after=lambda cell: [cell.judge.name],  # the row with the tuned settings of the cell
    about="Forgetting over cycles of tasks: CLEAR and its parts, EWC, Progress & Compress.",
    decides="which methods forget earlier tasks",
    turn=14,
)
