"""Base class of this package's environments and wrappers."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree, Shaped

from mmrl.envs._gymnax import environment

Obs = PyTree[Shaped[Array, "..."]]
Reset = tuple[Obs, Any]
"""Result of `reset_env`: (obs, state)."""
Step = tuple[Obs, Any, Any, Any, dict[Any, Any]]
"""Result of `step_env`: (obs, state, reward, terminated, info)."""
Ends = Callable[[Step], Any]
"""Function of a step. It returns True if a wrapper ends the episode after this step."""


def never(step: Step) -> bool:
    """Return False: outside of all wrappers, only the environment itself ends episodes."""
    return False


class AutoResetEnvironment(environment.Environment, abc.ABC):
    """Environment whose `step` resets automatically.

    Subclasses implement `step_and_reset`, which returns the step and the reset separately; `step`
    selects between the two. Instances with equal attributes are equal and have the same hash, so
    they share one compiled program. gymnax compiles a program for every instance.
    """

    @abc.abstractmethod
    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Return the results of a step and of the reset that follows if the episode ends.

        The reset is used if the step terminates or truncates the episode, or if `ends(step)` is
        True, for example because of a wrapper's time limit.
        """

    @partial(jax.jit, static_argnames="self")
    def step(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any = None
    ) -> tuple[Obs, Any, Any, Any, Any, dict[Any, Any]]:
        """Take a step, and reset the environment if the episode ends.

        Returns (obs, state, reward, terminated, truncated, info). After the end of an episode, obs
        and state are the first ones of the next episode. `info["final_observation"]` is always the
        observation before the reset.
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
    env: Any, key: PRNGKeyArray, state: Any, action: Any, params: Any, ends: Ends = never
) -> tuple[Step, Reset]:
    """Return the results of a step and of a reset, which use the same keys as in `env.step`."""
    if isinstance(env, AutoResetEnvironment):
        return env.step_and_reset(key, state, action, params, ends)
    key_step, key_reset = jax.random.split(key)
    return env.step_env(key_step, state, action, params), env.reset_env(key_reset, params)
