"""Fast and forgetful memory, Morad et al. 2023: gated traces, seen through a bank of clocks."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mmrl.memory.base import Memory, check_sizes, dense
from mmrl.monoid import Decay


class FFM(Memory):
    """z_t = W₃ [Re X_t ‖ Im X_t],  y_t = LN(z_t ⊙ g) + s ⊙ (1 - g),  g = σ(W₄ x_t).  Eqs. 72-76.

    X_t = Σ_s γ^{t-s} ⊙ (u_s 1ᵀ) with u = (W₁ x) ⊙ σ(W₂ x), one row per trace and one column per
    context; γ = exp(-α ⊕ iω). All columns of f(x) are alike: what tells them apart is ω, the speed
    of their clock. Eq. 76 lost a plus sign, and its skip s = W x is needed where sizes differ. In
    Morad et al. 2023 the gate follows the norm, LN(z) ⊙ g: that is another model.

    α > 0 (per step) and ω > 0 (radians per step) are stored as logarithms, so that no update can
    make a trace grow. At the start α is evenly spaced over `decay`, and the periods 2π/ω over
    `period` steps. The paper's periods start at 1, which is a clock that stands still.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    log_alpha: Float[Array, " trace"]
    log_omega: Float[Array, " context"]
    write: eqx.nn.Linear
    write_gate: eqx.nn.Linear
    mix: eqx.nn.Linear
    gate: eqx.nn.Linear
    skip: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        trace_size: int = 16,
        context_size: int = 4,
        decay: tuple[float, float] = (1e-6, 0.5),
        period: tuple[float, float] = (2.0, 1000.0),
        key: PRNGKeyArray,
    ):
        check_sizes(input_size=input_size, output_size=output_size)
        check_sizes(trace_size=trace_size, context_size=context_size)
        if min(*decay, *period) <= 0:
            raise ValueError(f"`decay` and `period` must be positive; got {decay} and {period}.")
        keys = jax.random.split(key, 5)
        self.input_size, self.output_size = input_size, output_size
        self.log_alpha = jnp.log(jnp.linspace(*decay, trace_size))
        self.log_omega = jnp.log(2 * jnp.pi / jnp.linspace(*period, context_size))
        self.write = eqx.nn.Linear(input_size, trace_size, key=keys[0])
        self.write_gate = eqx.nn.Linear(input_size, trace_size, key=keys[1])
        self.mix = eqx.nn.Linear(2 * trace_size * context_size, output_size, key=keys[2])
        self.gate = eqx.nn.Linear(input_size, output_size, key=keys[3])
        self.skip = eqx.nn.Linear(input_size, output_size, key=keys[4])
        self.norm = eqx.nn.LayerNorm(output_size, use_weight=False, use_bias=False)

    @property
    def monoid(self) -> Decay:
        """`Decay` with the present α and ω."""
        return Decay(jnp.exp(self.log_alpha), jnp.exp(self.log_omega))

    def encode(self, x):
        u = dense(self.write, x) * jax.nn.sigmoid(dense(self.write_gate, x))
        columns = jnp.broadcast_to(u[:, None], (self.log_alpha.size, self.log_omega.size))
        return columns.astype(jnp.complex64), jnp.ones(())

    def decode(self, h, x):
        trace, _ = h
        z = dense(self.mix, jnp.concatenate([trace.real.ravel(), trace.imag.ravel()]))
        gate = jax.nn.sigmoid(dense(self.gate, x))
        return self.norm(z * gate) + dense(self.skip, x) * (1 - gate)
