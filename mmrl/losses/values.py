"""Losses of action values, and the means that all losses take: functions of arrays."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mmrl import collectives, returns
from mmrl._dtypes import converting


@converting("x")
def masked_mean(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]) -> Float[Array, ""]:
    """Σ m_t x_t / Σ m_t; zero where nothing is real. A NaN under the mask does no harm.

    In a shard Σ m_t is the mean of all shards': the mean of these means is that of all steps.
    """
    count = collectives.mean(jnp.sum(mask, dtype=jnp.int32).astype(jnp.float32))
    return jnp.sum(jnp.where(mask, x, 0)) / jnp.maximum(count, 1 / collectives.size())


@converting("x")
def huber(x: Float[Array, "*shape"], delta: float = 1.0) -> Float[Array, "*shape"]:
    """x²/2 for |x| ≤ δ, δ(|x| - δ/2) beyond: squared near zero, linear far out.  Huber 1964."""
    small = jnp.clip(jnp.abs(x), max=delta)
    return small * (jnp.abs(x) - 0.5 * small)


@converting("rewards", "discount", "next_q", "next_q_target")
def double_q_target(
    rewards: Float[Array, " time"],
    discount: Float[Array, " time"],
    next_q: Float[Array, "time action"],
    next_q_target: Float[Array, "time action"],
) -> Float[Array, " time"]:
    """y_t = r_t + γ_t Q⁻(s_{t+1}, argmax_a Q(s_{t+1}, a)).  van Hasselt et al. 2016, Eq. 4.

    `next_q` is the online network's and chooses, `next_q_target` is the target network's and
    judges; γ_t = γ (1 - terminated_t).
    """
    best = taken(next_q_target, jnp.argmax(next_q, axis=-1))
    return jax.lax.stop_gradient(rewards + returns.bootstrap(discount, best))


@converting("q")
def taken(q: Float[Array, "time action"], actions: Int[Array, " time"]) -> Float[Array, " time"]:
    """Q(s_t, a_t) of the actions taken."""
    return jnp.take_along_axis(q, actions[:, None], axis=-1)[:, 0]


@converting("td_error", "weights")
def td_loss(
    td_error: Float[Array, "*shape"],
    mask: Bool[Array, "*shape"],
    weights: Float[Array, "*#shape"] | float = 1.0,
) -> Float[Array, ""]:
    """Σ w_t huber(δ_t) / n over the n real steps, whether they come from a tape or segments.

    Importance weights w_t make up for sampling some steps more often than others; 1 is the mean.

    On segments the paper's code takes the Huber loss of the mean absolute error: another loss.
    """
    # Masked twice: behind the loss alone, 0 · NaN would still reach the gradient.
    return masked_mean(weights * huber(jnp.where(mask, td_error, 0)), mask)
