"""Descriptions: how one intermediate value of a step x' = f(x, inputs) depends on the state x.

    free          b                         independent of x
    state         x                         x itself
    shift         x + b
    affine        a ⊙ x + b                 entry by entry
    matrix        A x + b                   the entries of x mix
    max, min      max(x + a, b)
    logsumexp     log(exp(x + a) + exp(b))
    declared      m(x, b)                   a monoid of the caller's own

Every row is closed under composition, so that two steps in a row are again one row: this is what
makes a scan of them possible. a and b are arrays that do not depend on x.
"""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend import core as jax_core
from jaxtyping import Array, Shaped

from mmrl.pdg.passes.declared import Declared

_TEXT = {
    "state": "{x}",
    "shift": "{x} + b",
    "affine": "a·{x} + b",
    "matrix": "A·x + b",
    "max": "max({x} + a, b)",
    "min": "min({x} + a, b)",
    "logsumexp": "log(exp({x} + a) + exp(b))",
    "declared": "m({x}, b)",
}


class Refusal(ValueError):
    """Why a step is no scan: `primitive` is the first operation that does not fit.

    `inside` is the `jax.named_scope` in which it was found.
    """

    inside: str = ""

    def __init__(self, primitive: str, reason: str):
        super().__init__(f"Not a scan: {reason}.")
        self.primitive = primitive
        self.reason = reason


class Value(eqx.Module):
    """How one intermediate value depends on x: a row of the table above.

    `a` of an entrywise kind has the shape of the value; that of "matrix" has a leading axis, one
    row per entry of x: what the value gains when that entry grows by one. None is neutral.
    """

    kind: str = eqx.field(static=True)
    a: Any = None
    b: Any = None
    leaf: int | None = eqx.field(static=True, default=None)
    stopped: bool = eqx.field(static=True, default=False)  # x came through a stop_gradient
    which: int = eqx.field(static=True, default=0)  # of the caller's monoids


class State(eqx.Module):
    """The arrays that x consists of, and how many of their numbers a matrix may mix."""

    leaves: tuple[jax.ShapeDtypeStruct, ...] = eqx.field(static=True)
    matrix: int = eqx.field(static=True)
    monoids: tuple[Declared, ...] = ()

    @property
    def size(self) -> int:
        return sum(math.prod(leaf.shape) for leaf in self.leaves)

    def text(self, value: Value) -> str:
        several = len(self.leaves) > 1 and value.leaf is not None
        name = f"x[{value.leaf}]" if several else "x"
        return _TEXT[value.kind].format(x=name)

    def gain(self, value: Value) -> Shaped[Array, "..."]:
        """`a` of an affine value, or of one that is a special case of it."""
        if value.kind in ("state", "shift"):
            return jnp.ones_like(self.offset(value))
        return value.a

    def offset(self, value: Value) -> Shaped[Array, "..."]:
        if value.kind == "state":
            leaf = self.leaves[value.leaf or 0]
            return jnp.zeros(leaf.shape, leaf.dtype)
        return value.b

    def rows(self, value: Value) -> Shaped[Array, "rows ..."]:
        """`a` of the value seen as a matrix kind."""
        if value.kind == "matrix":
            return value.a
        gain = self.gain(value)
        before = sum(math.prod(leaf.shape) for leaf in self.leaves[: value.leaf])
        own = jnp.eye(gain.size, dtype=gain.dtype).reshape(gain.size, *gain.shape) * gain[None]
        rest = self.size - before - gain.size
        return jnp.pad(own, [(before, rest)] + [(0, 0)] * gain.ndim)


def bind(equation: jax_core.JaxprEqn, arguments: Sequence) -> list:
    """The results of one equation of a jaxpr."""
    found = equation.primitive.get_bind_params(equation.params)
    # Older versions of JAX hand over the functions of a call apart from its other parameters.
    functions, parameters = found if isinstance(found, tuple) else ((), found)
    results = equation.primitive.bind(*functions, *arguments, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]
