"""A GPU kernel for the scan of `Affine`: it reads the tape twice and writes it once.

Compute h_t = a_t h_{t-1} + x_t elementwise, or h_t = x_t where an episode begins. Blocks of the
tape run in parallel, and inside a block one loop visits the steps:

1. For each block, compute the product of its elements (Pallas, compiled by Triton).
2. Compute the prefixes of these products, by the same function: there are `chunk` times fewer.
3. For each block, compute the prefixes of its elements from the value before the block (Pallas).

`jax.lax.associative_scan` reads and writes the tape at each of its 2 log₂T levels. On a device
without Triton the kernels run in Pallas' interpreter, which is slow and is there for tests.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Inexact, Int, PyTree

from mmrl.monoid import Affine, Monoid, Resettable
from mmrl.schedules import shift

LANES = 128
"""Largest number of elements of one step that a program of the GPU computes."""
How = tuple[float, bool, int]
"""`forgotten`, `reverse` and `chunk` of `walk`."""
UNROLL = 8
"""Steps whose inputs are loaded together, so that they wait for the GPU's memory once."""


def prefixes(
    monoid: Monoid, xs: PyTree, start: PyTree, *, reverse: bool, chunk: int
) -> tuple[PyTree, PyTree]:
    """Return every prefix of `Affine` or `Resettable(Affine)`, and the last of them.

    `xs`: one element per step, with time first; `start`: one element. `chunk` is the number of
    steps per block. Raises `ValueError` for another monoid and for integers.
    """
    if isinstance(monoid, Resettable) and isinstance(monoid.inner, Affine):
        (maps, begin), (first, flag) = xs, start
        sums, last = _maps(maps, begin, first, reverse, chunk)
        flags = (jax.lax.cummax(begin.astype(jnp.int8), reverse=reverse) > 0) | flag
        return (sums, flags), (last, flags[0 if reverse else -1])
    if isinstance(monoid, Affine):
        return _maps(xs, jnp.zeros(len(xs[0]), bool), start, reverse, chunk)
    raise ValueError(
        "`method` must not be 'kernel' for this monoid, because the kernel computes `Affine` and "
        f"`Resettable(Affine)` only; got {type(monoid).__name__}. Use 'associative' on a GPU."
    )


def _maps(
    maps: PyTree, begin: Bool[Array, " time"], first: PyTree, reverse: bool, chunk: int
) -> tuple[PyTree, PyTree]:
    """Return all prefixes (a, x) of affine maps, and the last one."""
    gains, sums = maps
    if not all(jnp.issubdtype(x.dtype, jnp.inexact) for x in maps):
        raise ValueError(
            "`xs` must hold floating-point or complex numbers for the method 'kernel'; got "
            f"{gains.dtype} and {sums.dtype}. Convert them with `.astype(float)`."
        )
    # Two calls, so that XLA drops the first one if no caller uses the gains.
    gain = _shaped(gains, jnp.zeros_like(gains), begin, first[0], (1.0, reverse, chunk))
    total = _shaped(gains, sums, begin, first[1], (0.0, reverse, chunk))
    at = 0 if reverse else -1
    return (gain, total), (gain[at], total[at])


def _shaped(gains: Array, sums: Array, begin: Array, start: Array, how: How) -> Array:
    """Return `walk` of elements of any shape, whose gains may have fewer axes than their sums."""
    steps, missing = len(sums), sums.ndim - gains.ndim
    gains = gains.reshape(steps, *[1] * missing, *gains.shape[1:]).astype(sums.dtype)
    gains = jnp.broadcast_to(gains, sums.shape).reshape(steps, -1)
    hs: Any = _walk(gains, sums.reshape(steps, -1), begin, start.reshape(-1), how)
    return hs.reshape(sums.shape)


def walk(
    gains: Inexact[Array, "time n"],
    sums: Inexact[Array, "time n"],
    begin: Bool[Array, " time"],
    start: Inexact[Array, " n"],
    *,
    forgotten: float = 0.0,
    reverse: bool = False,
    chunk: int = 256,
) -> Inexact[Array, "time n"]:
    """Return h_t = a_t h_{t-1} + x_t for every t; `forgotten` replaces h_{t-1} at a begin flag."""
    return _walk(gains, sums, begin, start, (forgotten, reverse, chunk))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _walk(gains: Array, sums: Array, begin: Array, start: Array, how: How) -> Any:
    steps, lanes = sums.shape
    forgotten, reverse, chunk = how
    size = -(-min(chunk, steps) // UNROLL) * UNROLL
    width = min(LANES, 1 << (lanes - 1).bit_length())
    rows, columns = -steps % size, -lanes % width
    tape = [
        jnp.pad(x, ((0, rows), (0, columns)), constant_values=fill)
        for x, fill in ((gains, 1), (sums, 0))
    ]
    flags = jnp.pad(begin, (0, rows)).astype(jnp.int32)
    starts = jnp.pad(start, (0, columns))[None]
    launch = functools.partial(_launch, forgotten=forgotten, reverse=reverse, shape=(size, width))
    if steps > size:
        products = launch(_product, [*tape, flags], blocks=True)
        any_begin = flags.reshape(-1, size).any(1)
        ends = _walk(*products, any_begin, starts[0], how)
        starts = shift(ends, starts[0], reverse=reverse)
    return launch(_prefixes, [*tape, flags, starts], blocks=False)[0][:steps, :lanes]


def _forward(gains, sums, begin, start, how):
    hs = _walk(gains, sums, begin, start, how)
    return hs, (gains, begin, start, hs)


def _backward(how, residuals, slopes):
    """λ_t = ∂L/∂h_t + a_{t+1} λ_{t+1}, a walk again; ∂L/∂a_t = λ_t h_{t-1} and ∂L/∂x_t = λ_t."""
    gains, begin, start, hs = residuals
    forgotten, reverse, chunk = how
    none = jnp.ones((), bool)
    # What follows each step, in the order of reading; nothing flows back through a begin flag.
    open_gains = jnp.where(begin[:, None], 0, gains)
    gain, flag = shift((open_gains, begin), (jnp.zeros_like(start), none), reverse=not reverse)
    back: Any = _walk(gain, slopes, flag, jnp.zeros_like(start), (0.0, not reverse, chunk))
    before = shift(hs, start, reverse=reverse)
    before = jnp.where(begin[:, None], jnp.asarray(forgotten, hs.dtype), before)
    first = -1 if reverse else 0
    return back * before, back, None, open_gains[first] * back[first]


_walk.defvjp(_forward, _backward)


def _launch(
    kernel: Callable, arrays: list[Array], *, forgotten: float, reverse: bool, shape, blocks: bool
) -> list[Array]:
    """Run `kernel` on every block of the tape; return one row per block, or one per step."""
    size, width = shape
    steps, lanes = arrays[0].shape
    tile = pl.BlockSpec((size, width), lambda k, n: (k, n))
    row = pl.BlockSpec((None, width), lambda k, n: (k, n))
    flags = pl.BlockSpec((size,), lambda k, n: (k,))
    planes = 2 if jnp.iscomplexobj(arrays[0]) else 1
    split = [p for x in arrays for p in _planes(x)]
    specs = [*[tile] * 2 * planes, flags, *([] if blocks else [row] * planes)]
    out = jax.ShapeDtypeStruct((steps // size if blocks else steps, lanes), split[0].dtype)
    count = planes * (2 if blocks else 1)
    results = pl.pallas_call(
        functools.partial(kernel, planes=planes, forgotten=forgotten, reverse=reverse),
        grid=(steps // size, lanes // width),
        in_specs=specs,
        out_specs=[row if blocks else tile] * count,
        out_shape=[out] * count,
        compiler_params=triton.CompilerParams(num_warps=max(width // 32, 1)),
        interpret=jax.default_backend() != "gpu",
    )(*split)
    if planes == 1:
        return list(results)
    return [jax.lax.complex(*results[i : i + 2]) for i in range(0, count, 2)]


def _planes(x: Array) -> list[Array]:
    """Return the real and the imaginary part of a complex array: Triton has no complex numbers."""
    return [x.real, x.imag] if jnp.iscomplexobj(x) else [x]


Number = tuple[Array, ...]
"""The planes of one step: (real,) or (real, imaginary)."""


def _times(a: Number, b: Number) -> Number:
    if len(a) == 1:
        return (a[0] * b[0],)
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _plus(a: Number, b: Number) -> Number:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _where(flag: Array, constant: float, a: Number) -> Number:
    """Return `constant` + 0i if `flag`, otherwise `a`."""
    constants = (constant, 0.0)
    return tuple(jnp.where(flag, c, x) for c, x in zip(constants, a, strict=False))


def _loop(steps: Int[Array, ""] | int, reverse: bool, read: Callable, advance: Callable, carry):
    """Call `advance(carry, t, read(t))` for every t of a block; reads come first, 8 at a time."""

    def turn(i, carry):
        times = [i * UNROLL + j for j in range(UNROLL)]
        times = [steps - 1 - t for t in times] if reverse else times
        for t, inputs in [(t, read(t)) for t in times]:
            carry = advance(carry, t, inputs)
        return carry

    return jax.lax.fori_loop(0, steps // UNROLL, turn, carry)


def _reader(gains, sums, flags) -> Callable:
    """Return a function that loads the gain, the summand and the flag of one step."""

    def read(t):
        a, x = (tuple(ref[t, :] for ref in refs) for refs in (gains, sums))
        return a, x, flags[t] != 0

    return read


def _product(*refs, planes: int, forgotten: float, reverse: bool):
    """Kernel: the product (a, x) of a block; a = 0 if an episode begins in it."""
    gains, sums, flags = refs[:planes], refs[planes : 2 * planes], refs[2 * planes]
    out = refs[2 * planes + 1 :]

    def advance(carry, t, inputs):
        (gain, total), (a, x, begin) = carry, inputs
        total = _plus(_times(a, _where(begin, forgotten, total)), x)
        return _where(begin, 0.0, _times(a, gain)), total

    zeros = tuple(jnp.zeros(ref.shape[1:], ref.dtype) for ref in gains)
    ones = (zeros[0] + 1, *zeros[1:])
    read = _reader(gains, sums, flags)
    gain, total = _loop(flags.shape[0], reverse, read, advance, (ones, zeros))
    for ref, value in zip(out, (*gain, *total), strict=True):
        ref[...] = value


def _prefixes(*refs, planes: int, forgotten: float, reverse: bool):
    """Kernel: the prefixes of a block, from the value before it."""
    gains, sums, flags = refs[:planes], refs[planes : 2 * planes], refs[2 * planes]
    starts, out = refs[2 * planes + 1 : 3 * planes + 1], refs[3 * planes + 1 :]

    def advance(h, t, inputs):
        a, x, begin = inputs
        h = _plus(_times(a, _where(begin, forgotten, h)), x)
        for ref, value in zip(out, h, strict=True):
            ref[t, :] = value
        return h

    start = tuple(ref[...] for ref in starts)
    _loop(flags.shape[0], reverse, _reader(gains, sums, flags), advance, start)
