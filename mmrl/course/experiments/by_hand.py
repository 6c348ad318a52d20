"""REINFORCE as one writes it today in JAX, and what a comparison of compiled equations needs.

The keys are those of the same points, so that both compute the same numbers. An environment whose
observations may have any size, networks as small as can be, and plain gradient descent.
"""

import functools
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.programs import Environment, Network

GAMMA = 0.99
HIDDEN = 16


def screen(width: int) -> Environment:
    """A dot on a line of `width` pixels. Keep it in the middle; beyond the edge the game is over.

    An observation may be as large as one likes, and everything else stays as small as it is.
    """
    places = jnp.linspace(-1.0, 1.0, width)

    def shown(x: jax.Array) -> jax.Array:
        return jnp.exp(-30 * (places - x) ** 2)

    def reset(key: jax.Array) -> tuple:
        x = jax.random.uniform(key, minval=-0.5, maxval=0.5)
        return shown(x), x

    def step(key: jax.Array, x: jax.Array, action: jax.Array) -> tuple:
        x = x + 0.2 * (action - 0.5) + 0.05 * jax.random.normal(key)
        return shown(x), x, 1 - jnp.abs(x), jnp.abs(x) > 1, False

    return Environment(reset, step)


def network(width: int, actions: int = 2) -> Network:
    """Parameters for `look`, `judge` and `remember`; it applies `look`."""

    def init(key: jax.Array) -> dict:
        a, b, c = jax.random.split(key, 3)
        return {
            "λ": jnp.linspace(0.0, 4.0, HIDDEN),
            "A": jax.random.normal(a, (width, HIDDEN)) / width**0.5,
            "B": jax.random.normal(b, (HIDDEN, actions)) / 10,
            "V": jax.random.normal(c, (HIDDEN,)) / 10,
        }

    return Network(init, look)


def look(w: dict, obs: jax.Array) -> jax.Array:
    """Logits of any batch of observations."""
    return jnp.tanh(obs @ w["A"]) @ w["B"]


def judge(w: dict, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Logits and values."""
    h = jnp.tanh(obs @ w["A"])
    return h @ w["B"], h @ w["V"]


def remember(w: dict, h: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A linear recurrent unit with real eigenvalues: its next state, and logits."""
    decay = jax.nn.sigmoid(w["λ"])
    h = decay * h + (1 - decay) * (obs @ w["A"])
    return h, jnp.tanh(h) @ w["B"]


def descent(rate: float) -> SimpleNamespace:
    """Plain gradient descent, with the two functions of an optax optimizer."""

    def update(gradient: Any, state: tuple, _: Any) -> tuple:
        return jax.tree.map(lambda g: -rate * g, gradient), state

    return SimpleNamespace(init=lambda params: (), update=update)


def key_of(key: jax.Array, name: str, *point: Any) -> jax.Array:
    """The key that an operation has at a point."""
    for number in (zlib.crc32(name.encode()), *point):
        key = jax.random.fold_in(key, number)
    return key


def log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    """log π(a), of logits."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]


def rollout(
    env: Environment, judge: Callable, key: jax.Array, i: Any, T: int, batch: int
) -> tuple[tuple, Any]:
    """Iteration i, acted step by step, in a scan.

    (obs, alive, action, judged, reward, goes on, alive after it) at all t, and the last
    observation. `judge(obs)` gives logits, or logits and more.
    """

    def step(carry: tuple, t: jax.Array) -> tuple:
        obs, state, alive = carry
        judged = judge(obs)
        logits = judged[0] if isinstance(judged, tuple) else judged
        keys = [jax.random.split(key_of(key, name, i, t), batch) for name in ("act", "step")]
        action = jax.vmap(jax.random.categorical)(keys[0], logits)
        after, state, r, end, cut = jax.vmap(env.step)(keys[1], state, action)
        rest = jnp.where(end | cut, 0.0, alive)
        r, goes_on = jnp.where(alive > 0, r, 0.0), jnp.where(end, 0.0, 1.0)
        return (after, state, rest), (obs, alive, action, judged, r, goes_on, rest)

    begun = jax.vmap(env.reset)(jax.random.split(key_of(key, "reset", i), batch))
    (last, *_), done = jax.lax.scan(step, (*begun, jnp.ones(batch)), jnp.arange(T))
    return done, last


def reinforce(
    env: Environment,
    net: Network,
    opt: Any,
    n: int | None,
    iterations: int,
    T: int,
    batch: int,
) -> Callable:
    """REINFORCE as one writes it today: act in a scan, then one gradient of everything."""
    later = jnp.arange(T)[None] - jnp.arange(T)[:, None]  # k - t
    weights = jnp.where((later >= 0) & (later < (n or T)), GAMMA**later, 0.0)

    def iterate(key: jax.Array, carry: tuple, i: jax.Array) -> tuple:
        w, m = carry
        act = functools.partial(net.apply, w)
        (obs, alive, action, _, r, *_), _ = rollout(env, act, key, i, T, batch)

        def loss(w: Any) -> jax.Array:
            gain = log_prob(net.apply(w, obs), action) * (weights @ r) * alive
            return -gain.mean(1).sum()

        change, m = opt.update(jax.grad(loss)(w), m, w)
        return (jax.tree.map(jnp.add, w, change), m), r.sum(0).mean()

    def run(key: jax.Array) -> tuple:
        w = net.init(key_of(key, "start"))
        one = functools.partial(iterate, key)
        (w, _), scores = jax.lax.scan(one, (w, opt.init(w)), jnp.arange(iterations))
        return w, scores

    return run
