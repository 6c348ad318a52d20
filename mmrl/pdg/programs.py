"""Reinforcement learning as recurrence equations: REINFORCE, with returns to the end or n steps.

Every program is a graph over iterations i and steps t of `batch` environments side by side, all of
one length T. An episode that ends early is masked from then on: T is the greatest length. Random
numbers come from keys that are functions of the point, so that every legal order of execution
computes the same numbers. Environments, networks and optimizers are arguments: this package imports
none of their libraries.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from mmrl.pdg.domain import Domain
from mmrl.pdg.expr import TRUE, Expr, Slice, Sym, lift, min_
from mmrl.pdg.graph import Edge, Graph, Op


@dataclasses.dataclass(frozen=True)
class Environment:
    """One environment: how to begin an episode, and how to go on.

    `reset(key)` gives (obs, state), and `step(key, state, action)` (obs, state, reward, ended).
    `ended` is terminated | truncated. What comes after an end is never used.
    """

    reset: Callable[[PRNGKeyArray], tuple[Any, Any]]
    step: Callable[[PRNGKeyArray, Any, Any], tuple[Any, Any, Any, Any]]


@dataclasses.dataclass(frozen=True)
class Policy:
    """`init(key) -> params` and `logits(params, obs)`, for one observation."""

    init: Callable[[PRNGKeyArray], PyTree]
    logits: Callable[[PyTree, Any], Array]


def key_at(key: PRNGKeyArray, tag: int, *point: Any) -> PRNGKeyArray:
    """The key of operation `tag` at `point`."""
    for number in (tag, *point):
        key = jax.random.fold_in(key, number)
    return key


def window_return(rewards: Float[Array, "width batch"], gamma: float) -> Float[Array, " batch"]:
    """Σ_k γᵏ r_k over what a slice of rewards holds, zeros past its end."""
    gains = gamma ** jnp.arange(rewards.shape[0])
    return gains @ rewards


def window_returns(
    rewards: Float[Array, "width batch"], gamma: float, n: int | None, steps: int
) -> Float[Array, "steps batch"]:
    """The returns of the first `steps` rewards of a slice: of n steps, or of all that is there."""
    if n is None:
        _, returns = jax.lax.scan(
            lambda g, r: (r + gamma * g,) * 2, rewards[0] * 0, rewards, reverse=True
        )
        return returns[:steps]
    ahead = jnp.arange(rewards.shape[0])[None, :] - jnp.arange(steps)[:, None]
    gains = jnp.where((ahead >= 0) & (ahead < n), gamma ** jnp.maximum(ahead, 0), 0.0)
    return gains @ rewards


def pg_loss(
    policy: Policy,
    params: PyTree,
    obs: Any,
    action: Int[Array, " batch"],
    returns: Float[Array, " batch"],
    alive: Float[Array, " batch"],
) -> Float[Array, ""]:
    """-mean_b alive_b · log π(a_b | o_b) · G_b, one step of Williams's policy gradient."""
    logits = jax.vmap(policy.logits, (None, 0))(params, obs)
    log_policy = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
    return -(alive * log_policy * returns).mean()


i, t = Sym("i"), Sym("t")
ONCE, RUNS, STEPS = Domain.of(), Domain.of("i"), Domain.of("i", "t")
# What the parameters, what was seen, and the action of a point are: operation, output, index.
W, X, ACT = ("w", 0, i), ("x", 0, i, t), ("act", 0, i, t)


class _Program:
    """Collects operations and edges; `reads` are (source, output, index…)."""

    def __init__(self) -> None:
        self.ops: dict[str, Op] = {}
        self.edges: list[Edge] = []
        self.results: tuple[tuple[str, int], ...] = ()

    def graph(self) -> Graph:
        return Graph(self.ops, tuple(self.edges), ("I", "T"), self.results)

    def fn(self, name: str, domain: Any, run: Callable, *reads: tuple, outputs: int = 1) -> None:
        self.ops[name] = Op(name, "fn", domain, (None,) * outputs, run, {})
        for number, (source, output, *index) in enumerate(reads):
            self.edges.append(self._edge(name, source, output, index, TRUE, number))

    def merge(self, name: str, domain: Any, *choices: tuple) -> None:
        self.ops[name] = Op(name, "merge", domain, (None,), None, {})
        for condition, source, output, *index in choices:
            self.edges.append(self._edge(name, source, output, index, condition, 0))

    def _edge(
        self, sink: str, source: str, output: int, index: list, when: Expr, number: int
    ) -> Edge:
        return Edge(sink, source, tuple(lift(e) for e in index), when, number, output)


def reinforce(
    environment: Environment,
    policy: Policy,
    optimizer: Any,
    *,
    n: int | None = None,
    tile: int | None = None,
    gamma: float = 0.99,
    batch: int = 8,
) -> Graph:
    """REINFORCE (Williams 1992) with returns r[t:T], or r[t:min(t + n, T)] if `n` is given.

    The gradient of each step is an operation of its own, so that learning may follow acting n steps
    behind; with a `tile`, that of so many steps is. `optimizer` is an optax GradientTransformation.
    Input: `key`. Results: the last parameters, and the mean return of every iteration.
    """
    program = _Program()
    _acting(program, environment, policy, optimizer, batch)
    big, step = Sym("T"), 1 if tile is None else tile
    tiles = STEPS if tile is None else STEPS.restrict(t % tile == 0)

    def loss(params: PyTree, seen: Any, action: Array, returns: Array) -> Array:
        return pg_loss(policy, params, seen[0], action, returns, seen[1])

    def one(env: Mapping[str, Any], params: PyTree, *inputs: Any) -> tuple:
        return (jax.grad(lambda w: loss(w, *inputs) / env["T"])(params),)

    def several(
        env: Mapping[str, Any], params: PyTree, seen: Any, action: Array, r: Array
    ) -> tuple:
        returns = window_returns(r, gamma, n, action.shape[0])

        def total(params: PyTree) -> Array:
            return jax.vmap(loss, (None, 0, 0, 0))(params, seen, action, returns).sum() / env["T"]

        return (jax.grad(total)(params),)

    stop = big if n is None else min_(t + (step - 1 + n), big)
    rewards = ("step", 2, i, Slice(t, stop))
    if tile is None:
        program.fn("ret", STEPS, lambda env, r: (window_return(r, gamma),), rewards)
        program.fn("grad", STEPS, one, W, X, ACT, ("ret", 0, i, t))
    else:
        here = Slice(t, min_(t + tile, big))
        program.fn("grad", tiles, several, W, (*X[:3], here), (*ACT[:3], here), rewards)
    program.fn("zero", ONCE, lambda env, w: (jax.tree.map(jnp.zeros_like, w),), ("start", 0))
    program.merge("before", tiles, (t == 0, "zero", 0), (t >= 1, "total", 0, i, t - step))
    program.fn("total", tiles, added, ("before", 0, i, t), ("grad", 0, i, t))
    _optimizer(program, optimizer, ("total", 0, i, (big - 1) // step * step))
    return program.graph()


def added(env: Mapping[str, Any], a: PyTree, b: PyTree) -> tuple[PyTree]:
    """a + b, leaf by leaf."""
    return (jax.tree.map(jnp.add, a, b),)


def _acting(
    program: _Program, environment: Environment, policy: Policy, optimizer: Any, batch: int
) -> None:
    """x[i, t] = (observations, alive) and c[i, t] = (states, return so far), actions and rewards.

    `alive` is 1 up to the step that ends an episode, then 0; rewards are 0 from then on.
    """

    def reset(env: Mapping[str, Any]) -> tuple:
        keys = jax.random.split(key_at(env["key"], 1, env["i"]), batch)
        obs, state = jax.vmap(environment.reset)(keys)
        return (obs, jnp.ones(batch)), (state, jnp.zeros(batch))

    def act(env: Mapping[str, Any], params: PyTree, seen: Any) -> tuple:
        logits = jax.vmap(policy.logits, (None, 0))(params, seen[0])
        return (jax.random.categorical(key_at(env["key"], 2, env["i"], env["t"]), logits),)

    def advance(env: Mapping[str, Any], seen: Any, carried: Any, action: Array) -> tuple:
        keys = jax.random.split(key_at(env["key"], 3, env["i"], env["t"]), batch)
        obs, state, reward, ended = jax.vmap(environment.step)(keys, carried[0], action)
        alive = seen[1]
        reward = jnp.where(alive > 0, reward, 0.0)
        after = (obs, jnp.where(ended, 0.0, alive))
        return after, (state, carried[1] + reward), reward

    def start(env: Mapping[str, Any]) -> tuple:
        params = policy.init(key_at(env["key"], 0))
        return params, optimizer.init(params)

    program.fn("start", ONCE, start, outputs=2)
    program.merge("w", RUNS, (i == 0, "start", 0), (i >= 1, "update", 0, i - 1))
    program.fn("reset", RUNS, reset, outputs=2)
    program.merge("x", STEPS, (t == 0, "reset", 0, i), (t >= 1, "step", 0, i, t - 1))
    program.merge("c", STEPS, (t == 0, "reset", 1, i), (t >= 1, "step", 1, i, t - 1))
    program.fn("act", STEPS, act, W, X)
    program.fn("step", STEPS, advance, X, ("c", 0, i, t), ACT, outputs=3)


def _optimizer(program: _Program, optimizer: Any, gradient: tuple) -> None:
    """m[i], the optimizer's state, and the update; results: last parameters, returns."""
    last, big = Sym("I") - 1, Sym("T")

    def update(env: Mapping[str, Any], params: PyTree, state: PyTree, gradient: PyTree) -> tuple:
        changes, state = optimizer.update(gradient, state, params)
        return jax.tree.map(jnp.add, params, changes), state

    program.merge("m", RUNS, (i == 0, "start", 1), (i >= 1, "update", 1, i - 1))
    program.fn("update", RUNS, update, ("w", 0, i), ("m", 0, i), gradient, outputs=2)
    program.fn("final", ONCE, lambda env, w: (w,), ("update", 0, last))
    program.fn("score", RUNS, lambda env, c: (c[1].mean(),), ("step", 1, i, big - 1))
    program.results = (("final", 0), ("score", 0))
