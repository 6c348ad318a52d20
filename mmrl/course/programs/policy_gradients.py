"""REINFORCE (Monte-Carlo, n-step, and for a policy with memory), A2C and PPO.

The advantages of A2C and PPO are a recurrence that runs backward; then follow one step or several
epochs.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl.course.programs.parts import (
    Environment,
    Memory,
    Network,
    Steps,
    advance,
    begin,
    log_prob,
    start,
)
from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.expr import min_
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor


def reinforce(
    environment: Environment,
    network: Network,
    optimizer: Any,
    *,
    n: int | None = None,
    gamma: float = 0.99,
) -> Graph:
    """REINFORCE (Williams 1992) with returns r[t:T], or r[t:min(t + n, T)] if `n` is given.

    The gradient of each step is an operation of its own, summed over b and t, so that learning may
    follow acting n steps behind. Raises `ValueError` for `n` below 1.
    """
    if n is not None and n < 1:
        raise ValueError(f"`n` must be at least 1, or None for all rewards that follow; got {n}")
    p = Program("i", "t", "b")
    (i, t, b), T = p.symbols, p.bounds[1]
    w, m = p.tensor(i, name="params"), p.tensor(i, name="moments")
    (w[0], m[0]), update = start(p, network, optimizer)

    def act(key: PRNGKeyArray, params: PyTree, seen: Any) -> tuple:
        logits = network.apply(params, seen[0])
        action = jax.random.categorical(key, logits)
        return action, log_prob(logits, action)

    seen, carried = begin(p, environment)
    action, logp = p.sample(act, w, seen, name="act")
    now = advance(p, environment, seen, carried, action)
    returns = now.reward[i, t : T if n is None else min_(t + n, T), b].discounted_sum(gamma)
    return _learn(p, update, w, m, logp, returns, now)


def remember(
    environment: Environment, memory: Memory, optimizer: Any, *, gamma: float = 0.99
) -> Graph:
    """REINFORCE for a policy with memory: h[i, t + 1, b] = f(w[i], h[i, t, b], o[i, t, b]).

    Acting carries the state from step to step, and gradients go the same way back through time.
    """
    p = Program("i", "t", "b")
    (i, t, b), T = p.symbols, p.bounds[1]
    w, m = p.tensor(i, name="params"), p.tensor(i, name="moments")
    (w[0], m[0]), update = start(p, memory, optimizer)
    h = p.tensor(i, t, b, name="state")
    h[i, 0, b] = p.constant(memory.start(), name="initial")

    def act(key: PRNGKeyArray, params: PyTree, state: PyTree, seen: Any) -> tuple:
        state, logits = memory.apply(params, state, seen[0])
        action = jax.random.categorical(key, logits)
        return state, action, log_prob(logits, action)

    seen, carried = begin(p, environment)
    h[i, t + 1, b], action, logp = p.sample(act, w, h, seen, name="act")
    now = advance(p, environment, seen, carried, action)
    returns = now.reward[i, t:T, b].discounted_sum(gamma)
    return _learn(p, update, w, m, logp, returns, now)


def _learn(
    p: Program, update: Callable, w: Tensor, m: Tensor, logp: Tensor, returns: Tensor, now: Steps
) -> Graph:
    """Descend -Σ_t mean_b log π(a[t]) g[t], over the steps up to the end of each episode."""
    i, (I, _, B) = p.symbols[0], p.bounds  # noqa: E741

    def loss(logp: Array, returns: Array, seen: Any, count: Array) -> Array:
        return -logp * returns * seen[1] / count

    total = gradient(p.fn(loss, logp, returns, now.seen, p.value(B), name="loss"), w)
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
    (i, *_, t, b), T = p.symbols, p.bounds[-2]
    following, ahead = (p.tensor(i, t, b, name=f"next_{x}") for x in ("value", "advantage"))
    following[i, T - 1, b] = p.fn(
        lambda w, seen: network.apply(w, seen[0])[1], w, now.after[i, T - 1, b], name="last_value"
    )
    following[i, t, b] = value[i, t + 1, b]
    ahead[i, T - 1, b] = 0.0

    def advantage(r: Array, goes_on: Array, v: Array, nv: Array, after: Any, ahead: Array) -> Array:
        return r + c.gamma * goes_on * nv - v + c.gamma * c.lam * after[1] * ahead

    result = p.fn(advantage, now.reward, now.goes_on, value, following, now.after, ahead)
    ahead[i, t, b] = result[i, t + 1, b]
    return result


def _judge(network: Network, params: PyTree, seen: Any, action: Array | None, key: Any) -> tuple:
    """An action, its log-probability, the value, and the entropy of the policy."""
    logits, value = network.apply(params, seen[0])
    if action is None:
        action = jax.random.categorical(key, logits)
    entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum()
    return action, log_prob(logits, action), value, entropy


def _loss(
    p: Program,
    now: Steps,
    new: Sequence[Tensor],
    old: Sequence[Tensor],
    gain: Tensor,
    c: ActorCritic,
    ratio: bool,
) -> Tensor:
    """The losses of policy, value and entropy at a step; their sum is a mean over all that count.

    `new` and `old` are log-probabilities and values; of `new` the entropy, too.
    """
    (i, *_, t, _), (*_, T, B) = p.symbols, p.bounds
    alive = p.fn(lambda seen: seen[1], now.seen, name="alive")
    count = alive[i, t, 0:B].sum(0)[i, 0:T].sum(0)

    def loss(
        logp: Array,
        value: Array,
        entropy: Array,
        before: Array,
        v: Array,
        gain: Array,
        alive: Array,
        count: Array,
    ) -> Array:
        change = logp - before
        if ratio:
            r = jnp.exp(change)
            gained = jnp.minimum(r * gain, jnp.clip(r, 1 - c.clip, 1 + c.clip) * gain)
        else:
            gained = change * gain
        missed = 0.5 * (value - (v + gain)) ** 2
        return (c.value * missed - gained - c.entropy * entropy) * alive / count

    fixed = [x.detach() for x in (*old, gain)]
    return p.fn(loss, *new, *fixed, alive, count, name="loss")


def a2c(
    environment: Environment,
    network: Network,
    optimizer: Any,
    config: ActorCritic = ActorCritic(),
) -> Graph:
    """Advantage actor-critic (Mnih et al. 2016), with generalized advantages."""
    p = Program("i", "t", "b")
    i, I = p.symbols[0], p.bounds[0]  # noqa: E741
    w, m = p.tensor(i, name="params"), p.tensor(i, name="moments")
    (w[0], m[0]), update = start(p, network, optimizer)
    seen, carried = begin(p, environment)
    action, *new = p.sample(
        lambda key, w, seen: _judge(network, w, seen, None, key), w, seen, name="act"
    )
    now = advance(p, environment, seen, carried, action)
    gain = advantages(p, network, now, new[1], w, config)
    total = gradient(_loss(p, now, new, new[:2], gain, config, ratio=False), w)
    last, moments = p.fn(update, w, m, total, name="update")
    w[i + 1], m[i + 1] = last, moments
    return p.graph(last[I - 1], now.score)


def ppo(
    environment: Environment,
    network: Network,
    optimizer: Any,
    config: ActorCritic = ActorCritic(),
) -> Graph:
    """Proximal policy optimization (Schulman et al. 2017): K epochs on each episode.

    Parameters live on (i, k): w[i, k + 1] = u[i, k] and w[i + 1, 0] = u[i, K - 1]. Acting reads
    w[i, 0], so that the ratio of an epoch is 1 at k = 0 only.
    """
    p = Program("i", "k", "t", "b")
    (i, k, *_), (I, K, *_) = p.symbols, p.bounds  # noqa: E741
    w, m = p.tensor(i, k, name="params"), p.tensor(i, k, name="moments")
    (w[0, 0], m[0, 0]), update = start(p, network, optimizer)
    seen, carried = begin(p, environment)
    action, *old = p.sample(
        lambda key, w, seen: _judge(network, w, seen, None, key), w[i, 0], seen, name="act"
    )
    now = advance(p, environment, seen, carried, action)
    gain = advantages(p, network, now, old[1], w[i, 0], config)
    _, *new = p.fn(
        lambda w, seen, action: _judge(network, w, seen, action, None),
        w,
        seen,
        action,
        name="judge",
    )
    total = gradient(_loss(p, now, new, old[:2], gain, config, ratio=True), w)
    last, moments = p.fn(update, w, m, total, name="update")
    for was, new in ((w, last), (m, moments)):
        was[i, k + 1] = new
        was[i + 1, 0] = new[i, K - 1]
    return p.graph(last[I - 1, K - 1], now.score)
