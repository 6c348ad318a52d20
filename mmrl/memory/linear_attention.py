"""Linear attention, Katharopoulos et al. 2020: a transformer whose memory has a fixed size."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl._dtypes import promoting
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes
from mmrl.monoid import Sum


def elu_plus_one(x: Float[Array, " key"]) -> Float[Array, " key"]:
    """Return the feature map φ(x) = elu(x) + 1 > 0.  Katharopoulos et al. 2020, Eq. 7."""
    return jax.nn.elu(x) + 1


class LinearAttention(Memory):
    """Linear attention: a weighted mean of all past values, in a state of fixed size.  Eqs. 9-13.

    y_t = W (Σ_s φ(q_t)ᵀφ(k_s) v_s) / (Σ_s φ(q_t)ᵀφ(k_s)) over s ≤ t. The state (A, a) = (Σ φ(k) vᵀ,
    Σ φ(k)) grows by one outer product per step, and the weights of the values in y_t sum to 1. Eqs.
    12-13 leave out φ, which keeps the weights positive, and print A φ(q) for Aᵀφ(q). The output is
    linear: MLPs and residual connections belong to `Residual`. `feature_map` is φ: a function of
    one vector whose result has the same size and no negative entry. `key_size` × `value_size` is
    the shape of A.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    feature_map: Callable = eqx.field(static=True)
    monoid: Sum
    key: eqx.nn.Linear
    query: eqx.nn.Linear
    value: eqx.nn.Linear
    read_out: eqx.nn.Linear

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        key_size: int = 16,
        value_size: int = 16,
        feature_map: Callable = elu_plus_one,
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size)
        check_sizes(key, key_size=key_size, value_size=value_size)
        keys = jax.random.split(key, 4)
        self.input_size, self.output_size = input_size, output_size
        self.feature_map = feature_map
        self.monoid = Sum((jnp.zeros((key_size, value_size)), jnp.zeros(key_size)))
        self.key = eqx.nn.Linear(input_size, key_size, use_bias=False, key=keys[0])
        self.query = eqx.nn.Linear(input_size, key_size, use_bias=False, key=keys[1])
        self.value = eqx.nn.Linear(input_size, value_size, use_bias=False, key=keys[2])
        self.read_out = eqx.nn.Linear(value_size, output_size, key=keys[3])

    @promoting
    def encode(self, x) -> PyTree:
        """Return φ(k) vᵀ and φ(k) of one observation."""
        k, v = self.feature_map(dense(self.key, x)), dense(self.value, x)
        return outer(k, v), k

    @promoting
    def decode(self, h, x) -> Array:
        """Return y_t."""
        values, weights = h
        q = self.feature_map(dense(self.query, x))
        # The 1e-6 matters only for features that underflow to zero.
        return dense(self.read_out, q @ values / (q @ weights + 1e-6))


def outer(a: Float[Array, " row"], b: Float[Array, " column"]) -> Float[Array, "row column"]:
    """Return a bᵀ as a matrix product.

    Its derivatives are then matrix products too, rather than sums over rows and columns, which take
    ten times as long on a CPU.
    """
    return a[:, None] @ b[None]
