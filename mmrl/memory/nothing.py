"""Placeholder memory for networks without a memory, such as `mmrl.nets.mlp`."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import SequenceModel


class Nothing(SequenceModel):
    """Model with outputs of size 0.

    Use it in a `Net` whose head depends only on the encoded observation.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True, default=0)

    def init(self) -> PyTree:
        """Return the empty tuple."""
        return ()

    @with_promotion
    def __call__(self, state, xs, begin, *, method="auto", axis=None) -> tuple[PyTree, Array]:
        return (), jnp.zeros((len(xs), 0), xs.dtype)

    @with_promotion
    def step(self, state, x, begin) -> tuple[PyTree, Array]:
        """Return the state and an empty output."""
        return (), jnp.zeros(0, x.dtype)

    @with_promotion
    def lookahead(
        self, state, xs, begin, next_xs, *, method="auto", axis=None
    ) -> tuple[PyTree, Array, Array]:
        """Return the state, and empty outputs for `xs` and for `next_xs`."""
        empty = jnp.zeros((len(xs), 0), xs.dtype)
        return (), empty, empty
