"""POPGym Arcade: "popgym-arcade:CartPoleEasy", with `partial_obs=True` to hide the state.

Its `done` is also True when time is up, and its info reports that differently in each game. So an
end in the last step that a game may have is truncation, and any earlier end a termination. Its
`step` resets; this calls `step_env`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import popgym_arcade  # pyright: ignore
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, box

LIMITS = ("max_steps_in_episode", "max_episode_length")  # a game has one of them


class Arcade(Adapter):
    """A game of POPGym Arcade, whose observation is a picture; its state counts steps."""

    def __init__(self, env: Any, settings: Any):
        super().__init__(env, next(getattr(env, x) for x in LIMITS if hasattr(env, x)))
        self.settings = settings
        env.is_terminated = env.is_terminal  # its name in gymnax 1.0, which its `discount` calls

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Return the first observation of an episode, and the library's state."""
        obs, inner = self.env.reset_env(key, self.settings)
        return obs, (inner, jnp.int32(0))

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Return a step from the library's state, without its automatic reset."""
        inner, time = inner[0], inner[1] + 1
        obs, inner, reward, done, _ = self.env.step_env(key, inner, action, self.settings)
        late = time >= self.num_steps
        return Outcome(obs, (inner, time), reward, done & ~late, late)

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the space of actions."""
        return spaces.Discrete(int(self.env.action_space(self.settings).n))

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the space of observations."""
        space = self.env.observation_space(self.settings)
        obs = jax.eval_shape(self.env.reset_env, jax.random.key(0), self.settings)[0]
        return box(space.low, space.high, obs.shape, obs.dtype)


def make(name: str, **kwargs: Any) -> Arcade:
    """Return the game that `popgym_arcade.make` returns for these arguments."""
    return Arcade(*popgym_arcade.make(name, **kwargs))
