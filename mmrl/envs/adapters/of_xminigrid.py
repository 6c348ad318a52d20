"""XLand-MiniGrid: "xland:MiniGrid-DoorKey-5x5" or "xland:XLand-MiniGrid-R1-9x9".

An observation has the tile and the color of each square in view. Its `step` does not reset; the
discount separates a termination, 0, from the end by the clock, 1.
"""

from typing import Any

import jax.numpy as jnp
import xminigrid  # pyright: ignore
from jaxtyping import PRNGKeyArray
from xminigrid.core.constants import NUM_COLORS, NUM_TILES  # pyright: ignore

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, box


class XLand(Adapter):
    """An environment of XLand-MiniGrid with its parameters, whose time step is the state."""

    def __init__(self, env: Any, settings: Any):
        super().__init__(env, settings.max_steps)
        self.settings = settings
        shape = env.observation_shape(settings)
        if isinstance(shape, dict):
            raise ValueError(f"`env` must observe one array, got {shape}: leave its wrappers out.")
        self.shape = shape

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Return the first observation of an episode, and the library's state."""
        step = self.env.reset(self.settings, key)
        return step.observation, step

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Return a step from the library's state, without its automatic reset."""
        step = self.env.step(self.settings, inner, action)
        terminated = step.last() & (step.discount == 0)
        return Outcome(step.observation, step, step.reward, terminated, step.last() & ~terminated)

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the space of actions."""
        return spaces.Discrete(self.env.num_actions(self.settings))

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the space of observations."""
        return box(0, max(NUM_TILES, NUM_COLORS) - 1, self.shape, jnp.uint8)


def make(name: str, **kwargs: Any) -> XLand:
    """Return the environment that `xminigrid.make` returns for these arguments."""
    return XLand(*xminigrid.make(name, **kwargs))
