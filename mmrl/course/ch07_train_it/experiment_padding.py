"""Effect of padding on normalization statistics (Section 4.2 of Morad et al., 2024).

A cell is a task and a batching method. Each seed fills a tape with episodes of a random policy, and
samples one batch. The features are the outputs of the encoder of an untrained network, whose inputs
are zeros at padding. With μ and σ the mean and the standard deviation of a feature over the real
steps, and μ' and σ' over all steps including padding, a row records by seed:

- `mean_error`: ‖μ' - μ‖ / ‖σ‖ over all features, for the statistics of BatchNorm
- `deviation_error`: |‖σ'‖ - ‖σ‖| / ‖σ‖
- `instance_mean_error` and `instance_deviation_error`: the same errors of InstanceNorm, which
  normalizes each segment separately, as a mean over the segments that contain padding, also
  relative to ‖σ‖ of all real steps. If no segment contains padding, these errors are 0.
- `fill`: the fraction of real steps in the batch
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mmrl._dtypes import whole
from mmrl.agents import dqn
from mmrl.agents.common import repeat
from mmrl.course import plain
from mmrl.course.ch07_train_it.experiment_batching import LENGTHS, TAPE, TASKS
from mmrl.course.experiments.grid import Grid, Row, one_by_one, round_list
from mmrl.runs import program

SEEDS = tuple(range(10))
QUICK: dict[str, Any] = {"width": 8, "batch": 200}
ERRORS = ("mean_error", "deviation_error", "instance_mean_error", "instance_deviation_error")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task and a batching method."""

    task: str
    length: int = TAPE  # L, or TAPE

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return f"{self.task}, {f'segments of {self.length}' if self.length else 'tape'}"

    def config(self, quick: bool) -> dqn.Config:
        """Return settings with which all actions are random."""
        batching = "segments" if self.length else "tape"
        changes = QUICK if quick else {}
        return dataclasses.replace(
            plain.DQN,
            batching=batching,
            segment_length=self.length or 1,
            epsilon_start=1.0,
            epsilon_end=1.0,
            **changes,
        )


def cells() -> list[Cell]:
    """Return all cells, task by task."""
    return [Cell(task, length) for task in TASKS for length in (TAPE, *LENGTHS)]


def summarize(row: Row) -> str:
    """Summarize a row: the fraction of real steps, and the mean errors."""
    errors = ", ".join(f"{name.replace('_', ' ')} {np.mean(row[name]):.3f}" for name in ERRORS)
    return f"fill {np.mean(row['fill']):.2f}, {errors}"


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Fill a tape per seed, sample a batch, and compare the statistics with and without padding."""
    start_time = time.process_time()
    config = cell.config(quick)
    env, params, *_ = program("dqn", f"popgym-{cell.task}-v0", TASKS[cell.task].observes)
    rollouts = 2 * whole("capacity", config.capacity) // (config.environments * config.rollout)

    @jax.jit
    @jax.vmap
    def batches(key: PRNGKeyArray) -> tuple[Array, Array]:
        key, sample_key = jax.random.split(key)
        state = dqn.init(config, env, params, key)

        def fill(state: dqn.State) -> tuple[dqn.State, None]:
            now, key = jax.random.split(state.key)
            state, _ = dqn.act_and_store(config, env, params, state, now)
            return dataclasses.replace(state, key=key), None

        state = repeat(fill, state, rollouts)[0]
        batch = dqn.sample(config, state, sample_key)
        return jax.vmap(state.net.encoder)(batch.steps.obs), batch.mask

    keys = jax.vmap(jax.random.key)(jnp.asarray(SEEDS, jnp.uint32))
    features, masks = jax.device_get(batches(keys))
    length = cell.length or features.shape[1]
    by_seed = [errors(x, real, length) for x, real in zip(features, masks, strict=True)]
    return {
        "cell": cell.name,
        "task": cell.task,
        "batching": config.batching,
        "segment_length": cell.length,
        "seeds": list(SEEDS),
        "batch": config.batch,
        "fill": round_list(masks.mean(1)),
        **{name: round_list([one[name] for one in by_seed]) for name in ERRORS},
        "cpu_seconds": round(time.process_time() - start_time, 1),
        "quick": quick,
    }


def errors(
    features: Float[np.ndarray, "batch feature"], real: Bool[np.ndarray, " batch"], length: int
) -> dict[str, float]:
    """Return the errors of BatchNorm and InstanceNorm that are due to padding."""
    size = float(np.linalg.norm(features[real].std(0)))
    rows, masks = features.reshape(-1, length, features.shape[-1]), real.reshape(-1, length)
    some = [(x, m) for x, m in zip(rows, masks, strict=True) if m.any() and not m.all()]
    instances = np.mean([_error(*one) for one in some] or [(0.0, 0.0)], axis=0)
    values = np.array([*_error(features, real), *instances]) / size
    return dict(zip(ERRORS, values.tolist(), strict=True))


def _error(
    features: Float[np.ndarray, "time feature"], real: Bool[np.ndarray, " time"]
) -> tuple[float, float]:
    """Return ‖μ' - μ‖ and |‖σ'‖ - ‖σ‖|."""
    own = features[real]
    shift = np.linalg.norm(features.mean(0) - own.mean(0))
    return float(shift), float(abs(np.linalg.norm(features.std(0)) - np.linalg.norm(own.std(0))))


GRID = Grid(
    "padding",
    cells(),
    one_by_one(measure),
    summarize,
    agents=lambda row: 1,  # `cpu_seconds` is the time of all seeds
    about="Statistics of normalization layers over a batch with and without its padding.",
    decides="whether padding changes the statistics of normalization layers",
    turn=21,
)
