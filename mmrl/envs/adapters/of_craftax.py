"""Craftax adapter, as in "craftax:Craftax-Symbolic-v1" and "craftax:Craftax-Classic-Symbolic-v1".

Craftax's `done` does not distinguish the time limit from a termination. The adapter therefore
evaluates the terminal condition a second time, without a time limit. If the second result is False,
the episode was truncated. Keyword arguments are parameters of Craftax, such as `max_timesteps`.
"""

from typing import Any

import jax
from craftax.craftax_env import make_craftax_env_from_name  # pyright: ignore
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, box

NEVER = 2**31 - 1  # time limit, in steps, that no episode reaches


class Craftax(Adapter):
    """Craftax environment."""

    def __init__(self, env: Any, settings: Any):
        super().__init__(env, settings.max_timesteps)
        self.settings, self.endless = settings, settings.replace(max_timesteps=NEVER)

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Reset the library's environment; return its observation and state."""
        return self.env.reset_env(key, self.settings)

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Step the library's environment from state `inner`, without automatic reset."""
        obs, inner, reward, done, _ = self.env.step_env(key, inner, action, self.settings)
        terminated = self.env.is_terminal(inner, self.endless)
        return Outcome(obs, inner, reward, terminated, done & ~terminated)

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the action space."""
        return spaces.Discrete(self.env.num_actions)

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the observation space."""
        space = self.env.observation_space(self.settings)
        obs = jax.eval_shape(self.env.reset_env, jax.random.key(0), self.settings)[0]
        return box(space.low, space.high, obs.shape, obs.dtype)


def make(name: str, **kwargs: Any) -> Craftax:
    """Return the Craftax environment `name`, with parameters `kwargs`."""
    env = make_craftax_env_from_name(name, auto_reset=False)
    return Craftax(env, env.default_params.replace(**kwargs))
