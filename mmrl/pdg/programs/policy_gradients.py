"""REINFORCE (Monte-Carlo, n-step, and for a policy with memory), A2C and PPO.

The advantages of A2C and PPO are a recurrence that runs backward; then follow one step or several
epochs.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl.pdg.expr import min_
from mmrl.pdg.graph import Graph
from mmrl.pdg.language import Program
from mmrl.pdg.language.tensor import Tensor
from mmrl.pdg.programs.parts import (
    Environment,
    Memory,
    Network,
    Steps,
    added,
    advance,
    begin,
    each,
    log_prob,
    start,
    zeros,
)


def reinforce(
    environment: Environment,
    network: Network,
    optimizer: Any,
    *,
    n: int | None = None,
    gamma: float = 0.99,
    batch: int = 8,
) -> Graph:
    """REINFORCE (Williams 1992) with returns r[t:T], or r[t:min(t + n, T)] if `n` is given.

    The gradient of each step is an operation of its own, summed over t, so that learning may follow
    acting n steps behind. Raises `ValueError` for `n` below 1.
    """
    if n is not None and n < 1:
        raise ValueError(f"`n` must be at least 1, or None for all rewards that follow; got {n}")
    p = Program("i", "t")
    (i, t), (I, T) = p.symbols, p.bounds  # noqa: E741
    w, m = p.tensor(i, name="params"), p.tensor(i, name="moments")
    first, update = start(p, network, optimizer)
    w[0], m[0] = first

    def act(key: PRNGKeyArray, params: PyTree, seen: Any) -> Array:
        return jax.random.categorical(key, each(network, params, seen[0]))

    def gradient(params: PyTree, seen: Any, action: Array, returns: Array) -> PyTree:
        def loss(params: PyTree) -> Array:
            gain = log_prob(each(network, params, seen[0]), action)
            return -(gain * returns * seen[1]).mean()

        return jax.grad(loss)(params)

    seen, carried = begin(p, environment, batch)
    action = p.sample(act, w, seen, name="act")
    now = advance(p, environment, seen, carried, action)
    returns = now.reward[i, t : T if n is None else min_(t + n, T)].discounted_sum(gamma)
    one = p.fn(gradient, w, seen, action, returns, name="gradient")
    before = p.tensor(i, t, name="before")
    before[i, 0] = p.fn(zeros, first[0], name="zeros")
    total = p.fn(added, before, one, name="total")
    before[i, t + 1] = total
    last, moments = p.fn(update, w, m, total[i, T - 1], name="update")
    w[i + 1], m[i + 1] = last, moments
    return p.graph(last[I - 1], now.score)


def remember(
    environment: Environment,
    memory: Memory,
    optimizer: Any,
    *,
    gamma: float = 0.99,
    batch: int = 8,
) -> Graph:
    """REINFORCE for a policy with memory: h[i, t + 1] = f(w[i], h[i, t], o[i, t]).

    Acting carries the state from step to step. Learning goes through the whole episode again, from
    its first state, so that gradients pass through time.
    """
    p = Program("i", "t")
    (i, t), (I, T) = p.symbols, p.bounds  # noqa: E741
    w, m, h = p.tensor(i, name="params"), p.tensor(i, name="moments"), p.tensor(i, t, name="state")
    first, update = start(p, memory, optimizer)
    w[0], m[0] = first
    initial = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *jnp.shape(x))), memory.start())
    forward = jax.vmap(memory.apply, (None, 0, 0))
    h[i, 0] = p.constant(initial, name="initial")

    def act(key: PRNGKeyArray, params: PyTree, state: PyTree, seen: Any) -> tuple:
        state, logits = forward(params, state, seen[0])
        return state, jax.random.categorical(key, logits)

    def gradient(params: PyTree, seen: Any, action: Array, returns: Array) -> PyTree:
        def loss(params: PyTree) -> Array:
            _, logits = jax.lax.scan(lambda h, o: forward(params, h, o), initial, seen[0])
            return -(log_prob(logits, action) * returns * seen[1]).mean(1).sum()

        return jax.grad(loss)(params)

    seen, carried = begin(p, environment, batch)
    following, action = p.sample(act, w, h, seen, name="act")
    h[i, t + 1] = following
    now = advance(p, environment, seen, carried, action)
    returns = now.reward[i, t:T].discounted_sum(gamma)
    episode = (seen[i, 0:T], action[i, 0:T], returns[i, 0:T])
    total = p.fn(gradient, w, *episode, name="gradient")
    last, moments = p.fn(update, w, m, total, name="update")
    w[i + 1], m[i + 1] = last, moments
    return p.graph(last[I - 1], now.score)


@dataclasses.dataclass(frozen=True)
class ActorCritic:
    """The numbers of A2C and PPO."""

    gamma: float = 0.99
    lam: float = 0.95  # λ of the generalized advantage estimate
    value: float = 0.5  # weight of the squared error of the values
    entropy: float = 0.01  # weight of the entropy of the policy
    clip: float = 0.2  # ε: the ratio counts in 1 - ε … 1 + ε (PPO)


def advantages(
    p: Program, network: Network, now: Steps, value: Tensor, w: Tensor, c: ActorCritic
) -> Tensor:
    """A[t] = δ[t] + γ λ A[t + 1], δ[t] = r[t] + γ v[t + 1] - v[t] (Schulman et al. 2016, Eq. 16).

    A recurrence that runs backward. No value follows a terminal step, no advantage any last one.
    """
    (i, t), T = (p.symbols[0], p.symbols[-1]), p.bounds[-1]
    following, ahead = p.tensor(i, t, name="next_value"), p.tensor(i, t, name="next_advantage")
    last = p.fn(
        lambda w, seen: each(network, w, seen[0])[1], w, now.after[i, T - 1], name="last_value"
    )
    following[i, T - 1] = last
    following[i, t] = value[i, t + 1]
    ahead[i, T - 1] = p.fn(zeros, last, name="no_advantage")

    def advantage(r: Array, goes_on: Array, v: Array, nv: Array, after: Any, ahead: Array) -> Array:
        return r + c.gamma * goes_on * nv - v + c.gamma * c.lam * after[1] * ahead

    result = p.fn(advantage, now.reward, now.goes_on, value, following, now.after, ahead)
    ahead[i, t] = result[i, t + 1]
    return result


def _act(network: Network) -> Callable:
    """(action, its log-probability, the value of the observation), of a key and what is seen."""

    def act(key: PRNGKeyArray, params: PyTree, seen: Any) -> tuple:
        logits, value = each(network, params, seen[0])
        action = jax.random.categorical(key, logits)
        return action, log_prob(logits, action), value

    return act


def _gradient(network: Network, c: ActorCritic, ratio: bool) -> Callable:
    """∇ of policy, value and entropy losses over an episode [time, batch], masked at its end."""

    def gradient(w: PyTree, seen: Any, action: Array, logp: Array, v: Array, gain: Array) -> PyTree:
        obs, alive = seen

        def mean(x: Array) -> Array:
            return (x * alive).sum() / alive.sum()

        def loss(params: PyTree) -> Array:
            logits, value = each(network, params, obs, axes=2)
            change = log_prob(logits, action) - logp
            if ratio:
                r = jnp.exp(change)
                gained = jnp.minimum(r * gain, jnp.clip(r, 1 - c.clip, 1 + c.clip) * gain)
            else:
                gained = change * gain
            entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1)
            missed = 0.5 * (value - (v + gain)) ** 2
            return mean(c.value * missed - gained - c.entropy * entropy)

        return jax.grad(loss)(w)

    return gradient


def a2c(
    environment: Environment,
    network: Network,
    optimizer: Any,
    config: ActorCritic = ActorCritic(),
    *,
    batch: int = 8,
) -> Graph:
    """Advantage actor-critic (Mnih et al. 2016), with generalized advantages."""
    p = Program("i", "t")
    (i, _), (I, T) = p.symbols, p.bounds  # noqa: E741
    w, m = p.tensor(i, name="params"), p.tensor(i, name="moments")
    first, update = start(p, network, optimizer)
    w[0], m[0] = first
    seen, carried = begin(p, environment, batch)
    choice = p.sample(_act(network), w, seen, name="act")
    now = advance(p, environment, seen, carried, choice[0])
    gain = advantages(p, network, now, choice[2], w, config)
    episode = [x[i, 0:T] for x in (seen, *choice, gain)]
    total = p.fn(_gradient(network, config, ratio=False), w, *episode, name="gradient")
    last, moments = p.fn(update, w, m, total, name="update")
    w[i + 1], m[i + 1] = last, moments
    return p.graph(last[I - 1], now.score)


def ppo(
    environment: Environment,
    network: Network,
    optimizer: Any,
    config: ActorCritic = ActorCritic(),
    *,
    batch: int = 8,
) -> Graph:
    """Proximal policy optimization (Schulman et al. 2017): K epochs on each episode.

    Parameters live on (i, k): w[i, k + 1] = u[i, k] and w[i + 1, 0] = u[i, K - 1]. Acting reads
    w[i, 0], so that the ratio of an epoch is 1 at k = 0 only.
    """
    p = Program("i", "k", "t")
    (i, k, _), (I, K, T) = p.symbols, p.bounds  # noqa: E741
    w, m = p.tensor(i, k, name="params"), p.tensor(i, k, name="moments")
    first, update = start(p, network, optimizer)
    w[0, 0], m[0, 0] = first
    seen, carried = begin(p, environment, batch)
    choice = p.sample(_act(network), w[i, 0], seen, name="act")
    now = advance(p, environment, seen, carried, choice[0])
    gain = advantages(p, network, now, choice[2], w[i, 0], config)
    episode = [x[i, 0:T] for x in (seen, *choice, gain)]
    total = p.fn(_gradient(network, config, ratio=True), w, *episode, name="gradient")
    last, moments = p.fn(update, w, m, total, name="update")
    for old, new in ((w, last), (m, moments)):
        old[i, k + 1] = new
        old[i + 1, 0] = new[i, K - 1]
    return p.graph(last[I - 1, K - 1], now.score)
