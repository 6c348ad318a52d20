"""Losses of policies, and of the values beside them: an entry for each step, without a mean."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mmrl._dtypes import converting

Scalar = float | int | Float[Array, ""]
Steps = Float[Array, "*shape"]
"""One number for each step, in as many axes as there are."""


@converting("log_prob", "log_prob_behavior")
def importance_ratio(
    log_prob: Steps, log_prob_behavior: Steps, importance_max: Scalar = 100.0
) -> Steps:
    """π / max(μ, π / c): the importance weight, at most c.  Hilton et al. 2022, Appendix B.

    μ is the policy that acted. A weight at its limit stays there, yet keeps the gradient ∇ log π:
    it is the behavior policy that is raised, and no gradient goes there. No limit if c ≤ 0 or ∞.
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
    """-(π_p/μ) min(ρ A, clip(ρ, 1-ε, 1+ε) A), ρ = π/π_p.  L^CLIP_decoupled, Hilton et al. 2022.

    The behavior policy μ corrects for who acted, the proximal policy π_p limits the step. π_p = μ
    is PPO's objective (Schulman et al. 2017, Eq. 7), with the limit of `importance_ratio` on top;
    ε = ∞ is the importance-sampled policy gradient, and so is the gradient where π_p = π.

    As in the paper's code, in logarithms: no quotient of two small numbers.
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
    """-(π/μ) A + β KL[π_p, π].  L^KLPEN_decoupled, Hilton et al. 2022; Schulman et al. 2017, Eq. 8.

    `penalty` is the divergence itself, `proximal.kl(policy)`, or `squared_log_ratio`.
    """
    ratio = importance_ratio(log_prob, log_prob_behavior, importance_max)
    return weight * penalty - ratio * advantages


@converting("log_prob", "log_prob_proximal")
def squared_log_ratio(log_prob: Steps, log_prob_proximal: Steps) -> Steps:
    """(log π - log π_p)² / 2 at the actions taken: what the paper's code has for KL[π_p, π].

    Near π_p its mean is the divergence, in either direction. On actions of π itself its gradient is
    that of KL[π ‖ π_p] on average: the other direction than in the paper's formula.
    """
    return 0.5 * (log_prob - log_prob_proximal) ** 2


@converting("values", "targets")
def value_loss(values: Steps, targets: Steps) -> Steps:
    """(V - y)², without a half; nothing is clipped and no gradient reaches y."""
    return (values - jax.lax.stop_gradient(targets)) ** 2


@converting("log_prob", "advantages")
def policy_gradient_loss(log_prob: Steps, advantages: Steps) -> Steps:
    """-log π(a_t) A_t, no gradient reaching A.  Williams 1992.

    V-trace's advantages hold the truncated importance weight ρ_t already: Rolnick et al. 2019,
    Section 3.
    """
    return -log_prob * jax.lax.stop_gradient(advantages)


@converting("logits", "logits_behavior")
def policy_cloning(
    logits: Float[Array, "*shape action"], logits_behavior: Float[Array, "*shape action"]
) -> Steps:
    """KL[μ ‖ π] = Σ_a μ(a) log(μ(a) / π(a)), in nats.  Rolnick et al. 2019, Section 3.

    μ is the policy that acted, and takes no gradient. In this direction π must keep all that μ did:
    what μ never does costs nothing, even where its logit is -∞.
    """
    behavior = jax.lax.stop_gradient(jax.nn.log_softmax(logits_behavior))
    p = jnp.exp(behavior)
    apart = behavior - jax.nn.log_softmax(logits)
    return jnp.sum(p * jnp.where(p > 0, apart, 0), axis=-1)


@converting("values", "values_behavior")
def value_cloning(values: Steps, values_behavior: Steps) -> Steps:
    """(V - V_then)², V_then being what the network said when it acted.  Rolnick et al. 2019.

    Their ‖·‖₂² of a scalar. Against `value_loss`, whose targets move, this one stands still.
    """
    return (values - jax.lax.stop_gradient(values_behavior)) ** 2


def _raised(log_prob, log_prob_behavior, importance_max):
    """log max(μ, π / c): as if the acting policy had been at least so likely to act like this."""
    limit = jnp.where(jnp.asarray(importance_max) > 0, importance_max, jnp.inf)
    return jnp.maximum(log_prob_behavior, jax.lax.stop_gradient(log_prob) - jnp.log(limit))
