"""S5, Smith et al. 2023: a linear system in continuous time that compresses its past (HiPPO)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Complex128, Float, Float64, PRNGKeyArray, PyTree

from mmrl._dtypes import promoting
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes
from mmrl.monoid import Affine


class S5(Memory):
    """A sampled linear system ḣ = Λ h + B u, read as y_t = 2 Re(C h_t) + D u_t.  Eqs. 62-66.

    h_t = Λ̄ h_{t-1} + B̄ u_t with Λ̄ = exp(ΛΔ), B̄ = Λ⁻¹ (Λ̄ - I) B: zero-order hold, exact for an
    input that is constant within a step (Smith et al. 2023). Λ starts as the eigenvalues of the
    normal HiPPO matrix, whose state holds the coefficients of the past in Legendre polynomials.
    They come in conjugate pairs, so one of each pair is kept and the output doubled: `state_size`
    complex units stand for twice as many real ones, in `blocks` copies of a smaller HiPPO matrix. B
    and C start as real matrices, transformed to the basis of the eigenvectors. Eq. 66 leaves out 2
    Re(·) and D; its GELU and gate are in `Residual`.

    Re Λ = -exp(`log_decay`) < 0 keeps |Λ̄| ≤ 1 for all parameters. Δ is one number per unit, at the
    start log-uniform over `step_size`, in units of the time between observations.
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

    @promoting
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
        if not 0 < step_size[0] <= step_size[1] < np.inf:
            raise ValueError(f"`step_size` must be 0 < low ≤ high < ∞; got {step_size}.")
        keys = jax.random.split(key, 4)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = Affine((state_size,), jnp.complex64)
        eigenvalues, basis = diagonalise(hippo(2 * state_size // blocks))
        basis = np.kron(np.eye(blocks), basis).astype(np.complex64)
        self.log_decay = jnp.log(-jnp.tile(np.real(eigenvalues), blocks).astype(jnp.float32))
        self.frequency = jnp.tile(np.imag(eigenvalues), blocks).astype(jnp.float32)
        low, high = step_size
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
    @promoting
    def eigenvalues(self) -> Complex[Array, " h"]:
        """Eigenvalues Λ̄ = exp(ΛΔ), one per unit: |Λ̄|^t of an input is left after t steps."""
        return jnp.exp(self._rate())

    @promoting
    def encode(self, x) -> PyTree:
        """Return the map (Λ̄, B̄ u) of one observation."""
        rate, step = self._rate(), self._step()
        hold = step * jnp.expm1(rate) / rate  # Λ⁻¹ (Λ̄ - I), exact for short steps
        held = hold[:, None] * jax.lax.complex(*self.read_in)
        return jnp.exp(rate), jax.lax.complex(x @ held.real.T, x @ held.imag.T)

    @promoting
    def decode(self, h, x) -> Array:
        """Return y_t."""
        real, imag = 2 * self.read_out
        return h[1].real @ real.T - h[1].imag @ imag.T + dense(self.skip, x)

    def _rate(self):
        # The bounds keep ΛΔ and the square of its inverse away from 0 and ∞.
        decay, frequency = jnp.clip(self.log_decay, -20, 20), jnp.clip(self.frequency, -1e8, 1e8)
        return (-jnp.exp(decay) + 1j * frequency) * self._step()

    def _step(self):
        return jnp.exp(jnp.clip(self.log_step, -20, 20))


def hippo(size: int) -> Float64[np.ndarray, "size size"]:
    """Return the normal part of HiPPO-LegS: -½ I plus a skew-symmetric matrix.  Gu, Goel & Ré 2022.

    HiPPO-LegS itself is this matrix minus p pᵀ, p_n = √(n + ½); it is not normal, and its
    eigenvectors are too ill-conditioned to be of use.
    """
    root = np.sqrt(2 * np.arange(size) + 1.0)
    lower = np.tril(np.outer(root, root), -1) / 2
    return lower.T - lower - np.eye(size) / 2


def diagonalise(
    matrix: Float64[np.ndarray, "size size"],
) -> tuple[Complex128[np.ndarray, " half"], Complex128[np.ndarray, "size half"]]:
    """Return the eigenvalues in the upper half plane, and orthonormal eigenvectors as columns.

    `matrix` is a real normal matrix of even size whose eigenvalues share one real part.
    """
    half = len(matrix) // 2
    real = np.mean(np.diag(matrix))
    frequency, basis = np.linalg.eigh(-1j * (matrix - real * np.eye(len(matrix))))
    return real + 1j * frequency[half:], basis[:, half:]
