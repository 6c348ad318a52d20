"""Long short-term memory (Hochreiter & Schmidhuber 1997).

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


class LSTM(GatedRecurrent):
    """Long short-term memory.  Hochreiter & Schmidhuber 1997.

    c_t = f ⊙ c_{t-1} + i ⊙ g,  h_t = o ⊙ tanh(c_t). The state is (h, c). This is
    `eqx.nn.LSTMCell` with different initial biases: 1 for the forget gate, so that a new network
    retains its state (Jozefowicz et al. 2015), and 0 for all other gates.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    lstm: eqx.nn.LSTMCell
    read_out: eqx.nn.Linear

    def __init__(
        self, input_size: int, output_size: int, *, state_size: int = 64, key: PRNGKeyArray
    ):
        check_sizes(key, input_size=input_size, output_size=output_size, state_size=state_size)
        keys = jax.random.split(key, 2)
        self.input_size, self.output_size = input_size, output_size
        lstm = eqx.nn.LSTMCell(input_size, state_size, key=keys[0])
        bias = jnp.repeat(jnp.array([0.0, 1.0, 0.0, 0.0]), state_size)  # i, f, g, o
        self.lstm = eqx.tree_at(lambda c: c.bias, lstm, bias)
        self.read_out = eqx.nn.Linear(state_size, output_size, key=keys[1])

    def init(self) -> PyTree:
        """Return the initial state (h, c), two vectors of zeros."""
        zero = jnp.zeros(self.lstm.hidden_size)
        return zero, zero

    @with_promotion
    def drive(self, x) -> Array:
        """Return the input's part of the gates i, f, g and o."""
        lstm: Any = self.lstm  # for pyright, which does not know that the bias is not None
        return x @ lstm.weight_ih.T + lstm.bias

    @property
    def transition(self) -> Array:
        """Weight matrix U of the four gates."""
        return self.lstm.weight_hh

    @staticmethod
    def mix(h, drive, product) -> PyTree:
        """Return (h_t, c_t)."""
        write, keep, new, output = jnp.split(drive + product, 4)
        c = jax.nn.sigmoid(keep) * h[1] + jax.nn.sigmoid(write) * jnp.tanh(new)
        return jax.nn.sigmoid(output) * jnp.tanh(c), c

    @with_promotion
    def read(self, h, x) -> Array:
        """Return the output y_t."""
        return dense(self.read_out, h[0])
