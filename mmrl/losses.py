"""Losses as functions of arrays, for one tape: no recurrence, no replay, no network.

Losses of action values come first, then losses of policies, which return one entry per step and
take no mean. Masks are True on real steps. All means are over real steps only, so padding has no
weight and a loss has the same meaning on a tape as on padded segments.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mmrl import returns
from mmrl._dtypes import converting

__all__ = [
    "clip_loss",
    "double_q_target",
    "huber",
    "importance_ratio",
    "kl_loss",
    "masked_mean",
    "policy_cloning",
    "policy_gradient_loss",
    "squared_log_ratio",
    "taken",
    "td_loss",
    "value_cloning",
    "value_loss",
]

Scalar = float | int | Float[Array, ""]
Steps = Float[Array, "*shape"]
"""One number for each step, in any number of axes."""


@converting("x")
def masked_mean(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]) -> Float[Array, ""]:
    """Return the mean over real steps, Σ m_t x_t / Σ m_t; 0 without any. Masked NaNs do no harm."""
    count = jnp.sum(mask, dtype=jnp.int32).astype(jnp.float32)
    return jnp.sum(jnp.where(mask, x, 0)) / jnp.maximum(count, 1)


@converting("x")
def huber(x: Float[Array, "*shape"], delta: float = 1.0) -> Float[Array, "*shape"]:
    """Return the Huber loss: x²/2 for |x| ≤ δ, δ(|x| - δ/2) beyond.  Huber 1964."""
    small = jnp.clip(jnp.abs(x), max=delta)
    return small * (jnp.abs(x) - 0.5 * small)


@converting("rewards", "discount", "next_q", "next_q_target")
def double_q_target(
    rewards: Float[Array, " time"],
    discount: Float[Array, " time"],
    next_q: Float[Array, "time action"],
    next_q_target: Float[Array, "time action"],
) -> Float[Array, " time"]:
    """Return double Q-learning targets, without a gradient.  van Hasselt et al. 2016, Eq. 4.

    y_t = r_t + γ_t Q⁻(s_{t+1}, argmax_a Q(s_{t+1}, a)), γ_t = γ (1 - terminated_t). The online
    network's `next_q` selects the action; the target network's `next_q_target` evaluates it.
    """
    best = taken(next_q_target, jnp.argmax(next_q, axis=-1))
    return jax.lax.stop_gradient(rewards + returns.bootstrap(discount, best))


@converting("q")
def taken(q: Float[Array, "time action"], actions: Int[Array, " time"]) -> Float[Array, " time"]:
    """Return the action values Q(s_t, a_t) of the actions taken."""
    return jnp.take_along_axis(q, actions[:, None], axis=-1)[:, 0]


@converting("td_error", "weights")
def td_loss(
    td_error: Float[Array, "*shape"],
    mask: Bool[Array, "*shape"],
    weights: Float[Array, "*#shape"] | float = 1.0,
) -> Float[Array, ""]:
    """Return the weighted Huber loss of TD errors, Σ w_t huber(δ_t) / n over the n real steps.

    Importance weights w_t, of mean 1, correct for sampling some steps more often. On segments the
    paper's code takes the Huber loss of the mean absolute error, which is another loss.
    """
    # Mask the error too: if only the loss were masked, 0 · NaN would still reach the gradient.
    return masked_mean(weights * huber(jnp.where(mask, td_error, 0)), mask)


@converting("log_prob", "log_prob_behavior")
def importance_ratio(
    log_prob: Steps, log_prob_behavior: Steps, importance_max: Scalar = 100.0
) -> Steps:
    """Return the importance weight π / max(μ, π / c) ≤ c.  Hilton et al. 2022, Appendix B.

    μ is the policy that acted. A weight at its limit stays there but keeps the gradient ∇ log π,
    because the limit raises μ, which takes no gradient. There is no limit if c ≤ 0 or c = ∞.
    """
    return jnp.exp(log_prob - _raised(log_prob, log_prob_behavior, importance_max))


@converting("log_prob", "log_prob_behavior", "log_prob_proximal", "advantages")
def clip_loss(
    log_prob: Steps,
    log_prob_behavior: Steps,
    log_prob_proximal: Steps,
    advantages: Steps,
    epsilon: Scalar,
    importance_max: Scalar = 100.0,
) -> Steps:
    """Return the decoupled clipped PPO loss per step.  L^CLIP_decoupled, Hilton et al. 2022.

    -(π_p/μ) min(ρ A, clip(ρ, 1-ε, 1+ε) A), ρ = π/π_p. The behavior policy μ corrects for off-policy
    actions; the proximal policy π_p limits the step. With π_p = μ this is PPO's objective (Schulman
    et al. 2017, Eq. 7) with the limit of `importance_ratio`. With ε = ∞ the loss, and where π_p = π
    its gradient, is that of an importance-sampled policy gradient. Ratios are computed from
    logarithms, as in the paper's code: no small number divides another.
    """
    anchor = _raised(log_prob, log_prob_behavior, importance_max)
    low, high = jnp.log1p(-jnp.minimum(epsilon, 1.0)), jnp.log1p(epsilon)
    clipped = log_prob_proximal + jnp.clip(log_prob - log_prob_proximal, low, high)
    free, held = jnp.exp(log_prob - anchor), jnp.exp(clipped - anchor)
    return jnp.maximum(-advantages * free, -advantages * held)


@converting("log_prob", "log_prob_behavior", "advantages", "penalty")
def kl_loss(
    log_prob: Steps,
    log_prob_behavior: Steps,
    advantages: Steps,
    penalty: Steps,
    weight: Scalar,
    importance_max: Scalar = 100.0,
) -> Steps:
    """Return the KL-penalized PPO loss -(π/μ) A + β KL[π_p, π] per step.  Hilton et al. 2022.

    L^KLPEN_decoupled; Schulman et al. 2017, Eq. 8. `penalty` is the divergence itself,
    `proximal.kl(policy)`, or `squared_log_ratio`.
    """
    ratio = importance_ratio(log_prob, log_prob_behavior, importance_max)
    return weight * penalty - ratio * advantages


@converting("log_prob", "log_prob_proximal")
def squared_log_ratio(log_prob: Steps, log_prob_proximal: Steps) -> Steps:
    """Return (log π - log π_p)² / 2 at the actions taken: the paper's code uses it for KL[π_p, π].

    Near π_p its mean is the divergence, in either direction. On actions of π itself its gradient is
    on average the gradient of KL[π ‖ π_p], the opposite direction to the paper's formula.
    """
    return 0.5 * (log_prob - log_prob_proximal) ** 2


@converting("values", "targets")
def value_loss(values: Steps, targets: Steps) -> Steps:
    """Return (V - y)², without a factor ½ or clipping; y takes no gradient."""
    return (values - jax.lax.stop_gradient(targets)) ** 2


@converting("log_prob", "advantages")
def policy_gradient_loss(log_prob: Steps, advantages: Steps) -> Steps:
    """Return -log π(a_t) A_t, where A takes no gradient.  Williams 1992.

    V-trace's advantages include the truncated importance weight ρ_t: Rolnick et al. 2019, Section
    3.
    """
    return -log_prob * jax.lax.stop_gradient(advantages)


@converting("logits", "logits_behavior")
def policy_cloning(
    logits: Float[Array, "*shape action"], logits_behavior: Float[Array, "*shape action"]
) -> Steps:
    """Return KL[μ ‖ π] = Σ_a μ(a) log(μ(a) / π(a)), in nats.  Rolnick et al. 2019, Section 3.

    μ is the policy that acted, and takes no gradient. In this direction π must cover all actions of
    μ; an action that μ never takes costs 0, even where its logit is -∞.
    """
    behavior = jax.lax.stop_gradient(jax.nn.log_softmax(logits_behavior))
    p = jnp.exp(behavior)
    apart = behavior - jax.nn.log_softmax(logits)
    return jnp.sum(p * jnp.where(p > 0, apart, 0), axis=-1)


@converting("values", "values_behavior")
def value_cloning(values: Steps, values_behavior: Steps) -> Steps:
    """Return (V - V_then)², where V_then is the value at acting time.  Rolnick et al. 2019.

    This is the paper's ‖·‖₂² of a scalar. Unlike the targets of `value_loss`, V_then never moves.
    """
    return (values - jax.lax.stop_gradient(values_behavior)) ** 2


def _raised(log_prob, log_prob_behavior, importance_max):
    """Return log max(μ, π / c), the log-probability of μ raised to at least π / c."""
    limit = jnp.where(jnp.asarray(importance_max) > 0, importance_max, jnp.inf)
    return jnp.maximum(log_prob_behavior, jax.lax.stop_gradient(log_prob) - jnp.log(limit))
