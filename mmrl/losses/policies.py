"""Losses of policies and of state values, one per step."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mmrl._dtypes import convert_arguments

Scalar = float | int | Float[Array, ""]
Steps = Float[Array, "*shape"]
"""One value per step, with any number of axes."""


@convert_arguments("log_prob", "log_prob_behavior")
def importance_ratio(
    log_prob: Steps, log_prob_behavior: Steps, importance_max: Scalar = 100.0
) -> Steps:
    """Return the truncated importance weight π / max(μ, π / c) ≤ c.  Hilton et al. 2022, App. B.

    μ is the behavior policy. A truncated weight still has the gradient c ∇ log π, because the
    truncation raises μ, which is treated as a constant. Use c ≤ 0 or c = ∞ for no truncation.

        >>> importance_ratio([0.0], [0.0])
        Array([1.], dtype=float32)
    """
    return jnp.exp(log_prob - _floor(log_prob, log_prob_behavior, importance_max))


@convert_arguments("log_prob", "log_prob_behavior", "log_prob_proximal", "advantages")
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

        >>> logs = [jnp.log(jnp.array([p])) for p in (0.9, 0.5, 0.5)]
        >>> loss = clip_loss(*logs, jnp.ones(1), epsilon=0.2)
        >>> round(float(loss[0]), 2)  # the ratio 1.8 is clipped to 1.2
        -1.2
    """
    anchor = _floor(log_prob, log_prob_behavior, importance_max)
    low, high = jnp.log1p(-jnp.minimum(epsilon, 1.0)), jnp.log1p(epsilon)
    clipped = log_prob_proximal + jnp.clip(log_prob - log_prob_proximal, low, high)
    free, bounded = jnp.exp(log_prob - anchor), jnp.exp(clipped - anchor)
    return jnp.maximum(-advantages * free, -advantages * bounded)


@convert_arguments("log_prob", "log_prob_behavior", "advantages", "penalty")
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

        >>> kl_loss([0.0], [0.0], advantages=[2.0], penalty=[0.5], weight=1.0)
        Array([-1.5], dtype=float32)
    """
    ratio = importance_ratio(log_prob, log_prob_behavior, importance_max)
    return weight * penalty - ratio * advantages


@convert_arguments("log_prob", "log_prob_proximal")
def squared_log_ratio(log_prob: Steps, log_prob_proximal: Steps) -> Steps:
    """Return (log π - log π_p)² / 2, the KL estimate in the code of Hilton et al. 2022.

    Its mean approximates KL[π_p ‖ π] and KL[π ‖ π_p] when π is close to π_p. For actions sampled
    from π, its mean gradient is that of KL[π ‖ π_p], the reverse of the paper's formula.

        >>> squared_log_ratio([-1.0], [-3.0])
        Array([2.], dtype=float32)
    """
    return 0.5 * (log_prob - log_prob_proximal) ** 2


@convert_arguments("values", "targets")
def value_loss(values: Steps, targets: Steps) -> Steps:
    """Return (V - y)² per step, without ½ or clipping; gradients through y are stopped.

    >>> value_loss([1.0, 2.0], [1.0, 4.0])
    Array([0., 4.], dtype=float32)
    """
    return (values - jax.lax.stop_gradient(targets)) ** 2


@convert_arguments("log_prob", "advantages")
def policy_gradient_loss(log_prob: Steps, advantages: Steps) -> Steps:
    """Return the policy gradient loss -log π(a_t) A_t per step.  Williams 1992.

    Gradients through the advantages are stopped. Advantages from V-trace already include the
    truncated importance weight ρ_t (Rolnick et al. 2019, Section 3).

        >>> policy_gradient_loss([-1.0], [2.0])
        Array([2.], dtype=float32)
    """
    return -log_prob * jax.lax.stop_gradient(advantages)


@convert_arguments("logits", "logits_behavior")
def policy_cloning(
    logits: Float[Array, "*shape action"], logits_behavior: Float[Array, "*shape action"]
) -> Steps:
    """Return KL[μ ‖ π] = Σ_a μ(a) log(μ(a) / π(a)), in nats.  Rolnick et al. 2019, Section 3.

    μ is the behavior policy, whose gradients are stopped. This direction of the divergence makes π
    cover all actions of μ. Actions with μ(a) = 0 contribute 0, even if their logit is -∞.

        >>> policy_cloning(jnp.zeros(2), jnp.zeros(2))  # equal policies
        Array(0., dtype=float32)
    """
    behavior = jax.lax.stop_gradient(jax.nn.log_softmax(logits_behavior))
    p = jnp.exp(behavior)
    apart = behavior - jax.nn.log_softmax(logits)
    return jnp.sum(p * jnp.where(p > 0, apart, 0), axis=-1)


@convert_arguments("values", "values_behavior")
def value_cloning(values: Steps, values_behavior: Steps) -> Steps:
    """Return (V - V_then)², where V_then is the actor's stored value.  Rolnick et al. 2019.

    For scalars, this is the squared norm ‖·‖₂² of the paper. Unlike the targets of `value_loss`,
    V_then is never recomputed.

        >>> value_cloning([1.0], [3.0])
        Array([4.], dtype=float32)
    """
    return (values - jax.lax.stop_gradient(values_behavior)) ** 2


def _floor(log_prob, log_prob_behavior, importance_max):
    """Return log max(μ, π / c), where π / c is treated as a constant."""
    limit = jnp.where(jnp.asarray(importance_max) > 0, importance_max, jnp.inf)
    return jnp.maximum(log_prob_behavior, jax.lax.stop_gradient(log_prob) - jnp.log(limit))
