"""Losses of action values, and the mean over the real steps of a batch."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mmrl import returns
from mmrl._dtypes import convert_arguments


@convert_arguments("x")
def masked_mean(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]) -> Float[Array, ""]:
    """Return the mean of `x` where `mask` is True: Σ m_t x_t / Σ m_t.

    The result is 0 if the mask is False everywhere. NaNs at masked steps are ignored.

        >>> masked_mean([1.0, 2.0, 9.0], [True, True, False])
        Array(1.5, dtype=float32)
    """
    count = jnp.sum(mask, dtype=jnp.int32).astype(jnp.float32)
    return jnp.sum(jnp.where(mask, x, 0)) / jnp.maximum(count, 1)


@convert_arguments("x")
def huber(x: Float[Array, "*shape"], delta: float = 1.0) -> Float[Array, "*shape"]:
    """Return the Huber loss: x²/2 if |x| ≤ δ, otherwise δ(|x| - δ/2).  Huber 1964.

    >>> huber([0.5, 3.0])
    Array([0.125, 2.5  ], dtype=float32)
    """
    small = jnp.clip(jnp.abs(x), max=delta)
    return small * (jnp.abs(x) - 0.5 * small)


@convert_arguments("rewards", "discount", "next_q", "next_q_target")
def double_q_target(
    rewards: Float[Array, " time"],
    discount: Float[Array, " time"],
    next_q: Float[Array, "time action"],
    next_q_target: Float[Array, "time action"],
) -> Float[Array, " time"]:
    """Return double Q-learning targets.  van Hasselt et al. 2016, Eq. 4.

    y_t = r_t + γ_t Q⁻(s_{t+1}, argmax_a Q(s_{t+1}, a)) with γ_t = γ (1 - terminated_t). The online
    network's `next_q` selects the action, and the target network's `next_q_target` evaluates it.
    Gradients are stopped.

        >>> double_q_target([1.0], [0.5], [[0.0, 1.0]], [[6.0, 4.0]])  # 1 + 0.5 · 4
        Array([3.], dtype=float32)
    """
    best = select_values(next_q_target, jnp.argmax(next_q, axis=-1))
    return jax.lax.stop_gradient(rewards + returns.bootstrap(discount, best))


@convert_arguments("q")
def select_values(
    q: Float[Array, "time action"], actions: Int[Array, " time"]
) -> Float[Array, " time"]:
    """Return the values Q(s_t, a_t) of the given actions.

    >>> select_values([[1.0, 2.0], [3.0, 4.0]], jnp.array([1, 0]))
    Array([2., 3.], dtype=float32)
    """
    return jnp.take_along_axis(q, actions[:, None], axis=-1)[:, 0]


@convert_arguments("td_error", "weights")
def td_loss(
    td_error: Float[Array, "*shape"],
    mask: Bool[Array, "*shape"],
    weights: Float[Array, "*#shape"] | float = 1.0,
) -> Float[Array, ""]:
    """Return the weighted Huber loss of TD errors, averaged over real steps.

    Σ w_t huber(δ_t) / n, where n is the number of real steps. The importance weights w_t have mean
    1 and correct for unequal sampling. On segments, the published code of Morad et al. 2024 applies
    the Huber loss to the mean absolute error instead.

        >>> td_loss([1.0, -1.0, 9.0], [True, True, False])
        Array(0.5, dtype=float32)
    """
    # Mask the errors as well as the loss, because the gradient of 0 · NaN is NaN.
    return masked_mean(weights * huber(jnp.where(mask, td_error, 0)), mask)
