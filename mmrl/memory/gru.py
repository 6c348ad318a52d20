"""Gated recurrent unit (Cho et al. 2014).

The recurrence is not a monoid; `elman.py` explains why.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import dense
from mmrl.memory.checks import check_sizes
from mmrl.memory.recurrent import GatedRecurrent


class GRU(GatedRecurrent):
    """Gated recurrent unit.  Cho et al. 2014.

    h_t = (1 - z) ⊙ n + z ⊙ h_{t-1},  n = tanh(W x + r ⊙ (U h_{t-1} + b)). This is
    `eqx.nn.GRUCell`, which applies the reset gate r after the matrix product, like cuDNN.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    gru: eqx.nn.GRUCell
    read_out: eqx.nn.Linear

    def __init__(
        self, input_size: int, output_size: int, *, state_size: int = 64, key: PRNGKeyArray
    ):
        check_sizes(key, input_size=input_size, output_size=output_size, state_size=state_size)
        keys = jax.random.split(key, 2)
        self.input_size, self.output_size = input_size, output_size
        self.gru = eqx.nn.GRUCell(input_size, state_size, key=keys[0])
        self.read_out = eqx.nn.Linear(state_size, output_size, key=keys[1])

    def init(self) -> PyTree:
        """Return the initial state, a vector of zeros."""
        return jnp.zeros(self.gru.hidden_size)

    @with_promotion
    def drive(self, x) -> Array:
        """Return the input's part of the gates r, z and n, followed by b."""
        gru: Any = self.gru  # for pyright, which does not know that the biases are not None
        return jnp.concatenate([x @ gru.weight_ih.T + gru.bias, gru.bias_n])

    @property
    def transition(self) -> Array:
        """Weight matrix U of the three gates."""
        return self.gru.weight_hh

    @staticmethod
    def mix(h, drive, product) -> PyTree:
        """Return the new state h_t."""
        (reset, keep, new, bias), products = jnp.split(drive, 4), jnp.split(product, 3)
        reset = jax.nn.sigmoid(reset + products[0])
        keep = jax.nn.sigmoid(keep + products[1])
        new = jnp.tanh(new + reset * (products[2] + bias))
        return new + keep * (h - new)

    @with_promotion
    def read(self, h, x) -> Array:
        """Return the output y_t."""
        return dense(self.read_out, h)
