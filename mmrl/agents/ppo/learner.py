"""From a rollout to better parameters: the code that PPO and PPG share.

Advantages and targets turn a rollout into a batch, from which a network, its optimizer and its
average learn. A batch has rows, and a row is a tape: a whole rollout, or a single step for a
network without memory. Rows are shuffled, never cut.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl import losses, returns
from mmrl._devices import split_rows
from mmrl._dtypes import promoting
from mmrl.agents import normalize
from mmrl.agents.common import descend, trained
from mmrl.monoid import EWMA
from mmrl.nets import Distribution
from mmrl.rollout import Policy, Transition

Scalar = float | Float[Array, ""]
BOTH = ("policy", "value")


class Average(NamedTuple):
    """Moving average of parameters: θ_prox = Σ_k β^k θ_{t-k} / w, w = Σ_k β^k, by gradient step."""

    weight: Float[Array, ""]
    net: PyTree  # anything with parameters, such as an `ActorCritic`


class Learner(eqx.Module):
    """Parts of a run that a gradient step changes."""

    net: Any  # anything with the calls of an `ActorCritic`
    optimizer: PyTree
    average: Average | None  # if it serves as the proximal policy


class Acted(NamedTuple):
    """Policy and value of a step at acting time."""

    policy: Distribution
    value: Float[Array, "*time"]


def stochastic(net: Any) -> Policy:
    """Return the policy a ~ π(· | s), with `Acted` as extras."""

    def act(memory_state, obs, begin, key):
        memory_state, outputs = net.step(memory_state, obs, begin)
        action = outputs.policy.sample(key)
        return memory_state, action, Acted(outputs.policy, outputs.value)

    return act


class Rollout(NamedTuple):
    """The steps of one iteration, [env, time], and the memory's state before them, [env]."""

    state: PyTree
    steps: Transition


class Batch(NamedTuple):
    """Data of gradient steps, [row, time]: the input of a `loss`.

    A row is a rollout of one environment, or a single step (time = 1) of a network without memory.
    """

    state: PyTree  # state of the memory before each row, [row]
    obs: Float[Array, "row time *obs"]  # all inputs of the network
    begin: Bool[Array, "row time"]  # True at the first observation of an episode
    action: PyTree  # as sampled: continuous ones may be out of bounds
    log_prob: Float[Array, "row time"]  # of the action, by the behavior policy
    proximal: Distribution  # at each step, unless the average is used
    advantages: Float[Array, "row time"]  # normalized if the config sets it
    targets: Float[Array, "row time"]  # for the value, in units of the scaled rewards


class Measures(NamedTuple):
    """Measures of one gradient step on the policy, taken before it."""

    clipped: Float[Array, "*steps"]  # share of ratios π/π_proximal beyond 1 ± ε
    kl_behavior: Float[Array, "*steps"]  # KL[π_behavior ‖ π] estimated from the actions, nats
    kl_proximal: Float[Array, "*steps"]
    entropy: Float[Array, "*steps"]  # nats
    policy_loss: Float[Array, "*steps"]
    value_loss: Float[Array, "*steps"]


def new(config: Any, net: Any) -> Learner:
    """Return the learner before its first gradient step."""
    average = restart(net) if config.proximal == "ewma" else None
    return Learner(net, optimizer(config, 0.0).init(trained(net)), average)


def rows(config: Any, net: Any) -> int:
    """Return the rows in an iteration's batch: steps if the network has no state, else rollouts."""
    return config.environments * (1 if _remembers(net.init()) else config.rollout)


def _remembers(state: PyTree) -> bool:
    return bool(jax.tree.leaves(state))


def optimizer(config: Any, rate: Scalar) -> optax.GradientTransformation:
    """Return Adam or plain descent, after a clip of the global gradient norm."""
    adam = optax.scale_by_adam(config.beta1, config.beta2, config.adam_eps)
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        adam if config.optimizer == "adam" else optax.identity(),
        optax.scale_by_learning_rate(rate),
    )


def restart(net: Any) -> Average:
    """Return an average that consists only of θ."""
    return Average(jnp.ones(()), net)


def update_average(average: Average, net: PyTree, center: Scalar) -> Average:
    """Return θ_prox ← (θ + β w θ_prox) / (1 + β w), w ← 1 + β w.  Hilton et al. 2022, Appendix A.

    `center` is the average's center of mass, 1/(1-β) - 1, in gradient steps. The average takes a
    step towards θ, so that rounding does not drift: see `EWMA`.
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
    """Return (A_t, targets of the value) of one environment, bootstrapped by `net`.

        gae     from the actor's values; the targets are A_t + v_t
        vtrace  from current values, corrected to the current policy only after step t: A_t = δ_t +
                γ_t λ (v̂_{t+1} - v_{t+1}), since the objective itself weights step t by π/μ

    Both are equal if the actor had the current parameters.
    """
    steps: Any = rollout.steps
    _, now, ahead = net.lookahead(rollout.state, steps.obs, steps.begin, steps.next_obs)
    corrected = config.estimator == "vtrace"
    values = now.value if corrected else steps.extras.value
    following = jnp.where(steps.last, ahead.value, jnp.append(values[1:], ahead.value[-1]))
    discount = returns.discounts(config.gamma, steps.terminated)
    given = (steps.reward, discount, values, following, steps.last)
    if not corrected:
        advantages = returns.gae(*given, config.lam)
        return advantages, advantages + values
    policy, behavior = now.policy, steps.extras.policy
    ratio = jnp.exp(policy.log_prob(steps.action) - behavior.log_prob(steps.action))
    targets, _ = returns.vtrace(*given, ratio, lam=config.lam)
    error = steps.reward + returns.bootstrap(discount, following) - values
    gained = jnp.where(steps.last, 0, jnp.append((targets - values)[1:], 0))
    return error + discount * config.lam * gained, targets


def prepare(
    config: Any, net: Any, moments: normalize.Averages, rollout: Rollout
) -> tuple[normalize.Averages, Batch, tuple[Float[Array, ""], Float[Array, ""]]]:
    """Return the batch of an iteration, the advantages' moments, and two statistics.

    The batch has advantages, targets, and the behavior and proximal policies. The statistics are σ
    of the advantages, and the share of the targets' variance that the actor's values explained.
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
    if not _remembers(rollout.state):  # every step becomes a tape
        batch = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), batch)
    missed, all_ = (
        normalize.variance(normalize.sample(x)) for x in (targets - steps.extras.value, targets)
    )
    explained = 1 - missed / jnp.maximum(all_, 1e-8)
    return moments, batch, (jnp.sqrt(normalize.variance(moments)), explained)


@promoting
def loss(
    net: Any, average: Average | None, batch: Batch, config: Any, terms: tuple[str, ...]
) -> tuple[Float[Array, ""], Measures]:
    """Return the mean of the policy's objective - entropy bonus, plus the value's squared error.

    `terms` are the parts that count: "policy", "value", or both. The proximal policy is that of
    `average` on this batch, or that of the batch if `average` is None. A custom loss has the same
    arguments, returns a scalar and `Measures`, and is used in a run by `learn=partial(ppo.learn,
    loss=yours)`, or `ppg.learn`.
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
        clipped=jnp.mean(jnp.abs(jnp.exp(log_prob - near) - 1) > config.clip, dtype=jnp.float32),
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
"""Function with the arguments of `loss`."""


def step(
    config: Any,
    learner: Learner,
    batch: Batch,
    rate: Scalar,
    terms: tuple[str, ...] = BOTH,
    loss: Loss = loss,
) -> tuple[Learner, tuple[Float[Array, ""], Measures]]:
    """Take one gradient step; a step on the policy also updates the average."""
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
    """Pass `epochs` times through the batch in minibatches of rows, each time in a new order."""
    orders = shuffle(key, len(batch.begin), config.minibatches, epochs)
    return jax.lax.scan(
        lambda learner, rows: step(config, learner, take(batch, rows), rate, terms, loss),
        learner,
        orders,
    )


def shuffle(
    key: PRNGKeyArray, rows: int, minibatches: int, epochs: int
) -> Int[Array, "steps rows"]:
    """Return the rows of every minibatch: each row once per epoch."""
    # Sort random numbers whose last bits are the row: on a CPU a sixth of the time of
    # `permutation`. If their first bits tie, which is rare, the first row comes first.
    ending = jnp.uint32(2 ** (rows - 1).bit_length() - 1)
    numbers = jax.random.bits(key, (epochs, rows)) & ~ending
    numbers = jnp.sort(numbers | jnp.arange(rows, dtype=jnp.uint32)[None], axis=1, stable=False)
    return (numbers & ending).astype(jnp.int32).reshape(epochs * minibatches, -1)


def take(batch: PyTree, rows: Int[Array, " rows"]) -> PyTree:
    """Return these rows of every leaf, divided among the devices of an agent."""
    return split_rows(jax.tree.map(lambda x: x.at[rows].get(mode="promise_in_bounds"), batch))


def _divergence(log_prob, log_prob_other):
    """Return KL[other ‖ π] from actions of the other: ρ - 1 - log ρ ≥ 0 (Schulman 2020)."""
    ratio = jax.lax.stop_gradient(log_prob) - log_prob_other
    return jnp.expm1(ratio) - ratio
