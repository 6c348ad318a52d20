"""Elman network (Elman 1990), a recurrence that is not a monoid.

Each step is a nonlinear function of h_{t-1}, and the composition of two such functions has no
simpler form. The steps therefore have to be computed one after the other.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import dense
from mmrl.memory.checks import check_sizes
from mmrl.memory.recurrent import GatedRecurrent


class Elman(GatedRecurrent):
    """Elman network: h_t = tanh(W x_t + U h_{t-1} + b),  y_t = C h_t.  Elman 1990."""

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    read_in: eqx.nn.Linear
    recur: eqx.nn.Linear
    read_out: eqx.nn.Linear

    def __init__(
        self, input_size: int, output_size: int, *, state_size: int = 64, key: PRNGKeyArray
    ):
        check_sizes(key, input_size=input_size, output_size=output_size, state_size=state_size)
        keys = jax.random.split(key, 3)
        self.input_size, self.output_size = input_size, output_size
        self.read_in = eqx.nn.Linear(input_size, state_size, key=keys[0])
        self.recur = eqx.nn.Linear(state_size, state_size, use_bias=False, key=keys[1])
        self.read_out = eqx.nn.Linear(state_size, output_size, key=keys[2])

    def init(self) -> PyTree:
        """Return the initial state, a vector of zeros."""
        return jnp.zeros(self.recur.weight.shape[0])

    @with_promotion
    def drive(self, x) -> Array:
        """Return W x_t + b."""
        return dense(self.read_in, x)

    @property
    def transition(self) -> Array:
        """Weight matrix U."""
        return self.recur.weight

    @staticmethod
    def mix(h, drive, product) -> PyTree:
        """Return the new state h_t."""
        return jnp.tanh(drive + product)

    @with_promotion
    def read(self, h, x) -> Array:
        """Return the output y_t."""
        return dense(self.read_out, h)
