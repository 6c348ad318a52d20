"""Loss functions on plain arrays, independent of memories, replay and networks.

The losses of policies and value functions return one value per step, and `td_loss` returns a mean.
Masks are True at real steps and False at padding. Since `masked_mean` averages over real
steps only, a loss has the same value on a tape as on padded segments.
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
    "select_values",
    "squared_log_ratio",
    "td_loss",
    "value_cloning",
    "value_loss",
]

Scalar = float | int | Float[Array, ""]
Steps = Float[Array, "*shape"]
"""One value per step, with any number of axes."""


@converting("x")
def masked_mean(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]) -> Float[Array, ""]:
    """Return the mean of `x` where `mask` is True: Σ m_t x_t / Σ m_t.

    The result is 0 if the mask is False everywhere. NaNs at masked steps are ignored.
    """
    count = jnp.sum(mask, dtype=jnp.int32).astype(jnp.float32)
    return jnp.sum(jnp.where(mask, x, 0)) / jnp.maximum(count, 1)


@converting("x")
def huber(x: Float[Array, "*shape"], delta: float = 1.0) -> Float[Array, "*shape"]:
    """Return the Huber loss: x²/2 if |x| ≤ δ, otherwise δ(|x| - δ/2).  Huber 1964."""
    small = jnp.clip(jnp.abs(x), max=delta)
    return small * (jnp.abs(x) - 0.5 * small)


@converting("rewards", "discount", "next_q", "next_q_target")
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
    """
    best = select_values(next_q_target, jnp.argmax(next_q, axis=-1))
    return jax.lax.stop_gradient(rewards + returns.bootstrap(discount, best))


@converting("q")
def select_values(
    q: Float[Array, "time action"], actions: Int[Array, " time"]
) -> Float[Array, " time"]:
    """Return the values Q(s_t, a_t) of the given actions."""
    return jnp.take_along_axis(q, actions[:, None], axis=-1)[:, 0]


@converting("td_error", "weights")
def td_loss(
    td_error: Float[Array, "*shape"],
    mask: Bool[Array, "*shape"],
    weights: Float[Array, "*#shape"] | float = 1.0,
) -> Float[Array, ""]:
    """Return the weighted Huber loss of TD errors, averaged over real steps.

    Σ w_t huber(δ_t) / n, where n is the number of real steps. The importance weights w_t have mean
    1 and correct for unequal sampling. On segments, the published code of Morad et al. 2024 applies
    the Huber loss to the mean absolute error instead.
    """
    # Mask the errors as well as the loss, because the gradient of 0 · NaN is NaN.
    return masked_mean(weights * huber(jnp.where(mask, td_error, 0)), mask)


@converting("log_prob", "log_prob_behavior")
def importance_ratio(
    log_prob: Steps, log_prob_behavior: Steps, importance_max: Scalar = 100.0
) -> Steps:
    """Return the truncated importance weight π / max(μ, π / c) ≤ c.  Hilton et al. 2022, App. B.

    μ is the behavior policy. A truncated weight still has the gradient c ∇ log π, because the
    truncation raises μ, which is treated as a constant. Use c ≤ 0 or c = ∞ for no truncation.
    """
    return jnp.exp(log_prob - _floor(log_prob, log_prob_behavior, importance_max))


@converting("log_prob", "log_prob_behavior", "log_prob_proximal", "advantages")
def clip_loss(
    log_prob: Steps,
    log_prob_behavior: Steps,
    log_prob_proximal: Steps,
    advantages: Steps,
    epsilon: Scalar,
    importance_max: Scalar = 100.0,
) -> Steps:
    """Return the decoupled clipped PPO loss per step, L^CLIP_decoupled.  Hilton et al. 2022.

    -(π_p/μ) min(ρ A, clip(ρ, 1-ε, 1+ε) A), with ρ = π/π_p. The behavior policy μ corrects for
    off-policy actions, and the proximal policy π_p limits the size of the step. With π_p = μ, this
    is the objective of PPO (Schulman et al. 2017, Eq. 7) with truncated importance weights. With ε
    = ∞, and for any ε > 0 if π_p = π, the gradient is the importance-sampled policy gradient. As in
    the paper's code, ratios are computed from log-probabilities, for numerical stability.
    """
    anchor = _floor(log_prob, log_prob_behavior, importance_max)
    low, high = jnp.log1p(-jnp.minimum(epsilon, 1.0)), jnp.log1p(epsilon)
    clipped = log_prob_proximal + jnp.clip(log_prob - log_prob_proximal, low, high)
    free, bounded = jnp.exp(log_prob - anchor), jnp.exp(clipped - anchor)
    return jnp.maximum(-advantages * free, -advantages * bounded)


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

    The paper calls it L^KLPEN_decoupled (cf. Schulman et al. 2017, Eq. 8). `penalty` is either the
    exact divergence, `proximal.kl(policy)`, or its estimate `squared_log_ratio`.
    """
    ratio = importance_ratio(log_prob, log_prob_behavior, importance_max)
    return weight * penalty - ratio * advantages


@converting("log_prob", "log_prob_proximal")
def squared_log_ratio(log_prob: Steps, log_prob_proximal: Steps) -> Steps:
    """Return (log π - log π_p)² / 2, the KL estimate in the code of Hilton et al. 2022.

    Its mean approximates KL[π_p ‖ π] and KL[π ‖ π_p] when π is close to π_p. For actions sampled
    from π, its mean gradient is that of KL[π ‖ π_p], the reverse of the paper's formula.
    """
    return 0.5 * (log_prob - log_prob_proximal) ** 2


@converting("values", "targets")
def value_loss(values: Steps, targets: Steps) -> Steps:
    """Return (V - y)² per step, without ½ or clipping; gradients through y are stopped."""
    return (values - jax.lax.stop_gradient(targets)) ** 2


@converting("log_prob", "advantages")
def policy_gradient_loss(log_prob: Steps, advantages: Steps) -> Steps:
    """Return the policy gradient loss -log π(a_t) A_t per step.  Williams 1992.

    Gradients through the advantages are stopped. Advantages from V-trace already include the
    truncated importance weight ρ_t (Rolnick et al. 2019, Section 3).
    """
    return -log_prob * jax.lax.stop_gradient(advantages)


@converting("logits", "logits_behavior")
def policy_cloning(
    logits: Float[Array, "*shape action"], logits_behavior: Float[Array, "*shape action"]
) -> Steps:
    """Return KL[μ ‖ π] = Σ_a μ(a) log(μ(a) / π(a)), in nats.  Rolnick et al. 2019, Section 3.

    μ is the behavior policy, whose gradients are stopped. This direction of the divergence makes π
    cover all actions of μ. Actions with μ(a) = 0 contribute 0, even if their logit is -∞.
    """
    behavior = jax.lax.stop_gradient(jax.nn.log_softmax(logits_behavior))
    p = jnp.exp(behavior)
    apart = behavior - jax.nn.log_softmax(logits)
    return jnp.sum(p * jnp.where(p > 0, apart, 0), axis=-1)


@converting("values", "values_behavior")
def value_cloning(values: Steps, values_behavior: Steps) -> Steps:
    """Return (V - V_then)², where V_then is the actor's stored value.  Rolnick et al. 2019.

    For scalars, this is the squared norm ‖·‖₂² of the paper. Unlike the targets of `value_loss`,
    V_then is never recomputed.
    """
    return (values - jax.lax.stop_gradient(values_behavior)) ** 2


def _floor(log_prob, log_prob_behavior, importance_max):
    """Return log max(μ, π / c), where π / c is treated as a constant."""
    limit = jnp.where(jnp.asarray(importance_max) > 0, importance_max, jnp.inf)
    return jnp.maximum(log_prob_behavior, jax.lax.stop_gradient(log_prob) - jnp.log(limit))
