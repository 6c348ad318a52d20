"""The shipped programs learn: the mean of two seeds, which are one XLA program side by side."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

from mmrl import envs
from mmrl.course import programs
from mmrl.course.programs import Environment, Memory, Network
from mmrl.memory import LRU
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.passes import fuse, vectorize
from mmrl.pdg.run import compile

SEEDS = 2


def scores(graph: Graph, *, first: int = 0, **bounds: int) -> Array:
    """[seed, iteration]: mean returns of the episodes."""
    passes = {name: lambda g, name=name: vectorize(g, name) for name in ("b", "t")} | {"fuse": fuse}
    program = compile(graph, passes).xla(bounds | {"B": 32})
    keys = jnp.stack([jax.random.key(seed) for seed in range(first, first + SEEDS)])
    return jax.jit(jax.vmap(lambda key: program(key=key)[1]))(keys)


def game(name: str) -> tuple[Environment, int, int]:
    env, params = envs.make(name)
    size = int(np.prod(env.observation_space(params).shape))
    return Environment.of(env, params), size, env.num_actions


def network(size: int, actions: int, hidden: int) -> Network:
    """Two layers, and two of a critic."""

    def init(key: Any) -> dict:
        a, b = jax.random.split(key)
        first = jax.random.normal(a, (2, size, hidden)) * size**-0.5
        return {
            "A": first,
            "B": 0.01 * jax.random.normal(b, (hidden, actions)),
            "v": jnp.zeros(hidden),
        }

    def apply(w: dict, obs: Array) -> Any:
        h = jnp.tanh(jnp.einsum("o, nof -> nf", obs.ravel(), w["A"]))
        return h[0] @ w["B"], h[1] @ w["v"]

    return Network(init, apply)


class Remembers(eqx.Module):
    """The library's linear recurrent unit, and two layers behind it."""

    lru: LRU
    head: eqx.nn.MLP

    def __init__(self, size: int, actions: int, hidden: int, *, key: Any):
        a, b = jax.random.split(key)
        self.lru = LRU(size, hidden, state_size=hidden, decay=(0.5, 0.95), key=a)
        self.head = eqx.nn.MLP(hidden, actions, hidden, 1, jax.nn.gelu, key=b)


def memory(size: int, actions: int, hidden: int) -> Memory:
    """A module as a policy: its arrays are the parameters."""

    def build(key: Any) -> tuple:
        return eqx.partition(Remembers(size, actions, hidden, key=key), eqx.is_inexact_array)

    _, rest = build(jax.random.key(0))

    def apply(params: Any, state: Any, obs: Array) -> tuple:
        model = eqx.combine(params, rest)
        state, y = model.lru.step(state, obs, jnp.bool_(False))
        return state, model.head(y)

    return Memory(lambda key: build(key)[0], rest.lru.init, apply)


def ends(found: Array, count: int) -> tuple[float, float]:
    """The mean score of the first five iterations, and of the last `count`."""
    found = np.asarray(found)
    assert found.shape[0] == SEEDS
    return found[:, :5].mean(), found[:, -count:].mean()


@pytest.mark.full
def test_proximal_policies_learn_catch():
    """Chance is about -0.5, a perfect player 1. Of eight seeds none ended below 0.82."""
    env, size, actions = game("Catch-bsuite")
    critic = network(size, actions, 16)
    graph = programs.ppo(env, critic, optax.adam(1e-2))
    first, last = ends(scores(graph, I=50, K=4, T=9), 20)
    assert first < -0.2 and last > 0.6


@pytest.mark.full
def test_a_linear_recurrent_unit_recalls():
    """Say the suit shown three steps ago. Chance is about -0.5, perfect recall 1.

    Each of eight seeds ended at 1.00; of a policy without memory, between -0.50 and -0.49.
    """
    env, size, actions = game("popgym-RepeatPreviousEasy-v0")
    optimizer, bounds = optax.adam(5e-3), {"I": 60, "T": 51}
    graph = programs.remember(env, memory(size, actions, 16), optimizer, gamma=0.0)
    first, last = ends(scores(graph, **bounds), 10)
    assert first < -0.2 and last > 0.6
