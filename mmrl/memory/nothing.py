"""The memory of a network without one, such as `mmrl.nets.mlp`."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from mmrl._dtypes import promoting
from mmrl.memory.base import SequenceModel


class Nothing(SequenceModel):
    """y_t of no features: for a `Net` whose head sees the encoded observation alone."""

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True, default=0)

    def init(self) -> PyTree:
        return ()

    @promoting
    def __call__(self, state, xs, begin, *, method="auto", axis=None) -> tuple[PyTree, Array]:
        return (), jnp.zeros((len(xs), 0), xs.dtype)

    @promoting
    def step(self, state, x, begin) -> tuple[PyTree, Array]:
        return (), jnp.zeros(0, x.dtype)

    @promoting
    def lookahead(
        self, state, xs, begin, next_xs, *, method="auto", axis=None
    ) -> tuple[PyTree, Array, Array]:
        nothing = jnp.zeros((len(xs), 0), xs.dtype)
        return (), nothing, nothing
