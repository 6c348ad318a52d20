"""XLand-MiniGrid adapter, as in "xland:MiniGrid-DoorKey-5x5" or "xland:XLand-MiniGrid-R1-9x9".

Observations contain the tile and the color of each visible square. The library reports a
termination with discount 0, and its time limit with discount 1.
"""

from typing import Any

import jax.numpy as jnp
import xminigrid  # pyright: ignore
from jaxtyping import PRNGKeyArray
from xminigrid.core.constants import NUM_COLORS, NUM_TILES  # pyright: ignore

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, box


class XLand(Adapter):
    """XLand-MiniGrid environment. Its state is the library's `TimeStep`."""

    def __init__(self, env: Any, settings: Any):
        super().__init__(env, settings.max_steps)
        self.settings = settings
        shape = env.observation_shape(settings)
        if isinstance(shape, dict):
            raise ValueError(
                f"`env` must have array observations, got the dictionary {shape}. Remove the "
                "library's wrappers."
            )
        self.shape = shape

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Reset the library's environment; return its observation and state."""
        step = self.env.reset(self.settings, key)
        return step.observation, step

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Step the library's environment from state `inner`, without automatic reset."""
        step = self.env.step(self.settings, inner, action)
        terminated = step.last() & (step.discount == 0)
        return Outcome(step.observation, step, step.reward, terminated, step.last() & ~terminated)

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the action space."""
        return spaces.Discrete(self.env.num_actions(self.settings))

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the observation space."""
        return box(0, max(NUM_TILES, NUM_COLORS) - 1, self.shape, jnp.uint8)


def make(name: str, **kwargs: Any) -> XLand:
    """Return an adapter for the environment `xminigrid.make(name, **kwargs)`."""
    return XLand(*xminigrid.make(name, **kwargs))
