"""Forgetting on three MinAtar games with convolutions, and on two tasks that help each other.

A version of Figures 1, 2, 3, 6, 8 and 13 of Rolnick et al. (2019) in which tasks are different
games. `game_protocols` contains the families, methods and settings. "separate" trains one network
per task, with as many steps on that task as in the other protocols. `env_steps` is the sum over all
networks.

Scores are those of sampled actions, and `greedy` contains the same fields for greedy actions. They
are normalized by the cell "scale" of a family, which is measured first, so that no score depends on
a guess: the mean return of random actions is 0, and the final return of separate V-trace on
`TUNING_SEEDS` is 1. A game whose return with training does not exceed the return of random actions
by two standard errors cannot be normalized, and `learned` states which games do.

`tuning` chooses the settings of V-trace, CLEAR, EWC and Progress & Compress on `TUNING_SEEDS`, by
the mean normalized score over training. It adds values until the best one is neither the smallest
nor the largest of its grid. All other cells use the settings of one of these four.

A stage of MinAtar has 192 000 steps. This is half of a stage in `minatar`, in which separate
networks reached their final scores of Breakout after 96 000 steps, and of Freeway after 128 000.
Each evaluation has only 8 episodes of at most 1000 steps, because evaluations would otherwise take
longer than learning; the cumulative score is a mean over 19 of them.

The cells of the family "Freeway" determine why CLEAR did not learn Freeway in `minatar`. If it does
not learn Freeway in a separate network either, replay itself is the reason. Otherwise, if it learns
Freeway as the first game but not after Breakout, the policy of Breakout is the reason. In that
case, cloning retains too much if CLEAR learns the game without cloning, and exploration is lacking
if it learns the game with an entropy weight of 0.03. The same cells of V-trace show whether an
agent that forgets Breakout learns Freeway. The last lines of a run state how many seeds learn it.
"""

import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.agents.clear.clear import of_task
from mmrl.checks.tracing import random_policy
from mmrl.course.continual import cycles
from mmrl.course.continual.cycles import Curves, PolicyScores
from mmrl.course.experiments import protocols, tuning
from mmrl.course.experiments.game_protocols import GRIDS, Cell, after, cells, family
from mmrl.course.experiments.grid import Grid, Row, Rows, round_list
from mmrl.rollout import evaluate

SEEDS = (0, 1, 2, 3, 4)
TUNING_SEEDS = (1000, 1001)
EPISODES = 256  # of random actions, per task


def summarize(row: Row) -> str:
    """Summarize a row by its mean scores per task, and the fraction of the gains retained."""
    means = ", ".join(f"{x:.2f}" for x in np.mean(row["cumulative"], axis=0))
    left = [x for x in row["retained"] if np.isfinite(x)]
    return f"{means}{f', keeps {np.mean(left):.2f}' if left else ''}"


def measure(together: Sequence[Cell], by_name: Rows, quick: bool) -> list[Row]:
    """Measure a scale, or train the agents of a cell."""
    (cell,) = together
    start_time = time.process_time()
    seeds = SEEDS[:1] if quick else SEEDS
    if cell.method == "scale":
        seeds = TUNING_SEEDS[:1] if quick else TUNING_SEEDS
        config, about = cell.config({}, quick), {"chosen": {}, "tuning": []}
        worst, error = random_returns(cell, quick)
        curves = train(cell, config, seeds)
        finals = np.array([c.by_policy["sampled"].scores[-1, -1] for c in curves]).mean(0)
        learned = finals > worst + 2 * error
        best = np.where(learned, finals, worst + 1)  # avoids a scale of 0
    else:
        scale = by_name[cell.scale.name]
        worst, best = np.array(scale["worst"]), np.array(scale["best"])
        learned = np.array(scale["learned"])
        chosen = by_name.get(cell.judge.name)
        fixed = {"chosen": {}, "tuning": []} if cell.family == "Freeway" else None
        about = chosen or fixed or choose(cell, worst, best, quick)
        about = {name: about[name] for name in ("chosen", "tuning")}
        config = cell.config(about["chosen"], quick)
        curves = train(cell, config, seeds)
    row = to_row(cell, config, curves, worst, best)
    seconds = round((time.process_time() - start_time) / len(seeds), 2)
    about |= {"learned": learned.tolist(), "seeds": list(seeds), "cpu_seconds": seconds}
    return [row | about | {"tuning_seeds": list(TUNING_SEEDS), "quick": quick}]


def random_returns(cell: Cell, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean return of random actions on each task, and its standard error."""
    env, episodes = family(cell.family)[1], 2 if quick else EPISODES

    def play(task: Any, key: Any) -> Any:
        params = of_task(env.default_params, task)
        policy = random_policy(env, params)
        return evaluate(policy, env, params, (), key, episodes, env.max_steps).returns

    keys = jax.random.split(jax.random.key(0), cell.tasks)
    returns = np.asarray(jax.jit(jax.vmap(play))(jnp.arange(cell.tasks), keys), np.float64)
    return returns.mean(1), returns.std(1, ddof=1) / np.sqrt(episodes)


def choose(cell: Cell, worst: np.ndarray, best: np.ndarray, quick: bool) -> dict[str, Any]:
    """Tune the settings of a cell on `TUNING_SEEDS`; return the best setting and all trials."""
    names = ["learning_rate", "entropy_weight"]
    names = [*names[:1], "consolidation"] if cell.judge.agent != "clear" else names
    base = family(cell.family)[0]
    first = {"learning_rate": 3e-3, "entropy_weight": base.entropy_weight, "consolidation": 10.0}
    first = {name: first[name] for name in names}
    grid = {name: (first[name],) if quick else GRIDS[name] for name in names}

    def scores(settings: list[tuning.Setting]) -> np.ndarray:
        """Return curves of shape [setting, seed, time], averaged over tasks."""
        results = []
        for setting in settings:
            runs = train(cell, cell.config(setting, quick), TUNING_SEEDS[: 1 if quick else 2])
            own = np.stack([flatten(run.by_policy["sampled"]) for run in runs])
            finite = np.array([bool(run.finite) for run in runs])[:, None]
            results.append(np.where(finite, ((own - worst) / (best - worst)).mean(-1), -1.0))
        return np.stack(results)

    choice = tuning.choose(scores, [first], grid, score=tuning.area)
    trials = [{**one.setting, "score": one.score, "seeds": 2} for one in choice.trials]
    return {"chosen": choice.setting, "tuning": trials}


def flatten(curve: PolicyScores) -> np.ndarray:
    """Return the scores [time, task] of one seed."""
    return np.asarray(cycles.flat(PolicyScores(*map(np.asarray, curve))))


def train(cell: Cell, config: Any, seeds: Sequence[int]) -> list[Curves]:
    """Train agents one after another, and return the curves of each seed.

    Convolutions with different weights per seed are slow on a CPU, so seeds are not vmapped.
    """
    go = _compile(cell.family, cell.agent, jax.tree.structure(config))
    numbers = jax.tree.map(jnp.float32, config)
    results = []
    for seed in seeds:
        keys = [jax.random.key(seed) for _ in cell.plans(config)]
        nets = [
            jax.device_get(go(numbers, jnp.asarray(plan), key))
            for plan, key in zip(cell.plans(config), keys, strict=True)
        ]
        results.append(nets[0] if len(nets) == 1 else own_tasks(nets))
    return results


def own_tasks(nets: list[Curves]) -> Curves:
    """Combine the curves of separate networks, each of which is scored on its own task."""
    by_policy = {
        name: PolicyScores(
            *(
                np.stack(
                    [np.asarray(x.by_policy[name][part])[..., k] for k, x in enumerate(nets)], -1
                )
                for part in range(2)
            )
        )
        for name in nets[0].by_policy
    }
    return Curves(by_policy, nets[0].measures, np.asarray(all(one.finite for one in nets)))


@functools.lru_cache(4)  # few, because compiled programs use a lot of memory
def _compile(name: str, agent: str, structure: Any) -> Any:
    """Return a jitted function of (config, schedule, key). JAX caches a program per schedule."""
    env = family(name)[1]

    def go(config: Any, plan: Any, key: Any) -> Curves:
        module = protocols.AGENTS[agent][0]
        return cycles.cycle(module, config, env, env.default_params, plan, len(env.envs), key)[1]

    return jax.jit(go)


def to_row(
    cell: Cell, config: Any, curves: list[Curves], worst: np.ndarray, best: np.ndarray
) -> Row:
    """Return the fields of a row for the curves of each seed."""
    plans = cell.plans(config)
    order = plans[0][:, 0].tolist() if cell.protocol in ("sequential", "reversed") else []
    steps = config.environments * config.rollout * config.block * len(plans)

    def fields(policy: str) -> dict[str, Any]:
        scores = [
            PolicyScores(*((np.asarray(x) - worst) / (best - worst) for x in c.by_policy[policy]))
            for c in curves
        ]
        times = np.stack([flatten(one) for one in scores])
        shares = [cycles.retention(*x, order, cell.tasks - 1) for x in scores if order]
        finite = [x[np.isfinite(x)] for x in shares]
        return {
            "scores": round_list(times),  # [seed][time][task]
            "cumulative": round_list(times.mean(1)),  # [seed][task]
            "shares": round_list(shares),
            "retained": round_list([x.mean() if x.size else np.nan for x in finite]),
        }

    return {
        "cell": cell.name,
        **dataclasses.asdict(cell),
        "agent": cell.agent,
        "order": order,
        "env_steps": [steps * i for i in range(1 + len(plans[0]) * config.blocks)],
        "worst": round_list(worst),
        "best": round_list(best),
        **fields("sampled"),
        "greedy": fields("greedy"),
        "finite": [bool(one.finite) for one in curves],
        # mean entropy of π in nats, [stage, block], of the first network
        "entropy": round_list(np.mean([x.measures.entropy for x in curves], axis=0)),
        "settings": dataclasses.asdict(config),
    }


def freeway_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield, for each cell of the family "Freeway", the number of seeds that learn Freeway."""
    for row in (x for x in rows if x["family"] == "Freeway" and x["method"] != "scale"):
        if not row["learned"][1]:
            yield f"{row['cell']}: undecided, because separate V-trace does not learn Freeway."
            continue
        finals = np.array(row["scores"])[:, :, 1].max(axis=1)
        yield f"{row['cell']}: {np.sum(finals > 0.5)} of {len(finals)} seeds learn Freeway."


GRID = Grid(
    "games",
    cells(),
    measure,
    summarize,
    after=after,
    small=[
        Cell("scale", "separate", "Pair"),
        Cell("V-trace", "simultaneous", "Pair"),
        Cell("CLEAR", "sequential", "Pair"),
    ],
    cost=lambda cell: 1.0 if cell.family == "Pair" else 20.0,
    close=freeway_lines,
    limit=36_000.0,
    about="MinAtar games with convolutions, and two tasks that help each other.",
    decides="which methods forget games that need convolutions",
    turn=31,
)
