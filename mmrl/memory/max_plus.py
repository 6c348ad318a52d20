"""Max-plus memory: a running maximum that fades over time."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes
from mmrl.monoid import Max


class MaxPlus(Memory):
    """Max-plus memory: m_t = max(m_{t-1} - softplus(W_w x_t), W x_t),  y_t = C m_t.

    Morad et al. 2024 leave a max operator as future work. A maximum remembers a single event, and
    later, weaker events do not dilute it. At each step, an amount is subtracted from the maximum so
    that it fades; multiplication by a factor would not be associative. Initially, the units fade by
    0.001 to 0.1 per step.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Max
    fade: eqx.nn.Linear
    write: eqx.nn.Linear
    read_out: eqx.nn.Linear

    def __init__(
        self, input_size: int, output_size: int, *, state_size: int = 64, key: PRNGKeyArray
    ):
        check_sizes(key, input_size=input_size, output_size=output_size, state_size=state_size)
        keys = jax.random.split(key, 3)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = Max((state_size,))
        fade = eqx.nn.Linear(input_size, state_size, key=keys[0])
        rates = jnp.geomspace(1e-3, 0.1, state_size)
        self.fade = eqx.tree_at(lambda f: f.bias, fade, jnp.log(jnp.expm1(rates)))
        self.write = eqx.nn.Linear(input_size, state_size, key=keys[1])
        self.read_out = eqx.nn.Linear(state_size, output_size, key=keys[2])

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return -softplus(W_w x) and W x for one observation."""
        return -jax.nn.softplus(dense(self.fade, x)), dense(self.write, x)

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        return dense(self.read_out, h[1])
