"""Functions shared by all agents: initialization, training, exploration and evaluation."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl import _random
from mmrl._dtypes import with_promotion
from mmrl._spaces import stuck
from mmrl.agents.checks import check_net, normalized_features, seen_picture
from mmrl.nets import Net
from mmrl.rollout import Carry, Evaluation, Policy, all_finite, evaluate, start

Outcome = tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]
"""Outcome of an iteration: (loss, fraction of real steps, True if rewards and loss are finite)."""
Make = Callable[[Any, Any, Any, PRNGKeyArray], Any]
"""Function that builds a network: (config, env, params, key) -> net."""


class Metrics(eqx.Module):
    """Metrics of a block: an evaluation at its end, and means over its gradient steps."""

    returns: Float[Array, "*blocks episodes"]
    lengths: Int[Array, "*blocks episodes"]
    loss: Float[Array, "*blocks"]
    fill: Float[Array, "*blocks"]  # fraction of real steps in a batch
    finite: Bool[Array, "*blocks"]  # True if losses, rewards and evaluation returns are finite
    diagnostics: PyTree = None  # additional metrics of an agent
    # True if the current observations and those of the evaluation are finite
    observed: Bool[Array, "*blocks"] | bool = True
    # first step without a legal action, counted from 1; 0: none; None: actions are not masked
    stuck: Int[Array, "*blocks"] | None = None


def q_net(config: Any, env: Any, params: Any, key: PRNGKeyArray) -> Net:
    """Build the `Net` for Q(s, ·) from a config's memory, encoder, width and `dueling`."""
    actions, picture = env.action_space(params).n, seen_picture(config, env, params)
    size = 0 if picture else math.prod(env.observation_space(params).shape)
    kind = {"width": config.width, "dueling": config.dueling, **dict(config.memory_sizes)}
    kind |= {"normalized": normalized_features(config, env, params), "picture": picture}
    return Net.make(config.memory, size, actions, key=key, **kind)


def fresh(
    config: Any,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    make: Make,
    keys: int = 1,
    **kind: bool,
) -> tuple[Any, ...]:
    """Return a new network, the carries of newly reset environments, and `keys` random keys.

    `make` builds the network, and `check_net` checks it with the options `kind`.
    """
    net_key, env_key, *rest = jax.random.split(_random.one_key(key), 2 + keys)
    net = check_net(make(config, env, params, net_key), env, params, **kind)
    begin = partial(start, env, params, net.init())
    carries: Carry = jax.vmap(begin)(jax.random.split(env_key, config.environments))
    (net,) = watch((net,), lambda s: s[0], carries.obs)
    return net, carries, *rest


def watch(state: Any, nets: Callable[[Any], Any], obs: PyTree) -> Any:
    """Update the normalization statistics, if any, of the networks `nets(state)` with `obs`."""
    from mmrl.nets import inputs

    net = inputs.count(nets(state), obs)
    return eqx.tree_at(nets, state, net, is_leaf=lambda x: x is None)


def make_train(
    check: Callable[..., None],
    init: Callable[..., Any],
    block: Callable[..., tuple[Any, Metrics]],
    make: Make,
    learn: Callable[..., Any],
) -> Callable[..., tuple[Any, Metrics]]:
    """Return an agent's function `train`, which repeats `block` for all blocks of a run."""
    own_make, own_learn = make, learn

    def train(
        config: Any,
        env: Any,
        params: Any,
        key: PRNGKeyArray,
        make: Make = own_make,
        learn: Callable = own_learn,
    ) -> tuple[Any, Metrics]:
        """Train for `config.blocks` blocks; return the final state and all metrics.

        This is a pure function of the key, so it can be transformed by `jax.jit` and `jax.vmap`:

            >>> from mmrl import envs
            >>> from mmrl.agents import dqn
            >>> env, params = envs.make("probe-Match-v0")
            >>> config = dqn.Config(memory="none", block=1, blocks=2)
            >>> run = jax.jit(jax.vmap(lambda key: dqn.train(config, env, params, key)))
            >>> state, metrics = run(jax.random.split(jax.random.key(0), 3))
            >>> metrics.returns.shape  # [seed, block, episode]
            (3, 2, 32)

        For progress, checkpoints and resuming, use `mmrl.runs`, which also appends the inputs in
        `OBSERVES` to the observations.
        """
        check(config, env, params)
        state = init(config, env, params, key, make)
        return repeat(partial(block, config, env, params, learn=learn), state, config.blocks)

    # Set the name under which users import the function.
    train.__module__, train.__qualname__ = block.__module__, "train"
    return train


def trainable(net: Any) -> PyTree:
    """Return the trainable parameters θ."""
    return eqx.filter(net, eqx.is_inexact_array)


def constant(net: Any) -> Any:
    """Return the network with gradients stopped, so that JAX stores no residuals for it."""
    arrays, rest = eqx.partition(net, eqx.is_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)


@with_promotion
def descend(
    rule: optax.GradientTransformation, net: Any, state: PyTree, gradient: PyTree
) -> tuple[Any, PyTree]:
    """Apply one optimizer update; return the network and the optimizer's state."""
    update, state = rule.update(gradient, state, trainable(net))
    return eqx.apply_updates(net, update), state


def adam(config: Any, rate: Float[Array, ""] | float, eps: float | Float[Array, ""] = 1e-8):
    """Return Adam, preceded by clipping of the global gradient norm."""
    clip = optax.clip_by_global_norm(config.max_grad_norm)
    return optax.chain(clip, optax.adam(rate, eps=eps))


@with_promotion
def rate_at(config: Any, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """Return the learning rate of iteration i: η (1 - anneal min(1, i / (block horizon)))."""
    horizon = config.horizon
    if horizon is None:
        # Hide the constant from XLA, which would otherwise multiply by its rounded inverse.
        horizon = jax.lax.optimization_barrier(jnp.asarray(float(config.blocks)))
    share = jnp.minimum(iteration / (config.block * horizon), 1)
    return config.learning_rate * (1 - config.anneal * share)


def scan_learning(
    learn: Callable[[Any, PRNGKeyArray], tuple[Any, Any]],
    state: Any,
    part: Callable[[Any], Any],
    keys: Any,
) -> tuple[Any, Any]:
    """Apply `learn` once per key; return the final state and the stacked values.

    `part(state)` selects the fields that `learn` may change. All other fields are closed over
    instead of carried, because XLA might copy a carry in every iteration.
    """
    marks = jax.tree.map(lambda _: True, part(state))
    marks = eqx.tree_at(part, jax.tree.map(lambda _: False, state), marks)
    learner, rest = eqx.partition(state, marks)
    words, key_of = _random.as_words(keys)

    def step(learner, words):
        state, values = learn(eqx.combine(learner, rest), key_of(words))
        return eqx.filter(state, marks), values

    learner, values = jax.lax.scan(step, learner, words)
    return eqx.combine(learner, rest), values


def repeat(step: Callable[[Any], tuple[Any, Any]], state: Any, times: int) -> tuple[Any, Any]:
    """Apply `step` `times` times; return the final state and the stacked results."""
    return jax.lax.scan(lambda s, _: step(s), state, None, times)


def explore(
    q: Float[Array, " action"],
    epsilon: Float[Array, ""],
    key: PRNGKeyArray,
    legal: Bool[Array, " action"] | None = None,
) -> Int[Array, ""]:
    """Return a uniformly random legal action with probability ε, otherwise argmax_a q_a."""
    # Reuse the same draw to select the action: given u < ε, u / ε is uniform.
    u = jax.random.uniform(key)
    actions = q.size if legal is None else jnp.sum(legal, dtype=jnp.int32)
    random = jnp.floor(u / jnp.maximum(epsilon, 1e-6) * actions).astype(jnp.int32)
    random = jnp.minimum(random, actions - 1)  # u / ε may round up to 1
    if legal is not None:
        random = jnp.argmax(jnp.cumsum(legal) > random).astype(jnp.int32)
    return jnp.where(u < epsilon, random, jnp.argmax(q).astype(jnp.int32))


def legal(net: Any, obs: PyTree) -> Bool[Array, " action"] | None:
    """Return flags of the legal actions, or None if the network is not a `nets.MaskedNet`."""
    return net.legal(obs) if hasattr(net, "legal") else None


def greedy(net: Any) -> Policy:
    """Return the greedy policy: a = argmax_a Q(s, a).

    >>> net = Net.make("none", 3, 2, key=jax.random.key(0))
    >>> greedy(net)(net.init(), jnp.ones(3), jnp.array(True), None)[1].dtype
    dtype('int32')
    """

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
    """Evaluate a network's `policy` on `episodes` episodes, each in a new environment."""
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
    """Evaluate the network's `policy` after a block; return the new state and the metrics.

    The new state differs only in its random key. `loss`, `finite`, `fill` and `diagnostics` are the
    results of the block's iterations.
    """
    key, eval_key = jax.random.split(state.key)
    scores: Any = score(state.net, env, params, eval_key, config.episodes, policy)
    finite = jnp.all(finite) & jnp.all(jnp.isfinite(scores.returns))
    finite_obs = jnp.all(scores.observed) & jnp.all(all_finite(state.carries.obs))
    number = stuck(state.carries.env_state)
    metrics = Metrics(
        returns=scores.returns,
        lengths=scores.lengths,
        loss=jnp.mean(loss),
        fill=jnp.mean(jnp.asarray(fill)),
        finite=finite,
        diagnostics=diagnostics,
        observed=finite_obs,
        stuck=None if number is None else jnp.max(jnp.append(number, scores.stuck)),
    )
    return eqx.tree_at(lambda s: s.key, state, key), metrics
