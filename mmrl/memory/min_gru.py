"""minGRU (Feng et al. 2024).

The gate of a minGRU does not depend on the state, so unlike the GRU, the minGRU is a monoid.
"""

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes
from mmrl.monoid import Affine


class MinGRU(Memory):
    """Minimal gated recurrent unit.  Feng et al. 2024, §3.1.

    h_t = (1 - z) ⊙ h_{t-1} + z ⊙ W x_t,  z = σ(W_z x_t),  y_t = C h_t. Each step is an affine map
    of h. Its gain depends on the observation, whereas the gain of the LRU is constant, so the
    memory can ignore unimportant steps. h is a weighted mean of all inputs so far.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Affine
    gate: eqx.nn.Linear
    candidate: eqx.nn.Linear
    read_out: eqx.nn.Linear

    def __init__(
        self, input_size: int, output_size: int, *, state_size: int = 64, key: PRNGKeyArray
    ):
        check_sizes(key, input_size=input_size, output_size=output_size, state_size=state_size)
        keys = jax.random.split(key, 3)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = Affine((state_size,))
        self.gate = eqx.nn.Linear(input_size, state_size, key=keys[0])
        self.candidate = eqx.nn.Linear(input_size, state_size, key=keys[1])
        self.read_out = eqx.nn.Linear(state_size, output_size, key=keys[2])

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return the map (1 - z, z ⊙ W x) of one observation."""
        logit = dense(self.gate, x)
        return jax.nn.sigmoid(-logit), jax.nn.sigmoid(logit) * dense(self.candidate, x)

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        return dense(self.read_out, h[1])
