"""Linear attention (Katharopoulos et al. 2020): attention with a state of constant size."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes
from mmrl.monoid import Sum


def elu_plus_one(x: Float[Array, " key"]) -> Float[Array, " key"]:
    """Return the feature map φ(x) = elu(x) + 1 > 0.  Katharopoulos et al. 2020, Eq. 7."""
    return jax.nn.elu(x) + 1


class LinearAttention(Memory):
    """Linear attention, a weighted mean of all past values.  Eqs. 9-13.

    y_t = W (Σ_s φ(q_t)ᵀφ(k_s) v_s) / (Σ_s φ(q_t)ᵀφ(k_s)) over s ≤ t. The state is (A, a) =
    (Σ φ(k) vᵀ, Σ φ(k)), where A has shape [`key_size`, `value_size`]; each step adds one outer
    product to A. `feature_map` is φ, a function that maps a vector to a vector of the same size
    without negative entries, so that the weights are not negative.

    Eqs. 12-13 omit φ and print A φ(q) where Aᵀφ(q) is meant. The paper's MLP and residual
    connection are in `Residual`.
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

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return φ(k) vᵀ and φ(k) for one observation."""
        k, v = self.feature_map(dense(self.key, x)), dense(self.value, x)
        return outer(k, v), k

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        values, weights = h
        q = self.feature_map(dense(self.query, x))
        # Adding 1e-6 avoids 0 / 0 if the features underflow.
        return dense(self.read_out, q @ values / (q @ weights + 1e-6))


def outer(a: Float[Array, " row"], b: Float[Array, " column"]) -> Float[Array, "row column"]:
    """Return the outer product a bᵀ.

    The result is computed as a matrix product, because its gradients are then matrix products as
    well. With a broadcast multiplication, the gradients would be sums, which take ten times as long
    on a CPU.
    """
    return a[:, None] @ b[None]
