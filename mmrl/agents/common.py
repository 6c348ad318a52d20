"""Shared by all agents: gradient steps, evaluations, and the policies of Q-learning."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl import _random, collectives
from mmrl.nets import Net
from mmrl.rollout import Evaluation, Policy, all_finite, evaluate

Outcome = tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]
"""(loss, share of real steps, are rewards and loss finite) of an iteration."""
Make = Callable[[Any, Any, Any, PRNGKeyArray], Any]
"""Builds a network: (config, env, params, key) -> net."""


class Metrics(eqx.Module):
    """An evaluation of the greedy policy after one block, and means over the block's updates."""

    returns: Float[Array, "*blocks episodes"]
    lengths: Int[Array, "*blocks episodes"]
    loss: Float[Array, "*blocks"]
    fill: Float[Array, "*blocks"]  # share of real steps in a batch
    finite: Bool[Array, "*blocks"]  # were all rewards and losses finite, in the evaluation too?
    diagnostics: PyTree = None  # what else an agent measures
    # are the observations of the evaluation, and the present ones, finite?
    observed: Bool[Array, "*blocks"] | bool = True


def q_net(config: Any, env: Any, params: Any, key: PRNGKeyArray) -> Net:
    """Q(s, ·): the `Net` of a config's `memory`, `memory_sizes`, `width` and `dueling`."""
    size, actions = math.prod(env.observation_space(params).shape), env.action_space(params).n
    kind = {"width": config.width, "dueling": config.dueling, **dict(config.memory_sizes)}
    return Net.make(config.memory, size, actions, key=key, **kind)


def scan_learning(
    learn: Callable[[Any, PRNGKeyArray], tuple[Any, Any]],
    state: Any,
    changed: Callable[[Any], Any],
    keys: Any,
) -> tuple[Any, Any]:
    """(state, values) of one `learn` after another, of which each changes `changed(state)` alone.

    All else, such as storage, is only read: it stays out of the carry, where XLA might copy it.
    """
    marks = jax.tree.map(lambda _: True, changed(state))
    marks = eqx.tree_at(changed, jax.tree.map(lambda _: False, state), marks)
    learner, held = eqx.partition(state, marks)
    words, key_of = _random.as_words(keys)

    def step(learner, words):
        state, values = learn(eqx.combine(learner, held), key_of(words))
        return eqx.filter(state, marks), values

    learner, values = jax.lax.scan(step, learner, words)
    return eqx.combine(learner, held), values


def repeat(step: Callable[[Any], tuple[Any, Any]], state: Any, times: int) -> tuple[Any, Any]:
    """(state, results) of `step`, which makes them of a state, so many times in a row."""
    return jax.lax.scan(lambda s, _: step(s), state, None, times)


def explore(
    q: Float[Array, " action"], epsilon: Float[Array, ""], key: PRNGKeyArray
) -> Int[Array, ""]:
    """A uniformly random action with probability ε, else argmax_a q_a."""
    # One draw serves both questions: given u < ε, u / ε is again uniform.
    u = jax.random.uniform(key)
    random = jnp.floor(u / jnp.maximum(epsilon, 1e-6) * q.size).astype(jnp.int32)
    random = jnp.minimum(random, q.size - 1)  # u / ε may round up to 1
    return jnp.where(u < epsilon, random, jnp.argmax(q).astype(jnp.int32))


def greedy(net: Net) -> Policy:
    """argmax_a Q(s, a)."""

    def act(memory_state, obs, begin, key):
        memory_state, q = net.step(memory_state, obs, begin)
        return memory_state, jnp.argmax(q).astype(jnp.int32)

    return act


def score(
    net: Any,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    episodes: int,
    policy: Callable[[Any], Policy] = greedy,
) -> Evaluation:
    """The first episode of the network's `policy` in each of several fresh environments."""
    most = params.max_steps_in_episode
    return evaluate(policy(net), env, params, net.init(), key, episodes, most)


def end_block(
    config: Any,
    env: Any,
    params: Any,
    state: Any,
    policy: Callable[[Any], Policy],
    *,
    loss: Float[Array, "..."],
    finite: Bool[Array, "..."],
    fill: Float[Array, "..."] | float = 1.0,
    diagnostics: PyTree = None,
) -> tuple[Any, Metrics]:
    """The end of a block: `policy` of the network is evaluated, without learning.

    The state, with its next key, and the block's metrics, which are those of all shards.
    """
    key, eval_key = jax.random.split(state.key)
    played = score(state.net, env, params, eval_key, config.episodes, policy)
    finite = jnp.all(finite) & jnp.all(jnp.isfinite(played.returns))
    observed = jnp.all(played.observed) & jnp.all(all_finite(state.carries.obs))
    means = collectives.mean((jnp.mean(loss), jnp.mean(jnp.asarray(fill)), diagnostics))
    metrics = Metrics(
        returns=jnp.ravel(collectives.gather(played.returns)),
        lengths=jnp.ravel(collectives.gather(played.lengths)),
        loss=means[0],
        fill=means[1],
        finite=jnp.all(collectives.gather(finite)),
        diagnostics=means[2],
        observed=jnp.all(collectives.gather(observed)),
    )
    return eqx.tree_at(lambda s: s.key, state, key), metrics
