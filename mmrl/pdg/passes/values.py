"""Descriptions: how one intermediate value of a step x' = f(x, inputs) depends on the state x.

    free          b                         independent of x
    state         x                         x itself
    shift         x + b
    affine        a ⊙ x + b                 entry by entry
    matrix        A x + b                   the entries of x mix
    max           max(x + a, b)
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

    What is affine or mixes needs no a and b here: they are the step at x = 0 and its derivative.
    """

    kind: str = eqx.field(static=True)
    leaf: int | None = eqx.field(static=True, default=None)  # which array of x
    a: Any = None
    b: Any = None
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
        return _TEXT[value.kind].format(x=f"x[{value.leaf}]" if several else "x")

    def offset(self, value: Value) -> Shaped[Array, "..."]:
        """b of what is free, or x + b."""
        if value.kind != "state":
            return value.b
        leaf = self.leaves[value.leaf or 0]
        return jnp.zeros(leaf.shape, leaf.dtype)


def moving(values: Sequence[Value]) -> list[Value]:
    """The values that depend on x."""
    return [value for value in values if value.kind != "free"]


def bind(equation: jax_core.JaxprEqn, arguments: Sequence) -> list:
    """The results of one equation of a jaxpr."""
    found = equation.primitive.get_bind_params(equation.params)
    # Older versions of JAX hand over the functions of a call apart from its other parameters.
    functions, parameters = found if isinstance(found, tuple) else ((), found)
    results = equation.primitive.bind(*functions, *arguments, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]
