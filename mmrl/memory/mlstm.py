"""mLSTM, the matrix memory of xLSTM (Beck et al. 2024)."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes
from mmrl.memory.linear_attention import outer
from mmrl.monoid import LogAffine


class MLSTM(Memory):
    """Matrix memory with an exponential input gate.  Beck et al. 2024, Eqs. 19-27.

    C_t = f C_{t-1} + i v kᵀ,  n_t = f n_{t-1} + i k,  y_t = W (o ⊙ C_t q / max(|nᵀ q|, 1)), with a
    single head. The forget gate is f = σ(·). The input gate is i = exp(·), so one observation can
    outweigh all earlier ones.

    C has shape [`value_size`, `key_size`]. To avoid overflow, the state contains exp(-m_t) (C_t,
    n_t) together with m_t, the running maximum of the logarithmic gates (their Appendix A).
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: LogAffine
    key: eqx.nn.Linear
    query: eqx.nn.Linear
    value: eqx.nn.Linear
    gates: eqx.nn.Linear  # arguments of i = exp(·) and f = σ(·)
    output_gate: eqx.nn.Linear
    read_out: eqx.nn.Linear

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        key_size: int = 16,
        value_size: int = 16,
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size)
        check_sizes(key, key_size=key_size, value_size=value_size)
        keys = jax.random.split(key, 6)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = LogAffine((value_size + 1, key_size))  # C, with n as the last row
        self.key = eqx.nn.Linear(input_size, key_size, key=keys[0])
        self.query = eqx.nn.Linear(input_size, key_size, key=keys[1])
        self.value = eqx.nn.Linear(input_size, value_size, key=keys[2])
        gates = eqx.nn.Linear(input_size, 2, key=keys[3])
        # Initially the memory fades slowly: f ≈ 0.98 and i ≈ 1.
        self.gates = eqx.tree_at(lambda g: g.bias, gates, jnp.array([0.0, 4.0]))
        self.output_gate = eqx.nn.Linear(input_size, value_size, key=keys[4])
        self.read_out = eqx.nn.Linear(value_size, output_size, key=keys[5])

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return the monoid element (log f, log i, v kᵀ) of one observation."""
        log_i, f = dense(self.gates, x)
        k = dense(self.key, x) / math.sqrt(self.monoid.shape[1])
        v = jnp.append(dense(self.value, x), 1.0)
        m = jax.lax.stop_gradient(log_i)  # exp(log_i - m) is 1, but its gradient is not 0
        return jax.nn.log_sigmoid(f), m, jnp.exp(log_i - m) * outer(v, k)

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        _, m, table = h
        sums = table @ dense(self.query, x)
        # The sums are scaled by exp(-m), so the 1 in max(|nᵀ q|, 1) must be scaled in the same way.
        # The bound on m prevents overflow.
        y = sums[:-1] / jnp.maximum(jnp.abs(sums[-1]), jnp.exp(-jnp.maximum(m, -80.0)))
        return dense(self.read_out, jax.nn.sigmoid(dense(self.output_gate, x)) * y)
