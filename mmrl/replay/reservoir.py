"""Reservoirs: a uniform sample of all past experience, in bounded memory (CLEAR).

Rolnick et al. 2019, Appendix A.3. A reservoir stores *unrolls*, each of which consists of `length`
consecutive steps of one environment and the memory's state before the first step. When an unroll
arrives, it is assigned a random number u ~ U(0, 1), its lot. The reservoir keeps the k unrolls with
the largest lots, so each of the n unrolls so far is kept with probability k/n, regardless of its
time of arrival. Reservoirs are elements of the monoid `TopK`, so the reservoirs of several actors
can be merged into the reservoir that a single actor would have.

    stored lots   .91 .12 .57 .34        new lots    .08 .40
    two smallest      .12     .34        descending      .40 .08
    larger            .40     .34        .40 replaces .12, so only one unroll is written

In this example, the two smallest stored lots, in ascending order, are paired with the two new lots,
in descending order. The larger lot of each pair is among the k largest lots (Batcher 1968). `add`
therefore compares only lots, and writes only the unrolls that it keeps.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl._dtypes import advance, convert_arguments, with_promotion
from mmrl.monoid import TopK
from mmrl.replay import frames, ring
from mmrl.replay.frames import SHORTEST, Frames


class Unrolls(NamedTuple):
    """Batch of unrolls, each with consecutive steps of one environment.

    An episode may end in the middle of an unroll.
    """

    state: PyTree[Shaped[Array, "unroll ..."]]  # memory state before the first step
    steps: PyTree[Shaped[Array, "unroll time ..."]]


class Reservoir(eqx.Module):
    """Unrolls in a separate part for each worker, and the lots that decide which are kept."""

    # Rows w · slots to (w + 1) · slots - 1 are the part of worker w, filled in this order.
    unrolls: Unrolls
    # Lot of each row, which `add` stores on the scale of `_fine_scale`; -∞ in empty slots.
    lots: Float[Array, "*seed worker slot"]
    # Number of unrolls that each worker has received, at most 2³¹ - 1.
    arrivals: Int[Array, "*seed"]
    # Images of `unrolls.steps`, if any, with one ring per row.
    frames: Frames | None = None

    @property
    def workers(self) -> int:
        """Number of workers, each with its own part."""
        return self.lots.shape[-2]

    @property
    def slots(self) -> int:
        """Number of unrolls that fit in each part."""
        return self.lots.shape[-1]

    @property
    def length(self) -> int:
        """Number of steps in an unroll."""
        return jax.tree.leaves(self.unrolls.steps)[0].shape[self.lots.ndim - 1]

    @property
    def counts(self) -> Int[Array, "*seed worker"]:
        """Number of unrolls stored in each part."""
        return jnp.sum(jnp.isfinite(self.lots), axis=-1, dtype=jnp.int32)

    @property
    def threshold(self) -> Float[Array, "*seed worker"]:
        """Lot that a new unroll must exceed to be stored.

        The threshold is 0 until the worker's part is full, and never decreases.
        """
        return jnp.maximum(jnp.min(self.lots, axis=-1), 0)


def init(
    example: PyTree,
    state: PyTree,
    capacity: int,
    *,
    workers: int = 1,
    length: int = 20,
    shortest: int = SHORTEST,
) -> Reservoir:
    """Return an empty reservoir for `capacity` steps, shared evenly among `workers`.

    `example` is a single step, which can be any pytree of arrays. `state` is a single recurrent
    state, and may be empty. Each worker has capacity // (workers · length) slots; a remainder is
    unused. Observations with three axes are treated as images, [height, width, channel]. An unroll
    can then store the final images of up to 1 + length // `shortest` truncated episodes, and is
    discarded if it has more. Raises `ValueError` if a size is invalid.

        >>> storage = init({"obs": jnp.zeros(3)}, state=(), capacity=100, length=20)
        >>> storage.slots  # unrolls that fit
        5
    """
    for name, value in (("workers", workers), ("length", length)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    if not jax.tree.leaves(example):
        raise ValueError("`example` must contain an array. Pass a single step, as stored by `add`.")
    slots = capacity // (workers * length)
    if slots < 1:
        raise ValueError(
            f"`capacity` must be at least {workers * length}, one unroll of {length} steps for "
            f"each of {workers} workers; got {capacity}."
        )
    rows = workers * slots
    pictures, example = frames.init(example, rows, length, shortest)
    steps = jax.tree.map(
        lambda x: x.reshape(rows, length, *x.shape[1:]), ring.empty(example, rows * length)
    )
    return Reservoir(
        unrolls=Unrolls(ring.empty(state, rows), steps),
        lots=jnp.full((workers, slots), -jnp.inf),
        arrivals=jnp.zeros((), jnp.int32),
        frames=pictures,
    )


@with_promotion
def add(reservoir: Reservoir, unrolls: Unrolls, key: PRNGKeyArray) -> Reservoir:
    """Add new unrolls [unroll, time, ...] to the reservoir.

    `unrolls` is grouped by worker, with the same number from each worker. The cost is O(slots) for
    the lots, and O(unrolls) for the data if the storage is donated or is the carry of a loop.
    Raises `ValueError` if the leaves of `unrolls` do not match `init`, or if the number of unrolls
    is not a multiple of the number of workers.

        >>> storage = init({"obs": jnp.zeros(3)}, state=(), capacity=100, length=20)
        >>> unrolls = Unrolls((), {"obs": jnp.ones((2, 20, 3))})
        >>> add(storage, unrolls, jax.random.key(0)).arrivals
        Array(2, dtype=int32)
    """
    count = _count(reservoir, unrolls)
    fine = jax.random.uniform(jax.random.fold_in(key, 0), (count,), jnp.float32)
    lots = _fine_scale(jax.random.uniform(key, (count,), jnp.float32), fine)
    return insert(replace(reservoir, lots=_fine_scale(reservoir.lots)), unrolls, lots)


def _fine_scale(
    lots: Float[Array, "*n"], fine: Float[Array, "*n"] | float = 0.0
) -> Float[Array, "*n"]:
    """Refine lots u near 1, so that they are rarely equal, and keep the order of different lots.

    u becomes -log₂(1 - u - 2⁻²³ `fine`) if u ≥ 1 - 2⁻¹⁰. Float32 lots are multiples of 2⁻²³, so
    among very many unrolls the largest lots, which determine the sample, would often be equal.
    `fine` ~ U(0, 1) adds random digits below 2⁻²³. Lots of 1 or more are already refined.
    """
    near = (lots >= 1 - 2**-10) & (lots < 1)
    rest = jnp.where(near, 1 - lots - 2**-23 * fine, 1)
    return jnp.where(near, -jnp.log2(rest), lots)


@convert_arguments("lots")
def insert(reservoir: Reservoir, unrolls: Unrolls, lots: Float[Array, " unroll"]) -> Reservoir:
    """Add unrolls with the given lots; if two lots are equal, the earlier unroll is kept."""
    here = reservoir
    each = _count(here, unrolls) // here.workers
    new, unrolls, whole = _move_images(here, unrolls)
    lots = lots if new is None else jnp.where(whole, lots, -jnp.inf)
    pairs = min(each, here.slots)
    worker = jnp.arange(here.workers)[:, None]
    # Pair the largest new lots, in descending order, with the smallest stored lots, in ascending
    # order.
    new_lots, order = jax.lax.top_k(lots.reshape(here.workers, each), pairs)
    minus_lots, slot = jax.lax.top_k(-here.lots, pairs)
    enters = new_lots > -minus_lots
    rows = jnp.where(enters, worker * here.slots + slot, here.lots.size).reshape(-1)
    source = (worker * each + order).reshape(-1)
    return replace(
        here,
        unrolls=jax.tree.map(
            lambda d, x: d.at[rows].set(x[source], mode="drop"), here.unrolls, unrolls
        ),
        lots=here.lots.at[worker, slot].max(new_lots),
        arrivals=advance(here.arrivals, each),
        frames=here.frames and new and frames.move(here.frames, rows, new, source),
    )


def _move_images(
    here: Reservoir, unrolls: Unrolls
) -> tuple[Frames | None, Unrolls, Bool[Array, "*unroll"]]:
    """Move the images of new unrolls to rings, one per unroll.

    Returns the rings, the unrolls with indices instead of images, and True for each unroll whose
    images fit.
    """
    if here.frames is None:
        return None, unrolls, jnp.ones((), bool)
    steps: Any = unrolls.steps
    bootstrap = frames.bootstraps(steps)
    most = here.frames.size - 1 - here.length
    fits = jnp.cumsum(bootstrap, axis=1, dtype=jnp.int32) <= most
    empty = frames.like(here.frames, len(bootstrap))
    new, steps = frames.write(empty, steps, bootstrap & fits)
    return new, unrolls._replace(steps=steps), jnp.all(fits, axis=1)


@with_promotion
def sample(reservoir: Reservoir, key: PRNGKeyArray, batch: int) -> Unrolls:
    """Sample `batch` unrolls with replacement, the same number from each worker.

    The result is grouped by worker, as in `add`, so that row i of a rollout and row i of a sample
    of the same size come from the same worker. For a worker without unrolls, the result
    contains zeros. The cost is O(batch). Raises `ValueError` if `batch` is not a multiple of
    `workers`.

        >>> unrolls = Unrolls((), {"obs": jnp.ones((5, 2, 3))})  # five unrolls of two steps
        >>> empty = init({"obs": jnp.ones(3)}, (), capacity=8, length=2)
        >>> storage = add(empty, unrolls, jax.random.key(0))
        >>> sample(storage, jax.random.key(1), batch=3).steps["obs"].shape
        (3, 2, 3)
    """
    here = reservoir
    if batch < 1 or batch % here.workers:
        raise ValueError(
            f"`batch` must be a positive multiple of `workers` = {here.workers}, because the same "
            f"number of unrolls is sampled from each worker; got {batch}."
        )
    shape, sizes = (here.workers, batch // here.workers), jnp.maximum(here.counts[:, None], 1)
    if here.slots < 2**20:
        share = jax.random.uniform(key, shape, jnp.float32)
        # The product may round up to `sizes`, which is past the last slot.
        slot = jnp.minimum((share * sizes).astype(jnp.int32), sizes - 1)
    else:  # a float32 sample has only 2²³ values, too few for a uniform choice among the slots
        slot = jax.random.randint(key, shape, 0, sizes, jnp.int32)
    rows = (jnp.arange(here.workers)[:, None] * here.slots + slot).reshape(-1)
    unrolls = jax.tree.map(lambda d: d[rows], here.unrolls)
    if here.frames is None:
        return unrolls
    every = jnp.ones((batch, here.length), bool)
    steps = frames.read(here.frames, unrolls.steps, rows[:, None], every)
    return unrolls._replace(steps=steps)


@with_promotion
def merge(first: Reservoir, second: Reservoir) -> Reservoir:
    """Merge two reservoirs into a uniform sample of all unrolls that the two have received.

    Each worker's parts are merged with `TopK`, which is exact, associative, and commutative up to
    the order of rows. Raises `ValueError` if the shapes of the two reservoirs differ.
    """
    if jax.tree.structure(first) != jax.tree.structure(second) or [
        (x.shape, x.dtype) for x in jax.tree.leaves(first)
    ] != [(x.shape, x.dtype) for x in jax.tree.leaves(second)]:
        raise ValueError(
            "`second` must have the same shapes as `first`. Pass the same example, state, "
            "capacity, workers and length to `init` for both reservoirs."
        )

    def rows(reservoir: Reservoir) -> Any:
        return reservoir.unrolls, frames.by_worker(reservoir.frames)

    def parts(reservoir: Reservoir) -> tuple[Float[Array, "worker slot"], Any]:
        shape = reservoir.lots.shape
        split = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), rows(reservoir))
        return reservoir.lots, split

    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), rows(first))
    lots, both = jax.vmap(TopK(first.slots, example))(parts(first), parts(second))
    unrolls, rings = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), both)
    pictures = first.frames and frames.join(first.frames, rings)
    return Reservoir(unrolls, lots, advance(first.arrivals, second.arrivals), pictures)


def _count(reservoir: Reservoir, unrolls: Unrolls) -> int:
    """Check the leaves of new unrolls and return the number of unrolls.

    Raises `ValueError` if the leaves do not match `init`, or if the number is not a multiple of
    `workers`.
    """
    here = reservoir
    leaves = jax.tree.leaves(unrolls.steps)
    count = jnp.shape(leaves[0])[0] if leaves and jnp.ndim(leaves[0]) else 0
    if count < 1 or count % here.workers:
        raise ValueError(
            f"`unrolls` must have a positive multiple of `workers` = {here.workers} rows, with the "
            f"same number from each worker; got {count}."
        )
    steps = frames.outline(here.frames, unrolls.steps)
    ring.check_leaves("unrolls.steps", here.unrolls.steps, steps, (count,))
    ring.check_leaves("unrolls.state", here.unrolls.state, unrolls.state, (count,))
    return count
