"""GTrXL (Parisotto et al. 2020), a transformer with gates instead of residual connections."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl.memory.base import SequenceModel, apply_norm, dense
from mmrl.memory.checks import check_sizes
from mmrl.memory.residual import Residual
from mmrl.memory.window import WindowAttention


class Gate(eqx.Module):
    """GRU gate that replaces a residual connection.  Parisotto et al. 2020, §3.2.

    The gate combines the input x of a layer with the layer's output y: (1 - z) ⊙ x + z ⊙ n, with
    r = σ(W_r y + U_r x), z = σ(W_z y + U_z x - b) and n = tanh(W_n y + U_n (r ⊙ x)). Initially
    b = 2 and z ≈ 0.12, so the gate is close to the identity, and the agent can first learn a policy
    that does not use the memory.
    """

    from_y: eqx.nn.Linear  # W_r, W_z and W_n
    from_x: eqx.nn.Linear  # U_r and U_z
    candidate: eqx.nn.Linear  # U_n
    bias: Float[Array, " width"]

    def __init__(self, width: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.from_y = eqx.nn.Linear(width, 3 * width, use_bias=False, key=keys[0])
        self.from_x = eqx.nn.Linear(width, 2 * width, use_bias=False, key=keys[1])
        self.candidate = eqx.nn.Linear(width, width, use_bias=False, key=keys[2])
        self.bias = jnp.full(width, 2.0)

    @with_promotion
    def __call__(
        self, x: Float[Array, " width"], y: Float[Array, " width"]
    ) -> Float[Array, " width"]:
        """Return the gated combination of a layer's input x and its output y."""
        y_r, y_z, y_n = jnp.split(dense(self.from_y, y), 3)
        x_r, x_z = jnp.split(dense(self.from_x, x), 2)
        z = jax.nn.sigmoid(y_z + x_z - self.bias)
        n = jnp.tanh(y_n + dense(self.candidate, jax.nn.sigmoid(y_r + x_r) * x))
        return x + z * (n - x)


class GatedBlock(eqx.Module):
    """Gated transformer block around a memory.  Parisotto et al. 2020, Fig. 1.

    The block maps x to gate(m, relu(MLP(LN(m)))) with m = gate(x, relu(memory(LN(x)))). `before`
    and `after` compute the parts before and after the memory, for a single step.
    """

    norm: eqx.nn.LayerNorm
    memory: SequenceModel
    gate: Gate
    mlp_norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    mlp_gate: Gate

    def __init__(self, memory: SequenceModel, *, key: PRNGKeyArray):
        keys, width = jax.random.split(key, 4), memory.output_size
        self.norm, self.mlp_norm = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.memory = memory
        self.gate, self.mlp_gate = Gate(width, key=keys[0]), Gate(width, key=keys[1])
        self.up = eqx.nn.Linear(width, 2 * width, key=keys[2])
        self.down = eqx.nn.Linear(2 * width, width, key=keys[3])

    @with_promotion
    def before(self, x: Float[Array, " width"]) -> Float[Array, " width"]:
        """Return the memory's input: LN(x), or x itself if its width is 1."""
        return apply_norm(self.norm, x)

    @with_promotion
    def after(self, x: Float[Array, " width"], y: Float[Array, " width"]) -> Float[Array, " width"]:
        """Return the block's output, given its input x and the memory's output y."""
        x = self.gate(x, jax.nn.relu(y))
        hidden = jax.nn.relu(dense(self.up, apply_norm(self.mlp_norm, x)))
        return self.mlp_gate(x, jax.nn.relu(dense(self.down, hidden)))


class GTrXL(Residual):
    """Stack of `layers` gated transformer blocks with sliding-window attention.

    Each block attends to the last `window` outputs of the previous block, so L blocks reach
    L (window - 1) steps back. Gradients flow through all of these steps. The paper instead caches
    the hidden states of the previous segment and stops their gradients. The width of all blocks is
    `output_size`.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        window: int = 16,
        heads: int = 2,
        head_size: int = 16,
        layers: int = 1,
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size, layers=layers)
        own_key, *keys = jax.random.split(key, layers + 1)
        sizes = {"window": window, "heads": heads, "head_size": head_size}
        memories = [WindowAttention(output_size, output_size, **sizes, key=k) for k in keys]
        super().__init__(input_size, output_size, memories, block=GatedBlock, key=own_key)
