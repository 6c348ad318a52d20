"""Craftax: "craftax:Craftax-Symbolic-v1" or "craftax:Craftax-Classic-Symbolic-v1".

Its `done` is also True when time is up. Without a time limit it is True only where the game is
over; that is a termination, and the rest is truncation. This uses the form of the library that has
no automatic reset. Keyword arguments are its parameters, such as `max_timesteps`.
"""

from typing import Any

import jax
from craftax.craftax_env import make_craftax_env_from_name  # pyright: ignore
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, box

NEVER = 2**31 - 1  # steps


class Craftax(Adapter):
    """An environment of Craftax with its parameters."""

    def __init__(self, env: Any, settings: Any):
        super().__init__(env, settings.max_timesteps)
        self.settings, self.endless = settings, settings.replace(max_timesteps=NEVER)

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Return the first observation of an episode, and the library's state."""
        return self.env.reset_env(key, self.settings)

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Return a step from the library's state, without its automatic reset."""
        obs, inner, reward, done, _ = self.env.step_env(key, inner, action, self.settings)
        terminated = self.env.is_terminal(inner, self.endless)
        return Outcome(obs, inner, reward, terminated, done & ~terminated)

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the space of actions."""
        return spaces.Discrete(self.env.num_actions)

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the space of observations."""
        space = self.env.observation_space(self.settings)
        obs = jax.eval_shape(self.env.reset_env, jax.random.key(0), self.settings)[0]
        return box(space.low, space.high, obs.shape, obs.dtype)


def make(name: str, **kwargs: Any) -> Craftax:
    """Return the environment of this name, with parameters of Craftax as `kwargs`."""
    env = make_craftax_env_from_name(name, auto_reset=False)
    return Craftax(env, env.default_params.replace(**kwargs))
