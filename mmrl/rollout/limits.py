"""Limits between a policy and an environment: legal actions, and what an episode shows last."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree, Shaped

from mmrl._dtypes import finite


def legal(space: Any, action: Any) -> Any:
    """Return the nearest action in a `Box`, of its dtype; other spaces leave it as it is."""
    if not hasattr(space, "low"):
        return action
    dtype = jax.dtypes.canonicalize_dtype(space.dtype)
    real = jnp.promote_types(dtype, jnp.float32)  # the bounds of 64 bits are not those of 32
    ends = (jnp.asarray(x, real) for x in (space.low, space.high))
    low, high = (jnp.broadcast_to(x, space.shape) for x in ends)
    nearest = jnp.rint if jnp.issubdtype(dtype, jnp.integer) else jnp.asarray
    return nearest(jnp.clip(jnp.asarray(action, real), low, high)).astype(dtype)


def shown_last(
    obs: PyTree[Shaped[Array, "..."]], terminated: Bool[Array, ""]
) -> PyTree[Shaped[Array, "..."]]:
    """Return what an action led to, with 0 for NaN and ∞ where the episode terminated.

    A simulation that crashed may show them. No target depends on the numbers, but the gradients of
    a network that reads them would be NaN.
    """
    return finite(obs, terminated)
