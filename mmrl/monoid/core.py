"""Monoids: a set with an associative operator and an identity.

Start here: two monoids, and two ways to build one from others. `scan.py` shows what associativity
buys; `memory/` builds sequence models and `returns.py` builds learning targets from the monoids
here and in `more.py`. Equation numbers without a name are from Morad et al. 2024
(arXiv:2402.09900v1).

In `monoid(a, b)`, `a` is *read before* `b`: the earlier step, or the later one if a scan reads the
tape from its end. Elements are pytrees of arrays without a time axis; use `jax.vmap(monoid)` for
many pairs at once. A monoid whose `shape` is left at `()` combines any shape elementwise.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Inexact, PyTree, Shaped

from mmrl._dtypes import promoting

Arrays = PyTree[Shaped[Array, "..."]]
Map = tuple[Inexact[Array, "*h"], Inexact[Array, "*h"]]
"""(a, x): the map h ↦ a h + x, an element of `Affine`."""
Flagged = tuple[PyTree, Bool[Array, ""]]
"""(h, begin): an element of `Resettable`, which forgets everything before it if `begin` is set."""


class Monoid(eqx.Module):
    """A set with an associative operator • and an identity e.  Eqs. 3-4.

    (a • b) • c = a • (b • c) and e • a = a = a • e.
    """

    @abc.abstractmethod
    def identity(self) -> PyTree:
        """Return the identity e: one element, without a time axis."""

    @abc.abstractmethod
    def __call__(self, a: PyTree, b: PyTree) -> PyTree:
        """Return a • b, where `a` is read before `b`."""


class Sum(Monoid):
    """Sums of pytrees, a • b = a + b: the state of linear attention.  Eqs. 9-11.

    `example` is any pytree of arrays (or `jax.ShapeDtypeStruct`) shaped like one element.
    """

    example: PyTree[jax.ShapeDtypeStruct] = eqx.field(static=True)

    def __init__(self, example: PyTree):
        self.example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example)

    def identity(self) -> Arrays:
        """Return zeros, in the shapes and types of `example`."""
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.example)

    def __call__(self, a: Arrays, b: Arrays) -> Arrays:
        return jax.tree.map(jnp.add, a, b)


class Affine(Monoid):
    """Maps h ↦ a h + x under composition: (a, x) • (b, y) = (b a, b x + y).  Eqs. 62-64, 67-69.

    Elementwise, so a diagonal matrix is its vector; real or complex. The LRU, S5, minGRU and every
    return are scans of this monoid. Eqs. 15-17 and 53-55 have the arguments swapped, because a
    return is read from the end. a = 0 forgets everything before it: a reset needs no flag here.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())
    dtype: Any = eqx.field(static=True, default=jnp.float32)

    def identity(self) -> Map:
        """Return the map h ↦ h: gain 1, sum 0."""
        return jnp.ones(self.shape, self.dtype), jnp.zeros(self.shape, self.dtype)

    @promoting
    def __call__(self, a: Map, b: Map) -> Map:
        (a_gain, a_sum), (b_gain, b_sum) = a, b
        return b_gain * a_gain, b_gain * a_sum + b_sum


class Product(Monoid):
    """Several monoids in one scan: (a₁, a₂, …) • (b₁, b₂, …) = (a₁ • b₁, a₂ • b₂, …)."""

    factors: tuple[Monoid, ...]

    def identity(self) -> tuple[PyTree, ...]:
        """Return the identities of the factors."""
        return tuple(factor.identity() for factor in self.factors)

    def __call__(self, a: tuple[PyTree, ...], b: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        return tuple(factor(x, y) for factor, x, y in zip(self.factors, a, b, strict=True))


class Resettable(Monoid):
    """Any monoid with begin flags: (a, i) • (b, j) = (e • b if j else a • b, i or j).

    Theorem 3.4, Eqs. 20-22. The paper multiplies the past by (1 - j); we select instead, so that a
    NaN or an infinity before the boundary cannot cross it, and -∞ may serve as an identity.
    """

    inner: Monoid

    def identity(self) -> Flagged:
        """Return the inner identity, without a begin flag."""
        return self.inner.identity(), jnp.zeros((), bool)

    def __call__(self, a: Flagged, b: Flagged) -> Flagged:
        (a_inner, a_begin), (b_inner, b_begin) = a, b
        # Reset the past rather than the result, to keep a NaN out of the gradient of `where` as
        # well.
        pairs = self.inner.identity(), a_inner
        past = jax.tree.map(lambda e, h: jnp.where(b_begin, jnp.asarray(e, h.dtype), h), *pairs)
        return self.inner(past, b_inner), a_begin | b_begin
