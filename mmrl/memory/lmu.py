"""Legendre memory unit (Voelker et al. 2019), a polynomial approximation of a sliding window."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes, is_number
from mmrl.memory.linear_attention import outer
from mmrl.monoid import MatrixAffine


class LMU(Memory):
    """Legendre memory unit, which approximates a sliding window of inputs.  Voelker et al. 2019.

    m_t = Ā m_{t-1} + B̄ u_t,  y_t = W m_t + D x_t,  u_t = W_u x_t. Each of the `channels` inputs u
    is approximated over the last `delay` steps by `order` Legendre polynomials with coefficients m
    (Eqs. 1-3). Ā and B̄ discretize the continuous system with a zero-order hold. These matrices are
    constant; only the input and output maps are trained.

    The paper's nonlinear hidden state h_t, which feeds back into u, is omitted. Without this
    feedback the LMU is a monoid (Chilkuri & Eliasmith 2021); `Residual` adds nonlinear layers. A
    product of two elements costs order³, so keep the order small.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    delay: float = eqx.field(static=True)
    monoid: MatrixAffine
    read_in: eqx.nn.Linear
    read_out: eqx.nn.Linear
    skip: eqx.nn.Linear

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        channels: int = 8,
        order: int = 8,
        delay: float = 32.0,
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size)
        check_sizes(key, channels=channels, order=order)
        if not is_number(delay) or delay <= 0:
            raise ValueError(f"`delay` must be positive and finite, in steps; got {delay!r}.")
        keys = jax.random.split(key, 3)
        self.input_size, self.output_size, self.delay = input_size, output_size, float(delay)
        self.monoid = MatrixAffine(channels, order)
        self.read_in = eqx.nn.Linear(input_size, channels, use_bias=False, key=keys[0])
        self.read_out = eqx.nn.Linear(channels * order, output_size, use_bias=False, key=keys[1])
        self.skip = eqx.nn.Linear(input_size, output_size, key=keys[2])

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return the affine map (Ā, B̄ u) for one observation."""
        system, drive = map(jnp.float32, legendre(self.monoid.keys, self.delay))
        return system.T, outer(dense(self.read_in, x), drive)

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        return dense(self.read_out, h[1].ravel()) + dense(self.skip, x)


@functools.cache
def legendre(
    order: int, delay: float
) -> tuple[Float64[np.ndarray, "order order"], Float64[np.ndarray, " order"]]:
    """Return Ā and B̄, the discretization of θ ṁ = A m + B u.  Voelker et al. 2019, Eq. 2.

    θ is `delay`, and u is constant during each step. With the Legendre polynomials P_i,
    u(t - r θ) ≈ Σ_i P_i(2 r - 1) m_i for 0 ≤ r ≤ 1 (Eq. 3).
    """
    from scipy.linalg import expm

    row, column = np.indices((order, order))
    sign = np.where(row < column, -1.0, (-1.0) ** (row - column + 1))
    system = np.zeros((order + 1, order + 1))
    system[:order, :order] = (2 * row + 1) * sign
    system[:order, order] = (2 * row[:, 0] + 1) * (-1.0) ** row[:, 0]
    step = expm(system / delay)
    return step[:order, :order], step[:order, order]
