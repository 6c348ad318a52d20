"""Elman, GRU and LSTM: recurrences that are no monoid, behind the same call.

Their step mixes h_{t-1} nonlinearly, so the product of two steps is no simpler than the two steps
one after the other: they cannot be run in parallel over time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl._dtypes import promoting
from mmrl.memory.base import dense
from mmrl.memory.checks import check_sizes
from mmrl.memory.recurrent import Recurrent


class Elman(Recurrent):
    """h_t = tanh(W x_t + U h_{t-1} + b),  y_t = C h_t.  Elman 1990."""

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
        return jnp.zeros(self.recur.weight.shape[0])

    @promoting
    def cell(self, h, x) -> PyTree:
        return jnp.tanh(self.read_in(x) + self.recur(h))

    @promoting
    def read(self, h, x) -> Array:
        return dense(self.read_out, h)


class GRU(Recurrent):
    """h_t = (1 - z) ⊙ n + z ⊙ h_{t-1},  n = tanh(W x + r ⊙ (U h_{t-1} + b)).  Cho et al. 2014.

    The cell is Equinox's: the reset gate r acts after the matrix product, as in cuDNN.
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
        return jnp.zeros(self.gru.hidden_size)

    @promoting
    def cell(self, h, x) -> PyTree:
        return self.gru(x, h)

    @promoting
    def read(self, h, x) -> Array:
        return dense(self.read_out, h)


class LSTM(Recurrent):
    """c_t = f ⊙ c_{t-1} + i ⊙ g,  h_t = o ⊙ tanh(c_t).  Hochreiter & Schmidhuber 1997.

    The state is (h, c). The cell is Equinox's, but the forget gate's bias starts at 1, so that a
    new network remembers (Jozefowicz et al. 2015), and the others at 0.
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
        zero = jnp.zeros(self.lstm.hidden_size)
        return zero, zero

    @promoting
    def cell(self, h, x) -> PyTree:
        return self.lstm(x, h)

    @promoting
    def read(self, h, x) -> Array:
        return dense(self.read_out, h[0])
