"""Reservoirs: a uniform sample of all that was ever seen, in bounded room (CLEAR).

Rolnick et al. 2019, Appendix A.3. What is kept are whole *unrolls*: `length` consecutive steps of
one environment, and the memory's state before the first. Every unroll draws a lot u ~ U(0, 1) when
it comes, and a reservoir is the k unrolls with the largest lots of all that came. Hence each of n
unrolls is kept with probability k/n, whenever it came, and the reservoirs of many actors merge into
the one that a single actor would have had: they are elements of the monoid `TopK`.

    stored lots   .91 .12 .57 .34        new lots  .08 .40
    smallest two      .12     .34        falling       .40 .08
    the larger        .40     .34        one of each pair stays, so only one unroll is written

The two smallest in rising order against the two new ones in falling order: whichever is larger in
each pair is exactly what belongs to the k largest (Batcher 1968). So `add` looks at lots alone, and
writes no more data than it keeps.
"""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl._dtypes import advance, converting, promoting
from mmrl.monoid import TopK
from mmrl.replay import ring


class Unrolls(NamedTuple):
    """Stretches of acting, each in one environment; episodes may end anywhere inside."""

    state: PyTree[Shaped[Array, "unroll ..."]]  # of the memory, before the first step
    steps: PyTree[Shaped[Array, "unroll time ..."]]


class Reservoir(eqx.Module):
    """Unrolls of all workers, each in a part of its own, and the lots by which they stay."""

    # Worker w's part is the rows w · slots to (w + 1) · slots - 1, filled from the first on.
    unrolls: Unrolls
    # The lot of each row, or what grows with it; -∞ where nothing is stored.
    lots: Float[Array, "*seed worker slot"]
    # Unrolls that came to each worker, at most 2³¹ - 1.
    seen: Int[Array, "*seed"]

    @property
    def workers(self) -> int:
        """Number of parts."""
        return self.lots.shape[-2]

    @property
    def slots(self) -> int:
        """Unrolls that a part has room for."""
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
        """The lot that an unroll has to beat to be kept: 0 until the part is full, then rising."""
        return jnp.maximum(jnp.min(self.lots, axis=-1), 0)


def init(
    example: PyTree, state: PyTree, capacity: int, *, workers: int = 1, length: int = 20
) -> Reservoir:
    """Room for `capacity` environment steps, in whole unrolls, shared evenly among `workers`.

    `example` is one step, any pytree of arrays, and `state` one recurrent state, which may be
    empty. Each worker has capacity // (workers · length) slots; a remainder is not used.
    Raises ValueError for a size that cannot work.
    """
    for name, value in (("workers", workers), ("length", length)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    if not jax.tree.leaves(example):
        raise ValueError("`example` must hold an array: give one step, as `add` will store it.")
    slots = capacity // (workers * length)
    if slots < 1:
        raise ValueError(
            f"`capacity` must hold an unroll of {length} steps for each of {workers} workers, at "
            f"least {workers * length} steps, got {capacity}."
        )
    rows = workers * slots
    steps = jax.tree.map(
        lambda x: x.reshape(rows, length, *x.shape[1:]), ring.empty(example, rows * length)
    )
    return Reservoir(
        unrolls=Unrolls(ring.empty(state, rows), steps),
        lots=jnp.full((workers, slots), -jnp.inf),
        seen=jnp.zeros((), jnp.int32),
    )


@promoting
def add(reservoir: Reservoir, unrolls: Unrolls, key: PRNGKeyArray) -> Reservoir:
    """Offer unrolls of [unroll, time, ...], as many from each worker, one worker after another.

    Each is kept or left out as a whole. O(slots) on the lots, and O(unrolls) on the data if the
    storage is donated or carried by a loop. Raises ValueError if the leaves of `unrolls` are not
    those of `init`, or if the workers do not share them evenly.
    """
    count = _count(reservoir, unrolls)
    fine = jax.random.uniform(jax.random.fold_in(key, 0), (count,), jnp.float32)
    lots = _apart(jax.random.uniform(key, (count,), jnp.float32), fine)
    return insert(replace(reservoir, lots=_apart(reservoir.lots)), unrolls, lots)


def _apart(lots: Float[Array, "*n"], fine: Float[Array, "*n"] | float = 0.0) -> Float[Array, "*n"]:
    """Return lots u in steps of 2⁻²³, beyond 1 - 2⁻¹⁰ as -log₂(1 - u - 2⁻²³ `fine`).

    Their order stays. Of very many unrolls only the largest lots matter, which then rarely tie.
    """
    near = (lots >= 1 - 2**-10) & (lots < 1)
    rest = jnp.where(near, 1 - lots - 2**-23 * fine, 1)
    return jnp.where(near, -jnp.log2(rest), lots)


@converting("lots")
def insert(reservoir: Reservoir, unrolls: Unrolls, lots: Float[Array, " unroll"]) -> Reservoir:
    """`add`, with lots that somebody else has drawn. Of equal lots the earlier stays."""
    here = reservoir
    each = _count(here, unrolls) // here.workers
    pairs = min(each, here.slots)
    worker = jnp.arange(here.workers)[:, None]
    coming, order = jax.lax.top_k(lots.reshape(here.workers, each), pairs)  # falling
    going, slot = jax.lax.top_k(-here.lots, pairs)  # of the smallest, rising
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
    )


@promoting
def sample(reservoir: Reservoir, key: PRNGKeyArray, batch: int) -> Unrolls:
    """`batch` unrolls, as many from each worker's part, drawn independently with replacement.

    One worker's after another's, in the order of `add`, so that row i of a rollout and row i of a
    sample as large are of the same worker. Zeros where a part holds nothing. O(batch).
    Raises ValueError if `batch` is not a multiple of `workers`.
    """
    here = reservoir
    if batch < 1 or batch % here.workers:
        raise ValueError(
            f"`batch` must be a positive multiple of `workers` = {here.workers}, since each has "
            f"its own part, got {batch}."
        )
    shape, stored = (here.workers, batch // here.workers), jnp.maximum(here.stored[:, None], 1)
    if here.slots < 2**20:  # share · stored may round up to `stored`.
        share = jax.random.uniform(key, shape, jnp.float32)
        slot = jnp.minimum((share * stored).astype(jnp.int32), stored - 1)
    else:  # The 2²³ values of a share would not fall evenly.
        slot = jax.random.randint(key, shape, 0, stored, jnp.int32)
    rows = (jnp.arange(here.workers)[:, None] * here.slots + slot).reshape(-1)
    return jax.tree.map(lambda d: d[rows], here.unrolls)


@promoting
def merge(first: Reservoir, second: Reservoir) -> Reservoir:
    """The reservoir of all that came to both, part by part: `TopK`.

    Exact, associative, and up to the order of rows commutative. Raises ValueError if the two
    differ in shape.
    """
    if jax.tree.structure(first) != jax.tree.structure(second) or [
        (x.shape, x.dtype) for x in jax.tree.leaves(first)
    ] != [(x.shape, x.dtype) for x in jax.tree.leaves(second)]:
        raise ValueError(
            "`second` must be a reservoir like `first`: the same example, state, capacity, "
            "workers and length."
        )

    def parts(reservoir: Reservoir) -> tuple[Float[Array, "worker slot"], Unrolls]:
        shape = reservoir.lots.shape
        return reservoir.lots, jax.tree.map(
            lambda x: x.reshape(*shape, *x.shape[1:]), reservoir.unrolls
        )

    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), first.unrolls)
    lots, unrolls = jax.vmap(TopK(first.slots, example))(parts(first), parts(second))
    unrolls = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), unrolls)
    return Reservoir(unrolls, lots, advance(first.seen, second.seen))


def _count(reservoir: Reservoir, unrolls: Unrolls) -> int:
    """How many unrolls there are, which are like those of `init`; ValueError otherwise."""
    here = reservoir
    leaves = jax.tree.leaves(unrolls.steps)
    count = jnp.shape(leaves[0])[0] if leaves and jnp.ndim(leaves[0]) else 0
    if count < 1 or count % here.workers:
        raise ValueError(
            f"`unrolls` must be a positive multiple of `workers` = {here.workers}, as many from "
            f"each, got {count}."
        )
    ring.check_leaves("unrolls.steps", here.unrolls.steps, unrolls.steps, (count,))
    ring.check_leaves("unrolls.state", here.unrolls.state, unrolls.state, (count,))
    return count
