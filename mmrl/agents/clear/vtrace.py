"""V-trace actor-critic: the loss and optimizer for unrolls of arbitrary behavior policies.

Espeholt et al. 2018 (IMPALA), with the cloning losses of Rolnick et al. 2019, Section 3. Replay and
the training loop are in `clear.py`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from mmrl import losses, returns
from mmrl._dtypes import with_promotion
from mmrl.replay.reservoir import Unrolls
from mmrl.rollout import Policy


class ActorOutputs(NamedTuple):
    """Policy and value that the actor computed, for importance weights and cloning."""

    logits: Float[Array, "*time action"]
    value: Float[Array, "*time"]


class Measures(NamedTuple):
    """Means over a batch, before a gradient step."""

    policy_loss: Float[Array, "*steps"]
    value_loss: Float[Array, "*steps"]
    entropy: Float[Array, "*steps"]  # nats
    policy_cloning: Float[Array, "*steps"]  # KL[μ ‖ π] on replayed steps, nats
    value_cloning: Float[Array, "*steps"]  # (V - V_then)² on replayed steps
    ratio: Float[Array, "*steps"]  # min(ρ̄, π/μ) on replayed steps; 1 means on-policy
    penalty: Float[Array, "*steps"]  # additional loss of another agent, such as EWC


def optimizer(config: Any, rate: float | Float[Array, ""]) -> optax.GradientTransformation:
    """Return Adam or IMPALA's RMSProp, preceded by clipping of the global gradient norm."""
    scale = {
        "adam": optax.scale_by_adam(config.beta1, config.beta2, config.adam_eps),
        "rmsprop": optax.scale_by_rms(config.rms_decay, config.rms_eps, initial_scale=1.0),
    }
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        scale[config.optimizer],
        optax.scale_by_learning_rate(rate),
    )


def stochastic(net: Any) -> Policy:
    """Return the policy a ~ π(· | s), with `ActorOutputs` as extras."""

    def policy(memory_state, obs, begin, key):
        memory_state, outputs = net.step(memory_state, obs, begin)
        extras = ActorOutputs(outputs.policy.logits, outputs.value)
        return memory_state, outputs.policy.sample(key), extras

    return policy


def sampler(net: Any) -> Policy:
    """Return the policy a ~ π(· | s) without extras, for evaluations."""
    act = stochastic(net)

    def policy(memory_state, obs, begin, key):
        return act(memory_state, obs, begin, key)[:2]

    return policy


@with_promotion
def trace(
    config: Any, net: Any, unroll: Unrolls
) -> tuple[Any, Float[Array, " time"], returns.VTrace, Float[Array, " time"]]:
    """Return the network's outputs, log π(a_t), the V-trace targets, and min(ρ̄, π/μ)."""
    steps: Any = unroll.steps
    obs, next_obs = jax.tree.map(lambda x: x.astype(jnp.float32), (steps.obs, steps.next_obs))
    _, now, ahead = net.lookahead(unroll.state, obs, steps.begin, next_obs)
    policy: Any = now.policy
    log_prob = policy.log_prob(steps.action)
    log_behavior = losses.select_values(jax.nn.log_softmax(steps.extras.logits), steps.action)
    ratio = jnp.exp(log_prob - log_behavior)
    targets = returns.vtrace(
        *jax.lax.stop_gradient(
            (
                steps.reward,
                returns.discounts(config.gamma, steps.terminated),
                now.value,
                ahead.value,
                steps.last,
                ratio,
            )
        ),
        rho_max=config.rho_max,
        c_max=config.c_max,
    )
    return now, log_prob, targets, jnp.minimum(config.rho_max, ratio)


@with_promotion
def loss(
    net: Any,
    config: Any,
    batch: Unrolls,
    replayed: Bool[Array, " env"],
) -> tuple[Float[Array, ""], Measures]:
    """Return the loss of a batch and its terms.  Rolnick et al. 2019, Section 3.

    The loss is the sum or mean of the policy gradient, value, entropy and cloning losses, weighted
    by the config. Cloning losses count only on replayed unrolls. `batch.state` is the memory state
    before each unroll, [env]. `batch.steps` is a `Transition`, [env, time], with the rewards to
    learn from, and with `ActorOutputs` as `extras`. `replayed` is True for unrolls from the
    reservoir.
    """
    outputs, log_prob, targets, ratio = jax.vmap(partial(trace, config, net))(batch)
    behavior, policy = batch.steps.extras, outputs.policy
    terms = Measures(
        policy_loss=losses.policy_gradient_loss(log_prob, targets.advantages),
        value_loss=losses.value_loss(outputs.value, targets.values),
        entropy=policy.entropy(),
        policy_cloning=losses.policy_cloning(policy.logits, behavior.logits),
        value_cloning=losses.value_cloning(outputs.value, behavior.value),
        ratio=ratio,
        penalty=jnp.zeros(()),
    )
    old = jnp.broadcast_to(replayed[:, None], log_prob.shape)
    reduce = jnp.sum if config.reduction == "sum" else jnp.mean
    total = reduce(
        terms.policy_loss
        + config.value_weight * terms.value_loss
        - config.entropy_weight * terms.entropy
        + config.policy_cloning * jnp.where(old, terms.policy_cloning, 0)
        + config.value_cloning * jnp.where(old, terms.value_cloning, 0)
    )
    where = dict.fromkeys(("policy_cloning", "value_cloning", "ratio"), old)
    means = {
        name: losses.masked_mean(x, where[name]) if name in where else jnp.mean(x)
        for name, x in terms._asdict().items()
    }
    return total, Measures(**means)
