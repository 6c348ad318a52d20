"""Tests of the monoid laws: `laws` measures the errors on elements that `products` draws.

A scan relies on these laws and does not check them: with an operator that breaks one, it returns
wrong results without an error.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from mmrl.monoid.core import Monoid


def laws(
    monoid: Monoid,
    a: PyTree[Shaped[Array, "..."]],
    b: PyTree[Shaped[Array, "..."]],
    c: PyTree[Shaped[Array, "..."]],
) -> dict[str, float]:
    """Return the largest error of each monoid law over many triples.

    (a • b) • c = a • (b • c), e • a = a and a • e = a.  Eqs. 3-4. Leaves of `a`, `b` and `c` carry
    a leading axis of cases. An error is |x - y| / (1 + |x|), so absolute for small numbers and
    relative for large ones; equal infinities differ by 0, a NaN by ∞, a wrong flag by 1. Rounding
    by itself leaves about 1e-6 in float32 and 1e-15 in float64.

    Pass elements that f can produce (see `products`): the laws need to hold only for those. All
    three laws are necessary but not sufficient. For example, linear attention that returns the
    later normalizer instead of the sum is associative and still wrong, so compare with a loop too.
    """
    return {name: float(jnp.max(error)) for name, error in errors(monoid, a, b, c).items()}


def products(
    monoid: Monoid, elements: PyTree[Shaped[Array, "..."]], key: PRNGKeyArray
) -> PyTree[Shaped[Array, "..."]]:
    """Draw random elements as a scan meets them: f(x_1) • … • f(x_n), with n drawn from 1 … N.

    Leaves of `elements` are [cases, N, ...], those in the result [cases, ...].
    """
    cases, most = jax.tree.leaves(elements)[0].shape[:2]
    return _products(monoid, elements, jax.random.randint(key, (cases,), 1, most + 1))


@eqx.filter_jit
def errors(
    monoid: Monoid,
    a: PyTree[Shaped[Array, "..."]],
    b: PyTree[Shaped[Array, "..."]],
    c: PyTree[Shaped[Array, "..."]],
) -> dict[str, Float[Array, " cases"]]:
    """Return the error of each law on each triple, as `laws` measures it."""
    op = jax.vmap(monoid)
    e = jax.tree.map(
        lambda e, x: jnp.broadcast_to(e, x.shape).astype(x.dtype), monoid.identity(), a
    )
    pairs = {
        "associativity": (op(op(a, b), c), op(a, op(b, c))),
        "left identity": (op(e, a), a),
        "right identity": (op(a, e), a),
    }
    return {name: _error(*pair) for name, pair in pairs.items()}


def _error(x: PyTree, y: PyTree) -> Float[Array, " cases"]:
    def leaf(x, y):
        if x.dtype == bool:
            error = (x != y).astype(float)
        else:
            relative = jnp.abs(x - y) / (1 + jnp.abs(x))
            error = jnp.where(jnp.isnan(relative), jnp.inf, relative)
        error = jnp.where(x == y, 0, error)
        return jnp.max(error.reshape(len(error), -1), axis=1, initial=0)

    return jnp.max(jnp.stack(jax.tree.leaves(jax.tree.map(leaf, x, y))), axis=0)


@eqx.filter_jit
def _products(monoid, elements, lengths):
    op = jax.vmap(monoid)

    def at(i):
        return jax.tree.map(lambda x: x[:, i], elements)

    def choose(going, longer, h):
        return jnp.where(going.reshape(-1, *[1] * (h.ndim - 1)), longer, h)

    h = at(0)
    for i in range(1, jax.tree.leaves(elements)[0].shape[1]):
        h = jax.tree.map(functools.partial(choose, i < lengths), op(h, at(i)), h)
    return h
