"""The base of our tasks and wrappers: a step and a reset, merged where an episode ends."""

import abc
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree, Shaped

from mmrl.envs._gymnax import environment

Obs = PyTree[Shaped[Array, "..."]]
Reset = tuple[Obs, Any]
"""Result of `reset_env`: obs, state."""
Step = tuple[Obs, Any, Any, Any, dict[Any, Any]]
"""Result of `step_env`: obs, state, reward, terminated, info."""


class Resetting(environment.Environment, abc.ABC):
    """An environment that computes a step and a reset together, and merges them only in `step`.

    Two with equal arguments are equal and share compilations; gymnax compiles anew for every
    instance.
    """

    @abc.abstractmethod
    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any
    ) -> tuple[Step, Reset]:
        """Return one step, and the first observation and state of the next episode, if this one
        ends.
        """

    @partial(jax.jit, static_argnames="self")
    def step(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any = None
    ) -> tuple[Obs, Any, Any, Any, Any, dict[Any, Any]]:
        """Step with automatic reset; return obs, state, reward, terminated, truncated, info.

        After an end, obs and state begin the next episode, and info's `final_observation` is the
        last observation of the old one.
        """
        params = self.default_params if params is None else params
        step, reset = self.step_and_reset(key, state, action, params)
        final, after, reward, terminated, info = step
        truncated = jnp.asarray(self.is_truncated(after, params))
        pick = partial(jax.lax.select, jnp.logical_or(terminated, truncated))
        obs, state = jax.tree.map(pick, reset, (final, after))
        ends = {"terminated": terminated, "truncated": truncated, "final_observation": final}
        return obs, state, reward, terminated, truncated, {**info, **ends}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), tuple(sorted(vars(self).items()))))


def step_and_reset(
    env: Any, key: PRNGKeyArray, state: Any, action: Any, params: Any
) -> tuple[Step, Reset]:
    """Return a step and a reset with the same random numbers as in `env.step`."""
    if isinstance(env, Resetting):
        return env.step_and_reset(key, state, action, params)
    key_step, key_reset = jax.random.split(key)
    return env.step_env(key_step, state, action, params), env.reset_env(key_reset, params)
