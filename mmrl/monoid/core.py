"""Monoids: sets with an associative operator and an identity.

Associativity allows `scan.py` to compute in parallel. The sequence models in `memory/` and the
learning targets in `returns.py` are scans of the monoids in this module and in `more.py`. Equation
numbers without a source refer to Morad et al. 2024 (arXiv:2402.09900v1).

In `monoid(a, b)`, a scan reads `a` before `b`. In a forward scan, `a` is therefore the earlier
step; in a reverse scan, which reads the tape from its end, `a` is the later step. Elements are
pytrees of arrays without a time axis; use `jax.vmap(monoid)` to combine many pairs at once. Monoids
with the default `shape`, `()`, combine arrays of any shape elementwise.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Inexact, PyTree, Shaped

from mmrl._dtypes import with_promotion

Arrays = PyTree[Shaped[Array, "..."]]
Map = tuple[Inexact[Array, "*h"], Inexact[Array, "*h"]]
"""Element (a, x) of `Affine`. The pair represents the map h ↦ a h + x."""
FlaggedElement = tuple[PyTree, Bool[Array, ""]]
"""Element (h, begin) of `Resettable`. A product drops all factors before a True `begin`."""


class Monoid(eqx.Module):
    """Set with an associative operator • and an identity e.  Eqs. 3-4.

    (a • b) • c = a • (b • c) and e • a = a = a • e.
    """

    @abc.abstractmethod
    def identity(self) -> PyTree:
        """Return the identity e, an element without a time axis."""

    @abc.abstractmethod
    def __call__(self, a: PyTree, b: PyTree) -> PyTree:
        """Return a • b, where `a` is read before `b`."""


class Sum(Monoid):
    """Sums of pytrees, a • b = a + b.  Eqs. 9-11.

    `example` is a pytree of arrays or `jax.ShapeDtypeStruct`s with the shapes and dtypes of an
    element. Linear attention is a scan of this monoid.

        >>> monoid = Sum(jnp.zeros(()))
        >>> monoid(jnp.float32(1), jnp.float32(2))
        Array(3., dtype=float32)
    """

    example: PyTree[jax.ShapeDtypeStruct] = eqx.field(static=True)

    def __init__(self, example: PyTree):
        self.example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example)

    def identity(self) -> Arrays:
        """Return zeros with the shapes and dtypes of `example`."""
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.example)

    def __call__(self, a: Arrays, b: Arrays) -> Arrays:
        return jax.tree.map(jnp.add, a, b)


class Affine(Monoid):
    """Maps h ↦ a h + x under composition: (a, x) • (b, y) = (b a, b x + y).  Eqs. 62-64, 67-69.

    The maps are real or complex and act elementwise, so a is the diagonal of a matrix. A map with
    a = 0 ignores its input, so it resets the state without a separate flag. The LRU, S5, minGRU and
    all returns are scans of this monoid. The paper swaps the arguments in Eqs. 15-17 and 53-55,
    because returns are computed from the end of the tape.

        >>> halve, add_three = (jnp.float32(0.5), jnp.float32(0)), (jnp.float32(1), jnp.float32(3))
        >>> tuple(map(float, Affine()(halve, add_three)))  # h -> 0.5 h + 3
        (0.5, 3.0)
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())
    dtype: Any = eqx.field(static=True, default=jnp.float32)

    def identity(self) -> Map:
        """Return the identity map h ↦ h, which is (1, 0)."""
        return jnp.ones(self.shape, self.dtype), jnp.zeros(self.shape, self.dtype)

    @with_promotion
    def __call__(self, a: Map, b: Map) -> Map:
        (a_gain, a_sum), (b_gain, b_sum) = a, b
        return b_gain * a_gain, b_gain * a_sum + b_sum


class Product(Monoid):
    """Direct product of monoids: (a₁, a₂, …) • (b₁, b₂, …) = (a₁ • b₁, a₂ • b₂, …).

    >>> monoid = Product((Sum(jnp.zeros(())), Sum(jnp.zeros(2))))
    >>> monoid.identity()
    (Array(0., dtype=float32), Array([0., 0.], dtype=float32))
    """

    factors: tuple[Monoid, ...]

    def identity(self) -> tuple[PyTree, ...]:
        """Return the identities of the factors."""
        return tuple(factor.identity() for factor in self.factors)

    def __call__(self, a: tuple[PyTree, ...], b: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        return tuple(factor(x, y) for factor, x, y in zip(self.factors, a, b, strict=True))


class Resettable(Monoid):
    """Monoid extended by begin flags: (a, i) • (b, j) = (e • b if j else a • b, i or j).

    Theorem 3.4, Eqs. 20-22. The paper multiplies the past by (1 - j). Here the past is replaced by
    the identity with `where`, so that NaNs and infinities from an earlier episode do not propagate,
    and so that the identity may contain -∞.

        >>> monoid = Resettable(Sum(jnp.zeros(())))
        >>> past, first = (jnp.float32(5), jnp.array(False)), (jnp.float32(2), jnp.array(True))
        >>> monoid(past, first)[0]  # the sum of the new episode only
        Array(2., dtype=float32)
    """

    inner: Monoid

    def identity(self) -> FlaggedElement:
        """Return the inner identity and the flag False."""
        return self.inner.identity(), jnp.zeros((), bool)

    def __call__(self, a: FlaggedElement, b: FlaggedElement) -> FlaggedElement:
        (a_inner, a_begin), (b_inner, b_begin) = a, b
        # Reset the past before combining. Selecting between two products would give NaN gradients
        # if the past is NaN.
        pairs = self.inner.identity(), a_inner
        past = jax.tree.map(lambda e, h: jnp.where(b_begin, jnp.asarray(e, h.dtype), h), *pairs)
        return self.inner(past, b_inner), a_begin | b_begin


def real_elements(monoid: Monoid, pair: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return `pair`. Raises `ValueError` for integers, which cannot represent the identity's -∞."""
    if kinds := [str(x.dtype) for x in pair if not jnp.issubdtype(x.dtype, jnp.inexact)]:
        raise ValueError(
            f"`xs` must be floating-point for `{type(monoid).__name__}`, whose identity is -∞; got "
            f"{', '.join(kinds)}. Convert it with `.astype(float)`."
        )
    return pair
