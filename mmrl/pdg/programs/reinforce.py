"""REINFORCE: Monte-Carlo, n-step, and for a policy with memory."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl.pdg.expr import min_
from mmrl.pdg.graph import Graph
from mmrl.pdg.program import Program
from mmrl.pdg.programs.parts import (
    Environment,
    Memory,
    Network,
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
