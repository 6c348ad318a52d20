"""Truncated gradients over training, and the effect of past observations on Q.

Morad et al. (2024) conclude from Figures 3 and 7 that the truncated gradient is a poor estimate of
the full gradient. A cell is a task, a memory and a batching method. Its agents train as in
`budgets`, and `tuning` chooses their learning rate on seeds that are not reported. During training,
a row records by time and seed:

- `cosine`: the cosine between the gradient on complete episodes and the gradient on the same
  episodes in segments of L steps, each of which starts from the memory's initial state. Keyed by L.
- `resampled`: the cosine between the gradients on two batches of complete episodes, which shows how
  much of the difference is due to sampling.
- `outside` and `oldest`: the fractions of ‖∂Q(s_n, a_n)/∂o_i‖ at the last step n of greedy episodes
  that fall on observations at least 10 steps old, and on the first observation.

`gradient` and `swap` are the curves of `sensitivity` by seed and age, after training.
"""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mmrl.agents import dqn
from mmrl.agents.common import trainable
from mmrl.course import plain
from mmrl.course.ch08_what_truncation_costs import experiment_sensitivity as sensitivity
from mmrl.course.experiments import fleet, tuning
from mmrl.course.experiments.fleet import Fleet, FleetResult
from mmrl.course.experiments.grid import Grid, Row, interval_at_rate, one_by_one, round_list
from mmrl.replay.tape import Sample
from mmrl.runs import program

MEMORIES = ("lru", "s5", "ffm", "linear_attention")
RATES = (1e-3, 3e-3, 1e-2)  # Adam learning rates to try first
SEEDS = sensitivity.SEEDS
TUNING_SEEDS = (1000, 1001)
LENGTHS = (10, 20, 50, 100)  # L of the truncated gradients, steps
LENGTH = 10  # L of the agents that train on segments, and the age from which `outside` counts
BATCHES = 8  # gradients per seed and time
EVERY = 2  # blocks between measurements


class Cell(sensitivity.Cell):
    """A task, a memory and a batching method."""

    @property
    def config(self) -> dqn.Config:
        """Settings of the cell."""
        return dataclasses.replace(
            plain.LONG_DQN,
            memory=self.memory,
            batching=self.batching,
            segment_length=self.length,
        )


def cells() -> list[Cell]:
    """Return all cells, the most informative first."""
    return [
        Cell(t, m, x) for m in MEMORIES for t in sensitivity.TASKS for x in ("tape", "segments")
    ]


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Choose the learning rate of a cell, train its agents, and measure them during training."""
    began = time.process_time()
    config = dataclasses.replace(cell.config, **(sensitivity.QUICK if quick else {}))
    agents = _fleet(cell.task)
    measured = _Measures(cell, config)

    def train(rates: Sequence[float], seeds: Sequence[int]) -> FleetResult:
        after = measured.after_block if tuple(seeds) == SEEDS else lambda block, state: None
        return agents.train(config, {"learning_rate": rates}, seeds, after)

    def to_row(result: FleetResult) -> Row:
        times = [i for i, one in enumerate(result.measurements) if one is not None]
        by_name = jax.tree.map(
            lambda *x: round_list(np.stack(x)), *[result.measurements[i] for i in times]
        )
        steps = fleet.env_steps(config)
        curves = sensitivity.examine(measured.program, result.state.net)
        return {
            "cell": cell.name,
            "task": cell.task,
            "memory": cell.memory,
            "batching": config.batching,
            "segment_length": cell.length if cell.batching == "segments" else 0,
            **fleet.return_fields(config, result.returns),
            "measured_at": [steps[i] for i in times],
            **by_name,
            **{name: sensitivity.round_digits(curves[name]) for name in ("gradient", "swap")},
            "settings": dataclasses.asdict(config),
            "cpu_seconds": round(time.process_time() - began, 1),
            "quick": quick,
        }

    return tuning.tune(train, to_row, RATES, TUNING_SEEDS, SEEDS, span=2.0, row=row)


class _Measures:
    """Measures of the agents of a cell after some blocks."""

    def __init__(self, cell: Cell, config: dqn.Config):
        self.program = program("dqn", f"popgym-{cell.task}-v0")
        self.blocks = config.blocks
        self._examine = sensitivity.examiner(self.program, swap=False)
        one = functools.partial(cosines, dataclasses.replace(config, batching="tape"))
        self._cosines = jax.jit(jax.vmap(one))

    def after_block(self, block: int, state: Any) -> Row | None:
        """Return the measures by seed, or None between two measurements."""
        if block % EVERY and block != self.blocks:
            return None
        keys = jax.vmap(jax.random.key)(jnp.arange(len(SEEDS), dtype=jnp.uint32) + 100 * block)
        curves = self._examine(state.net)["gradient"]
        return {
            **jax.device_get(self._cosines(state, keys)),
            "outside": np.array([sensitivity.outside(one, LENGTH)[0] for one in curves]),
            "oldest": curves[:, -1] / curves.sum(1),
        }


def cosines(config: dqn.Config, state: dqn.State, key: PRNGKeyArray) -> dict[str, Any]:
    """Return the mean cosines between whole and truncated gradients, and between batches."""

    def gradient(batch: Sample) -> Float[Array, " weights"]:
        slope = eqx.filter_grad(dqn.loss)(state.net, state.target, batch, config)
        return real_vector(jax.tree.leaves(trainable(slope)))

    def one(key: PRNGKeyArray) -> dict[str, Any]:
        keys = jax.random.split(key)
        whole, other = (dqn.sample(config, state, k) for k in keys)
        begins = jnp.stack([whole.begin, *(cut(whole, n).begin for n in LENGTHS)])
        of = lambda begin: gradient(dataclasses.replace(whole, begin=begin))  # noqa: E731
        slope, *truncated = jax.lax.map(of, begins)  # compiled once
        cuts = {str(n): cosine(slope, each) for n, each in zip(LENGTHS, truncated, strict=True)}
        return {"cosine": cuts, "resampled": cosine(slope, gradient(other))}

    return jax.tree.map(lambda x: jnp.mean(x, 0), jax.lax.map(one, jax.random.split(key, BATCHES)))


def real_vector(arrays: Sequence[Array]) -> Float[Array, " n"]:
    """Concatenate arrays to a real vector, in which a complex number has two entries."""
    parts = [y for x in arrays for y in ([x.real, x.imag] if jnp.iscomplexobj(x) else [x])]
    return jnp.concatenate([x.ravel() for x in parts])


def cosine(a: Float[Array, " n"], b: Float[Array, " n"]) -> Float[Array, ""]:
    """Return the cosine of the angle between two vectors."""
    return jnp.vdot(a, b) / (jnp.linalg.norm(a) * jnp.linalg.norm(b))


def cut(batch: Sample, length: int) -> Sample:
    """Split the episodes of a batch into segments of `length` steps.

    A segment starts from the memory's initial state, so that no gradient crosses its start.
    """
    return dataclasses.replace(batch, begin=batch.begin | (ages(batch.begin) % length == 0))


def ages(begin: Bool[Array, " time"]) -> Array:
    """Return the number of steps since the last begin flag."""
    steps = jnp.arange(len(begin))
    return steps - jax.lax.cummax(jnp.where(begin, steps, 0))


@functools.lru_cache(4)  # few, because compiled programs use a lot of memory
def _fleet(task: str) -> Fleet:
    env, params, *_ = program("dqn", f"popgym-{task}-v0")
    return Fleet(dqn, env, params)


GRID = Grid(
    "gradients",
    cells(),
    one_by_one(measure),
    interval_at_rate,
    agents=lambda row: 1,  # `cpu_seconds` is the time of all agents
    limit=1800.0,
    about="Whole and truncated gradients, and the effect of past observations, over training.",
    decides="whether the truncated gradient is a poor estimate",
    turn=20,
)
