"""Monoids of the reader's own, checked before a scan may use them."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from mmrl.monoid import Monoid
from mmrl.monoid.laws import errors

_TOLERANCE = 1e-4  # relative: the two ways to bracket round differently


class Declared(Monoid):
    """A function and its identity under a name; `declare` makes one after it has been checked.

    Called inside a step, it leaves its name in the jaxpr, where the lift pass finds it.
    """

    combine: Callable = eqx.field(static=True)
    empty: PyTree
    name: str = eqx.field(static=True)

    def identity(self) -> PyTree:
        return self.empty

    def __call__(self, a: PyTree, b: PyTree) -> PyTree:
        def combine(a, b):
            return self.combine(a, b)

        combine.__name__ = _mark(self.name)
        return jax.jit(combine)(a, b)


def declare(
    combine: Callable[[PyTree, PyTree], PyTree],
    identity: PyTree,
    *,
    name: str = "combine",
    sample: Callable[[Key[Array, ""]], PyTree] | None = None,
    triples: int = 64,
) -> Declared:
    """A monoid out of `combine(earlier, later)` and its identity, tried on random triples.

    `sample(key)` draws one element; by default entries are normal, small integers or coin flips,
    by the type of the identity's. Give it where elements are special, such as counts ≥ 0.
    `combine` may also be a monoid of the library. Passing is evidence, not proof.

    Raises `ValueError` with the triple where (a • b) • c differs from a • (b • c), or with the
    element that the identity changes.
    """
    empty = jax.tree.map(jnp.asarray, identity)
    draw = sample or (lambda key: _random(key, empty))
    keys = jax.random.split(jax.random.key(0), (3, triples))
    a, b, c = (jax.vmap(draw)(k) for k in keys)
    monoid = Declared(combine, empty, name)
    made = jax.eval_shape(jax.vmap(monoid), a, b)
    if jax.tree.structure(made) != jax.tree.structure(a):
        raise ValueError("`combine` must return an element like its arguments.")
    for law, error in errors(monoid, a, b, c).items():
        if float(jnp.max(error)) > _TOLERANCE:
            _refuse(law, int(jnp.argmax(error)), a, b, c)
    return monoid


def declaration(monoids: Sequence[Declared], name: str | None) -> Declared | None:
    """The monoid whose call bears this name in a jaxpr, if there is one."""
    return next((monoid for monoid in monoids if _mark(monoid.name) == name), None)


def _mark(name: str) -> str:
    return f"monoid_{name}"


def _random(key: Key[Array, ""], like: PyTree) -> PyTree:
    leaves, tree = jax.tree.flatten(like)

    def one(key, leaf):
        if leaf.dtype == bool:
            return jax.random.bernoulli(key, 0.5, leaf.shape)
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jax.random.randint(key, leaf.shape, 0, 5, leaf.dtype)
        return jax.random.normal(key, leaf.shape, leaf.dtype)

    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(tree, [one(k, leaf) for k, leaf in zip(keys, leaves, strict=True)])


_LAWS = {
    "associativity": "be associative, (a • b) • c = a • (b • c)",
    "left identity": "have the identity that it is given, e • a = a",
    "right identity": "have the identity that it is given, a • e = a",
}


def _refuse(law: str, case: int, *triples: PyTree) -> None:
    told = jax.tree.map(lambda x: x[case].tolist(), triples)
    at = ", ".join(f"{name} = {element}" for name, element in zip("abc", told, strict=True))
    raise ValueError(
        f"`combine` must {_LAWS[law]}, and does not at {at}. A scan would give other numbers at "
        "each way of bracketing: carry more in the element, or keep the loop."
    )
