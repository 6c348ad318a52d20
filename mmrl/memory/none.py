"""Baseline model without a memory."""

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import SequenceModel, dense
from mmrl.memory.checks import check_call, check_sizes

_along = jax.vmap(dense, in_axes=(None, 0))  # applies a layer to every step of a tape


class Memoryless(SequenceModel):
    """Model without memory, y_t = W x_t + b, whose state is the empty tuple.

    In a `Net`, this model replaces only the memory and leaves the rest of the network unchanged.
    DQN and R2D2 use this model if their memory is "none". Actor-critics use `mmrl.nets.mlp`
    instead, which is a different network.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    read_out: eqx.nn.Linear

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        check_sizes(key, input_size=input_size, output_size=output_size)
        self.input_size, self.output_size = input_size, output_size
        self.read_out = eqx.nn.Linear(input_size, output_size, key=key)

    def init(self) -> PyTree:
        """Return the empty tuple."""
        return ()

    @with_promotion
    def __call__(self, state, xs, begin, *, method="auto", axis=None) -> tuple[PyTree, Array]:
        begin, xs = check_call(self, state, begin, tape=True, xs=xs)
        return (), _along(self.read_out, xs)

    @with_promotion
    def step(self, state, x, begin) -> tuple[PyTree, Array]:
        """Return the state and W x + b."""
        begin, x = check_call(self, state, begin, tape=False, x=x)
        return (), dense(self.read_out, x)

    @with_promotion
    def lookahead(
        self, state, xs, begin, next_xs, *, method="auto", axis=None
    ) -> tuple[PyTree, Array, Array]:
        """Return the state, and the outputs for `xs` and for `next_xs`."""
        begin, xs, next_xs = check_call(self, state, begin, tape=True, xs=xs, next_xs=next_xs)
        return (), _along(self.read_out, xs), _along(self.read_out, next_xs)
