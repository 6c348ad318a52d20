"""Bounds of parameters and features, beyond which a gradient would be 0, NaN or infinite."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def bounded_exp(
    x: Float[Array | np.ndarray, "*shape"], most: float = 40.0
) -> Float[Array, "*shape"]:
    """Return exp(x), with x bounded below by -40 and above by `most`.

    The result is never 0 or ∞, whose gradients would be NaN. Beyond the bounds the gradient is 0.
    """
    return jnp.exp(jnp.clip(x, -40.0, most))


def normalized(norm: eqx.nn.LayerNorm, x: Float[Array, " size"]) -> Float[Array, " size"]:
    """Return norm(x), or x if it is a single number, which every norm makes constant."""
    return norm(x) if x.size > 1 else x
