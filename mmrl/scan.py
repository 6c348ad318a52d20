"""Running products of a monoid along a tape: five ways to compute the same prefixes.

What associativity buys: the products may be bracketed at will, so a scan of T elements needs only
O(log T) parallel steps. What it costs: the ways differ in work, depth and compile time.

    method          combines          levels            best for
    sequential      T                 T                 a CPU: one pass, compiles at once
    hillis_steele   T log₂T - T + 1   log₂T             teaching: least depth, most work
    blelloch        < 2T              2 log₂T           teaching: least work of the parallel ones
    associative     < 2T              2 log₂T           a GPU: the same tree, written by JAX
    chunked         < 2T              C + T/C           long tapes on a GPU, quick to compile
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Inexact, Int, PyTree, Shaped

from mmrl.monoid import Affine, Decay, Monoid, Resettable

METHODS = ("sequential", "hillis_steele", "blelloch", "associative", "chunked", "auto")


def scan(
    monoid: Monoid,
    xs: PyTree[Shaped[Array, "time ..."]],
    init: PyTree | None = None,
    *,
    reverse: bool = False,
    method: str = "auto",
    chunk: int = 256,
) -> PyTree[Shaped[Array, "time ..."]]:
    """h_t = init • x_0 • … • x_t for every t.  Eq. 8 of Morad et al. 2024.

    With `reverse` the tape is read from its end, h_t = init • x_{T-1} • … • x_t, so "earlier" means
    nearer to the end. `init` defaults to the identity. `method` is one of `METHODS`; all agree up
    to rounding. "auto" is "sequential" on a CPU and "associative" elsewhere (measured by
    `tests/benchmarks/bench_scan.py`). `chunk` is the block length of "chunked".

    Raises `ValueError` for an unknown method, a chunk below 1, leaves of unequal length, or an
    `init` that is not one element shaped like those of `xs`.
    """
    return scan_and_last(monoid, xs, init, reverse=reverse, method=method, chunk=chunk)[0]


def scan_and_last(
    monoid: Monoid,
    xs: PyTree[Shaped[Array, "time ..."]],
    init: PyTree | None = None,
    *,
    reverse: bool = False,
    method: str = "auto",
    chunk: int = 256,
) -> tuple[PyTree[Shaped[Array, "time ..."]], PyTree]:
    """The prefixes of `scan`, and the product of everything: one element without a time axis.

    It equals the last prefix, or `init` after an empty tape. Taken from here, XLA need not keep
    the parts of the other prefixes that nobody reads, such as the gains of `Affine`.
    """
    length = _length(xs)
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}; got {method!r}.")
    if chunk < 1:
        raise ValueError(f"`chunk` must be at least 1 step; got {chunk}.")
    start = _start(monoid, xs, init)
    if length == 0:
        return xs, start
    method = _auto() if method == "auto" else method
    if method == "sequential":
        return _sequential(monoid, xs, start, reverse)
    if reverse:
        xs = jax.tree.map(lambda x: x[::-1], xs)
    op = jax.vmap(monoid)
    if method == "associative":
        hs = jax.lax.associative_scan(op, xs)
    elif method == "chunked":
        hs = _chunked(op, xs, monoid.identity(), min(chunk, length))
    else:
        hs = _execute(op, xs, schedule(length, method))
    if init is not None:
        hs = jax.vmap(monoid, in_axes=(None, 0))(start, hs)
    last = jax.tree.map(lambda h: h[-1], hs)
    return (jax.tree.map(lambda h: h[::-1], hs) if reverse else hs), last


def fold(
    monoid: Monoid, xs: PyTree[Shaped[Array, "time ..."]], init: PyTree | None = None
) -> PyTree:
    """init • x_0 • … • x_{T-1}: the last prefix alone, one element without a time axis.

    One pass on a CPU, a halving tree of depth log₂T elsewhere.
    """
    length, start = _length(xs), _start(monoid, xs, init)
    if _auto() == "sequential":
        return jax.lax.scan(lambda h, x: (monoid(h, x), None), start, xs)[0]
    op = jax.vmap(monoid)
    while length > 1:
        pairs = op(
            *(jax.tree.map(lambda x, i=i: x[i : length - length % 2 : 2], xs) for i in (0, 1))
        )
        rest = jax.tree.map(lambda x: x[length - length % 2 :], xs)
        xs = jax.tree.map(lambda p, r: jnp.concatenate([p, r]), pairs, rest)
        length = (length + 1) // 2
    return monoid(start, jax.tree.map(lambda x: x[0], xs)) if length else start


class Level(NamedTuple):
    """Combines that run at once: h[right] ← h[left] • h[right], index by index."""

    left: Int[np.ndarray, " pairs"]
    right: Int[np.ndarray, " pairs"]


def schedule(length: int, method: str, chunk: int = 256) -> list[Level]:
    """Which pairs `method` combines at which level, all in place on one array of `length`.

    Carrying out the levels in order turns the elements x_t into the prefixes h_t. The methods
    "hillis_steele" and "blelloch" are run from this very table; the others compute the same tree.

    Raises `ValueError` for a method without a schedule of its own ("auto" or unknown).
    """
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
    raise ValueError(f"`method` must be one of {', '.join(METHODS[:-1])}; got {method!r}.")


def count(length: int, method: str, chunk: int = 256) -> tuple[int, int]:
    """(work, depth): the number of combines and of levels that `schedule` holds."""
    levels = schedule(length, method, chunk)
    return sum(level.left.size for level in levels), len(levels)


def _auto() -> str:
    return "sequential" if jax.default_backend() == "cpu" else "associative"


def _length(xs: PyTree[Shaped[Array, "time ..."]]) -> int:
    lengths = {x.shape[0] if x.ndim else None for x in jax.tree.leaves(xs)}
    if len(lengths) != 1 or None in lengths:
        raise ValueError(
            "`xs` must be a pytree of arrays with one common leading time axis; got lengths "
            f"{sorted(map(str, lengths))}. Stack the elements, or broadcast constants over time."
        )
    return lengths.pop()


def _start(monoid: Monoid, xs: PyTree, init: PyTree | None) -> PyTree:
    """`init`, or the identity, in the shape and type of one element of `xs`."""
    name, first = ("monoid.identity()", monoid.identity()) if init is None else ("init", init)
    wanted, given = jax.tree.structure(xs), jax.tree.structure(first)
    if wanted != given:
        raise ValueError(
            f"`xs` and `{name}` must be pytrees of the same structure; got {wanted} and {given}."
        )

    def fit(e, x):
        narrow = jnp.iscomplexobj(e) and not jnp.iscomplexobj(x)
        if narrow or jnp.broadcast_shapes(jnp.shape(e), x.shape[1:]) != x.shape[1:]:
            raise ValueError(
                f"`{name}` must be one element like those of `xs`, {x.dtype}{list(x.shape[1:])}; "
                f"got {jnp.result_type(e)}{list(jnp.shape(e))}."
            )
        return jnp.broadcast_to(e, x.shape[1:]).astype(x.dtype)

    return jax.tree.map(fit, first, xs)


def _sequential(monoid: Monoid, xs: PyTree, start: PyTree, reverse: bool) -> tuple[PyTree, PyTree]:
    inner = monoid.inner if isinstance(monoid, Resettable) else monoid
    if isinstance(inner, Affine | Decay):
        return _sequential_affine(monoid, xs, start, reverse)

    def step(h, x):
        h = monoid(h, x)
        return h, h

    last, hs = jax.lax.scan(step, start, xs, reverse=reverse)
    return hs, last


def _sequential_affine(
    monoid: Monoid, xs: PyTree, start: PyTree, reverse: bool
) -> tuple[PyTree, PyTree]:
    """One loop for the sums, one for the gains (or times) and flags, which few callers read."""
    resets = isinstance(monoid, Resettable)
    inner = monoid.inner if resets else monoid
    if not resets:
        xs, start = (xs, jnp.zeros(_length(xs), bool)), (start, jnp.zeros((), bool))
    (elements, begin), (first, flag) = xs, start
    if isinstance(inner, Decay):
        (sums, rests), (first_sum, rest), merge = elements, first, jnp.add
        gains, empty = jax.vmap(inner.gain)(rests), jnp.zeros_like(rest)
    else:
        (gains, sums), (rest, first_sum), merge = elements, first, jnp.multiply
        rests, empty = gains, jnp.ones_like(rest)

    def step(past, x):
        (rest, flag), (x, begin) = past, x
        now = merge(jnp.where(begin, empty, rest), x), flag | begin
        return now, now

    end, (rests, flags) = jax.lax.scan(step, (rest, flag), (rests, begin), reverse=reverse)
    sums = _affine(gains, sums, begin, first_sum, reverse)
    last = end[0], sums[0 if reverse else -1]
    hs = rests, sums
    if isinstance(inner, Decay):
        hs, last = hs[::-1], last[::-1]
    return ((hs, flags), (last, end[1])) if resets else (hs, last)


@functools.partial(jax.custom_jvp, nondiff_argnums=(4,))
def _affine(
    gains: Inexact[Array, "time *h"],
    sums: Inexact[Array, "time *h"],
    begin: Bool[Array, " time"],
    start: Inexact[Array, "*h"],
    reverse: bool,
) -> Inexact[Array, "time *h"]:
    """h_t = gains_t (0 if begin_t else h_{t-1}) + sums_t, in a loop that is as lean backwards.

    ḣ_t = gains_t (0 if begin_t else ḣ_{t-1}) + (ġains_t h_{t-1} + ṡums_t): the derivative is the
    same recurrence driven by other inputs. Saying so keeps the products with h_{t-1} out of the
    loop, which halves its time; JAX, left alone, differentiates inside it.
    """
    return _affine_loop(gains, sums, begin, start, reverse)


def _affine_loop(gains, sums, begin, start, reverse):
    def step(h, x):
        gain, push, begin = x
        h = gain * jnp.where(begin, 0, h) + push
        return h, h

    return jax.lax.scan(step, start, (gains, sums, begin), reverse=reverse)[1]


def _affine_tangent(reverse, primals, tangents):
    gains, sums, begin, start = primals
    d_gains, d_sums, _, d_start = tangents
    hs = _affine(gains, sums, begin, start, reverse)
    push = jnp.zeros_like(hs) if isinstance(d_sums, SymbolicZero) else d_sums
    if not isinstance(d_gains, SymbolicZero):
        parts = (hs[1:], start[None]) if reverse else (start[None], hs[:-1])
        here = begin.reshape(-1, *[1] * (hs.ndim - 1))
        push = push + d_gains * jnp.where(here, 0, jnp.concatenate(parts))
    if isinstance(d_start, SymbolicZero):
        d_start = jnp.zeros_like(start)
    return hs, _affine_loop(gains, push, begin, d_start, reverse)


_affine.defjvp(_affine_tangent, symbolic_zeros=True)


def _execute(op: Callable, xs: PyTree, levels: list[Level]) -> PyTree:
    for left, right in levels:
        new = op(*(jax.tree.map(lambda x, i=i: x[i], xs) for i in (left, right)))
        xs = jax.tree.map(lambda x, n, i=right: x.at[i].set(n), xs, new)
    return xs


def _chunked(op: Callable, xs: PyTree, identity: PyTree, chunk: int) -> PyTree:
    """All chunks advance in lock-step; then each takes in the product of those before it."""
    length = _length(xs)
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
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])[:length], hs)
