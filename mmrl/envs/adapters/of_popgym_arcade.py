"""POPGym Arcade adapter, as in "popgym-arcade:CartPoleEasy".

Pass `partial_obs=True` for partial observability. The library's `done` does not distinguish the
time limit from a termination. The adapter treats an end at the time limit as a truncation, and an
earlier end as a termination. It calls the library's `step_env`, because `step` resets the game.
"""

from typing import Any

import jax
import jax.numpy as jnp
import popgym_arcade  # pyright: ignore
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, box

# Possible names of the time limit. Every game has one of these attributes.
LIMITS = ("max_steps_in_episode", "max_episode_length")


class Arcade(Adapter):
    """POPGym Arcade game with image observations. Its state includes a step counter."""

    def __init__(self, env: Any, settings: Any):
        super().__init__(env, next(getattr(env, x) for x in LIMITS if hasattr(env, x)))
        self.settings = settings
        env.is_terminated = env.is_terminal  # gymnax 1.0 calls this method `is_terminated`

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Reset the library's environment; return its observation and state."""
        obs, inner = self.env.reset_env(key, self.settings)
        return obs, (inner, jnp.int32(0))

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Step the library's environment from state `inner`, without automatic reset."""
        inner, time = inner[0], inner[1] + 1
        obs, inner, reward, done, _ = self.env.step_env(key, inner, action, self.settings)
        late = time >= self.num_steps
        return Outcome(obs, (inner, time), reward, done & ~late, late)

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the action space."""
        return spaces.Discrete(int(self.env.action_space(self.settings).n))

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the observation space."""
        space = self.env.observation_space(self.settings)
        obs = jax.eval_shape(self.env.reset_env, jax.random.key(0), self.settings)[0]
        return box(space.low, space.high, obs.shape, obs.dtype)


def make(name: str, **kwargs: Any) -> Arcade:
    """Return an adapter for the game `popgym_arcade.make(name, **kwargs)`."""
    return Arcade(*popgym_arcade.make(name, **kwargs))
