"""Storage under JAX's settings: it keeps its types in 64-bit and under strict promotion."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from mmrl.replay import reservoir, sequences, tape


class Steps(NamedTuple):
    """Steps of a rollout."""

    x: Any
    last: Any


def example() -> Steps:
    return Steps(jnp.zeros(2, jnp.float32), jnp.array(False))


def rollout() -> Steps:
    last = jnp.zeros((2, 5), bool).at[:, 4].set(True)
    return Steps(jnp.zeros((2, 5, 2), jnp.float32), last)


def on_a_tape() -> tuple[Any, Any]:
    empty = tape.init(example(), 40, workers=2)
    full = tape.add(empty, rollout())
    tape.sample(full, jax.random.key(0), 8)
    return empty, (full,)


def in_sequences() -> tuple[Any, Any]:
    sizes = {"workers": 2, "length": 4, "overlap": 2, "burn_in": 2, "tail": 1}
    empty = sequences.init(example(), jnp.zeros(3, jnp.float32), 48, **sizes)
    states = jnp.zeros((2, 5, 3), jnp.float32)
    full = sequences.add(empty, rollout(), states, jnp.ones((2, 5)))
    batch = sequences.sample(full, jax.random.key(0), 4, 0.5)
    priority = sequences.priority(jnp.ones(batch.mask.shape), batch.loss_mask)
    return empty, (full, sequences.set_priority(full, batch.rows, priority))


def in_a_reservoir() -> tuple[Any, Any]:
    empty = reservoir.init(example(), jnp.zeros(3, jnp.float32), 40, workers=2, length=5)
    new = reservoir.Unrolls(jnp.zeros((2, 3), jnp.float32), rollout())
    full = reservoir.add(empty, new, jax.random.key(0))
    more = reservoir.insert(full, new, jnp.array([0.25, 0.5], jnp.float32))
    reservoir.sample(more, jax.random.key(1), 4)
    return empty, (full, more, reservoir.merge(full, more))


@pytest.mark.parametrize(
    ("x64", "promotion"), [(True, "standard"), (False, "strict"), (True, "strict")]
)
@pytest.mark.parametrize("storage", [on_a_tape, in_sequences, in_a_reservoir])
def test_storage_keeps_its_types(storage: Callable[[], tuple[Any, Any]], x64: bool, promotion: str):
    with jax.enable_x64(x64), jax.numpy_dtype_promotion(promotion):
        before, after = jax.eval_shape(storage)
    for each in after:
        assert [x.dtype for x in jax.tree.leaves(each)] == [
            x.dtype for x in jax.tree.leaves(before)
        ]
