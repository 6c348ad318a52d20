"""S5 (Smith et al. 2023), a diagonal linear system in continuous time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Complex128, Float, Float64, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes, ends_of
from mmrl.monoid import Affine


class S5(Memory):
    """Discretized linear system ḣ = Λ h + B u, with y_t = 2 Re(C h_t) + D u_t.  Eqs. 62-66.

    h_t = Λ̄ h_{t-1} + B̄ u_t with Λ̄ = exp(ΛΔ) and B̄ = Λ⁻¹ (Λ̄ - I) B. This is a zero-order hold,
    which is exact if the input is constant during a step (Smith et al. 2023). Re Λ =
    -exp(`log_decay`) < 0 ensures |Λ̄| ≤ 1 for all parameters. Eq. 66 omits 2 Re(·) and D; its GELU
    and gate are in `Residual`.

    Λ is initialized to the eigenvalues of the normal part of the HiPPO matrix (see `hippo`), which
    come in conjugate pairs. Only one eigenvalue of each pair is stored and the output is doubled,
    so `state_size` complex units represent twice as many real units. With several `blocks`, Λ
    consists of copies of the eigenvalues of a smaller HiPPO matrix. B and C are initialized as real
    matrices and then transformed to the eigenbasis. There is one step size Δ per unit, initially
    log-uniform over `step_size`; the time between observations is 1.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Affine
    log_decay: Float[Array, " h"]
    frequency: Float[Array, " h"]
    log_step: Float[Array, " h"]
    read_in: Float[Array, "2 h in"]
    read_out: Float[Array, "2 out h"]
    skip: eqx.nn.Linear

    @with_promotion
    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        state_size: int = 64,
        blocks: int = 1,
        step_size: tuple[float, float] = (1e-3, 1e-1),
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size, state_size=state_size)
        check_sizes(key, blocks=blocks)
        if state_size % blocks:
            raise ValueError(f"`blocks` must divide `state_size` = {state_size}; got {blocks}.")
        low, high = ends_of("step_size", step_size)
        if not 0 < low <= high:
            raise ValueError(
                f"`step_size` must be (low, high) with 0 < low ≤ high < ∞; got {step_size}."
            )
        keys = jax.random.split(key, 4)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = Affine((state_size,), jnp.complex64)
        eigenvalues, basis = diagonalise(hippo(2 * state_size // blocks))
        basis = np.kron(np.eye(blocks), basis).astype(np.complex64)
        self.log_decay = jnp.log(-jnp.tile(np.real(eigenvalues), blocks).astype(jnp.float32))
        self.frequency = jnp.tile(np.imag(eigenvalues), blocks).astype(jnp.float32)
        self.log_step = jax.random.uniform(
            keys[0], (state_size,), minval=np.log(low), maxval=np.log(high)
        )
        write = jax.random.normal(keys[1], (2 * state_size, input_size)) / np.sqrt(input_size)
        read = jax.random.normal(keys[2], (output_size, 2 * state_size)) / np.sqrt(2 * state_size)
        # Real and imaginary parts of Vᴴ B and C V.
        self.read_in = jnp.stack([basis.real.T @ write, -basis.imag.T @ write])
        self.read_out = jnp.stack([read @ basis.real, read @ basis.imag])
        self.skip = eqx.nn.Linear(input_size, output_size, key=keys[3])

    @property
    @with_promotion
    def eigenvalues(self) -> Complex[Array, " h"]:
        """Eigenvalues Λ̄ = exp(ΛΔ) of all units; after t steps, an input is scaled by |Λ̄|^t."""
        return jnp.exp(self._rate())

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return the affine map (Λ̄, B̄ u) for one observation."""
        rate, step = self._rate(), self._step()
        hold = step * jnp.expm1(rate) / rate  # Λ⁻¹ (Λ̄ - I), accurate even for small step sizes
        weights = hold[:, None] * jax.lax.complex(*self.read_in)
        return jnp.exp(rate), jax.lax.complex(x @ weights.real.T, x @ weights.imag.T)

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        real, imag = 2 * self.read_out
        return h[1].real @ real.T - h[1].imag @ imag.T + dense(self.skip, x)

    def _rate(self):
        # Clip so that neither ΛΔ nor 1 / (ΛΔ)² is 0 or infinite.
        decay, frequency = jnp.clip(self.log_decay, -20, 20), jnp.clip(self.frequency, -1e8, 1e8)
        return (-jnp.exp(decay) + 1j * frequency) * self._step()

    def _step(self):
        return jnp.exp(jnp.clip(self.log_step, -20, 20))


def hippo(size: int) -> Float64[np.ndarray, "size size"]:
    """Return the normal part of the HiPPO-LegS matrix.  Gu, Goel & Ré 2022.

    The result is -½ I plus a skew-symmetric matrix. HiPPO-LegS is this matrix minus p pᵀ with p_n =
    √(n + ½). HiPPO-LegS itself is not normal, and its eigenvectors are too ill-conditioned for a
    diagonalization.
    """
    root = np.sqrt(2 * np.arange(size) + 1.0)
    lower = np.tril(np.outer(root, root), -1) / 2
    return lower.T - lower - np.eye(size) / 2


def diagonalise(
    matrix: Float64[np.ndarray, "size size"],
) -> tuple[Complex128[np.ndarray, " half"], Complex128[np.ndarray, "size half"]]:
    """Return the eigenvalues in the upper half-plane and their orthonormal eigenvectors.

    `matrix` must be real, normal, and of even size, and all its eigenvalues must have the same real
    part. The eigenvectors are the columns of the second result.
    """
    half = len(matrix) // 2
    real = np.mean(np.diag(matrix))
    frequency, basis = np.linalg.eigh(-1j * (matrix - real * np.eye(len(matrix))))
    return real + 1j * frequency[half:], basis[:, half:]
