"""Shared by all agents: networks, gradient steps, evaluations."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl.nets import ActorCritic, Net
from mmrl.rollout import Evaluation, Policy, evaluate

AnyConfig = TypeVar("AnyConfig", bound=Any)
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


def q_net(config: Any, env: Any, params: Any, key: PRNGKeyArray) -> Net:
    """Q(s, ·): the `Net` of a config's `memory`, `memory_sizes`, `width` and `dueling`."""
    size, actions = math.prod(env.observation_space(params).shape), env.action_space(params).n
    kind = {"width": config.width, "dueling": config.dueling, **dict(config.memory_sizes)}
    return Net.make(config.memory, size, actions, key=key, **kind)


def actor_critic(config: Any, env: Any, params: Any, key: PRNGKeyArray) -> ActorCritic:
    """π and V: those of a config's `memory`, `memory_sizes`, `width` and `shared`."""
    size = math.prod(env.observation_space(params).shape)
    actions, continuous = action_size(env, params)
    kind = {"width": config.width, "shared": config.shared, **dict(config.memory_sizes)}
    return ActorCritic.make(config.memory, size, actions, continuous=continuous, key=key, **kind)


def action_size(env: Any, params: Any) -> tuple[int, bool]:
    """How many actions there are, or real numbers in one; and whether it is these."""
    space = env.action_space(params)
    if hasattr(space, "n"):
        return int(space.n), False
    if len(getattr(space, "shape", None) or ()) != 1:
        raise ValueError(f"`env` must have discrete actions or vectors of numbers; got {space}.")
    return int(space.shape[0]), True


def build(
    make: Make, config: Any, env: Any, params: Any, key: PRNGKeyArray, acts: bool = False
) -> Any:
    """The network that `make` builds: Q(s, ·), or one that `acts` by a policy.

    Raises `ValueError` unless its leaves are arrays, it reads what `env` shows, and has an output
    for each action.
    """
    net = make(config, env, params, key)
    for path, leaf in jax.tree_util.tree_leaves_with_path(net):
        if not eqx.is_array(leaf):
            raise ValueError(
                f"`make` must build a network whose leaves are arrays; got {leaf!r} at "
                f"{jax.tree_util.keystr(path)}. Mark it with `equinox.field(static=True)`."
            )
    shape, (actions, continuous) = env.observation_space(params).shape, action_size(env, params)

    def one_step() -> Any:
        outputs = net.step(net.init(), jnp.zeros(shape), jnp.array(True))[1]
        if not acts:
            return outputs
        return outputs.policy.mean if continuous else outputs.policy.logits

    try:
        outputs = jax.eval_shape(one_step)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"`make` must build {'an `ActorCritic`' if acts else 'a `Net`'}, or what is called as "
            f"one, for observations of shape {shape}; got {type(error).__name__}: {error}"
        ) from error
    if getattr(outputs, "shape", None) != (actions,):
        raise ValueError(
            f"`make` must build a network with {actions} outputs, one for each action; got "
            f"{getattr(outputs, 'shape', outputs)}."
        )
    return net


def trained(net: Any) -> PyTree:
    """θ: the parameters that gradients move."""
    return eqx.filter(net, eqx.is_inexact_array)


def descend(
    rule: optax.GradientTransformation, net: Any, state: PyTree, gradient: PyTree
) -> tuple[Any, PyTree]:
    """θ and the optimizer's state after a step, of whatever has parameters."""
    update, state = rule.update(gradient, state, trained(net))
    return eqx.apply_updates(net, update), state


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

    def step(learner, key):
        state, values = learn(eqx.combine(learner, held), key)
        return eqx.filter(state, marks), values

    learner, values = jax.lax.scan(step, learner, keys)
    return eqx.combine(learner, held), values


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


def mode(net: Any) -> Policy:
    """The policy's mode: its likeliest action."""

    def act(memory_state, obs, begin, key):
        memory_state, outputs = net.step(memory_state, obs, begin)
        return memory_state, outputs.policy.mode()

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

    The state, with its next key, and the block's metrics.
    """
    key, eval_key = jax.random.split(state.key)
    played = score(state.net, env, params, eval_key, config.episodes, policy)
    metrics = Metrics(
        returns=played.returns,
        lengths=played.lengths,
        loss=jnp.mean(loss),
        fill=jnp.mean(jnp.asarray(fill)),
        finite=jnp.all(finite) & jnp.all(jnp.isfinite(played.returns)),
        diagnostics=diagnostics,
    )
    return eqx.tree_at(lambda s: s.key, state, key), metrics


def repeatable(config: AnyConfig) -> AnyConfig:
    """The settings of a program that is one block, and is repeated: a longer run compiles nothing.

    How many there are is no longer its shape, but a number where a schedule needs it: `horizon`.
    """
    length: dict[str, Any] = {"blocks": 1}
    if hasattr(config, "horizon"):
        length["horizon"] = float(config.horizon or config.blocks)
    return dataclasses.replace(config, **length)
