"""Actors of R2D2: exploration, extras to store with each step, and initial TD errors.

The agent itself is in `r2d2.py`.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl import returns
from mmrl._dtypes import with_promotion
from mmrl.agents.common import explore, legal
from mmrl.rollout import Carry, Policy, Transition, collect


class ActorOutputs(NamedTuple):
    """Memory state before a step, Q(s_t, a_t) and max_a Q(s_t, a), computed by the actor."""

    state: PyTree
    value: Float[Array, "*time"]
    best: Float[Array, "*time"]


@with_promotion
def epsilons(config: Any) -> Float[Array, " env"]:
    """Return the constant ε_i = base^(1 + exponent i / (N - 1)) of each actor i."""
    rank = jnp.arange(config.environments) / max(config.environments - 1, 1)
    return jnp.asarray(config.epsilon_base) ** (1 + config.epsilon_exponent * rank)


def behavior(net: Any, epsilon: Float[Array, ""]) -> Policy:
    """Return the ε-greedy policy, with `ActorOutputs` as extras."""

    def policy(memory_state, obs, begin, key):
        after, q = net.step(memory_state, obs, begin)
        action = explore(q, epsilon, key, legal(net, obs))
        return after, action, ActorOutputs(memory_state, q[action], jnp.max(q))

    return policy


def act(
    config: Any, env: Any, params: Any, net: Any, carries: Carry, key: PRNGKeyArray, steps: int
) -> tuple[Carry, Transition]:
    """Collect `steps` steps from every environment, each with its own ε."""

    def one(carry, epsilon, key):
        return collect(behavior(net, epsilon), env, params, carry, key, steps)

    keys = jax.random.split(key, config.environments)
    return jax.vmap(one)(carries, epsilons(config), keys)


@with_promotion
def first_errors(config: Any, steps: Transition) -> Float[Array, " time"]:
    """Return |δ_t| computed from the actor's values.

    The last n errors are wrong, because their targets need later steps.
    """
    values = steps.extras
    ahead = jnp.append(values.best[1:], values.best[-1])
    next_best = jnp.where(steps.last, values.best, ahead)
    return jnp.abs(targets(config, steps, next_best) - values.value)


@with_promotion
def targets(config: Any, steps: Any, next_q: Float[Array, " time"]) -> Float[Array, " time"]:
    """Return n-step targets, with fewer rewards near the end of an episode.

    y_t = h(r_t + … + γ^(n-1) r_{t+n-1} + γ^n h⁻¹(q_{t+n})).
    """
    discount = returns.discounts(config.gamma, steps.terminated)
    if config.rescale:
        next_q = returns.unrescale(next_q, config.rescale_eps)
    rewards = config.reward_scale * steps.reward
    y = returns.n_step(rewards, discount, next_q, steps.last, config.n_step)
    return returns.rescale(y, config.rescale_eps) if config.rescale else y


def bare(steps: Transition) -> Transition:
    """Return the steps without the actor's extras."""
    return dataclasses.replace(steps, extras=None)
