"""Schedules of a scan: which pairs each method combines at which level, as tables to look at.

`scan` runs the two methods that are there to teach, Hillis and Steele's and Blelloch's, from these
very tables; of the others they say what the compiled loop or tree computes. Work and depth are
counted from them. `in_turn` and `in_chunks` are the loops of "sequential" and "chunked" themselves.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, Shaped

from mmrl._dtypes import promoting, whole

METHODS = ("sequential", "hillis_steele", "blelloch", "associative", "chunked")


class Level(NamedTuple):
    """Combines that run at once: h[right] ← h[left] • h[right], index by index."""

    left: Int[np.ndarray, " pairs"]
    right: Int[np.ndarray, " pairs"]


def schedule(length: int, method: str, chunk: int = 256) -> list[Level]:
    """Which pairs `method` combines at which level, all in place on one array of `length`.

    Carrying out the levels in order turns the elements x_t into the prefixes h_t. The methods
    "hillis_steele" and "blelloch" are run from this very table; the others compute the same tree.

    Raises `ValueError` for a method without a schedule of its own ("auto" or unknown), or a chunk
    below 1.
    """
    check_chunk(chunk)
    t = np.arange(length)
    steps = [2**i for i in range(max(length - 1, 0).bit_length())]
    if method == "sequential":
        return [Level(t[i : i + 1], t[i + 1 : i + 2]) for i in range(length - 1)]
    if method == "hillis_steele":  # Hillis & Steele 1986
        return [Level(t[:-step], t[step:]) for step in steps]
    if method in ("blelloch", "associative"):  # Blelloch 1990, in its inclusive form
        up = [t[2 * step - 1 :: 2 * step] for step in steps]
        down = [t[3 * step - 1 :: 2 * step] for step in reversed(steps)]
        sweeps = zip(steps + steps[::-1], up + down, strict=True)
        return [Level(right - step, right) for step, right in sweeps if right.size]
    if method == "chunked":
        within = [t[i::chunk] for i in range(1, min(chunk, length))]
        last = t[chunk - 1 :: chunk]  # of every whole chunk
        across = [Level(last[i : i + 1], last[i + 1 : i + 2]) for i in range(last.size - 1)]
        rest = t[chunk:][~np.isin(t[chunk:], last)]
        spread = [Level(rest // chunk * chunk - 1, rest)] if rest.size else []
        return [Level(right - 1, right) for right in within] + across + spread
    raise ValueError(f"`method` must be one of {', '.join(METHODS)}; got {method!r}.")


def count(length: int, method: str, chunk: int = 256) -> tuple[int, int]:
    """(work, depth): the number of combines and of levels that `schedule` holds."""
    levels = schedule(length, method, chunk)
    return sum(level.left.size for level in levels), len(levels)


def check_chunk(chunk: int) -> None:
    """Raises `ValueError` unless a block is a whole number of steps, at least one."""
    whole("chunk", chunk)


@promoting
def as_elements(monoid: Any, xs: PyTree) -> PyTree[Shaped[Array, "time ..."]]:
    """Return `xs` as arrays, one per array of an element of `monoid`; lists become arrays.

    Raises `ValueError` for another structure, unequal lengths, and flags in place of numbers.
    """
    name, meaning = type(monoid).__name__, (type(monoid).__doc__ or "").split("\n")[0]
    example, form = jax.tree.flatten(jax.eval_shape(monoid.identity))
    try:
        arrays = [_array(x, e.dtype) for x, e in zip(form.flatten_up_to(xs), example, strict=True)]
    except (TypeError, ValueError) as error:
        wanted, got = (f"{x}"[10:-1] for x in (form, jax.tree.structure(xs)))  # in PyTreeDef(…)
        kind = "a pair" if wanted == "(*, *)" else "a pytree"
        raise ValueError(
            f"`xs` must be {kind} {wanted}, as an element of `{name}` is, where each * is an array "
            f"or a list of numbers, with time first; got {got}. {name}: {meaning}"
        ) from error
    if any(x.dtype == bool != e.dtype for x, e in zip(arrays, example, strict=True)):
        raise ValueError(
            f"`xs` must hold numbers, because flags have no products of `{name}`; got "
            f"{', '.join(str(x.dtype) for x in arrays)}. Convert them with `.astype(float)`."
        )
    shapes = [x.shape for x in arrays]
    if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
        raise ValueError(
            "`xs` must be a pytree of arrays with one common leading time axis; got shapes "
            f"{shapes}. Stack the elements, or broadcast constants over time."
        )
    return form.unflatten(arrays)


def _array(x: Any, kind: Any) -> Array:
    """Return an array; a list may hold integers or flags where numbers of `kind` are wanted."""
    array = jnp.asarray(x)
    listed = isinstance(x, list | tuple)
    return array.astype(jnp.promote_types(array.dtype, kind)) if listed else array


def execute(op: Callable, xs: PyTree, levels: list[Level]) -> PyTree:
    """The prefixes of `xs`, combined in place, level by level; `op` takes many pairs at once."""
    for left, right in levels:
        new = op(*(jax.tree.map(lambda x, i=i: x[i], xs) for i in (left, right)))
        xs = jax.tree.map(lambda x, n, i=right: x.at[i].set(n), xs, new)
    return xs


def in_chunks(op: Callable, xs: PyTree, identity: PyTree, chunk: int) -> PyTree:
    """The prefixes by "chunked": all chunks advance in lock-step; then each takes in the product of
    those before it. `op` takes many pairs at once."""
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


def shift(hs: PyTree, start: PyTree, *, reverse: bool) -> PyTree:
    """The prefix before each step: `start` before the first, and the last prefix left out."""

    def along(h, e):
        return jnp.concatenate([h[1:], e[None]] if reverse else [e[None], h[:-1]])

    return jax.tree.map(along, hs, start)


@eqx.filter_custom_jvp
def in_turn(op: Callable, xs: PyTree, start: PyTree, *, reverse: bool) -> tuple[PyTree, PyTree]:
    """Every prefix by "sequential", and the last of them: h_t = h_{t-1} • x_t, in one pass."""

    def step(h, x):
        h = op(h, x)
        return h, h

    last, hs = jax.lax.scan(step, start, xs, reverse=reverse, unroll=_unroll(xs))
    return hs, last


@in_turn.def_jvp
def _in_turn_jvp(primals, tangents, *, reverse):
    """ḣ_t = ∂₁(h_{t-1} • x_t) ḣ_{t-1} + ∂₂(h_{t-1} • x_t) ẋ_t: a recurrence again, a linear one.

    JAX alone would differentiate the loop and leave all of this inside it. Taking the derivatives
    of all steps at once, before the loop, makes the way back several times as fast.
    """
    (op, xs, start), (d_op, d_xs, d_start) = primals, tangents
    hs, last = in_turn(op, xs, start, reverse=reverse)

    def derivatives(h, x, dx):
        moving, fixed = eqx.partition(h, eqx.is_inexact_array)

        def product(op, moving, x):
            return eqx.filter(op(eqx.combine(moving, fixed), x), eqx.is_inexact_array)

        along = jax.linearize(lambda h: product(op, h, x), moving)[1]
        push = eqx.filter_jvp(lambda op, x: product(op, moving, x), (op, x), (d_op, dx))[1]
        return along, push

    def step(dh, derivative):
        along, push = derivative
        dh = eqx.apply_updates(along(dh), push)
        return dh, dh

    slopes = jax.vmap(derivatives)(shift(hs, start, reverse=reverse), xs, d_xs)
    still = jax.tree.map(jnp.zeros_like, eqx.filter(start, eqx.is_inexact_array))
    d_start = eqx.combine(d_start, still)
    d_last, d_hs = jax.lax.scan(step, d_start, slopes, reverse=reverse, unroll=_unroll(xs))
    return (hs, last), (d_hs, d_last)


def _unroll(xs: PyTree) -> int:
    """Steps per turn of the loop: a loop over two or three numbers is mostly loop.

    Not for larger elements. XLA compiles a loop in one piece only while its body is small, and
    past that size each step costs twenty times as much.
    """
    leaves = jax.tree.leaves(xs)
    return 4 if len(leaves) <= 3 and all(x.ndim == 1 for x in leaves) else 1
