"""GPU kernels for scans of `Affine`: h_t = a_t h_{t-1} + x_t, elementwise, with resets.

The tape is split into blocks of `chunk` steps, which are processed in parallel. Within a block, a
loop visits the steps in order. The scan has three stages:

1. A Pallas kernel, compiled by Triton, computes the product of the elements of each block.
2. A recursive call computes the prefixes of these products, one per block.
3. Another Pallas kernel computes the prefixes within each block, starting from the value before it.

The kernels read the tape twice and write it once, in only a few launches. In contrast, every level
of `jax.lax.associative_scan` is a separate pass over the tape. Triton does not support complex
numbers, so the real and imaginary parts are copied to separate tapes first. Tapes are padded to
multiples of the block size.

On other devices the kernels run in Pallas' interpreter, which is slow and meant for tests. Only
reverse-mode derivatives are supported.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Inexact, PyTree

from mmrl.monoid import Affine, Monoid, Resettable
from mmrl.monoid.tapes import shift

WIDTH = 128
"""Maximum number of elements per step that one program instance handles on a GPU."""
UNROLL = 8
"""Number of steps that are loaded at once, to hide the latency of GPU memory."""


class How(NamedTuple):
    """Static arguments of `_walk`."""

    past: float  # state at the start of an episode
    reverse: bool
    chunk: int


def prefixes(
    monoid: Monoid, xs: PyTree, start: PyTree, *, reverse: bool, chunk: int
) -> tuple[PyTree, PyTree]:
    """Return all prefixes of a tape of `Affine` or `Resettable(Affine)`, and the last prefix.

    `xs` has a leading time axis with at least one step, and `start` is a single element. `chunk`,
    the number of steps per block, is rounded up to a multiple of 8. Raises `ValueError` for any
    other monoid, including subclasses of these two, and for integer elements.
    """
    if type(monoid) is Resettable and type(monoid.inner) is Affine:
        (maps, begin), (first, flag) = xs, start
        sums, last = _maps(maps, begin, first, reverse, chunk)
        flags = (jax.lax.cummax(begin.astype(jnp.int8), reverse=reverse) > 0) | flag
        return (sums, flags), (last, flags[0 if reverse else -1])
    if type(monoid) is Affine:
        return _maps(xs, jnp.zeros(len(xs[0]), bool), start, reverse, chunk)
    raise ValueError(
        "`method` must not be 'kernel' for this monoid, because the kernel supports only `Affine` "
        f"and `Resettable(Affine)`; got {type(monoid).__name__}. Use 'associative' on a GPU."
    )


def _maps(
    maps: PyTree, begin: Bool[Array, " time"], first: PyTree, reverse: bool, chunk: int
) -> tuple[PyTree, PyTree]:
    """Return all prefixes (a, x) of affine maps, and the last prefix."""
    gains, sums = maps
    if not all(jnp.issubdtype(x.dtype, jnp.inexact) for x in maps):
        raise ValueError(
            "`xs` must be floating-point or complex arrays for the method 'kernel'; got "
            f"{gains.dtype} and {sums.dtype}. Convert them with `.astype(float)`."
        )
    # Two separate calls let XLA drop the first one if the gains are not used.
    gain = _flat(gains, jnp.zeros_like(gains), begin, first[0], How(1.0, reverse, chunk))
    total = _flat(gains, sums, begin, first[1], How(0.0, reverse, chunk))
    at = 0 if reverse else -1
    return (gain, total), (gain[at], total[at])


def _flat(gains: Array, sums: Array, begin: Array, start: Array, how: How) -> Array:
    """Apply `_walk` to elements of any shape.

    The gains are cast to the dtype of the sums, so they may be real when the sums are complex.
    """
    if not sums.size:
        return sums
    steps, kind = len(sums), sums.dtype
    gains, flat = (x.astype(kind).reshape(steps, -1) for x in (gains, sums))
    hs: Any = _walk(gains, flat, begin, start.reshape(-1), how)
    return hs.reshape(sums.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _walk(
    gains: Inexact[Array, "time n"],
    sums: Inexact[Array, "time n"],
    begin: Bool[Array, " time"],
    start: Inexact[Array, " n"],
    how: How,
) -> Any:
    """Compute h_t = a_t h_{t-1} + x_t for all t, with `how.past` for h_{t-1} at begin flags."""
    steps, elements = sums.shape
    size = -(-min(how.chunk, steps) // UNROLL) * UNROLL
    width = min(WIDTH, 1 << (elements - 1).bit_length())
    rows, columns = -steps % size, -elements % width
    tape = [
        jnp.pad(x, ((0, rows), (0, columns)), constant_values=fill)
        for x, fill in ((gains, 1), (sums, 0))
    ]
    flags = jnp.pad(begin, (0, rows)).astype(jnp.int32)
    starts = jnp.pad(start, (0, columns))[None]
    launch = functools.partial(_launch, how=how, shape=(size, width))
    if steps > size:
        products = launch(_product, [*tape, flags], blocks=True)
        any_begin = flags.reshape(-1, size).any(1)
        ends = _walk(*products, any_begin, starts[0], how)
        starts = shift(ends, starts[0], reverse=how.reverse)
    return launch(_prefixes, [*tape, flags, starts], blocks=False)[0][:steps, :elements]


def _forward(gains, sums, begin, start, how):
    hs = _walk(gains, sums, begin, start, how)
    return hs, (gains, begin, start, hs)


def _backward(how, residuals, gradient):
    """Compute gradients with λ_t = ∂L/∂h_t + a_{t+1} λ_{t+1}.

    ∂L/∂a_t = λ_t h_{t-1}, ∂L/∂x_t = λ_t. The recurrence for λ_t is another call of `_walk`.
    """
    gains, begin, start, hs = residuals
    none = jnp.ones((), bool)
    # Shift the gains and flags by one step. No gradient flows back through a begin flag.
    open_gains = jnp.where(begin[:, None], 0, gains)
    gain, flag = shift((open_gains, begin), (jnp.zeros_like(start), none), reverse=not how.reverse)
    how_back = How(0.0, not how.reverse, how.chunk)
    back: Any = _walk(gain, gradient, flag, jnp.zeros_like(start), how_back)
    before = shift(hs, start, reverse=how.reverse)
    before = jnp.where(begin[:, None], jnp.asarray(how.past, hs.dtype), before)
    first = -1 if how.reverse else 0
    of_start = jnp.where(begin[first], 0, gains[first] * back[first])
    return back * before, back, None, of_start


_walk.defvjp(_forward, _backward)


def _launch(
    kernel: Callable, arrays: list[Array], *, how: How, shape: tuple[int, int], blocks: bool
) -> list[Array]:
    """Run `kernel` on every block; return one row per block if `blocks`, else one per step."""
    size, width = shape
    steps, elements = arrays[0].shape
    tile = pl.BlockSpec((size, width), lambda k, n: (k, n))
    row = pl.BlockSpec((None, width), lambda k, n: (k, n))
    flags = pl.BlockSpec((size,), lambda k, n: (k,))
    planes = 2 if jnp.iscomplexobj(arrays[0]) else 1
    split = [p for x in arrays for p in _planes(x)]
    specs = [*[tile] * 2 * planes, flags, *([] if blocks else [row] * planes)]
    out = jax.ShapeDtypeStruct((steps // size if blocks else steps, elements), split[0].dtype)
    count = planes * (2 if blocks else 1)
    call = functools.partial(
        pl.pallas_call,
        functools.partial(kernel, planes=planes, how=how),
        grid=(steps // size, elements // width),
        in_specs=specs,
        out_specs=[row if blocks else tile] * count,
        out_shape=[out] * count,
    )
    compiled = call(compiler_params=triton.CompilerParams(num_warps=max(width // 32, 1)))
    on_a_gpu = dict.fromkeys(("cuda", "rocm"), compiled)
    results = jax.lax.platform_dependent(*split, default=call(interpret=True), **on_a_gpu)
    if planes == 1:
        return list(results)
    return [jax.lax.complex(*results[i : i + 2]) for i in range(0, count, 2)]


def _planes(x: Array) -> list[Array]:
    """Split a complex array into real and imaginary parts, because Triton supports only reals."""
    return [x.real, x.imag] if jnp.iscomplexobj(x) else [x]


Number = tuple[Array, ...]
"""Values of one step: (real,) or (real, imaginary)."""


def _times(a: Number, b: Number) -> Number:
    if len(a) == 1:
        return (a[0] * b[0],)
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _plus(a: Number, b: Number) -> Number:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _where(flag: Array, constant: float, a: Number) -> Number:
    """Return `constant` + 0i where `flag` is True, and `a` elsewhere."""
    constants = (constant, 0.0)
    return tuple(jnp.where(flag, c, x) for c, x in zip(constants, a, strict=False))


def _loop(steps: int, reverse: bool, read: Callable, advance: Callable, carry: Any) -> Any:
    """Return the carry after `advance(carry, t, read(t))` for every step t of a block.

    The inputs of `UNROLL` steps are loaded before any of them is used.
    """

    def turn(i, carry):
        times = [i * UNROLL + j for j in range(UNROLL)]
        times = [steps - 1 - t for t in times] if reverse else times
        for t, inputs in [(t, read(t)) for t in times]:
            carry = advance(carry, t, inputs)
        return carry

    return jax.lax.fori_loop(0, steps // UNROLL, turn, carry)


def _reader(gains, sums, flags) -> Callable:
    """Return a function that loads the gain, the summand and the begin flag of a step."""

    def read(t):
        a, x = (tuple(ref[t, :] for ref in refs) for refs in (gains, sums))
        return a, x, flags[t] != 0

    return read


def _product(*refs, planes: int, how: How):
    """Kernel that computes the product (a, x) of each block.

    The gain a is 0 if an episode begins in the block.
    """
    gains, sums, flags = refs[:planes], refs[planes : 2 * planes], refs[2 * planes]
    out = refs[2 * planes + 1 :]

    def advance(carry, t, inputs):
        (gain, total), (a, x, begin) = carry, inputs
        total = _plus(_times(a, _where(begin, how.past, total)), x)
        return _where(begin, 0.0, _times(a, gain)), total

    zeros = tuple(jnp.zeros(ref.shape[1:], ref.dtype) for ref in gains)
    ones = (zeros[0] + 1, *zeros[1:])
    read = _reader(gains, sums, flags)
    gain, total = _loop(flags.shape[0], how.reverse, read, advance, (ones, zeros))
    for ref, value in zip(out, (*gain, *total), strict=True):
        ref[...] = value


def _prefixes(*refs, planes: int, how: How):
    """Kernel that computes the prefixes within each block, starting from the value before it."""
    gains, sums, flags = refs[:planes], refs[planes : 2 * planes], refs[2 * planes]
    starts, out = refs[2 * planes + 1 : 3 * planes + 1], refs[3 * planes + 1 :]

    def advance(h, t, inputs):
        a, x, begin = inputs
        h = _plus(_times(a, _where(begin, how.past, h)), x)
        for ref, value in zip(out, h, strict=True):
            ref[t, :] = value
        return h

    start = tuple(ref[...] for ref in starts)
    _loop(flags.shape[0], how.reverse, _reader(gains, sums, flags), advance, start)
