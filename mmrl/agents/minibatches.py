"""Minibatches for on-policy agents, sampled from the rollouts of one iteration.

A batch consists of rows. Each row is a tape: the rollout of one environment or, for a network
without memory, a single step. Rows are shuffled but never split.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from mmrl._devices import split_rows
from mmrl.rollout import Transition


class Rollout(NamedTuple):
    """Steps of one iteration, [env, time], and the memory state before them, [env]."""

    state: PyTree
    steps: Transition


def rows(config: Any, net: Any) -> int:
    """Return the number of rows: rollouts for a network with memory, otherwise steps."""
    return config.environments * (1 if _remembers(net.init()) else config.rollout)


def check_rows(config: Any, net: Any) -> None:
    """Raise `ValueError` unless `minibatches` divides the number of rows in an iteration."""
    if (number := rows(config, net)) % config.minibatches:
        raise ValueError(
            f"`minibatches` must divide the number of rows in an iteration ({number}); got "
            f"{config.minibatches}. A row is the rollout of one environment, or a single step "
            "if the network has no memory."
        )


def as_rows(batch: Any) -> Any:
    """Convert a batch with leaves [env, time] to rows, [row, time].

    If the network has no memory (`state` is empty), every step becomes a row. Otherwise the batch
    is returned unchanged, because each rollout already is a row.
    """
    if _remembers(batch.state):
        return batch
    return jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), batch)


def shuffle(
    key: PRNGKeyArray, rows: int, minibatches: int, epochs: int
) -> Int[Array, "steps rows"]:
    """Return the row indices of every minibatch; each row appears once per epoch."""
    # Sort random integers whose low bits are the row index. On a CPU this takes a sixth of the time
    # of `jax.random.permutation`. If the high bits of two integers are equal, which is rare, the
    # lower row comes first.
    ending = jnp.uint32(2 ** (rows - 1).bit_length() - 1)
    numbers = jax.random.bits(key, (epochs, rows)) & ~ending
    numbers = jnp.sort(numbers | jnp.arange(rows, dtype=jnp.uint32)[None], axis=1, stable=False)
    return (numbers & ending).astype(jnp.int32).reshape(epochs * minibatches, -1)


def take(batch: PyTree, rows: Int[Array, " rows"]) -> PyTree:
    """Select rows from every leaf, and shard them over the devices of an agent."""
    batch = jax.tree.map(lambda x: x.at[rows].get(mode="promise_in_bounds"), batch)
    return split_rows(batch, "The number of rows in a minibatch")


def _remembers(state: PyTree) -> bool:
    return bool(jax.tree.leaves(state))
