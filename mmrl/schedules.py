"""Schedules of scans: the pairs of elements that each method combines at each level.

`execute` runs the teaching methods "hillis_steele" and "blelloch" from their schedules. The other
methods have separate implementations, and their schedules only describe which pairs they combine,
so that `count` can report work and depth. `in_chunks` implements the method "chunked".
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from mmrl._dtypes import whole

METHODS = ("sequential", "hillis_steele", "blelloch", "associative", "chunked")


class Level(NamedTuple):
    """Index pairs that are combined in parallel: h[right] ← h[left] • h[right]."""

    left: Int[np.ndarray, " pairs"]
    right: Int[np.ndarray, " pairs"]


def schedule(length: int, method: str, chunk: int = 256) -> list[Level]:
    """Return the pairs that `method` combines at each level, for an array of this length.

    Applying the levels in order, in place, turns the elements x_t into the prefixes h_t.

    Raises `ValueError` if `method` has no schedule, as is the case for "auto", or if `chunk` is
    below 1.
    """
    whole("chunk", chunk)
    t = np.arange(length)
    steps = [2**i for i in range(max(length - 1, 0).bit_length())]
    if method == "sequential":
        return [Level(t[i : i + 1], t[i + 1 : i + 2]) for i in range(length - 1)]
    if method == "hillis_steele":  # Hillis & Steele 1986
        return [Level(t[:-step], t[step:]) for step in steps]
    if method in ("blelloch", "associative"):  # Blelloch 1990, as an inclusive scan
        up = [t[2 * step - 1 :: 2 * step] for step in steps]
        down = [t[3 * step - 1 :: 2 * step] for step in reversed(steps)]
        sweeps = zip(steps + steps[::-1], up + down, strict=True)
        return [Level(right - step, right) for step, right in sweeps if right.size]
    if method == "chunked":
        within = [t[i::chunk] for i in range(1, min(chunk, length))]
        last = t[chunk - 1 :: chunk]  # last step of every full chunk
        across = [Level(last[i : i + 1], last[i + 1 : i + 2]) for i in range(last.size - 1)]
        rest = t[chunk:][~np.isin(t[chunk:], last)]
        final = [Level(rest // chunk * chunk - 1, rest)] if rest.size else []
        return [Level(right - 1, right) for right in within] + across + final
    raise ValueError(f"`method` must be one of {', '.join(METHODS)}; got {method!r}.")


def count(length: int, method: str, chunk: int = 256) -> tuple[int, int]:
    """Return the work of a method, in products, and its depth, in levels.

    >>> count(8, "blelloch")
    (11, 5)
    """
    levels = schedule(length, method, chunk)
    return sum(level.left.size for level in levels), len(levels)


def execute(op: Callable, xs: PyTree, levels: list[Level]) -> PyTree:
    """Compute the prefixes of `xs` level by level; `op` must be vectorized over pairs."""
    for left, right in levels:
        new = op(*(jax.tree.map(lambda x, i=i: x[i], xs) for i in (left, right)))
        xs = jax.tree.map(lambda x, n, i=right: x.at[i].set(n), xs, new)
    return xs


def in_chunks(op: Callable, xs: PyTree, identity: PyTree, chunk: int) -> PyTree:
    """Compute the prefixes of `xs` with the method "chunked".

    First, all chunks are scanned in parallel. Then each local prefix is combined with the product
    of all preceding chunks. `op` must be vectorized over pairs.
    """
    length = len(jax.tree.leaves(xs)[0])
    chunks = -(-length // chunk)

    def cut(e, x):
        pad = jnp.broadcast_to(e, (chunks * chunk - length, *x.shape[1:])).astype(x.dtype)
        x = jnp.concatenate([x, pad]).reshape(chunks, chunk, *x.shape[1:])
        return jnp.swapaxes(x, 0, 1)

    def step(h, x):
        h = op(h, x)
        return h, h

    steps = jax.tree.map(cut, identity, xs)
    first = jax.tree.map(lambda x: x[0], steps)
    empty = jax.tree.map(lambda e, x: jnp.broadcast_to(e, x.shape).astype(x.dtype), identity, first)
    totals, local = jax.lax.scan(step, empty, steps)
    one = jax.tree.map(lambda x: x[None, 0], empty)
    totals = jax.tree.map(lambda x: x[:, None], totals)
    before = jax.lax.scan(lambda h, x: (op(h, x), h), one, totals)[1]
    before = jax.tree.map(lambda x: x[:, 0], before)
    hs = jax.vmap(op, in_axes=(None, 0))(before, local)
    return jax.tree.map(
        lambda x: jnp.swapaxes(x, 0, 1).reshape(chunks * chunk, *x.shape[2:])[:length], hs
    )
