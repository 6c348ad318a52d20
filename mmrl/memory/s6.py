"""S6, the selective state space model of Mamba (Gu & Dao 2023)."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes, ends_of
from mmrl.memory.linear_attention import outer
from mmrl.monoid import Affine


class S6(Memory):
    """Selective state space model.  Gu & Dao 2023, Eq. 4 and Algorithm 2.

    h_t = exp(Δ_t A) ⊙ h_{t-1} + A⁻¹ (exp(Δ_t A) - I) B_t u_t,  y_t = W (C_t h_t + D ⊙ u_t). The
    input u_t = W_u x_t has `channels` entries, each with a state vector of size `state_size`. B_t,
    C_t and the step size Δ_t = softplus(b + s·u_t) depend on u_t. A large step size replaces the
    state with the current input, and a small one ignores the input. A is real, negative and
    diagonal, with initial entries -1, …, -`state_size` (S4D-Real). Initially softplus(b) is
    log-uniform over `step_size`.

    The paper's convolution, SiLU and output gate are omitted. The authors' code replaces
    A⁻¹ (exp(Δ_t A) - I) B_t with Δ_t B_t. In their code, initial step sizes are between 0.001 and
    0.1, so a single observation changes the state only slightly; our default is ten times larger.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Affine
    read_in: eqx.nn.Linear
    log_decay: Float[Array, "channels state"]  # log -A
    step_bias: Float[Array, " channels"]  # b
    step_gain: Float[Array, " channels"]  # s
    select: eqx.nn.Linear  # B_t and C_t
    skip: Float[Array, " channels"]  # D
    read_out: eqx.nn.Linear

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        channels: int = 32,
        state_size: int = 4,
        step_size: tuple[float, float] = (0.01, 1.0),
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size)
        check_sizes(key, channels=channels, state_size=state_size)
        low, high = ends_of("step_size", step_size)
        if not 0 < low <= high:
            raise ValueError(
                f"`step_size` must be (low, high) with 0 < low ≤ high < ∞; got {step_size}."
            )
        keys = jax.random.split(key, 5)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = Affine((channels, state_size))
        self.read_in = eqx.nn.Linear(input_size, channels, use_bias=False, key=keys[0])
        self.log_decay = jnp.tile(jnp.log(jnp.arange(1.0, state_size + 1)), (channels, 1))
        low, high = math.log(low), math.log(high)
        step = jnp.exp(jax.random.uniform(keys[1], (channels,), minval=low, maxval=high))
        self.step_bias = step + jnp.log(-jnp.expm1(-step))  # the inverse of softplus
        self.step_gain = jax.random.normal(keys[2], (channels,)) / math.sqrt(channels)
        self.select = eqx.nn.Linear(channels, 2 * state_size, use_bias=False, key=keys[3])
        self.skip = jnp.ones(channels)
        self.read_out = eqx.nn.Linear(channels, output_size, key=keys[4])

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return the affine map (exp(ΔA), A⁻¹ (exp(ΔA) - I) B u) for one observation."""
        u = dense(self.read_in, x)
        step = jax.nn.softplus(self.step_bias + self.step_gain @ u)
        # Arrays are flat, because XLA sums over [time, channels, 1] slowly on a CPU.
        rate = -jnp.exp(jnp.clip(self.log_decay, -20, 20)).ravel()  # keeps 1 / rate² finite
        turn = jnp.repeat(step, self.log_decay.shape[1]) * rate
        drive = jnp.expm1(turn) / rate * outer(u, self._projections(u)[0]).ravel()
        return tuple(x.reshape(self.log_decay.shape) for x in (jnp.exp(turn), drive))

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        u = dense(self.read_in, x)
        return dense(self.read_out, h[1] @ self._projections(u)[1] + self.skip * u)

    def _projections(self, u: Float[Array, " channels"]) -> list[Float[Array, " state"]]:
        """Return B_t and C_t, which depend on u_t."""
        return jnp.split(dense(self.select, u), 2)
