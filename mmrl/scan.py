"""Scans: all prefix products of a monoid along a tape, by one of six methods.

Since the operator is associative, the products can be grouped in any order, and a scan of T
elements takes only O(log T) parallel steps. The methods differ in work (products), depth (levels of
parallel products) and compile time. C is the block length `chunk`:

    method          products          levels            best for
    sequential      T                 T                 a CPU: one pass, compiles quickly
    hillis_steele   T log₂T - T + 1   log₂T             teaching: least depth, most work
    blelloch        < 2T              2 log₂T           teaching: least work in parallel
    associative     < 2T              2 log₂T           a GPU: Blelloch's tree, as built into JAX
    chunked         < 2T              C + T/C           long tapes on a GPU, quick to compile
    kernel          < 3T              2C log T / log C  `Affine` only, on a GPU: `mmrl/kernel.py`
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from mmrl._dtypes import whole
from mmrl.monoid import Monoid
from mmrl.monoid.tapes import as_elements, check_types, first_of, shift

METHODS = ("sequential", "hillis_steele", "blelloch", "associative", "chunked", "auto")
"""Methods for every monoid. Another, "kernel", supports only `Affine` and `Resettable(Affine)`."""


def scan(
    monoid: Monoid,
    xs: PyTree[Shaped[Array, "time ..."]],
    init: PyTree | None = None,
    *,
    reverse: bool = False,
    method: str = "auto",
    chunk: int = 256,
    axis: str | None = None,
) -> PyTree[Shaped[Array, "time ..."]]:
    """Return the prefix products h_t = init • x_0 • … • x_t of a tape.

    Each step applies Eq. 7 of Morad et al. 2024. `init` defaults to the identity. With `reverse`,
    the scan starts at the last element: h_t = init • x_{T-1} • … • x_t. `method` is one of
    `METHODS`, or "kernel". All methods agree up to rounding, and all except "kernel" support
    forward-mode derivatives. "auto" selects "sequential" on a CPU and "associative" elsewhere.
    `chunk` is the block length for "chunked" and "kernel".

        >>> from mmrl.monoid import Affine
        >>> scan(Affine(), (jnp.full(3, 0.5), jnp.array([0.0, 0.0, 4.0])), reverse=True)[1]
        Array([1., 2., 4.], dtype=float32)

    If the tape is sharded over devices, `axis` is the axis name of the enclosing `jax.shard_map`
    (or the `axis_name` of a `jax.vmap`). Each device holds one consecutive part of `xs`, and `init`
    is replicated. A device sends only one element, regardless of the length of the tape. In this
    example, P is `jax.sharding.PartitionSpec`, and `run` is differentiable like any other function:

        run = jax.shard_map(
            lambda xs, init: scan_and_last(monoid, xs, init, axis="time"),
            mesh=jax.sharding.Mesh(jax.devices(), ("time",)),
            in_specs=(P("time"), P()),
            out_specs=(P("time"), P()),  # prefixes stay sharded; the last one is replicated
            check_vma=False,
        )

    Raises `ValueError` if the method is unknown or does not support the monoid, if `chunk` is below
    1, if the leaves of `xs` differ in length or have other dtypes than their products, if `init`
    does not match the elements of `xs`, or if `axis` is not a mapped axis.
    """
    hs, _ = scan_and_last(monoid, xs, init, reverse=reverse, method=method, chunk=chunk, axis=axis)
    return hs


def scan_and_last(
    monoid: Monoid,
    xs: PyTree[Shaped[Array, "time ..."]],
    init: PyTree | None = None,
    *,
    reverse: bool = False,
    method: str = "auto",
    chunk: int = 256,
    axis: str | None = None,
) -> tuple[PyTree[Shaped[Array, "time ..."]], PyTree]:
    """Return the prefixes of `scan`, and the product of all elements, without a time axis.

    The product equals the last prefix, or `init` if the tape is empty. Use the product instead of
    indexing the prefixes, so that XLA can drop unused results, such as the gains of `Affine`.
    """
    xs = as_elements(monoid, xs)
    length = len(jax.tree.leaves(xs)[0])
    if method not in (*METHODS, "kernel"):
        names = ", ".join((*METHODS, "kernel"))
        raise ValueError(f"`method` must be one of {names}; got {method!r}.")
    whole("chunk", chunk)
    start = first_of(monoid, xs, init)
    check_types(monoid, start)
    if axis is not None:
        return _across(monoid, xs, start, axis, reverse=reverse, method=method, chunk=chunk)
    if length == 0:
        return xs, start
    method = _auto() if method == "auto" else method
    if method == "sequential":
        return _in_turn(monoid, xs, start, reverse=reverse)
    if method == "kernel":
        from mmrl.kernel import prefixes  # slow import: loading Pallas takes a second

        return prefixes(monoid, xs, start, reverse=reverse, chunk=chunk)
    from mmrl.schedules import execute, in_chunks, schedule

    if reverse:
        xs = jax.tree.map(lambda x: x[::-1], xs)
    op = jax.vmap(monoid)
    if method == "associative":
        hs = jax.lax.associative_scan(op, xs)
    elif method == "chunked":
        hs = in_chunks(op, xs, monoid.identity(), min(chunk, length))
    else:
        hs = execute(op, xs, schedule(length, method))
    if init is not None:
        hs = jax.vmap(monoid, in_axes=(None, 0))(start, hs)
    last = jax.tree.map(lambda h: h[-1], hs)
    return (jax.tree.map(lambda h: h[::-1], hs) if reverse else hs), last


@eqx.filter_custom_jvp
def _in_turn(op: Callable, xs: PyTree, start: PyTree, *, reverse: bool) -> tuple[PyTree, PyTree]:
    """Compute all prefixes h_t = h_{t-1} • x_t, and the last one, with a sequential scan."""

    def step(h, x):
        h = op(h, x)
        return h, h

    last, hs = jax.lax.scan(step, start, xs, reverse=reverse, unroll=_unroll(xs))
    return hs, last


@_in_turn.def_jvp
def _in_turn_jvp(primals, tangents, *, reverse):
    """Differentiate `_in_turn`: ḣ_t = ∂₁(h_{t-1} • x_t) ḣ_{t-1} + ∂₂(h_{t-1} • x_t) ẋ_t.

    This is a linear recurrence in ḣ. JAX's rule would compute ∂₁ and ∂₂ inside the loop. Computing
    them before the loop makes the backward pass several times faster.
    """
    (op, xs, start), (d_op, d_xs, d_start) = primals, tangents
    hs, last = _in_turn(op, xs, start, reverse=reverse)

    def derivatives(h, x, dx):
        moving, rest = eqx.partition(h, eqx.is_inexact_array)

        def product(op, moving, x):
            return eqx.filter(op(eqx.combine(moving, rest), x), eqx.is_inexact_array)

        along = jax.linearize(lambda h: product(op, h, x), moving)[1]
        push = eqx.filter_jvp(lambda op, x: product(op, moving, x), (op, x), (d_op, dx))[1]
        return along, push

    def step(dh, derivative):
        along, push = derivative
        dh = eqx.apply_updates(along(dh), push)
        return dh, dh

    each = jax.vmap(derivatives)(shift(hs, start, reverse=reverse), xs, d_xs)
    zeros = jax.tree.map(jnp.zeros_like, eqx.filter(start, eqx.is_inexact_array))
    d_start = eqx.combine(d_start, zeros)
    d_last, d_hs = jax.lax.scan(step, d_start, each, reverse=reverse, unroll=_unroll(xs))
    return (hs, last), (d_hs, d_last)


def _unroll(xs: PyTree) -> int:
    """Return how many steps of the loop to unroll: 4 for up to three scalars per step, else 1.

    Unrolling helps a loop over scalars, whose cost is mostly overhead. With larger elements, XLA
    does not compile an unrolled body to a single kernel, so a step takes twenty times as long.
    """
    leaves = jax.tree.leaves(xs)
    return 4 if len(leaves) <= 3 and all(x.ndim == 1 for x in leaves) else 1


def _across(
    monoid: Monoid, xs: PyTree, start: PyTree, axis: str, *, reverse: bool, **how
) -> tuple[PyTree, PyTree]:
    """Scan a tape that is sharded along `axis`; return the local prefixes and the total product.

    Each device scans its part from the identity. Then the totals of all devices are gathered and
    scanned, and the product of all earlier parts is combined with the local prefixes.
    """
    try:
        here = jax.lax.axis_index(axis)
    except NameError as error:
        raise ValueError(
            f"`axis` must be the name of a mapped axis over which `xs` is sharded; got {axis!r}. "
            "Call the scan inside `jax.shard_map` over a mesh with this axis, or inside "
            "`jax.vmap(…, axis_name=…)`."
        ) from error
    hs, total = scan_and_last(monoid, xs, reverse=reverse, **how)
    # Use `tiled`, because without it the gradient has a wrong axis under `vmap` (JAX 0.10.2).
    totals = jax.tree.map(lambda x: jax.lax.all_gather(x[None], axis, tiled=True), total)
    ends, last = scan_and_last(monoid, totals, start, reverse=reverse)
    past = jax.tree.map(lambda h: h[here], shift(ends, start, reverse=reverse))
    return jax.vmap(monoid, in_axes=(None, 0))(past, hs), last


def fold(
    monoid: Monoid, xs: PyTree[Shaped[Array, "time ..."]], init: PyTree | None = None
) -> PyTree:
    """Return the product of all elements, init • x_0 • … • x_{T-1}.

    On a CPU this is a single sequential pass, and elsewhere a tree reduction of depth log₂T.

        >>> from mmrl.monoid import Affine
        >>> fold(Affine(), (jnp.full(3, 0.5), jnp.array([4.0, 0.0, 0.0])))[1]
        Array(1., dtype=float32)
    """
    xs = as_elements(monoid, xs)
    length, start = len(jax.tree.leaves(xs)[0]), first_of(monoid, xs, init)
    check_types(monoid, start)
    if _auto() == "sequential":
        return jax.lax.scan(lambda h, x: (monoid(h, x), None), start, xs)[0]
    while length > 1:
        xs, length = _halve(monoid, xs, length), (length + 1) // 2
    return monoid(start, jax.tree.map(lambda x: x[0], xs)) if length else start


def _halve(monoid: Monoid, xs: PyTree, length: int) -> PyTree:
    """Return the tape x_0 • x_1, x_2 • x_3, …, with the last element appended for odd lengths."""
    even = length - length % 2
    left, right = (jax.tree.map(lambda x, i=i: x[i:even:2], xs) for i in (0, 1))
    pairs = jax.vmap(monoid)(left, right)
    return jax.tree.map(lambda p, x: jnp.concatenate([p, x[even:]]), pairs, xs)


def _auto() -> str:
    return "sequential" if jax.default_backend() == "cpu" else "associative"
