"""Gated DeltaNet (Yang et al. 2025), a key-value table whose entries can be overwritten."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes
from mmrl.memory.linear_attention import outer
from mmrl.monoid import MatrixAffine


class GatedDelta(Memory):
    """Gated DeltaNet, an associative memory with overwriting.  Yang et al. 2025, Eq. 10.

    S_t = α S_{t-1} (I - β k kᵀ) + β v kᵀ,  y_t = W S_t q, where α, β, k, q and v are functions of
    x_t and |k| = |q| = 1. With β = 1, a step replaces the value stored under k with v and leaves
    the values of orthogonal keys unchanged. α = σ(·) decays all entries. β = 2 σ(·) lies in (0, 2)
    rather than (0, 1): values above 1 give negative eigenvalues, which allow the memory to count
    modulo 2 (Grazzi et al. 2025). The paper's short convolution and output gate are omitted.

    S has shape [`value_size`, `key_size`]. In a parallel scan, a product of two transitions costs
    key_size³, so keep the keys short.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: MatrixAffine
    key: eqx.nn.Linear
    query: eqx.nn.Linear
    value: eqx.nn.Linear
    gates: eqx.nn.Linear
    read_out: eqx.nn.Linear

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        key_size: int = 8,
        value_size: int = 16,
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size)
        check_sizes(key, key_size=key_size, value_size=value_size)
        keys = jax.random.split(key, 5)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = MatrixAffine(value_size, key_size)
        self.key = eqx.nn.Linear(input_size, key_size, use_bias=False, key=keys[0])
        self.query = eqx.nn.Linear(input_size, key_size, use_bias=False, key=keys[1])
        self.value = eqx.nn.Linear(input_size, value_size, key=keys[2])
        gates = eqx.nn.Linear(input_size, 2, key=keys[3])
        # Initially the table fades slowly: α ≈ 0.98 and β ≈ 1.
        self.gates = eqx.tree_at(lambda g: g.bias, gates, jnp.array([4.0, 0.0]))
        self.read_out = eqx.nn.Linear(value_size, output_size, key=keys[4])

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return the transition α (I - β k kᵀ) and the update β v kᵀ for one observation."""
        k, v = unit(dense(self.key, x)), dense(self.value, x)
        alpha, beta = jax.nn.sigmoid(dense(self.gates, x)) * jnp.array([1.0, 2.0])
        return alpha * (jnp.eye(k.size) - beta * outer(k, k)), beta * outer(v, k)

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        return dense(self.read_out, h[1] @ unit(dense(self.query, x)))


def unit(x: Float[Array, " key"]) -> Float[Array, " key"]:
    """Return x / √(|x|² + 10⁻⁶), which has norm 1 unless x is close to zero."""
    return x * jax.lax.rsqrt(x @ x + 1e-6)
