"""jumanji: "jumanji:Snake-v1".

Observations are nested; here they are one vector of all their numbers, masks of actions included.
A mask with one flag for each action is also `action_mask`, which all agents respect. An action that
is a tuple of numbers is one number, row by row. Its `step` does not reset, and its
discount separates a termination, 0, from truncation; many of its environments count the end of
their time as a termination. Where it has no limit of time, one of `MOST` steps truncates.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jumanji  # pyright: ignore
import numpy as np
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, flat

MOST = 1000


class Jumanji(Adapter):
    """An environment of jumanji."""

    def __init__(self, env: Any):
        super().__init__(env, getattr(env.unwrapped, "time_limit", None) or MOST)
        self.spec = env.action_spec
        self.values = np.asarray(getattr(self.spec, "num_values", ()))  # of a discrete action
        if self.values.size == 0 and len(self.spec.shape) != 1:
            raise ValueError(f"`env` must have actions that are numbers; got {self.spec}.")
        if self.values.ndim > 1:
            raise ValueError(f"`env` must have one agent; got actions of {self.spec}.")
        _, (_, mask) = jax.eval_shape(self.first, jax.random.key(0))
        if self.values.size and mask is not None and mask.size == np.prod(self.values):
            self.action_mask = lambda state, params: jnp.ravel(state.inner[1])

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Return the first observation of an episode, and the library's state."""
        state, step = self.env.reset(key)
        return flat(step.observation), (state, _mask(step))

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Return a step from the library's state, without its automatic reset."""
        if self.values.ndim == 1 and self.values.size:
            action = jnp.stack(jnp.unravel_index(action, tuple(self.values.tolist())))
        state, step = self.env.step(inner[0], jnp.asarray(action, self.spec.dtype))
        terminated = step.last() & (step.discount == 0)
        inner, truncated = (state, _mask(step)), step.last() & ~terminated
        return Outcome(flat(step.observation), inner, step.reward, terminated, truncated)

    def action_space(self, params: Any = None) -> Any:
        """Return the space of actions."""
        if self.values.size:
            return spaces.Discrete(int(np.prod(self.values)))
        return spaces.Box(self.spec.minimum, self.spec.maximum, self.spec.shape, jnp.float32)

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the space of observations."""
        obs, _ = jax.eval_shape(self.first, jax.random.key(0))
        return spaces.Box(-jnp.inf, jnp.inf, obs.shape, jnp.float32)


def _mask(step: Any) -> Any:
    """Return the mask of legal actions after a step; None without one."""
    return getattr(step.observation, "action_mask", None)


def make(name: str, **kwargs: Any) -> Jumanji:
    """Return the environment that `jumanji.make` returns for these arguments."""
    return Jumanji(jumanji.make(name, **kwargs))
