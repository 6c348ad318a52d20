"""Adapter for navix, a version of MiniGrid in JAX, as in "navix:Navix-DoorKey-5x5-v0".

By default, observations contain the entity, color and state of each square. To change this, pass
navix's option: `envs.make("navix:…", observation_fn=…)`. Episodes are truncated after `max_steps`
steps, 100 by default. The adapter calls navix's `_step`, because `step` resets the environment at
the step after the end of an episode.
"""

from typing import Any

import jax
import navix  # pyright: ignore
import numpy as np
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, box

PLAYER = 10  # maximum entity index; the upper bound of navix's spaces, 8, is too small


class Navix(Adapter):
    """Navix environment. Its state is navix's `Timestep`."""

    def __init__(self, env: Any):
        super().__init__(env, env.max_steps)
        self.draws = True
        try:  # remove the rendering cache from the state, unless the observation requires it
            start = jax.eval_shape(lambda: self._bare(env.reset(jax.random.key(0))))
            jax.eval_shape(lambda x: env._step(x, 0), start)
            self.draws = False
        except AttributeError:
            pass

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Reset the library's environment; return its observation and state."""
        step = self._without_unused_cache(self.env.reset(key))
        return step.observation, step

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Step the library's environment from state `inner`, without automatic reset."""
        step = self._without_unused_cache(self.env._step(inner, action))
        ends = step.is_termination(), step.is_truncation()
        return Outcome(step.observation, step, step.reward, *ends)

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the action space."""
        return spaces.Discrete(len(self.env.action_set))

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the observation space."""
        space = self.env.observation_space
        low, high = (float(np.asarray(x)) for x in (space.minimum, space.maximum))
        return box(low, max(high, PLAYER), space.shape, space.dtype)

    def _without_unused_cache(self, step: Any) -> Any:
        return step if self.draws else self._bare(step)

    @staticmethod
    def _bare(step: Any) -> Any:
        return step.replace(state=step.state.replace(cache=None))


def make(name: str, **kwargs: Any) -> Navix:
    """Return an adapter for the environment `navix.make(name, **kwargs)`."""
    return Navix(navix.make(name, **kwargs))
