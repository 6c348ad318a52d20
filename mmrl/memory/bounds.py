"""Bounds of parameters and features, beyond which a gradient would be 0, NaN or infinite."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


def bounded_exp(x: Float[Array, "*shape"], most: float = 40.0) -> Float[Array, "*shape"]:
    """exp(x), where x counts as at least -40 and at most `most`.

    It is neither 0 nor ∞, whose gradients would be NaN. Beyond the bounds the gradient is 0.
    """
    return jnp.exp(jnp.clip(x, -40.0, most))


def normalized(norm: eqx.nn.LayerNorm, x: Float[Array, " size"]) -> Float[Array, " size"]:
    """norm(x), or x if it is a single number, which every norm makes constant."""
    return norm(x) if x.size > 1 else x
