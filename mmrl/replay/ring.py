"""Ring buffers of steps, one per worker. `tape` and `sequences` store their steps in them.

The rings of all workers share one array, in which rows w · depth to (w + 1) · depth - 1 are the
ring of worker w. A rollout is written to all rings at the same index, `cursor`, which wraps around
at the end.
"""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from mmrl._dtypes import with_promotion


@runtime_checkable
class Rollout(Protocol):
    """Pytree of arrays [worker, time, ...] that can be passed to `add`."""

    @property
    def last(self) -> Any:
        """Flags [worker, time] that are True at the last step of each episode."""
        ...


def empty(example: PyTree, capacity: int) -> PyTree[Shaped[Array, "capacity ..."]]:
    """Return zeros with the shapes of `example` and a new leading axis of size `capacity`."""

    def zeros(leaf: Any) -> Array:
        leaf = leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)
        return jnp.zeros((capacity, *leaf.shape), leaf.dtype)

    return jax.tree.map(zeros, example)


def check_sizes(
    example: PyTree, capacity: int, workers: int, unit: int = 1, least: int = 1
) -> None:
    """Check that `capacity` is a positive multiple of `workers` · `unit`.

    Raises `ValueError` if it is not. The message suggests the nearest valid capacity that is at
    least `least`.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, got {workers}.")
    if not jax.tree.leaves(example):
        raise ValueError("`example` must contain an array. Pass a single step, as stored by `add`.")
    whole = workers * unit
    if capacity < 1 or capacity % whole:
        parts = f"`workers` = {workers}"
        parts += f" times {unit}, that is of {whole}" if unit > 1 else ""
        each = f" of complete periods of {unit} steps" if unit > 1 else ""
        raise ValueError(
            f"`capacity` must be a positive multiple of {parts}, because each worker has its own "
            f"ring{each}; got {capacity}. "
            f"Try {max(least, whole * max(1, round(capacity / whole)))}."
        )


def check_rollout(
    steps: PyTree[Shaped[Array, "capacity ..."]], workers: int, most: int, rollout: Rollout
) -> int:
    """Check a rollout against the storage and return its number of time steps.

    Raises `ValueError` if the number exceeds `most`, or if the leaves do not match `steps`.
    """
    last = rollout.last
    if last.ndim != 2 or last.shape[0] != workers or last.dtype != bool:
        raise ValueError(
            f"`rollout.last` must be a boolean array [worker, time] for {workers} workers, got "
            f"{last.dtype}{list(last.shape)}. Pass `workers` to `init`, or stack the rollouts."
        )
    time = last.shape[1]
    if not 1 <= time <= most:
        raise ValueError(
            f"`rollout` must have 1 to {most} steps per worker, so that it fits in a ring; got "
            f"{time}. Increase `capacity` or shorten the rollout."
        )
    check_leaves("rollout", steps, rollout, last.shape)
    return time


def check_leaves(name: str, buffer: PyTree, rollout: PyTree, axes: tuple[int, ...]) -> None:
    """Check that the leaves of `rollout` match `buffer`, with leading axes `axes`.

    Raises `ValueError` if the tree structures, shapes or dtypes differ.
    """
    expected, actual = jax.tree.structure(buffer), jax.tree.structure(rollout)
    if expected != actual:
        raise ValueError(
            f"`{name}` must have the tree structure of the example in `init`, {expected}, got "
            f"{actual}."
        )
    for d, x in zip(jax.tree.leaves(buffer), jax.tree.leaves(rollout), strict=True):
        shape = (*axes, *d.shape[1:])
        if x.shape != shape or x.dtype != d.dtype:
            raise ValueError(
                f"`{name}` must have the shapes and dtypes of the example in `init`, here "
                f"{d.dtype}{list(shape)}, got {x.dtype}{list(x.shape)}."
            )


@with_promotion
def write(
    steps: PyTree[Shaped[Array, "capacity ..."]], rows: Int[Array, " n"], rollout: Rollout
) -> PyTree[Shaped[Array, "capacity ..."]]:
    """Write a rollout to the rows `rows` and return the updated steps.

    The rows must be distinct, and in [worker, time] order.
    """
    return jax.tree.map(
        lambda d, x: d.at[rows].set(x.reshape(-1, *d.shape[1:]), unique_indices=True),
        steps,
        rollout,
    )


@with_promotion
def episode_starts(
    current_length: Int[Array, " worker"], last: Bool[Array, "worker time"]
) -> tuple[Int[Array, "worker time"], Int[Array, " worker"]]:
    """Return the time index at which the episode of each step began.

    The index is negative, -`current_length`, for an episode that began in an earlier rollout. The
    second result is the index for the step that will follow the rollout; it is the number of steps
    if the rollout ends with the last step of an episode.
    """
    first_begin = -current_length[:, None]
    index = jnp.arange(last.shape[1], dtype=jnp.int32)[None]
    after = jax.lax.cummax(jnp.where(last, index + 1, first_begin), axis=1)
    return jnp.concatenate([first_begin, after[:, :-1]], axis=1), after[:, -1]


@with_promotion
def read(
    steps: PyTree[Shaped[Array, "capacity ..."]], rows: Int[Array, "*n"], mask: Bool[Array, "*n"]
) -> PyTree[Shaped[Array, "..."]]:
    """Return the steps at `rows`, with zeros where `mask` is False."""
    rows = jnp.where(mask, rows, 0)

    def take(leaf: Array) -> Array:
        real = mask.reshape(*mask.shape, *(1,) * (leaf.ndim - 1))
        return jnp.where(real, leaf[rows], jnp.zeros((), leaf.dtype))

    return jax.tree.map(take, steps)


def check_numbers(name: str, value: Array, shape: tuple[int, ...], each: str) -> None:
    """Check that `value` has the given shape, with one entry per item.

    `each` is the word for an item in the error message. Raises `ValueError` if the shape differs.
    """
    if jnp.shape(value) != shape:
        raise ValueError(
            f"`{name}` must have one entry per {each}, {list(shape)}; got {list(jnp.shape(value))}."
        )
