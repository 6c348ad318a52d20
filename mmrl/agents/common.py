"""Code shared by all agents: initialization, training, gradient steps, evaluation, Q-learning."""

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
from mmrl._dtypes import promoting
from mmrl._spaces import stuck
from mmrl.agents.checks import check_net, normalized_features, seen_picture
from mmrl.nets import Net
from mmrl.rollout import Carry, Evaluation, Policy, all_finite, evaluate, start

Outcome = tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]
"""(loss, share of real steps, all rewards and losses finite) of an iteration."""
Make = Callable[[Any, Any, Any, PRNGKeyArray], Any]
"""Function that builds a network: (config, env, params, key) -> net."""


class Metrics(eqx.Module):
    """Evaluation of the greedy policy after one block, and means over the block's updates."""

    returns: Float[Array, "*blocks episodes"]
    lengths: Int[Array, "*blocks episodes"]
    loss: Float[Array, "*blocks"]
    fill: Float[Array, "*blocks"]  # share of real steps in a batch
    finite: Bool[Array, "*blocks"]  # are all rewards and losses finite, also in the evaluation?
    diagnostics: PyTree = None  # further numbers that an agent measures
    # are the observations of the evaluation, and the current ones, finite?
    observed: Bool[Array, "*blocks"] | bool = True
    # the number of a step, from 1, in which no action was legal, 0: none; None without masks
    stuck: Int[Array, "*blocks"] | None = None


def q_net(config: Any, env: Any, params: Any, key: PRNGKeyArray) -> Net:
    """Return Q(s, ·): the `Net` of a config's `memory`, `memory_sizes`, `width` and `dueling`."""
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
    """Return the network of `make`, checked by `check_net`, new environments, and `keys` keys."""
    net_key, env_key, *rest = jax.random.split(_random.one_key(key), 2 + keys)
    net = check_net(make(config, env, params, net_key), env, params, **kind)
    begin = partial(start, env, params, net.init())
    carries: Carry = jax.vmap(begin)(jax.random.split(env_key, config.environments))
    (net,) = watch((net,), lambda s: s[0], carries.obs)
    return net, carries, *rest


def watch(state: Any, nets: Callable[[Any], Any], obs: PyTree) -> Any:
    """Return the state after its `nets` have counted observations, if they normalize them."""
    from mmrl.nets import inputs

    counted = inputs.count(nets(state), obs)
    return eqx.tree_at(nets, state, counted, is_leaf=lambda x: x is None)


def training(
    check: Callable[..., None],
    init: Callable[..., Any],
    block: Callable[..., tuple[Any, Metrics]],
    make: Make,
    learn: Callable[..., Any],
) -> Callable[..., tuple[Any, Metrics]]:
    """Return an agent's `train`, which runs its `block` for all blocks of a run."""
    own_make, own_learn = make, learn

    def train(
        config: Any,
        env: Any,
        params: Any,
        key: PRNGKeyArray,
        make: Make = own_make,
        learn: Callable = own_learn,
    ) -> tuple[Any, Metrics]:
        """Train for `config.blocks` blocks: a pure function of the key, which you may jit and vmap.

            seeds = jax.random.split(jax.random.key(0), 5)
            run = jax.jit(jax.vmap(lambda key: train(config, env, params, key)))
            state, metrics = run(seeds)         # metrics.returns [seed, block, episode]

        `mmrl.runs` adds progress, checkpoints, resume and the inputs in `OBSERVES`; here, wrap
        `env`.
        """
        check(config, env, params)
        state = init(config, env, params, key, make)
        return repeat(partial(block, config, env, params, learn=learn), state, config.blocks)

    train.__module__, train.__qualname__ = block.__module__, "train"  # as readers find it
    return train


def trained(net: Any) -> PyTree:
    """Return θ: the parameters that take gradients."""
    return eqx.filter(net, eqx.is_inexact_array)


def fixed(net: Any) -> Any:
    """Return the network without gradients; its steps then store nothing for a backward pass."""
    arrays, rest = eqx.partition(net, eqx.is_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)


@promoting
def descend(
    rule: optax.GradientTransformation, net: Any, state: PyTree, gradient: PyTree
) -> tuple[Any, PyTree]:
    """Take a gradient step; return the network and the optimizer's state."""
    update, state = rule.update(gradient, state, trained(net))
    return eqx.apply_updates(net, update), state


def adam(config: Any, rate: Float[Array, ""] | float, eps: float | Float[Array, ""] = 1e-8):
    """Return Adam at this learning rate, after a clip of the global gradient norm."""
    clip = optax.clip_by_global_norm(config.max_grad_norm)
    return optax.chain(clip, optax.adam(rate, eps=eps))


@promoting
def annealed(config: Any, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """Return the learning rate of an iteration: η (1 - anneal min(1, i / (block horizon)))."""
    horizon = config.horizon
    if horizon is None:  # XLA would multiply by a rounded inverse of a constant
        horizon = jax.lax.optimization_barrier(jnp.asarray(float(config.blocks)))
    gone = jnp.minimum(iteration / (config.block * horizon), 1)
    return config.learning_rate * (1 - config.anneal * gone)


def scan_learning(
    learn: Callable[[Any, PRNGKeyArray], tuple[Any, Any]],
    state: Any,
    changed: Callable[[Any], Any],
    keys: Any,
) -> tuple[Any, Any]:
    """Apply `learn` once per key; return the last state and the stacked values.

    `learn` changes only `changed(state)`: the rest stays out of the carry, where XLA might copy it.
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
    """Apply `step` `times` times; return the last state and the stacked results."""
    return jax.lax.scan(lambda s, _: step(s), state, None, times)


def explore(
    q: Float[Array, " action"],
    epsilon: Float[Array, ""],
    key: PRNGKeyArray,
    legal: Bool[Array, " action"] | None = None,
) -> Int[Array, ""]:
    """Return a random action, one that is `legal`, with probability ε, otherwise argmax_a q_a."""
    # One draw serves both purposes: given u < ε, u / ε is again uniform.
    u = jax.random.uniform(key)
    actions = q.size if legal is None else jnp.sum(legal, dtype=jnp.int32)
    random = jnp.floor(u / jnp.maximum(epsilon, 1e-6) * actions).astype(jnp.int32)
    random = jnp.minimum(random, actions - 1)  # u / ε may round up to 1
    if legal is not None:
        random = jnp.argmax(jnp.cumsum(legal) > random).astype(jnp.int32)
    return jnp.where(u < epsilon, random, jnp.argmax(q).astype(jnp.int32))


def legal(net: Any, obs: PyTree) -> Bool[Array, " action"] | None:
    """Return the legal actions, if the network is a `nets.Masked`, else None: all of them."""
    return net.legal(obs) if hasattr(net, "legal") else None


def greedy(net: Any) -> Policy:
    """Return the policy argmax_a Q(s, a)."""

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
    """Play the first episode of the network's `policy` in each of several fresh environments."""
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
    """Evaluate the network's `policy` after a block; return the state, its key new, and metrics."""
    key, eval_key = jax.random.split(state.key)
    played: Any = score(state.net, env, params, eval_key, config.episodes, policy)
    finite = jnp.all(finite) & jnp.all(jnp.isfinite(played.returns))
    observed = jnp.all(played.observed) & jnp.all(all_finite(state.carries.obs))
    number = stuck(state.carries.env_state)
    metrics = Metrics(
        returns=played.returns,
        lengths=played.lengths,
        loss=jnp.mean(loss),
        fill=jnp.mean(jnp.asarray(fill)),
        finite=finite,
        diagnostics=diagnostics,
        observed=observed,
        stuck=None if number is None else jnp.max(jnp.append(number, played.stuck)),
    )
    return eqx.tree_at(lambda s: s.key, state, key), metrics
