"""Running products of a monoid along a tape: six ways to compute the same prefixes.

Because the operator is associative, the products may be bracketed in any way, so a scan of T
elements needs only O(log T) parallel steps. The methods differ in work, depth and compile time:

    method          combines          levels            best for
    sequential      T                 T                 a CPU: one pass, compiles at once
    hillis_steele   T log₂T - T + 1   log₂T             teaching: least depth, most work
    blelloch        < 2T              2 log₂T           teaching: least work of the parallel ones
    associative     < 2T              2 log₂T           a GPU: the same tree, written by JAX
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
"""Methods for every monoid; "kernel" is for `Affine` and `Resettable(Affine)`."""


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
    """Return the running products h_t = init • x_0 • … • x_t of a tape.

    Eq. 7 of Morad et al. 2024, repeated. With `reverse` the tape is read from its end, h_t = init •
    x_{T-1} • … • x_t: the later of two steps is read first. `init` defaults to the identity.
    `method` is one of `METHODS`, or "kernel". All methods agree up to rounding, and all except
    "kernel" have forward-mode derivatives. "auto" is "sequential" on a CPU and "associative"
    elsewhere (measured by `tests/benchmarks/bench_scan.py`). `chunk` is the block length of
    "chunked" and "kernel".

    For a tape that is split over devices, `axis` is the name of the axis that `jax.shard_map` maps
    (or `jax.vmap`, as its `axis_name`). Each device holds its part of `xs`, in order, and all
    devices have the same `init`. They exchange one element each, for a tape of any length. With `P`
    for `jax.sharding.PartitionSpec`:

        run = jax.shard_map(
            lambda xs, init: scan_and_last(monoid, xs, init, axis="time"),
            mesh=jax.sharding.Mesh(jax.devices(), ("time",)),
            in_specs=(P("time"), P()),
            out_specs=(P("time"), P()),  # the prefixes stay split; all devices have the last
            check_vma=False,
        )

    Differentiate `run` as you would a function on one device.

    Raises `ValueError` for an unknown method, "kernel" with any monoid except `Affine` and
    `Resettable(Affine)`, a chunk below 1, leaves of unequal length or of types that the products do
    not have, an `init` that is not one element shaped like those in `xs`, or an `axis` that is not
    mapped here.
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
    """Return the prefixes of `scan`, and the product of the whole tape (one element, no time axis).

    The product equals the last prefix, or `init` after an empty tape. If you use it in place of the
    last prefix, XLA can drop unused parts of the prefixes, such as the gains of `Affine`.
    """
    xs = as_elements(monoid, xs)
    length = len(jax.tree.leaves(xs)[0])
    if method not in (*METHODS, "kernel"):
        known = ", ".join((*METHODS, "kernel"))
        raise ValueError(f"`method` must be one of {known}; got {method!r}.")
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
        from mmrl.kernel import prefixes  # Pallas takes a second to import

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
    """Return every prefix h_t = h_{t-1} • x_t, and the last one, in one sequential pass."""

    def step(h, x):
        h = op(h, x)
        return h, h

    last, hs = jax.lax.scan(step, start, xs, reverse=reverse, unroll=_unroll(xs))
    return hs, last


@_in_turn.def_jvp
def _slopes_in_turn(primals, tangents, *, reverse):
    """Differentiate `_in_turn`: ḣ_t = ∂₁(h_{t-1} • x_t) ḣ_{t-1} + ∂₂(h_{t-1} • x_t) ẋ_t.

    This is again a recurrence, and a linear one. JAX's own rule would compute the derivatives
    inside the loop; computing all of them before it makes the backward pass several times as fast.
    """
    (op, xs, start), (d_op, d_xs, d_start) = primals, tangents
    hs, last = _in_turn(op, xs, start, reverse=reverse)

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
    """Return the steps per turn of the loop: 4 for up to three scalars, where overhead dominates.

    Larger elements get 1: XLA compiles a loop in one piece only while its body is small, and past
    that size each step costs twenty times as much.
    """
    leaves = jax.tree.leaves(xs)
    return 4 if len(leaves) <= 3 and all(x.ndim == 1 for x in leaves) else 1


def _across(
    monoid: Monoid, xs: PyTree, start: PyTree, axis: str, *, reverse: bool, **how
) -> tuple[PyTree, PyTree]:
    """Return the prefixes of this device's part of a tape, and the product of the whole tape.

    This is "chunked" with one device per chunk: scan each part from the identity, scan the totals,
    and combine the product of the earlier parts with each prefix. Only the totals are communicated.
    """
    try:
        here = jax.lax.axis_index(axis)
    except NameError as error:
        raise ValueError(
            f"`axis` must be the name of a mapped axis, along which `xs` is split; got {axis!r}. "
            "Call this inside `jax.shard_map` over a mesh with it, or `jax.vmap(…, axis_name=…)`."
        ) from error
    hs, total = scan_and_last(monoid, xs, reverse=reverse, **how)
    # Use `tiled`: the gradient of the untiled form takes a wrong axis under `vmap` (JAX 0.10.2).
    totals = jax.tree.map(lambda x: jax.lax.all_gather(x[None], axis, tiled=True), total)
    ends, last = scan_and_last(monoid, totals, start, reverse=reverse)
    past = jax.tree.map(lambda h: h[here], shift(ends, start, reverse=reverse))
    return jax.vmap(monoid, in_axes=(None, 0))(past, hs), last


def fold(
    monoid: Monoid, xs: PyTree[Shaped[Array, "time ..."]], init: PyTree | None = None
) -> PyTree:
    """Return only the last prefix, init • x_0 • … • x_{T-1}: one element without a time axis.

    It takes one pass on a CPU, and a halving tree of depth log₂T elsewhere.
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
    """Return x_0 • x_1, x_2 • x_3, …, and the last element if the length is odd."""
    even = length - length % 2
    left, right = (jax.tree.map(lambda x, i=i: x[i:even:2], xs) for i in (0, 1))
    pairs = jax.vmap(monoid)(left, right)
    return jax.tree.map(lambda p, x: jnp.concatenate([p, x[even:]]), pairs, xs)


def _auto() -> str:
    return "sequential" if jax.default_backend() == "cpu" else "associative"
