"""The programs against hand-written JAX: a scan that acts, then `jax.grad` of the whole batch."""

import functools
import math
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import PyTree

from mmrl import envs
from mmrl.course import programs
from mmrl.course.programs import Environment, Memory, Network
from mmrl.pdg.build.graph import Domain, Graph
from mmrl.pdg.build.nn import Adam, Layer, Layers, dense
from mmrl.pdg.build.program import point_key
from mmrl.pdg.passes import vectorize
from mmrl.pdg.run import compile
from mmrl.pdg.run.interpreter import interpret
from mmrl.pdg.run.xla import xla

GAMMA, BATCH, ITERATIONS = 0.99, 4, 3


@functools.cache
def environment(name: str) -> tuple[Environment, tuple[int, ...], int]:
    env, params = envs.make(name)
    return Environment.of(env, params), env.observation_space(params).shape, env.num_actions


def network(shape: tuple[int, ...], actions: int, critic: bool = False) -> Network:
    size = math.prod(shape)

    def init(key: Any) -> PyTree:
        a, b, c = jax.random.split(key, 3)
        values = {"V": 0.1 * jax.random.normal(c, (16,))} if critic else {}
        return values | {
            "A": jax.random.normal(a, (size, 16)) * size**-0.5,
            "B": 0.1 * jax.random.normal(b, (16, actions)),
        }

    def apply(w: PyTree, obs: Any) -> Any:
        h = jnp.tanh(obs.reshape(-1) @ w["A"])
        return (h @ w["B"], h @ w["V"]) if critic else h @ w["B"]

    return Network(init, apply)


def layers(size: int, actions: int) -> Layers:
    """Logits and values of layers that are operations of their own."""

    def init(key: Any) -> PyTree:
        return {"B": 0.1 * jax.random.normal(key, (16, actions)), "V": jnp.zeros(16)}

    return Layers(
        lambda obs: obs.reshape(-1),
        dense("hidden", size, 16, jnp.tanh),
        Layer("heads", init, lambda w, h: (h @ w["B"], h @ w["V"])),
    )


def lru(shape: tuple[int, ...], actions: int) -> Memory:
    """A diagonal linear recurrent unit with real eigenvalues."""
    size = math.prod(shape)

    def init(key: Any) -> PyTree:
        a, b = jax.random.split(key)
        out = 0.1 * jax.random.normal(b, (16, actions))
        return {"λ": jnp.zeros(16), "A": jax.random.normal(a, (size, 16)) * size**-0.5, "B": out}

    def apply(w: PyTree, h: Any, obs: Any) -> tuple:
        decay = jax.nn.sigmoid(w["λ"])
        h = decay * h + (1 - decay) * (obs.reshape(-1) @ w["A"])
        return h, jnp.tanh(h) @ w["B"]

    return Memory(init, lambda: jnp.zeros(16), apply)


def key_at(key: Any, name: str, **at: Any) -> Any:
    return point_key(0, zlib.crc32(name.encode()), Domain.of(*at), {"key": key, **at})


class Episode(NamedTuple):
    obs: Any
    alive: Any
    action: Any
    reward: Any
    goes_on: Any
    next_alive: Any


def rollout(env: Environment, act: Callable, state: PyTree, key: Any, i: Any, T: int) -> tuple:
    """Act for T steps: `act(keys, state, obs) -> (state, action)`. The last observations too."""

    def step(carry: tuple, t: Any) -> tuple:
        obs, inner, alive, state = carry
        at = [jax.random.split(key_at(key, x, i=i, t=t), BATCH) for x in ("act", "step")]
        state, action = act(at[0], state, obs)
        after, inner, r, end, cut = jax.vmap(env.step)(at[1], inner, action)
        rest = jnp.where(end | cut, 0.0, alive)
        r = jnp.where(alive > 0, r, 0.0)
        return (after, inner, rest, state), Episode(obs, alive, action, r, 1.0 - end, rest)

    first = jax.vmap(env.reset)(jax.random.split(key_at(key, "reset", i=i), BATCH))
    (last, *_), steps = jax.lax.scan(step, (*first, jnp.ones(BATCH), state), jnp.arange(T))
    return steps, last


def trained(net: Any, opt: Any, key: Any, iterate: Callable) -> tuple:
    """Iterations of `iterate(i, params, state) -> (params, state, score)` from the start."""

    def step(carry: tuple, i: Any) -> tuple:
        params, state, score = iterate(i, *carry)
        return (params, state), score

    params = net.init(key_at(key, "start"))
    (params, _), scores = jax.lax.scan(step, (params, opt.init(params)), jnp.arange(ITERATIONS))
    return params, scores


def apply(opt: Any, w: PyTree, m: PyTree, gradient: PyTree) -> tuple:
    change, m = opt.update(gradient, m, w)
    return optax.apply_updates(w, change), m


def over(function: Callable, axes: int) -> Callable:
    return functools.reduce(lambda f, _: jax.vmap(f, (None, 0)), range(axes), function)


def log_prob(logits: Any, action: Any) -> Any:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]


def discounted(reward: Any, n: int) -> Any:
    padded = jnp.concatenate([reward, jnp.zeros((n, BATCH))])
    return sum(GAMMA**k * padded[k : k + len(reward)] for k in range(n))


def by_hand_reinforce(env: Environment, net: Network, opt: Any, n: int, T: int) -> Callable:
    def run(key: Any) -> tuple:
        def iterate(i: Any, w: PyTree, m: PyTree) -> tuple:
            def act(keys: Any, state: None, obs: Any) -> tuple:
                return None, jax.vmap(jax.random.categorical)(keys, over(net.apply, 1)(w, obs))

            e, _ = rollout(env, act, None, key, i, T)
            g = discounted(e.reward, n)

            def loss(w: PyTree) -> Any:
                return (
                    -(log_prob(over(net.apply, 2)(w, e.obs), e.action) * g * e.alive).mean(1).sum()
                )

            return *apply(opt, w, m, jax.grad(loss)(w)), e.reward.sum(0).mean()

        return trained(net, opt, key, iterate)

    return run


def by_hand_memory(env: Environment, net: Memory, opt: Any, T: int) -> Callable:
    def run(key: Any) -> tuple:
        def iterate(i: Any, w: PyTree, m: PyTree) -> tuple:
            one = jax.vmap(net.apply, (None, 0, 0))

            def act(keys: Any, state: Any, obs: Any) -> tuple:
                state, logits = one(w, state, obs)
                return state, jax.vmap(jax.random.categorical)(keys, logits)

            start = jnp.zeros((BATCH, 16))
            e, _ = rollout(env, act, start, key, i, T)

            def loss(w: PyTree) -> Any:
                _, logits = jax.lax.scan(lambda h, obs: one(w, h, obs), start, e.obs)
                gain = log_prob(logits, e.action) * discounted(e.reward, T) * e.alive
                return -gain.mean(1).sum()

            return *apply(opt, w, m, jax.grad(loss)(w)), e.reward.sum(0).mean()

        return trained(net, opt, key, iterate)

    return run


def gae(e: Episode, values: Any, lam: float) -> Any:
    def back(gain: Any, step: tuple) -> tuple:
        reward, goes_on, next_alive, value, following = step
        gain = reward + GAMMA * goes_on * following - value + GAMMA * lam * next_alive * gain
        return gain, gain

    steps = (e.reward, e.goes_on, e.next_alive, values[:-1], values[1:])
    return jax.lax.scan(back, jnp.zeros(BATCH), steps, reverse=True)[1]


CLIPPED = programs.ActorCritic(clip=0.005)  # so narrow that ratios of the second epoch leave it


def by_hand_actor_critic(
    env: Environment, net: Network | Layers, opt: Any, T: int, epochs: int | None
) -> Callable:
    """A2C, or PPO if there are `epochs`."""
    c = CLIPPED

    def run(key: Any) -> tuple:
        def iterate(i: Any, w: PyTree, m: PyTree) -> tuple:
            def act(keys: Any, state: None, obs: Any) -> tuple:
                return None, jax.vmap(jax.random.categorical)(keys, over(net.apply, 1)(w, obs)[0])

            e, last = rollout(env, act, None, key, i, T)
            logits, values = over(net.apply, 2)(w, jnp.concatenate([e.obs, last[None]]))
            a, behavior = gae(e, values, c.lam), log_prob(logits[:-1], e.action)

            def loss(w: PyTree) -> Any:
                logits, v = over(net.apply, 2)(w, e.obs)
                ratio = jnp.exp(log_prob(logits, e.action) - behavior)
                clipped = jnp.clip(ratio, 1 - c.clip, 1 + c.clip)
                gain = (
                    jnp.minimum(ratio * a, clipped * a)
                    if epochs
                    else log_prob(logits, e.action) * a
                )
                p = jax.nn.softmax(logits)
                entropy = -(p * jnp.log(p)).sum(-1)
                error = (v - values[:-1] - a) ** 2 / 2
                each = c.value * error - gain - c.entropy * entropy
                return (each * e.alive).sum() / e.alive.sum()

            for _ in range(epochs or 1):
                w, m = apply(opt, w, m, jax.grad(loss)(w))
            return w, m, e.reward.sum(0).mean()

        return trained(net, opt, key, iterate)

    return run


class Case(NamedTuple):
    graph: Graph
    by_hand: Callable
    bounds: dict[str, int]


def case(name: str) -> Case:
    opt = optax.adam(1e-2)
    catch, cartpole = environment("Catch-bsuite"), environment("CartPole-v1")
    critic = (catch[0], network(*catch[1:], critic=True), opt)
    bounds = {"I": ITERATIONS, "B": BATCH, "T": 9}
    if name == "3-step CartPole":
        # Some episodes end before the last step, so that masks matter.
        args = (cartpole[0], network(*cartpole[1:]), opt)
        graph = programs.reinforce(*args, n=3)
        return Case(graph, by_hand_reinforce(*args, 3, 24), bounds | {"T": 24})
    if name == "LRU":
        args = (catch[0], lru(*catch[1:]), opt)
        return Case(programs.remember(*args), by_hand_memory(*args, 9), bounds)
    if name == "A2C":
        # Some episodes end before the last step, and the others are cut there.
        critic = (cartpole[0], network(*cartpole[1:], critic=True), opt)
        graph = programs.a2c(*critic)
        return Case(graph, by_hand_actor_critic(*critic, 16, None), bounds | {"T": 16})
    if name == "PPO of layers":
        # Layers are operations, and Adam is equations; by hand it is optax.
        layered = catch[0], layers(math.prod(catch[1]), catch[2])
        hand = by_hand_actor_critic(*layered, opt, 9, 2)
        return Case(programs.ppo(*layered, Adam(1e-2), CLIPPED), hand, bounds | {"K": 2})
    return Case(
        programs.ppo(*critic, CLIPPED),
        by_hand_actor_critic(*critic, 9, 2),
        bounds | {"K": 2},
    )


CASES = ["3-step CartPole", "LRU", "A2C", "PPO", "PPO of layers"]


def close(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), found, wanted)


@pytest.mark.full_except("A2C")
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_executors_train_as_by_hand(name: str):
    graph, by_hand, bounds = case(name)
    compiled, key = compile(graph, {"batch": lambda g: vectorize(g, "b")}), jax.random.key(3)
    wanted = jax.jit(by_hand)(key)
    close(xla(compiled, bounds)(key=key), wanted)
    if name == "3-step CartPole":
        done = interpret(compiled, bounds, key=key)
        close(done.results, wanted)
        one = BATCH * (4 + 1) * 4  # an observation and whether it counts, of every environment
        assert done.account.peak(("seen", 0)) == 3 * one


def test_an_episode_of_gymnax_ends_with_what_was_seen_last():
    env, params = envs.make("CartPole-v1")
    params = params.replace(max_steps_in_episode=3)
    made, keys = Environment.of(env, params), jax.random.split(jax.random.key(0), 4)
    obs, state = made.reset(keys[0])
    np.testing.assert_array_equal(obs, env.reset(keys[0], params)[0])
    for t, key in enumerate(keys[1:]):
        wanted, *_ = env.step_env(jax.random.split(key)[0], state, 1, params)
        first, *_ = env.step(key, state, 1, params)
        obs, state, reward, terminated, truncated = made.step(key, state, 1)
        np.testing.assert_allclose(obs, wanted, atol=1e-6)
        assert (float(reward), bool(terminated), bool(truncated)) == (1.0, False, t == 2)
    assert np.abs(obs - first).max() > 0.1  # the next episode has begun, and is not shown


def test_an_environment_that_hides_its_last_observation_is_refused():
    class Old:
        def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple:
            return state, state, 0.0, False, {"discount": 1.0}

    with pytest.raises(ValueError, match=r"got 5 values and an info with \['discount'\]"):
        Environment.of(Old(), None).step(jax.random.key(0), 0, 0)
