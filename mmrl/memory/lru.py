"""Linear recurrent unit (Orvieto et al. 2023), a diagonal linear system with complex states."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, bounded_exp, dense
from mmrl.memory.checks import check_sizes, ends_of, is_number
from mmrl.monoid import Affine


class LRU(Memory):
    """Linear recurrent unit: h_t = λ ⊙ h_{t-1} + γ ⊙ B x_t,  y_t = Re(C h_t) + D x_t.

    Eqs. 67-71; Orvieto et al., Eq. 7. λ = exp(-exp(ν) + i exp(θ)) satisfies |λ| ≤ 1 for all
    parameters. The factor γ = √(1 - |λ|²), which is missing from Eq. 70, gives h the scale of x.
    Orvieto et al. initialize γ this way and then train it. Here γ is always computed from λ,
    because training B can scale the inputs as well. D, which Eq. 71 omits, is a full matrix here,
    because the input and output sizes may differ. The MLP of Eq. 71 is replaced by `Residual`.

    `state_size` is the number of complex units. Initially |λ| lies within `decay`, with |λ|²
    uniformly distributed, and the argument of λ is uniform over (0, `phase`) radians per step.

        >>> memory = LRU(4, 8, key=jax.random.key(0))
        >>> memory(memory.init(), jnp.ones((10, 4)), begin=jnp.arange(10) == 0)[1].shape
        (10, 8)
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Affine
    nu: Float[Array, " h"]
    theta: Float[Array, " h"]
    read_in: Float[Array, "2 h in"]
    read_out: Float[Array, "2 out h"]
    skip: eqx.nn.Linear

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        state_size: int = 64,
        decay: tuple[float, float] = (0.9, 0.999),
        phase: float = 6.28,
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size, state_size=state_size)
        low, high = ends_of("decay", decay)
        if not 0 <= low < high < 1:
            raise ValueError(f"`decay` must be (low, high) with 0 ≤ low < high < 1; got {decay}.")
        if not is_number(phase) or phase <= 1e-4:
            raise ValueError(f"`phase` must be between 1e-4 and ∞ radians per step; got {phase!r}.")
        keys = jax.random.split(key, 5)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = Affine((state_size,), jnp.complex64)
        modulus_squared = jax.random.uniform(keys[0], (state_size,), minval=low**2, maxval=high**2)
        fade = -0.5 * jnp.log(jnp.maximum(modulus_squared, 1e-6))
        # If |λ|² rounds to 1, the unit never decays, so use the slowest decay instead.
        self.nu = jnp.log(jnp.where(fade > 0, fade, -math.log(high)))
        self.theta = jnp.log(jax.random.uniform(keys[1], (state_size,), minval=1e-4, maxval=phase))
        normal = jax.random.normal
        self.read_in = normal(keys[2], (2, state_size, input_size)) / jnp.sqrt(2.0 * input_size)
        self.read_out = normal(keys[3], (2, output_size, state_size)) / jnp.sqrt(1.0 * state_size)
        self.skip = eqx.nn.Linear(input_size, output_size, key=keys[4])

    @property
    @with_promotion
    def eigenvalues(self) -> Complex[Array, " h"]:
        """Eigenvalues λ of all units; after t steps, an input is scaled by |λ|^t."""
        # Above exp(16), float32 is too coarse to represent the phase.
        return jnp.exp(-bounded_exp(self.nu) + 1j * bounded_exp(self.theta, 16.0))

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return the affine map (λ, γ ⊙ B x) for one observation."""
        gain = jnp.sqrt(-jnp.expm1(-2 * bounded_exp(self.nu)))  # √(1 - |λ|²) without cancellation
        real, imag = gain[None, :, None] * self.read_in
        return self.eigenvalues, jax.lax.complex(x @ real.T, x @ imag.T)

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        real, imag = self.read_out
        return h[1].real @ real.T - h[1].imag @ imag.T + dense(self.skip, x)
