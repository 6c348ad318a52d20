"""Losses as functions of arrays, for one tape: no recurrence, no replay, no network.

First those of action values, then those of policies, which give an entry for each step, without a
mean. Masks are true on real steps. All means run over real steps only, so that padding weighs
nothing and a loss means the same on a tape as on padded segments.
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
"""One number for each step, in as many axes as there are."""


@converting("x")
def masked_mean(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]) -> Float[Array, ""]:
    """Σ m_t x_t / Σ m_t; zero where nothing is real. A NaN under the mask does no harm."""
    count = jnp.sum(mask, dtype=jnp.int32).astype(jnp.float32)
    return jnp.sum(jnp.where(mask, x, 0)) / jnp.maximum(count, 1)


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
