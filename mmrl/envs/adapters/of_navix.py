"""MiniGrid in JAX by navix: "navix:Navix-DoorKey-5x5-v0".

An observation has the kind, the color and the state of each square, as a library's option
`observation_fn` shows them: `envs.make("navix:…", observation_fn=…)`. An episode is truncated after
`max_steps`, 100 unless given. `step` of navix resets at the call after an end; this calls `_step`.
"""

from typing import Any

import jax
import navix  # pyright: ignore
import numpy as np
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, box

PLAYER = 10  # the largest number of a kind of entity; its own spaces end at 8


class Navix(Adapter):
    """An environment of navix, whose time step is the state."""

    def __init__(self, env: Any):
        super().__init__(env, env.max_steps)
        self.draws = True
        try:  # a picture of the empty grid is part of the state, which few observations need
            start = jax.eval_shape(lambda: self._bare(env.reset(jax.random.key(0))))
            jax.eval_shape(lambda x: env._step(x, 0), start)
            self.draws = False
        except AttributeError:
            pass

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Return the first observation of an episode, and the library's state."""
        step = self._kept(self.env.reset(key))
        return step.observation, step

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Return a step from the library's state, without its automatic reset."""
        step = self._kept(self.env._step(inner, action))
        ends = step.is_termination(), step.is_truncation()
        return Outcome(step.observation, step, step.reward, *ends)

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the space of actions."""
        return spaces.Discrete(len(self.env.action_set))

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the space of observations."""
        space = self.env.observation_space
        low, high = (float(np.asarray(x)) for x in (space.minimum, space.maximum))
        return box(low, max(high, PLAYER), space.shape, space.dtype)

    def _kept(self, step: Any) -> Any:
        return step if self.draws else self._bare(step)

    @staticmethod
    def _bare(step: Any) -> Any:
        return step.replace(state=step.state.replace(cache=None))


def make(name: str, **kwargs: Any) -> Navix:
    """Return the environment that `navix.make` returns for these arguments."""
    return Navix(navix.make(name, **kwargs))
