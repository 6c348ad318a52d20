"""Reservoirs: a uniform sample of all experience so far, in bounded memory (CLEAR).

Rolnick et al. 2019, Appendix A.3. A reservoir stores whole *unrolls*: `length` consecutive steps of
one environment, and the memory's state before the first. Every unroll draws a lot u ~ U(0, 1) when
it arrives, and the reservoir keeps the k unrolls with the largest lots so far. So each of n unrolls
is kept with probability k/n, regardless of when it arrived, and the reservoirs of many actors merge
into the one that a single actor would have: they are elements of the monoid `TopK`.

    stored lots   .91 .12 .57 .34        new lots  .08 .40
    smallest two      .12     .34        falling       .40 .08
    the larger        .40     .34        one of each pair stays, so only one unroll is written

The two smallest stored lots, in ascending order, are compared with the two new lots, in descending
order: the larger of each pair is exactly what belongs to the k largest (Batcher 1968). So `add`
compares only lots, and writes no more data than it keeps.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl._dtypes import advance, converting, promoting
from mmrl.monoid import TopK
from mmrl.replay import frames, ring
from mmrl.replay.frames import SHORTEST, Frames


class Unrolls(NamedTuple):
    """Consecutive steps, each row from one environment; episodes may end anywhere inside."""

    state: PyTree[Shaped[Array, "unroll ..."]]  # state of the memory before the first step
    steps: PyTree[Shaped[Array, "unroll time ..."]]


class Reservoir(eqx.Module):
    """Unrolls of all workers, each in a separate part, with the lots that decide which stay."""

    # The part of worker w is rows w · slots to (w + 1) · slots - 1, filled from the first on.
    unrolls: Unrolls
    # The lot of each row, or an increasing function of it; -∞ in an empty slot.
    lots: Float[Array, "*seed worker slot"]
    # Unrolls offered to each worker so far, at most 2³¹ - 1.
    seen: Int[Array, "*seed"]
    # The pictures of `unrolls.steps`, if these have any, in a ring for each row.
    frames: Frames | None = None

    @property
    def workers(self) -> int:
        """Number of parts."""
        return self.lots.shape[-2]

    @property
    def slots(self) -> int:
        """Number of unrolls that a part can hold."""
        return self.lots.shape[-1]

    @property
    def length(self) -> int:
        """Steps of an unroll."""
        return jax.tree.leaves(self.unrolls.steps)[0].shape[self.lots.ndim - 1]

    @property
    def stored(self) -> Int[Array, "*seed worker"]:
        """Unrolls in each part."""
        return jnp.sum(jnp.isfinite(self.lots), axis=-1, dtype=jnp.int32)

    @property
    def threshold(self) -> Float[Array, "*seed worker"]:
        """Lot that a new unroll must exceed to be kept: 0 until the part is full, then rising."""
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
    """Return an empty reservoir for `capacity` steps in whole unrolls, shared among `workers`.

    `example` is one step, any pytree of arrays, and `state` one recurrent state, which may be
    empty. Each worker has capacity // (workers · length) slots; a remainder is not used. If the
    observation of a step is a picture, [height, width, channel], an unroll has room for the last
    picture of 1 + length // `shortest` truncated episodes; one with more of them is not kept.
    Raises `ValueError` for a size that cannot work.
    """
    for name, value in (("workers", workers), ("length", length)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    if not jax.tree.leaves(example):
        raise ValueError("`example` must hold an array. Pass one step, as `add` will store it.")
    slots = capacity // (workers * length)
    if slots < 1:
        raise ValueError(
            f"`capacity` must hold an unroll of {length} steps for each of {workers} workers, at "
            f"least {workers * length} steps, got {capacity}."
        )
    rows = workers * slots
    pictures, example = frames.init(example, rows, length, shortest)
    steps = jax.tree.map(
        lambda x: x.reshape(rows, length, *x.shape[1:]), ring.empty(example, rows * length)
    )
    return Reservoir(
        unrolls=Unrolls(ring.empty(state, rows), steps),
        lots=jnp.full((workers, slots), -jnp.inf),
        seen=jnp.zeros((), jnp.int32),
        frames=pictures,
    )


@promoting
def add(reservoir: Reservoir, unrolls: Unrolls, key: PRNGKeyArray) -> Reservoir:
    """Offer unrolls of [unroll, time, ...], the same number from each worker, grouped by worker.

    Each unroll is kept or discarded as a whole. O(slots) on the lots, and O(unrolls) on the data if
    the storage is donated or carried by a loop. Raises `ValueError` if the leaves of `unrolls`
    differ from the leaves in `init`, or if the number of unrolls is not a multiple of the workers.
    """
    count = _count(reservoir, unrolls)
    fine = jax.random.uniform(jax.random.fold_in(key, 0), (count,), jnp.float32)
    lots = _apart(jax.random.uniform(key, (count,), jnp.float32), fine)
    return insert(replace(reservoir, lots=_apart(reservoir.lots)), unrolls, lots)


def _apart(lots: Float[Array, "*n"], fine: Float[Array, "*n"] | float = 0.0) -> Float[Array, "*n"]:
    """Return lots u in steps of 2⁻²³, beyond 1 - 2⁻¹⁰ as -log₂(1 - u - 2⁻²³ `fine`).

    This keeps their order. Among very many unrolls only the largest lots matter, and these then
    rarely tie.
    """
    near = (lots >= 1 - 2**-10) & (lots < 1)
    rest = jnp.where(near, 1 - lots - 2**-23 * fine, 1)
    return jnp.where(near, -jnp.log2(rest), lots)


@converting("lots")
def insert(reservoir: Reservoir, unrolls: Unrolls, lots: Float[Array, " unroll"]) -> Reservoir:
    """Add unrolls like `add`, with lots that the caller has drawn. Ties keep the earlier unroll."""
    here = reservoir
    each = _count(here, unrolls) // here.workers
    new, unrolls, whole = _placed(here, unrolls)
    lots = lots if new is None else jnp.where(whole, lots, -jnp.inf)
    pairs = min(each, here.slots)
    worker = jnp.arange(here.workers)[:, None]
    coming, order = jax.lax.top_k(lots.reshape(here.workers, each), pairs)  # in descending order
    going, slot = jax.lax.top_k(-here.lots, pairs)  # the smallest, in ascending order
    kept = coming > -going
    rows = jnp.where(kept, worker * here.slots + slot, here.lots.size).reshape(-1)
    source = (worker * each + order).reshape(-1)
    return replace(
        here,
        unrolls=jax.tree.map(
            lambda d, x: d.at[rows].set(x[source], mode="drop"), here.unrolls, unrolls
        ),
        lots=here.lots.at[worker, slot].max(coming),
        seen=advance(here.seen, each),
        frames=here.frames and new and frames.move(here.frames, rows, new, source),
    )


def _placed(
    here: Reservoir, unrolls: Unrolls
) -> tuple[Frames | None, Unrolls, Bool[Array, "*unroll"]]:
    """Return the pictures of unrolls, a ring for each, the unrolls with places, and which fit."""
    if here.frames is None:
        return None, unrolls, jnp.ones((), bool)
    steps: Any = unrolls.steps
    needed = frames.bootstraps(steps)
    most = here.frames.size - 1 - here.length
    fits = jnp.cumsum(needed, axis=1, dtype=jnp.int32) <= most
    empty = frames.like(here.frames, len(needed))
    new, steps = frames.write(empty, steps, needed & fits)
    return new, unrolls._replace(steps=steps), jnp.all(fits, axis=1)


@promoting
def sample(reservoir: Reservoir, key: PRNGKeyArray, batch: int) -> Unrolls:
    """Draw `batch` unrolls with replacement, the same number from each worker's part.

    They are grouped by worker, as in `add`, so row i of a rollout and row i of a sample of the same
    size come from the same worker. Zeros where a part is empty. O(batch). Raises `ValueError` if
    `batch` is not a multiple of `workers`.
    """
    here = reservoir
    if batch < 1 or batch % here.workers:
        raise ValueError(
            f"`batch` must be a positive multiple of `workers` = {here.workers}, because each "
            f"worker has a separate part, got {batch}."
        )
    shape, stored = (here.workers, batch // here.workers), jnp.maximum(here.stored[:, None], 1)
    if here.slots < 2**20:  # share · stored may round up to `stored`
        share = jax.random.uniform(key, shape, jnp.float32)
        slot = jnp.minimum((share * stored).astype(jnp.int32), stored - 1)
    else:  # the 2²³ values of a share would not be uniform
        slot = jax.random.randint(key, shape, 0, stored, jnp.int32)
    rows = (jnp.arange(here.workers)[:, None] * here.slots + slot).reshape(-1)
    drawn = jax.tree.map(lambda d: d[rows], here.unrolls)
    if here.frames is None:
        return drawn
    every = jnp.ones((batch, here.length), bool)
    steps = frames.read(here.frames, drawn.steps, rows[:, None], every)
    return drawn._replace(steps=steps)


@promoting
def merge(first: Reservoir, second: Reservoir) -> Reservoir:
    """Return the reservoir of all unrolls that both have received, part by part: `TopK`.

    The merge is exact, associative, and commutative up to the order of rows. Raises `ValueError` if
    the two differ in shape.
    """
    if jax.tree.structure(first) != jax.tree.structure(second) or [
        (x.shape, x.dtype) for x in jax.tree.leaves(first)
    ] != [(x.shape, x.dtype) for x in jax.tree.leaves(second)]:
        raise ValueError(
            "`second` must be a reservoir like `first`, with the same example, state, capacity, "
            "workers and length."
        )

    def rows(reservoir: Reservoir) -> Any:
        return reservoir.unrolls, frames.by_worker(reservoir.frames)

    def parts(reservoir: Reservoir) -> tuple[Float[Array, "worker slot"], Any]:
        shape = reservoir.lots.shape
        split = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), rows(reservoir))
        return reservoir.lots, split

    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), rows(first))
    lots, merged = jax.vmap(TopK(first.slots, example))(parts(first), parts(second))
    unrolls, rings = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), merged)
    pictures = first.frames and frames.joined(first.frames, rings)
    return Reservoir(unrolls, lots, advance(first.seen, second.seen), pictures)


def _count(reservoir: Reservoir, unrolls: Unrolls) -> int:
    """Return the number of unrolls. Raise `ValueError` unless their leaves match `init`."""
    here = reservoir
    leaves = jax.tree.leaves(unrolls.steps)
    count = jnp.shape(leaves[0])[0] if leaves and jnp.ndim(leaves[0]) else 0
    if count < 1 or count % here.workers:
        raise ValueError(
            f"`unrolls` must be a positive multiple of `workers` = {here.workers}, the same "
            f"number from each, got {count}."
        )
    steps = frames.outline(here.frames, unrolls.steps)
    ring.check_leaves("unrolls.steps", here.unrolls.steps, steps, (count,))
    ring.check_leaves("unrolls.state", here.unrolls.state, unrolls.state, (count,))
    return count
