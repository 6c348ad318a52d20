"""REINFORCE, PPO and a decoder written by hand in JAX, for comparison with compiled equations.

Operations use the same random keys as in the compiled programs, so both compute the same results.
Observations may have any size. Networks are as small as possible, and the optimizer is plain
gradient descent.
"""

import functools
import itertools
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from mmrl._dtypes import finite
from mmrl.course.programs import ActorCritic, Environment, Network
from mmrl.course.programs.decoder import choose, embed, mix, project
from mmrl.pdg.build.nn import Layer, Layers, dense

GAMMA = 0.99
HIDDEN = 16


def screen(width: int) -> Environment:
    """Return an environment in which the agent keeps a dot in the middle of `width` pixels.

    An episode ends when the dot leaves the screen. Only the observation grows with `width`.
    """
    places = jnp.linspace(-1.0, 1.0, width)

    def pixels(x: jax.Array) -> jax.Array:
        return jnp.exp(-30 * (places - x) ** 2)

    def reset(key: jax.Array) -> tuple:
        x = jax.random.uniform(key, minval=-0.5, maxval=0.5)
        return pixels(x), x

    def step(key: jax.Array, x: jax.Array, action: jax.Array) -> tuple:
        x = x + 0.2 * (action - 0.5) + 0.05 * jax.random.normal(key)
        return pixels(x), x, 1 - jnp.abs(x), jnp.abs(x) > 1, False

    return Environment(reset, step)


def network(width: int, actions: int = 2) -> Network:
    """Return a network that applies `look`. Its parameters also fit `judge` and `remember`."""

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
    """Compute logits for observations with any batch axes."""
    return jnp.tanh(obs @ w["A"]) @ w["B"]


def judge(w: dict, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute logits and values."""
    h = jnp.tanh(obs @ w["A"])
    return h @ w["B"], h @ w["V"]


def remember(w: dict, h: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Apply a linear recurrent unit, and return its next state and logits."""
    decay = jax.nn.sigmoid(w["λ"])
    h = decay * h + (1 - decay) * (obs @ w["A"])
    return h, jnp.tanh(h) @ w["B"]


def descent(rate: float) -> SimpleNamespace:
    """Return plain gradient descent with the interface of an optax optimizer."""

    def update(gradient: Any, state: tuple, _: Any) -> tuple:
        return jax.tree.map(lambda g: -rate * g, gradient), state

    return SimpleNamespace(init=lambda params: (), update=update)


def key_of(key: jax.Array, name: str, *point: Any) -> jax.Array:
    """Return the random key of operation `name` at a point."""
    for number in (zlib.crc32(name.encode()), *point):
        key = jax.random.fold_in(key, number)
    return key


def log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Compute log π(action) from logits."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]


def rollout(
    env: Environment, judge: Callable, key: jax.Array, i: Any, T: int, batch: int
) -> tuple[tuple, Any]:
    """Collect a rollout for iteration i with a scan over steps.

    Returns the stacked (obs, alive, action, judged, reward, goes_on, rest) of all steps, and the
    last observation. `goes_on` is 0 after a termination, and `rest` is 0 once the episode has
    ended. `judge(obs)` returns logits, or a tuple that starts with logits.
    """

    def step(carry: tuple, t: jax.Array) -> tuple:
        obs, state, alive = carry
        outputs = judge(obs)
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        keys = [jax.random.split(key_of(key, name, i, t), batch) for name in ("act", "step")]
        action = jax.vmap(jax.random.categorical)(keys[0], logits)
        after, state, r, end, cut = jax.vmap(env.step)(keys[1], state, action)
        after = jax.vmap(finite)(after, end | (alive == 0))
        rest = jnp.where(end | cut, 0.0, alive)
        r, goes_on = jnp.where(alive > 0, r, 0.0), jnp.where(end, 0.0, 1.0)
        return (after, state, rest), (obs, alive, action, outputs, r, goes_on, rest)

    start = jax.vmap(env.reset)(jax.random.split(key_of(key, "reset", i), batch))
    (last, *_), steps = jax.lax.scan(step, (*start, jnp.ones(batch)), jnp.arange(T))
    return steps, last


def reinforce(
    env: Environment,
    net: Network | Layers,
    opt: Any,
    n: int | None,
    iterations: int,
    T: int,
    batch: int,
) -> Callable:
    """Return REINFORCE with a scan for acting and a single gradient per iteration."""
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

    return functools.partial(_train, net, opt, iterate, iterations)


def _train(
    net: Network | Layers, opt: Any, iterate: Callable, iterations: int, key: jax.Array
) -> tuple:
    """Train, and return the final parameters and the score of each iteration."""
    w = net.init(key_of(key, "start"))
    one = functools.partial(iterate, key)
    (w, _), scores = jax.lax.scan(one, (w, opt.init(w)), jnp.arange(iterations))
    return w, scores


def policy(width: int, hidden: int = HIDDEN, actions: int = 2) -> Layers:
    """Return layers that compute logits from one layer of hidden units."""
    first = dense("hidden", width, hidden, jnp.tanh, bias=False)
    return Layers(first, dense("logits", hidden, actions, bias=False, scale=0.1))


def critic(width: int, hidden: int = HIDDEN, depth: int = 1, actions: int = 2) -> Layers:
    """Return layers that compute logits and values from `depth` layers of hidden units."""

    def init(key: jax.Array) -> dict:
        a, b = jax.random.split(key)
        ends = jax.random.normal(a, (hidden, actions)), jax.random.normal(b, (hidden,))
        return {"B": ends[0] / 10, "V": ends[1] / 10}

    sizes = [width] + [hidden] * depth
    layers = [
        dense(f"hidden_{n}", *size, jnp.tanh, bias=False)
        for n, size in enumerate(itertools.pairwise(sizes))
    ]
    return Layers(*layers, Layer("heads", init, lambda w, h: (h @ w["B"], h @ w["V"])))


def ppo(
    env: Environment,
    net: Network | Layers,
    opt: Any,
    iterations: int,
    epochs: int,
    T: int,
    batch: int,
    c: ActorCritic,
) -> Callable:
    """Return PPO with a scan for acting, a backward scan for advantages, and epochs of learning."""

    def iterate(key: jax.Array, carry: tuple, i: jax.Array) -> tuple:
        w, m = carry
        act = functools.partial(net.apply, w)
        transitions, last = rollout(env, act, key, i, T, batch)
        obs, alive, action, (logits, value), r, goes_on, rest = transitions
        logp = log_prob(logits, action)
        following = jnp.concatenate([value[1:], act(last)[1][None]])

        def back(gain: jax.Array, at: tuple) -> tuple:
            r, goes_on, value, following, rest = at
            gain = r + c.gamma * goes_on * following - value + c.gamma * c.lam * rest * gain
            return gain, gain

        steps = (r, goes_on, value, following, rest)
        _, gain = jax.lax.scan(back, jnp.zeros(batch), steps, reverse=True)

        def loss(w: Any) -> jax.Array:
            logits, now = net.apply(w, obs)
            ratio = jnp.exp(log_prob(logits, action) - logp)
            surrogate = jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - c.clip, 1 + c.clip) * gain)
            entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1)
            error = 0.5 * (now - (value + gain)) ** 2
            each = c.value * error - surrogate - c.entropy * entropy
            return (each * alive).sum() / alive.sum()

        def epoch(carry: tuple, _: None) -> tuple:
            w, m = carry
            change, m = opt.update(jax.grad(loss)(w), m, w)
            return (jax.tree.map(jnp.add, w, change), m), None

        (w, m), _ = jax.lax.scan(epoch, (w, m), None, epochs)
        return (w, m), r.sum(0).mean()

    return functools.partial(_train, net, opt, iterate, iterations)


def decoder(window: int | None, T: int, batch: int, *, ring: bool = True) -> Callable:
    """Return a decoder that scans over tokens and carries a key-value cache.

    With a window, the cache is a ring buffer of that size if `ring`, and otherwise has T entries
    and a mask.
    """
    size = min(window or T, T) if ring else T
    each = lambda f, w, *x: jax.vmap(functools.partial(f, w))(*x)  # noqa: E731

    def step(params: Any, key: jax.Array, carry: tuple, t: jax.Array) -> tuple:
        token, caches = carry
        h = jax.vmap(embed, (None, 0, None))(params, token, t)
        age = (t - jnp.arange(size)) % size if ring else t - jnp.arange(size)
        mask = (age >= 0) & (age <= t) & (age < (window or T))
        cache = []
        for w, (keys, values) in zip(params["layers"], caches, strict=True):
            q, k, v = each(project, w, h)
            keys = jax.lax.dynamic_update_index_in_dim(keys, k, t % size, 1)
            values = jax.lax.dynamic_update_index_in_dim(values, v, t % size, 1)
            scores = jnp.where(mask[None], jnp.einsum("btd,bd->bt", keys, q), -jnp.inf)
            average = jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), values)
            h = each(mix, w, h, average)
            cache.append((keys, values))
        at = jax.vmap(lambda b: key_of(key, "choose", b, t))(jnp.arange(batch))
        following, logp = jax.vmap(choose, (0, None, 0))(at, params, h)
        return (following, cache), (token, logp)

    def run(params: Any, key: jax.Array) -> tuple:
        width = params["embed"].shape[1]
        empty = jnp.zeros((batch, size, width))
        start = jnp.zeros(batch, jnp.int32), [(empty, empty) for _ in params["layers"]]
        return jax.lax.scan(functools.partial(step, params, key), start, jnp.arange(T))[1]

    return run
