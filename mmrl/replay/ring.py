"""Rings of steps, one per worker: the storage of `tape` and `sequences`.

The ring of worker w is rows w · depth to (w + 1) · depth - 1. All rings are written at the same
place, `cursor`, one rollout after another, and wrap around.
"""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from mmrl._dtypes import promoting


@runtime_checkable
class Rollout(Protocol):
    """Input of `add`: a pytree of [worker, time, ...] with `last`, True where an episode ends."""

    @property
    def last(self) -> Any:
        """True where an episode ends, [worker, time]."""
        ...


def empty(example: PyTree, capacity: int) -> PyTree[Shaped[Array, "capacity ..."]]:
    """Return zeros for `capacity` copies of `example`, which has no such axis."""

    def zeros(leaf: Any) -> Array:
        leaf = leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)
        return jnp.zeros((capacity, *leaf.shape), leaf.dtype)

    return jax.tree.map(zeros, example)


def check_sizes(
    example: PyTree, capacity: int, workers: int, unit: int = 1, least: int = 1
) -> None:
    """Raise `ValueError` unless `workers` rings of whole `unit`s hold `capacity` steps.

    The message suggests a capacity of at least `least`.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, got {workers}.")
    if not jax.tree.leaves(example):
        raise ValueError("`example` must hold an array. Pass one step, as `add` will store it.")
    whole = workers * unit
    if capacity < 1 or capacity % whole:
        each = "has its own ring" + (f" of whole periods of {unit} steps" if unit > 1 else "")
        raise ValueError(
            f"`capacity` must be a positive multiple of {f'`workers` = {workers}'}"
            f"{f' times {unit}' if unit > 1 else ''}, because each worker {each}, got {capacity}. "
            f"Try {max(least, whole * max(1, round(capacity / whole)))}."
        )


def check_rollout(
    steps: PyTree[Shaped[Array, "capacity ..."]], workers: int, most: int, rollout: Rollout
) -> int:
    """Return the time steps of a rollout, at most `most`; raise `ValueError` if it is not valid."""
    last = rollout.last
    if last.ndim != 2 or last.shape[0] != workers or last.dtype != bool:
        raise ValueError(
            f"`rollout.last` must be a bool [worker, time] of {workers} workers, got "
            f"{last.dtype}{list(last.shape)}. Set `workers` of `init`, or stack the rollouts."
        )
    time = last.shape[1]
    if not 1 <= time <= most:
        raise ValueError(
            f"`rollout` must have 1 to {most} steps per worker (the room in a ring), got "
            f"{time}. Raise `capacity` or shorten the rollout."
        )
    check_leaves("rollout", steps, rollout, last.shape)
    return time


def check_leaves(name: str, stored: PyTree, given: PyTree, axes: tuple[int, ...]) -> None:
    """Raise `ValueError` unless `given` is a pytree like `stored`, with `axes` in front."""
    ours, theirs = jax.tree.structure(stored), jax.tree.structure(given)
    if ours != theirs:
        raise ValueError(f"`{name}` must be a pytree like the one in `init`, {ours}, got {theirs}.")
    for d, x in zip(jax.tree.leaves(stored), jax.tree.leaves(given), strict=True):
        wanted = (*axes, *d.shape[1:])
        if x.shape != wanted or x.dtype != d.dtype:
            raise ValueError(
                f"`{name}` must have leaves as in `init`, here {d.dtype}{list(wanted)}, "
                f"got {x.dtype}{list(x.shape)}."
            )


@promoting
def write(
    steps: PyTree[Shaped[Array, "capacity ..."]], rows: Int[Array, " n"], rollout: Rollout
) -> PyTree[Shaped[Array, "capacity ..."]]:
    """Write the rollout's steps at `rows`, which are distinct and in [worker, time] order."""
    return jax.tree.map(
        lambda d, x: d.at[rows].set(x.reshape(-1, *d.shape[1:]), unique_indices=True),
        steps,
        rollout,
    )


@promoting
def began(
    unfinished: Int[Array, " worker"], last: Bool[Array, "worker time"]
) -> tuple[Int[Array, "worker time"], Int[Array, " worker"]]:
    """Return the index at which each step's episode began, and that index after the rollout.

    An index is negative if the episode began in an earlier rollout, `unfinished` steps before.
    """
    opened = -unfinished[:, None]
    index = jnp.arange(last.shape[1], dtype=jnp.int32)[None]
    after = jax.lax.cummax(jnp.where(last, index + 1, opened), axis=1)
    return jnp.concatenate([opened, after[:, :-1]], axis=1), after[:, -1]


@promoting
def read(
    steps: PyTree[Shaped[Array, "capacity ..."]], rows: Int[Array, "*n"], mask: Bool[Array, "*n"]
) -> PyTree[Shaped[Array, "..."]]:
    """Return the steps at `rows`; zeros where `mask` is False."""
    rows = jnp.where(mask, rows, 0)

    def take(leaf: Array) -> Array:
        real = mask.reshape(*mask.shape, *(1,) * (leaf.ndim - 1))
        return jnp.where(real, leaf[rows], jnp.zeros((), leaf.dtype))

    return jax.tree.map(take, steps)


def check_numbers(name: str, value: Array, shape: tuple[int, ...], each: str) -> None:
    """Raise `ValueError` unless there is one number for each `each`."""
    if jnp.shape(value) != shape:
        raise ValueError(
            f"`{name}` must have one number for each {each}, {list(shape)}; got "
            f"{list(jnp.shape(value))}."
        )
