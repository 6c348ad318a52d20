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

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from mmrl import schedules
from mmrl.monoid import Monoid
from mmrl.schedules import check_chunk, execute, in_chunks, schedule

METHODS = (*schedules.METHODS, "auto")


def scan(
    monoid: Monoid,
    xs: PyTree[Shaped[Array, "time ..."]],
    init: PyTree | None = None,
    *,
    reverse: bool = False,
    method: str = "auto",
    chunk: int = 256,
) -> PyTree[Shaped[Array, "time ..."]]:
    """h_t = init • x_0 • … • x_t for every t.  Eq. 7 of Morad et al. 2024, repeated.

    With `reverse` the tape is read from its end, h_t = init • x_{T-1} • … • x_t, so "earlier" means
    nearer to the end. `init` defaults to the identity. `method` is one of `METHODS`; all agree up
    to rounding. "auto" is "sequential" on a CPU and "associative" elsewhere (measured by
    `tests/benchmarks/bench_scan.py`). `chunk` is the block length of "chunked".

    Raises `ValueError` for an unknown method, a chunk below 1, leaves of unequal length or of types
    that the products do not have, or an `init` that is not one element shaped like those of `xs`.
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
    xs = jax.tree.map(jnp.asarray, xs)
    length = _length(xs)
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}; got {method!r}.")
    check_chunk(chunk)
    start = _start(monoid, xs, init)
    _check_types(monoid, start)
    if length == 0:
        return xs, start
    method = _auto() if method == "auto" else method
    if method == "sequential":
        return _sequential(monoid, xs, start, reverse=reverse)
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


def fold(
    monoid: Monoid, xs: PyTree[Shaped[Array, "time ..."]], init: PyTree | None = None
) -> PyTree:
    """init • x_0 • … • x_{T-1}: the last prefix alone, one element without a time axis.

    One pass on a CPU, a halving tree of depth log₂T elsewhere.
    """
    length, start = _length(xs), _start(monoid, xs, init)
    if _auto() == "sequential":
        return jax.lax.scan(lambda h, x: (monoid(h, x), None), start, xs)[0]
    while length > 1:
        xs, length = _halve(monoid, xs, length), (length + 1) // 2
    return monoid(start, jax.tree.map(lambda x: x[0], xs)) if length else start


def _halve(monoid: Monoid, xs: PyTree, length: int) -> PyTree:
    """x_0 • x_1, x_2 • x_3, …, and the last element where the length is odd."""
    even = length - length % 2
    left, right = (jax.tree.map(lambda x, i=i: x[i:even:2], xs) for i in (0, 1))
    pairs = jax.vmap(monoid)(left, right)
    return jax.tree.map(lambda p, x: jnp.concatenate([p, x[even:]]), pairs, xs)


def _auto() -> str:
    return "sequential" if jax.default_backend() == "cpu" else "associative"


def _length(xs: PyTree[Shaped[Array, "..."]]) -> int:
    shapes = [x.shape for x in jax.tree.leaves(xs)]
    lengths = {shape[0] if shape else None for shape in shapes}
    if len(lengths) != 1 or None in lengths:
        raise ValueError(
            "`xs` must be a pytree of arrays with one common leading time axis; got shapes "
            f"{shapes}. Stack the elements, or broadcast constants over time."
        )
    return shapes[0][0]


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


def _check_types(monoid: Monoid, element: PyTree) -> None:
    """Products must have the elements' types: a scan in place would round them off in silence."""
    product = jax.eval_shape(monoid, element, element)
    before, after = ([str(x.dtype) for x in jax.tree.leaves(tree)] for tree in (element, product))
    if before != after:
        raise ValueError(
            f"`xs` must have the types that its products have, {', '.join(after)}; got "
            f"{', '.join(before)}. Convert it with `.astype`."
        )


@eqx.filter_custom_jvp
def _sequential(
    monoid: Monoid, xs: PyTree, start: PyTree, *, reverse: bool
) -> tuple[PyTree, PyTree]:
    """Every prefix, and the last of them, in one pass."""

    def step(h, x):
        h = monoid(h, x)
        return h, h

    last, hs = jax.lax.scan(step, start, xs, reverse=reverse, unroll=_unroll(xs))
    return hs, last


@_sequential.def_jvp
def _sequential_jvp(primals, tangents, *, reverse):
    """ḣ_t = ∂₁(h_{t-1} • x_t) ḣ_{t-1} + ∂₂(h_{t-1} • x_t) ẋ_t: a recurrence again, a linear one.

    JAX alone would differentiate the loop and leave all of this inside it. Taking the derivatives
    of all steps at once, before the loop, makes the way back several times as fast.
    """
    (monoid, xs, start), (d_monoid, d_xs, d_start) = primals, tangents
    hs, last = _sequential(monoid, xs, start, reverse=reverse)

    def shift(e, h):
        return jnp.concatenate([h[1:], e[None]] if reverse else [e[None], h[:-1]])

    def derivatives(h, x, dx):
        moving, fixed = eqx.partition(h, eqx.is_inexact_array)

        def product(monoid, moving, x):
            return eqx.filter(monoid(eqx.combine(moving, fixed), x), eqx.is_inexact_array)

        along = jax.linearize(lambda h: product(monoid, h, x), moving)[1]
        push = eqx.filter_jvp(lambda m, x: product(m, moving, x), (monoid, x), (d_monoid, dx))[1]
        return along, push

    def step(dh, derivative):
        along, push = derivative
        dh = eqx.apply_updates(along(dh), push)
        return dh, dh

    slopes = jax.vmap(derivatives)(jax.tree.map(shift, start, hs), xs, d_xs)
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
