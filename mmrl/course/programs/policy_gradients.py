"""REINFORCE (Monte Carlo, n-step, and for a policy with memory), A2C and PPO.

A2C and PPO compute advantages by a recurrence that runs backward in time. In each iteration A2C
takes one gradient step, and PPO takes one gradient step per epoch.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl.course.programs.parts import (
    Environment,
    Learner,
    Memory,
    Network,
    Steps,
    advance,
    begin,
    layers,
    log_prob,
)
from mmrl.pdg.build.expr import min_
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.nn import Layers
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor


def reinforce(
    environment: Environment,
    network: Network | Layers,
    optimizer: Any,
    *,
    n: int | None = None,
    gamma: float = 0.99,
) -> Graph:
    """Build REINFORCE (Williams 1992) with Monte Carlo returns, or n-step returns without a value.

    The return is the discounted sum of r[t:T], or of r[t:min(t + n, T)] if `n` is given. The
    gradient of each step is a separate operation, and these gradients are summed over b and t. A
    schedule can therefore compute the gradient of a step as soon as its n rewards are known. Raises
    `ValueError` for `n` below 1.
    """
    if n is not None and n < 1:
        raise ValueError(f"`n` must be at least 1, or None for all rewards that follow; got {n}")
    p = Program("i", "t", "b")
    (i, t, b), T = p.symbols, p.bounds[1]
    learner = Learner(p, network, optimizer, i)
    seen, carried = begin(p, environment)
    logits = layers(network)(learner.w, seen)
    action = p.sample(jax.random.categorical, logits, name="act")
    now = advance(p, environment, seen, carried, action)
    returns = now.reward[i, t : T if n is None else min_(t + n, T), b].discounted_sum(gamma)
    return _learn(p, learner, logits, action, returns, now)


def remember(
    environment: Environment, memory: Memory, optimizer: Any, *, gamma: float = 0.99
) -> Graph:
    """Build REINFORCE for a policy with memory: h[i, t + 1, b] = f(w[i], h[i, t, b], o[i, t, b]).

    Gradients flow back through time along the state h.
    """
    p = Program("i", "t", "b")
    (i, t, b), T = p.symbols, p.bounds[1]
    learner = Learner(p, memory, optimizer, i)
    h = p.tensor(i, t, b, name="state")
    h[i, 0, b] = p.constant(memory.start(), name="initial")

    def recall(params: PyTree, state: PyTree, seen: Any) -> tuple:
        return memory.apply(params, state, seen[0])

    seen, carried = begin(p, environment)
    h[i, t + 1, b], logits = p.fn(recall, *learner.w.values(), h, seen, name="recall")
    action = p.sample(jax.random.categorical, logits, name="act")
    now = advance(p, environment, seen, carried, action)
    returns = now.reward[i, t:T, b].discounted_sum(gamma)
    return _learn(p, learner, logits, action, returns, now)


def _learn(
    p: Program, learner: Learner, logits: Tensor, action: Tensor, returns: Tensor, now: Steps
) -> Graph:
    """Finish the graph with a gradient step on -Σ_t mean_b log π(a[t]) g[t] per iteration."""

    def loss(logits: Array, action: Array, returns: Array, seen: Any, count: Array) -> Array:
        return -log_prob(logits, action) * returns * seen[1] / count

    count = p.value(p.bounds[2])
    total = p.fn(loss, logits, action, returns, now.observation, count, name="loss")
    return p.graph(learner.descend(total), now.score)


@dataclasses.dataclass(frozen=True)
class ActorCritic:
    """Hyperparameters of A2C and PPO."""

    gamma: float = 0.99
    lam: float = 0.95  # λ of the generalized advantage estimate
    value: float = 0.5  # weight of the squared value error
    entropy: float = 0.01  # weight of the entropy bonus
    clip: float = 0.2  # ε of PPO, which clips the probability ratio to 1 - ε … 1 + ε


def advantages(
    p: Program, network: Layers, w: Mapping[str, Tensor], now: Steps, value: Tensor, c: ActorCritic
) -> Tensor:
    """Define A[t] = δ[t] + γ λ A[t + 1], δ[t] = r[t] + γ v[t + 1] - v[t].

    This is Schulman et al. 2016, Eq. 16, written as a backward recurrence. The next value is 0
    where the environment terminated, and the next advantage is 0 at the last step of an episode.
    """
    (i, *_, t, b), T = p.symbols, p.bounds[-2]
    following, ahead = (p.tensor(i, t, b, name=f"next_{x}") for x in ("value", "advantage"))
    following[i, T - 1, b] = network(w, now.after[i, T - 1, b], "last")[1]
    following[i, t, b] = value[i, t + 1, b]
    ahead[i, T - 1, b] = 0.0

    def advantage(r: Array, goes_on: Array, v: Array, nv: Array, after: Any, ahead: Array) -> Array:
        return r + c.gamma * goes_on * nv - v + c.gamma * c.lam * after[1] * ahead

    result = p.fn(advantage, now.reward, now.goes_on, value, following, now.after, ahead)
    ahead[i, t, b] = result[i, t + 1, b]
    return result


def _loss(
    p: Program,
    now: Steps,
    outputs: tuple[Tensor, Tensor],
    action: Tensor,
    value: Tensor,
    gain: Tensor,
    c: ActorCritic,
    *before: Tensor,
) -> Tensor:
    """Return the loss of policy, value and entropy at each step.

    Each loss is divided by the number of steps, so that their sum is a mean. `outputs` is the
    current (logits, value). `value`, `gain` (the advantage) and `before` (the log-probability of
    the action) were computed during the rollout. If `before` is given, the policy loss is PPO's
    clipped objective.
    """
    (i, *_, t, _), (*_, T, B) = p.symbols, p.bounds
    alive = p.fn(lambda seen: seen[1], now.observation, name="alive")
    count = alive[i, t, 0:B].sum(0)[i, 0:T].sum(0)

    def loss(
        logits: Array,
        value: Array,
        action: Array,
        v: Array,
        gain: Array,
        alive: Array,
        count: Array,
        *before: Array,
    ) -> Array:
        logp = log_prob(logits, action)
        if before:
            r = jnp.exp(logp - before[0])
            surrogate = jnp.minimum(r * gain, jnp.clip(r, 1 - c.clip, 1 + c.clip) * gain)
        else:
            surrogate = logp * gain
        error = 0.5 * (value - (v + gain)) ** 2
        entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum()
        return (c.value * error - surrogate - c.entropy * entropy) * alive / count

    value, gain, *targets = (x.detach() for x in (value, gain, *before))
    return p.fn(loss, *outputs, action, value, gain, alive, count, *targets, name="loss")


def a2c(
    environment: Environment,
    network: Network | Layers,
    optimizer: Any,
    config: ActorCritic = ActorCritic(),
) -> Graph:
    """Build A2C (Mnih et al. 2016) with generalized advantage estimation."""
    p = Program("i", "t", "b")
    judge, learner = layers(network), Learner(p, network, optimizer, p.symbols[0])
    seen, carried = begin(p, environment)
    logits, value = judge(learner.w, seen)
    action = p.sample(jax.random.categorical, logits, name="act")
    now = advance(p, environment, seen, carried, action)
    gain = advantages(p, judge, learner.w, now, value, config)
    loss = _loss(p, now, (logits, value), action, value, gain, config)
    return p.graph(learner.descend(loss), now.score)


def ppo(
    environment: Environment,
    network: Network | Layers,
    optimizer: Any,
    config: ActorCritic = ActorCritic(),
) -> Graph:
    """Build proximal policy optimization (Schulman et al. 2017) with K epochs on each episode.

    Parameters have the domain (i, k): w[i, k + 1] = u[i, k] and w[i + 1, 0] = u[i, K - 1], where u
    is the result of a gradient step. The policy that acts has the parameters w[i, 0], so the
    probability ratio equals 1 in the first epoch.
    """
    p = Program("i", "k", "t", "b")
    i, k, *_ = p.symbols
    judge, learner = layers(network), Learner(p, network, optimizer, i, k)
    seen, carried = begin(p, environment)
    acting = learner.at(i, 0)
    logits, value = judge(acting, seen)

    def act(key: PRNGKeyArray, logits: Array) -> tuple[Array, Array]:
        action = jax.random.categorical(key, logits)
        return action, log_prob(logits, action)

    action, before = p.sample(act, logits)
    now = advance(p, environment, seen, carried, action)
    gain = advantages(p, judge, acting, now, value, config)
    outputs = judge(learner.w, seen, "judged")
    loss = _loss(p, now, outputs, action, value, gain, config, before)
    return p.graph(learner.descend(loss), now.score)
