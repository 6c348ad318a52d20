"""Agents with handwritten memories, so that the correct results of `mmrl.inspect` are known."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mmrl.inspect.playing import Episodes, unroll
from mmrl.inspect.subjects import Subject, flat_state

ACTIONS = 3


class Window(eqx.Module):
    """Agent whose values are a linear function of the last `len(weights)` observations.

    `reset` is "select", which is correct, "multiply", which propagates a NaN, or "never".
    """

    weights: Array  # [step, obs, action], with the current observation last
    reset: str = eqx.field(static=True, default="select")

    def __call__(self, state: Array, obs: Array, begin: Any) -> tuple[Array, Array]:
        if self.reset == "select":
            state = jnp.where(begin, 0, state)
        elif self.reset == "multiply":
            state = state * (1 - jnp.asarray(begin, state.dtype))
        state = jnp.concatenate([state[1:], obs[None]])
        return state, jnp.einsum("ko,koa->a", state, self.weights)


def window(steps: int, seed: int, obs: int = 2, reset: str = "select") -> Subject:
    """Return an agent that depends on the last `steps` observations with similar weights."""
    keys = jax.random.split(jax.random.key(seed))
    shape = (steps, obs, ACTIONS)
    sizes = jax.random.uniform(keys[0], shape, minval=0.5)
    weights = sizes * jnp.where(jax.random.bernoulli(keys[1], 0.5, shape), 1.0, -1.0)
    return Subject(jnp.zeros((steps, obs)), Window(weights, reset))


@eqx.filter_jit
def _record(agent: Subject, obs: Array) -> tuple[Array, Array, Array]:
    def one(obs: Array) -> tuple[Array, Array]:
        last, before, values = unroll(agent, agent.start, obs)
        states = jax.tree.map(lambda x, y: jnp.concatenate([x[1:], y[None]]), before, last)
        return jax.vmap(lambda x, _: flat_state(x))(states, values), values

    memory, values = jax.vmap(one)(obs)
    return agent.choose(values), memory, values


def record(agent: Subject, obs: np.ndarray, lengths: Any = None) -> Episodes:
    """Run an agent on given observations [episode, time, obs], without an environment."""
    action, memory, values = map(np.asarray, _record(agent, jnp.asarray(obs)))
    episodes, time = obs.shape[:2]
    lengths = np.full(episodes, time) if lengths is None else np.asarray(lengths)
    running = np.arange(time) < lengths[:, None]
    empty = np.zeros((episodes, time, 0), np.float32)
    return Episodes(obs, action, running * 0.0, running, memory, values, empty)


def noise(seed: int, episodes: int = 8, time: int = 12, obs: int = 2) -> np.ndarray:
    shape = (episodes, time, obs)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Card(eqx.Module):
    """Optimal agent for RepeatPrevious, whose values are the one-hot card of `lag` steps ago."""

    lag: int = eqx.field(static=True)

    def __call__(self, state: Array, obs: Array, begin: Any) -> tuple[Array, Array]:
        state = jnp.where(begin, 0, state)
        state = jnp.concatenate([state[1:], obs[None]])
        return state, state[0]


class Cue(eqx.Module):
    """Agent whose state is the running maximum, and whose values are its first two entries."""

    def __call__(self, state: Array, obs: Array, begin: Any) -> tuple[Array, Array]:
        state = jnp.maximum(jnp.where(begin, 0, state), obs)
        return state, state[:2]


class Growing(eqx.Module):
    """Agent with values 0 and -h² - 1; each step maps its state h to `factor` · h + 1."""

    factor: float = eqx.field(static=True)

    def __call__(self, state: Array, obs: Array, begin: Any) -> tuple[Array, Array]:
        state = self.factor * jnp.where(begin, 0, state) + 1
        return state, jnp.stack([jnp.zeros(()), -jnp.sum(state**2) - 1])
