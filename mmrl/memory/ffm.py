"""Fast and forgetful memory (Morad et al. 2023)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, apply_norm, bounded_exp, dense
from mmrl.memory.checks import check_sizes, ends_of
from mmrl.monoid import Decay


class FFM(Memory):
    """Fast and forgetful memory: gated traces that decay and oscillate.  Eqs. 72-75.

    z_t = W₃ [Re X_t ‖ Im X_t],  y_t = LN(z_t ⊙ g) + s ⊙ (1 - g),  g = σ(W₄ x_t), with X_t = Σ_s
    γ^{t-s} ⊙ (u_s 1ᵀ), u = (W₁ x) ⊙ σ(W₂ x) and γ = exp(-α ⊕ iω). X has one row per trace and one
    column per context. The columns receive the same inputs and differ only in the frequency ω. The
    skip connection is s = W x, because the input and output sizes may differ.

    The default y_t follows the paper's code and memax. `use_mlp` selects Eq. 76 instead, where we
    add a missing plus sign: y_t = MLP(LN(z_t)) ⊙ g + s ⊙ (1 - g). The paper does not specify the
    MLP; it is W₆ GELU(W₅ x) here, with the width of y. The two models differ when the gate closes.
    The default normalizes after the gate, which cancels most of its effect, so the memory's
    contribution keeps nearly its full size. In Eq. 76 the contribution goes to 0. On three tasks
    both models reach the same final return. On RepeatFirst the areas under their learning curves
    are 0.69 and 0.51, with overlapping intervals (six seeds; `mmrl experiment ffm`).

    α > 0 (per step) and ω > 0 (radians per step) are stored as logarithms, so that no update can
    make a trace grow. Initially α is evenly spaced over `decay`, and the period 2π/ω is evenly
    spaced over `period`, in steps. In the paper the shortest period is 1, at which a trace does not
    oscillate at all.
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
    mlp: tuple[eqx.nn.Linear, eqx.nn.Linear] | None  # Eq. 76 as printed

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        trace_size: int = 16,
        context_size: int = 4,
        decay: tuple[float, float] = (1e-6, 0.5),
        period: tuple[float, float] = (2.0, 1000.0),
        use_mlp: bool | int = False,  # configs and the command line pass 0 or 1
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size)
        check_sizes(key, trace_size=trace_size, context_size=context_size)
        decay, period = ends_of("decay", decay), ends_of("period", period)
        if not min(*decay, *period) > 0:
            raise ValueError(
                f"`decay` and `period` must be positive and finite; got {decay} and {period}."
            )
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
        first, second = jax.random.split(jax.random.fold_in(key, len(keys)))
        sizes = (output_size, output_size)
        mlp = eqx.nn.Linear(*sizes, key=first), eqx.nn.Linear(*sizes, key=second)
        self.mlp = mlp if use_mlp else None

    @property
    def monoid(self) -> Decay:
        """Monoid `Decay` with the current α and ω."""
        return Decay(bounded_exp(self.log_alpha), bounded_exp(self.log_omega, 16.0))

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return f(x) = (u 1ᵀ, 1), the trace of one observation."""
        u = dense(self.write, x) * jax.nn.sigmoid(dense(self.write_gate, x))
        columns = jnp.broadcast_to(u[:, None], (self.log_alpha.size, self.log_omega.size))
        return jax.lax.complex(columns, jnp.zeros_like(columns)), jnp.ones(())

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        trace, _ = h
        z = dense(self.mix, jnp.concatenate([trace.real.ravel(), trace.imag.ravel()]))
        gate = jax.nn.sigmoid(dense(self.gate, x))
        return self._gate(z, gate) + dense(self.skip, x) * (1 - gate)

    def _gate(self, z, gate):
        if self.mlp is None:
            return apply_norm(self.norm, z * gate)
        first, second = self.mlp
        return dense(second, jax.nn.gelu(dense(first, apply_norm(self.norm, z)))) * gate
