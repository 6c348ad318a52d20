"""Learning from rollouts: code shared by PPO and PPG.

A batch is a rollout with its advantages and value targets. Gradient steps on a batch improve the
network, and update the moving average of its parameters. Minibatches are sampled by
`mmrl.agents.minibatches`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from mmrl import losses, returns
from mmrl._dtypes import with_promotion
from mmrl.agents import normalize
from mmrl.agents.common import descend, trainable
from mmrl.agents.minibatches import Rollout as Rollout  # part of this module's API
from mmrl.agents.minibatches import as_rows, shuffle, take
from mmrl.monoid import EWMA
from mmrl.nets import Distribution
from mmrl.rollout import Policy

Scalar = float | Float[Array, ""]
BOTH = ("policy", "value")


class Average(NamedTuple):
    """Moving average of parameters over gradient steps, Σ_k β^k θ_{t-k} / w with w = Σ_k β^k."""

    weight: Float[Array, ""]
    net: PyTree  # any pytree of parameters, such as an `ActorCritic`


class Learner(eqx.Module):
    """Part of a run's state that gradient steps change."""

    net: Any  # an `ActorCritic`, or another network with the same methods
    optimizer: PyTree
    average: Average | None  # None unless the average is the proximal policy


class ActorOutputs(NamedTuple):
    """Policy and value that the actor computed at a step."""

    policy: Distribution
    value: Float[Array, "*time"]


def stochastic(net: Any) -> Policy:
    """Return the policy a ~ π(· | s), with `ActorOutputs` as extras."""

    def act(memory_state, obs, begin, key):
        memory_state, outputs = net.step(memory_state, obs, begin)
        action = outputs.policy.sample(key)
        return memory_state, action, ActorOutputs(outputs.policy, outputs.value)

    return act


class Batch(NamedTuple):
    """Data for gradient steps, [row, time].

    Each row is the rollout of one environment, or a single step if the network has no memory.
    """

    state: PyTree  # memory state before each row, [row]
    obs: Float[Array, "row time *obs"]  # all inputs of the network
    begin: Bool[Array, "row time"]  # True at the first observation of an episode
    action: PyTree  # sampled actions; continuous ones may be out of bounds
    log_prob: Float[Array, "row time"]  # log-probability of the action under the behavior policy
    proximal: Distribution  # proximal policy at each step; not used with an average
    advantages: Float[Array, "row time"]  # normalized if the config requires it
    targets: Float[Array, "row time"]  # value targets for the scaled rewards


class Measures(NamedTuple):
    """Means over a minibatch, before a gradient step on the policy."""

    clip_fraction: Float[Array, "*steps"]  # fraction of ratios π/π_proximal beyond 1 ± ε
    kl_behavior: Float[Array, "*steps"]  # KL[π_behavior ‖ π], estimated from the actions, nats
    kl_proximal: Float[Array, "*steps"]  # KL[π_proximal ‖ π], estimated from the actions, nats
    entropy: Float[Array, "*steps"]  # nats
    policy_loss: Float[Array, "*steps"]
    value_loss: Float[Array, "*steps"]


def new(config: Any, net: Any) -> Learner:
    """Return the initial learner for a network."""
    average = restart(net) if config.proximal == "ewma" else None
    return Learner(net, optimizer(config, 0.0).init(trainable(net)), average)


def optimizer(config: Any, rate: Scalar) -> optax.GradientTransformation:
    """Return Adam or SGD, preceded by clipping of the global gradient norm."""
    adam = optax.scale_by_adam(config.beta1, config.beta2, config.adam_eps)
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        adam if config.optimizer == "adam" else optax.identity(),
        optax.scale_by_learning_rate(rate),
    )


def restart(net: Any) -> Average:
    """Return a new moving average that contains only the current parameters."""
    return Average(jnp.ones(()), net)


def update_average(average: Average, net: PyTree, center: Scalar) -> Average:
    """Update the average after a gradient step.  Hilton et al. 2022, Appendix A.

    θ_prox ← (θ + β w θ_prox) / (1 + β w), w ← 1 + β w. `center` is the center of mass of the
    average, 1/(1-β) - 1, in gradient steps. The update is computed as a step towards θ, so that
    rounding errors do not accumulate; see `EWMA`.
    """
    beta = 1 - 1 / (1 + jnp.asarray(center, average.weight.dtype))
    one = jnp.ones_like(beta)
    combine = jax.vmap(EWMA(), ((None, None, 0), (None, None, 0)), (None, None, 0))

    def mean(old, new):
        if not eqx.is_inexact_array(new):
            return new
        merged = combine((one, average.weight, old.ravel()), (beta, one, new.ravel()))
        return merged[2].reshape(new.shape)

    return Average(1 + beta * average.weight, jax.tree.map(mean, average.net, net))


def estimate(
    config: Any, net: Any, rollout: Rollout
) -> tuple[Float[Array, " time"], Float[Array, " time"]]:
    """Estimate the advantages A_t and the value targets of one environment.

    The config's `estimator` is one of:

        gae     uses the actor's values; the targets are A_t + v_t
        vtrace  uses current values, and corrects the steps after t for the current policy:
                A_t = δ_t + γ_t λ (v̂_{t+1} - v_{t+1}). The objective itself weights step t by π/μ

    Both estimates are equal if the parameters have not changed since the rollout. Both estimators
    bootstrap from values of the current network.
    """
    steps: Any = rollout.steps
    _, now, ahead = net.lookahead(rollout.state, steps.obs, steps.begin, steps.next_obs)
    corrected = config.estimator == "vtrace"
    values = now.value if corrected else steps.extras.value
    following = jnp.where(steps.last, ahead.value, jnp.append(values[1:], ahead.value[-1]))
    discount = returns.discounts(config.gamma, steps.terminated)
    inputs = (steps.reward, discount, values, following, steps.last)
    if not corrected:
        advantages = returns.gae(*inputs, config.lam)
        return advantages, advantages + values
    policy, behavior = now.policy, steps.extras.policy
    ratio = jnp.exp(policy.log_prob(steps.action) - behavior.log_prob(steps.action))
    targets, _ = returns.vtrace(*inputs, ratio, lam=config.lam)
    error = steps.reward + returns.bootstrap(discount, following) - values
    correction = jnp.where(steps.last, 0, jnp.append((targets - values)[1:], 0))
    return error + discount * config.lam * correction, targets


def prepare(
    config: Any, net: Any, moments: normalize.Averages, rollout: Rollout
) -> tuple[normalize.Averages, Batch, tuple[Float[Array, ""], Float[Array, ""]]]:
    """Return the updated moments of advantages, the batch of an iteration, and two statistics.

    The batch has advantages, targets, and the behavior and proximal policies. The statistics are
    the standard deviation of the advantages, and the fraction of the variance of the targets that
    the actor's values explain.
    """
    steps: Any = rollout.steps
    raw, targets = jax.vmap(partial(estimate, config, net))(rollout)
    moments, advantages = normalize.standardize(moments, raw, config.advantage_decay)
    behavior = proximal = steps.extras.policy
    if config.proximal in ("decoupled", "recent"):
        proximal = jax.vmap(net)(rollout.state, steps.obs, steps.begin)[1].policy
        behavior = proximal if config.proximal == "recent" else behavior
    batch = Batch(
        state=rollout.state,
        obs=steps.obs,
        begin=steps.begin,
        action=steps.action,
        log_prob=behavior.log_prob(steps.action),
        proximal=proximal,
        advantages=advantages if config.normalize_advantages else raw,
        targets=targets,
    )
    batch = as_rows(batch)
    residual, total = (
        normalize.variance(normalize.sample(x)) for x in (targets - steps.extras.value, targets)
    )
    explained_variance = 1 - residual / jnp.maximum(total, 1e-8)
    return moments, batch, (jnp.sqrt(normalize.variance(moments)), explained_variance)


@with_promotion
def loss(
    net: Any, average: Average | None, batch: Batch, config: Any, terms: tuple[str, ...]
) -> tuple[Float[Array, ""], Measures]:
    """Return the policy loss - entropy bonus + weighted value loss, and its measures.

    `terms` selects the parts to include: "policy", "value", or both. If `average` is None, the
    proximal policy is taken from the batch; otherwise it is the policy of `average`. A custom loss
    has the same arguments, and returns a scalar and `Measures`. Use it in a run with
    `learn=partial(ppo.learn, loss=custom)`, or with `ppg.learn`:

        >>> from functools import partial
        >>> from mmrl.agents import ppo
        >>> from mmrl.runs import Setup
        >>> def custom(net, average, batch, config, terms):
        ...     total, measures = loss(net, average, batch, config, terms)
        ...     return 2 * total, measures
        >>> setup = Setup("CartPole-v1", agent="ppo", learn=partial(ppo.learn, loss=custom))
    """
    outputs = jax.vmap(net)(batch.state, batch.obs, batch.begin)[1]
    policy: Any = outputs.policy
    proximal: Any = batch.proximal
    if average is not None:
        proximal = jax.vmap(average.net)(batch.state, batch.obs, batch.begin)[1].policy
    proximal = jax.lax.stop_gradient(proximal)
    log_prob, near = policy.log_prob(batch.action), proximal.log_prob(batch.action)
    if config.objective == "clip":
        steps = losses.clip_loss(
            log_prob, batch.log_prob, near, batch.advantages, config.clip, config.importance_max
        )
    else:
        sampled = config.objective == "kl_sampled"
        steps = losses.kl_loss(
            log_prob,
            batch.log_prob,
            batch.advantages,
            losses.squared_log_ratio(log_prob, near) if sampled else proximal.kl(policy),
            config.kl_weight,
            config.importance_max,
        )
    measures = Measures(
        clip_fraction=jnp.mean(
            jnp.abs(jnp.exp(log_prob - near) - 1) > config.clip, dtype=jnp.float32
        ),
        kl_behavior=jnp.mean(_divergence(log_prob, batch.log_prob)),
        kl_proximal=jnp.mean(_divergence(log_prob, near)),
        entropy=jnp.mean(policy.entropy()),
        policy_loss=jnp.mean(steps),
        value_loss=jnp.mean(losses.value_loss(outputs.value, batch.targets)),
    )
    total = jnp.zeros(())
    if "policy" in terms:
        total += measures.policy_loss - config.entropy_weight * measures.entropy
    if "value" in terms:
        total += config.value_weight * measures.value_loss
    return total, measures


Loss = Callable[..., tuple[Float[Array, ""], Measures]]
"""Function with the signature of `loss`."""


def step(
    config: Any,
    learner: Learner,
    batch: Batch,
    rate: Scalar,
    terms: tuple[str, ...] = BOTH,
    loss: Loss = loss,
) -> tuple[Learner, tuple[Float[Array, ""], Measures]]:
    """Take one gradient step; if it includes the policy, also update the average."""
    (value, measures), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(
        learner.net, learner.average, batch, config, terms
    )
    net, state = descend(optimizer(config, rate), learner.net, learner.optimizer, gradient)
    average = learner.average
    if average is not None and "policy" in terms:
        average = update_average(average, net, config.prox_center)
    return Learner(net, state, average), (value, measures)


def improve(
    config: Any,
    learner: Learner,
    batch: Batch,
    rate: Scalar,
    epochs: int,
    key: PRNGKeyArray,
    terms: tuple[str, ...] = BOTH,
    loss: Loss = loss,
) -> tuple[Learner, tuple[Float[Array, " steps"], Measures]]:
    """Take gradient steps on shuffled minibatches, for `epochs` passes through the batch."""
    orders = shuffle(key, len(batch.begin), config.minibatches, epochs)
    return jax.lax.scan(
        lambda learner, rows: step(config, learner, take(batch, rows), rate, terms, loss),
        learner,
        orders,
    )


def _divergence(log_prob, log_prob_other):
    """Estimate KL[μ ‖ π] from actions of another policy μ.

    The estimate is ρ - 1 - log ρ ≥ 0 with ρ = π/μ (Schulman 2020).
    """
    ratio = jax.lax.stop_gradient(log_prob) - log_prob_other
    return jnp.expm1(ratio) - ratio
