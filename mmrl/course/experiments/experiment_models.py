"""Size, work and trained recall of every memory in `mmrl.memory.NAMES`.

Each memory has its default sizes and is trained on the two tasks of `recall_probes`, with the same
width, number of updates and learning rates. The rate of each task is the best one on a seed that is
not reported.

`recall` and `longer` are accuracies above chance, [seed][lag], after the trained length and after 8
times as many steps. `order` and `kept` are the accuracies above chance for the order of the marks,
[seed], after the same two numbers of steps. `state` is the number of real numbers in the state.
`operations` is the number of floating-point operations of one step for one environment, by XLA's
cost analysis of the compiled step on this device.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mmrl import memory
from mmrl.course.experiments import recall_probes as probes
from mmrl.course.experiments.grid import Grid, Row, one_by_one, round_list

SEEDS, TUNED_ON = (0, 1, 2), 100
TUNED_TAPES, HELD_OUT = 2000, 1000  # seeds of the tapes of evaluation, in tuning and in the row
RATES = (3e-3, 1e-2, 3e-2)  # as many rates as seeds, so that both phases share one program
STEPS, PAIRS, TESTS = 100, 8, 64  # updates, pairs of tapes per update, held-out pairs


@dataclasses.dataclass(frozen=True)
class Cell:
    """A memory, by its name in `mmrl.memory`."""

    name: str


def measure(cell: Cell, quick: bool, _: Row | None) -> Row:
    """Count, tune, train and evaluate a memory, and return the row."""
    model = memory.make(cell.name, probes.WIDTH, probes.WIDTH, key=jax.random.key(0))
    sizes = (2, 1, 2, 16) if quick else (STEPS, PAIRS, TESTS, probes.TRAIN_STEPS)
    scores = programs(cell.name, *sizes)
    sweep = scores([TUNED_ON] * len(RATES), np.array([RATES] * len(probes.TASKS)), TUNED_TAPES)
    areas = np.stack([sweep.recall[0].mean(-1), sweep.order[1]])  # [task, rate]
    rates = np.array(RATES)[np.nan_to_num(areas, nan=-np.inf).argmax(1)]
    results = scores(SEEDS, np.repeat(rates[:, None], len(SEEDS), axis=1), HELD_OUT)
    return {
        "cell": cell.name,
        "kind": kind(model),
        "width": probes.WIDTH,
        "state": count(model.init()),
        "parameters": count(eqx.filter(model, eqx.is_inexact_array)),
        "operations": operations(model),
        "seeds": list(SEEDS),
        "lags": list(probes.LAGS),
        "recall": round_list(results.recall[0]),
        "longer": round_list(results.longer[0]),
        "order": round_list(results.order[1]),
        "kept": round_list(results.longer_order[1]),
        "updates": sizes[0],
        "tapes": 2 * sizes[1],
        "trained_steps": sizes[3],
        "held_out_steps": probes.LONGER * sizes[3],
        "held_out_tapes": 2 * sizes[2],
        "rates": {t: float(x) for t, x in zip(probes.TASKS, rates, strict=True)},
        "tuning": {
            t: {f"{rate:g}": round(float(x), 4) for rate, x in zip(RATES, xs, strict=True)}
            for t, xs in zip(probes.TASKS, areas, strict=True)
        },
        "tuning_seeds": [TUNED_ON],
        "tuning_tapes": TUNED_TAPES,
        "quick": quick,
    }


def programs(name: str, steps: int, pairs: int, tested: int, length: int) -> Any:
    """Return a function that trains and evaluates on both tasks.

    Its arguments are seeds, rates [task, seed], and the seed of the tapes of the evaluation.

    All tasks and seeds are trained in one compiled program. The scores have axes [task, seed].
    """
    shape = (len(probes.TASKS), len(SEEDS))
    rest = eqx.partition(probes.Reader(name, probes.WIDTH, key=jax.random.key(0)), eqx.is_array)[1]

    def train(arrays: Any, batches: Any, rate: Any, recall: Any) -> Any:
        net = probes.train(eqx.combine(arrays, rest), batches, rate, recall)
        return eqx.filter(net, eqx.is_array)

    def evaluate(arrays: Any, held_out: Any) -> probes.Scores:
        return probes.evaluate(eqx.combine(arrays, rest), held_out, length)

    trained = jax.jit(jax.vmap(train))
    evaluated = jax.jit(jax.vmap(evaluate, (0, None)))

    def scores(seeds: Any, rates: np.ndarray, tapes: int) -> probes.Scores:
        many, keys = np.tile(seeds, shape[0]), [jax.random.key(int(seed)) for seed in seeds]
        nets = [probes.Reader(name, probes.WIDTH, key=key) for key in keys] * shape[0]
        arrays = jax.tree.map(lambda *x: jnp.stack(x), *[eqx.filter(x, eqx.is_array) for x in nets])
        batches = jax.tree.map(
            lambda *x: jnp.stack(x).reshape(len(many), steps, 2 * pairs, *x[0].shape[1:]),
            *[probes.tapes(np.random.default_rng(s), steps * pairs, length) for s in many],
        )
        recall = jnp.repeat(jnp.array([1.0, 0.0]), shape[1])
        held_out = probes.tapes(np.random.default_rng(tapes), tested, probes.LONGER * length)
        results = evaluated(trained(arrays, batches, jnp.array(rates.ravel()), recall), held_out)
        return jax.tree.map(lambda x: np.asarray(x).reshape(*shape, *x.shape[1:]), results)

    return scores


def count(tree: Any) -> int:
    """Return how many real numbers a pytree contains; a complex number counts as two."""
    leaves = [x for x in jax.tree.leaves(tree) if eqx.is_array(x)]
    return sum(x.size * (2 if jnp.iscomplexobj(x) else 1) for x in leaves)


def operations(model: memory.SequenceModel) -> int:
    """Return the floating-point operations of one step, by XLA's cost analysis.

    A multiplication and an addition are two operations. Functions such as exp count as one each.
    """
    step = jax.jit(lambda state, x, begin: model.step(state, x, begin))
    inputs = model.init(), jnp.zeros(model.input_size), jnp.zeros((), bool)
    costs: Any = step.lower(*inputs).compile().cost_analysis()
    return round(costs.get("flops", 0.0) + costs.get("transcendentals", 0.0))


def kind(model: memory.SequenceModel) -> str:
    """Return the structure of a memory in a word or two."""
    if isinstance(model, memory.Memory):
        return "monoid"
    if isinstance(model, memory.Residual):
        return "stack of monoids"
    return "recurrence" if isinstance(model, memory.Recurrent) else "no memory"


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    recall, order = np.mean(row["recall"]), np.mean(row["order"])
    return f"{row['state']} numbers, recall {recall:.2f}, order {order:.2f}"


GRID = Grid(
    "models",
    [Cell(name) for name in memory.NAMES],
    one_by_one(measure),
    summarize,
    about="Numbers in the state, work per step and trained recall of every memory.",
    decides="what each memory costs and what it can be trained to recall",
    turn=41,
    small=[Cell("none")],
)
