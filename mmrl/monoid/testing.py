"""Numerical tests of the monoid laws.

A scan relies on these laws but does not check them. If an operator violates a law, the results of
the scan are silently wrong.
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
    """Return the largest error of each monoid law over a batch of triples.

    The laws are (a • b) • c = a • (b • c), e • a = a and a • e = a (Eqs. 3-4). The leaves of `a`,
    `b` and `c` have a leading batch axis. Errors are |x - y| / (1 + |x|), which is absolute for
    small values and relative for large ones. The error is 0 for equal infinities, ∞ for NaN, and 1
    for booleans that differ. Rounding causes errors of about 1e-6 in float32 and 1e-15 in float64.

    The laws only need to hold for elements that occur in a scan; `products` samples such elements.
    Test the identity laws as well as associativity. For example, if linear attention keeps the
    later of two normalizers instead of their sum, only the right identity law fails. An operator
    that satisfies all laws may still compute the wrong result, such as a sum instead of a maximum,
    so compare the results of a scan with a loop as well.

        >>> from mmrl.monoid import Max
        >>> a, b, c = jax.random.uniform(jax.random.key(0), (3, 2, 100))
        >>> laws(Max(), (-a, b), (-b, c), (-c, a))["left identity"]
        0.0
    """
    return {name: float(jnp.max(error)) for name, error in errors(monoid, a, b, c).items()}


def products(
    monoid: Monoid, elements: PyTree[Shaped[Array, "..."]], key: PRNGKeyArray
) -> PyTree[Shaped[Array, "..."]]:
    """Return, for each case, the product of its first n elements, as it occurs in a scan.

    n is sampled uniformly from 1 to N. Leaves of `elements` have shape [cases, N, ...], and leaves
    of the result have shape [cases, ...].

        >>> from mmrl.monoid import Sum
        >>> elements = jnp.ones((3, 4))  # 3 cases of 4 elements
        >>> products(Sum(jnp.zeros(())), elements, jax.random.key(0)).shape
        (3,)
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
    """Return the error of each monoid law for each triple; `laws` defines the errors."""
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
