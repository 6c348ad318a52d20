"""Online elastic weight consolidation (EWC), which penalizes changes to important parameters.

EWC was introduced by Kirkpatrick et al. 2017. This online variant stores one anchor θ*, the
parameters at the end of the last task, instead of one per task (Schwarz et al. 2018, Section 3). It
is an alternative to CLEAR that stores no experience, but it must be notified when a task ends. The
agent is the V-trace actor-critic of `clear` without replay, and its loss has an additional term,

    λ/2 Σ_i F_i (θ_i - θ*_i)²        at a task's end   θ* ← θ,   F ← γ_F F + F_new

where F_new is the diagonal of the Fisher information of policy and value. It measures how strongly
each parameter affects the network's outputs in that task.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl import _random
from mmrl.agents.clear import clear
from mmrl.agents.clear.clear import Tasks
from mmrl.agents.clear.vtrace import Measures, loss
from mmrl.agents.common import Make, trainable
from mmrl.agents.policies import actor_critic
from mmrl.agents.settings import count, share, weight
from mmrl.replay.reservoir import Unrolls


class Config(clear.Config):
    """Hyperparameters of the actor-critic without replay, and of the penalty."""

    capacity: int = count(0, least=0)
    fisher_unrolls: int = count(16)  # unrolls per environment when a task ends

    replay_fraction: float = share(0.0)
    consolidation: float = weight(100.0)  # λ
    fisher_decay: float = share(0.95)  # γ_F, per task


class State(eqx.Module):
    """State of the agent and its environments, the anchor and the Fisher information."""

    learner: clear.State
    anchor: PyTree  # θ*
    fisher: PyTree  # F, zero until the first task ends

    @property
    def net(self) -> Any:
        """The network that acts."""
        return self.learner.net

    @property
    def past_net(self) -> Any:
        """The network that plays earlier tasks, which is also the network that acts."""
        return self.learner.net

    @property
    def tasks(self) -> Tasks | None:
        """The index of each environment's task in the family."""
        return self.learner.tasks


check = clear.check


def init(
    config: Config,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    make: Make = actor_critic,
    tasks: Tasks | None = None,
) -> State:
    """Initialize the agent and its environments, with zero Fisher information."""
    check(config, env, params)
    learner = clear.init(config, env, params, key, make, tasks)
    anchor = trainable(learner.net)
    return State(learner, anchor, jax.tree.map(jnp.zeros_like, anchor))


def enter(config: Config, env: Any, params: Any, state: State, tasks: Tasks | None = None) -> State:
    """Start new episodes of `tasks`, and keep the network and the optimizer."""
    learner = clear.enter(config, env, params, state.learner, tasks)
    return dataclasses.replace(state, learner=learner)


def iterate(config: Config, env: Any, params: Any, state: State) -> tuple[State, Any]:
    """Run one iteration of V-trace with the penalty in its loss."""

    def with_penalty(net, config, batch, replayed) -> tuple[Float[Array, ""], Measures]:
        value, measures = loss(net, config, batch, replayed)
        penalty = config.consolidation * ewc_penalty(state.fisher, state.anchor, net)
        return value + penalty, measures._replace(penalty=penalty)

    learn = partial(clear.learn, loss=with_penalty)
    learner, outcome = clear.iterate(config, env, params, state.learner, learn)
    return dataclasses.replace(state, learner=learner), outcome


def leave(config: Config, env: Any, params: Any, state: State) -> State:
    """Estimate the Fisher information on new steps, and move the anchor."""
    learner, new = estimate_fisher(config, env, params, state.learner, state.net)
    return State(learner, trainable(state.net), update_fisher(config, state.fisher, new))


def ewc_penalty(fisher: PyTree, anchor: PyTree, net: Any) -> Float[Array, ""]:
    """Compute ½ Σ_i F_i (θ_i - θ*_i)², a negative Gaussian log-density up to a constant."""
    squares = jax.tree.map(
        lambda f, a, x: jnp.sum(f * (x - a) ** 2), fisher, anchor, trainable(net)
    )
    return 0.5 * sum(jax.tree.leaves(squares), jnp.zeros(()))


def update_fisher(config: Any, fisher: PyTree, new: PyTree) -> PyTree:
    """Compute γ_F F + F_new, a decayed sum over tasks."""
    return jax.tree.map(lambda f, n: config.fisher_decay * f + n, fisher, new)


def estimate_fisher(
    config: Any,
    env: Any,
    params: Any,
    learner: clear.State,
    net: Any,
    part: Callable[[PyTree], PyTree] = lambda state: state,
) -> tuple[clear.State, PyTree]:
    """Estimate F_new of `net` on unrolls in which `learner` acts.

    Returns the learner after these steps, and F_new. If `net` is only a part of the learner's
    network, `part` must extract the recurrent state of `net` from the state of the whole network.
    """

    def step(carry, words):
        learner, total = carry
        act_key, say_key = jax.random.split(key_of(words))
        carries, unrolls = clear.act(config, env, params, learner, act_key)
        unrolls = unrolls._replace(state=part(unrolls.state))
        new = information(net, unrolls, say_key)
        total = jax.tree.map(lambda t, n: t + n / config.fisher_unrolls, total, new)
        return (dataclasses.replace(learner, carries=carries), total), None

    fisher_key, key = jax.random.split(learner.key)
    learner = dataclasses.replace(learner, key=key)
    words, key_of = _random.as_words(jax.random.split(fisher_key, config.fisher_unrolls))
    zeros = jax.tree.map(jnp.zeros_like, trainable(net))
    return jax.lax.scan(step, (learner, zeros), words)[0]


def information(net: Any, unrolls: Unrolls, key: PRNGKeyArray) -> PyTree:
    """Estimate the diagonal of the Fisher information, E[(∂ log p(a, v | s) / ∂θ_i)²], per step.

    The actions a ~ π and the values v ~ N(V, 1) are sampled from the network, as the definition of
    the Fisher information requires. They are not the actions that were played. One gradient per
    unroll is enough: the gradients of different steps are uncorrelated, so the expected square of
    their sum is the sum of their expected squares.
    """

    def score(net, unroll, key):
        action_key, value_key = jax.random.split(key)
        obs = unroll.steps.obs.astype(jnp.float32)
        outputs = net(unroll.state, obs, unroll.steps.begin)[1]
        action = jax.lax.stop_gradient(outputs.policy.sample(action_key))
        noise = jax.random.normal(value_key, outputs.value.shape)
        return jnp.sum(outputs.policy.log_prob(action) + noise * outputs.value)

    def square(unroll, key):
        gradient = eqx.filter_grad(score)(net, unroll, key)
        return jax.tree.map(lambda g: g**2 / unroll.steps.begin.size, gradient)

    squares = jax.vmap(square)(unrolls, jax.random.split(key, len(unrolls.steps.begin)))
    return jax.tree.map(partial(jnp.mean, axis=0), squares)
