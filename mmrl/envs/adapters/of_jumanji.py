"""Jumanji adapter, as in "jumanji:Snake-v1".

Nested observations, including masks of actions, are flattened to a single vector. A mask with one
entry per action is also returned by `action_mask`, so agents select only legal actions.
Multi-discrete actions are converted to a single integer, in row-major order.

An episode that ends with discount 0 is terminated, and an episode that ends with any other discount
is truncated. Many jumanji environments also end with discount 0 at their time limit. If there is
no time limit, episodes are truncated after `MOST` steps.
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
    """Jumanji environment."""

    def __init__(self, env: Any):
        super().__init__(env, getattr(env.unwrapped, "time_limit", None) or MOST)
        self.spec = env.action_spec
        # Number of values of each component of a discrete action.
        self.values = np.asarray(getattr(self.spec, "num_values", ()))
        if self.values.size == 0 and len(self.spec.shape) != 1:
            raise ValueError(f"`env` must have discrete or vector actions, got {self.spec}.")
        if self.values.ndim > 1:
            raise ValueError(f"`env` must have a single agent, got the action spec {self.spec}.")
        _, (_, mask) = jax.eval_shape(self.first, jax.random.key(0))
        if self.values.size and mask is not None and mask.size == np.prod(self.values):
            self.action_mask = lambda state, params: jnp.ravel(state.inner[1])

    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Reset the library's environment; return its observation and state."""
        state, step = self.env.reset(key)
        return flat(step.observation), (state, _mask(step))

    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Step the library's environment from state `inner`, without automatic reset."""
        if self.values.ndim == 1 and self.values.size:
            action = jnp.stack(jnp.unravel_index(action, tuple(self.values.tolist())))
        state, step = self.env.step(inner[0], jnp.asarray(action, self.spec.dtype))
        terminated = step.last() & (step.discount == 0)
        inner, truncated = (state, _mask(step)), step.last() & ~terminated
        return Outcome(flat(step.observation), inner, step.reward, terminated, truncated)

    def action_space(self, params: Any = None) -> Any:
        """Return the action space."""
        if self.values.size:
            return spaces.Discrete(int(np.prod(self.values)))
        return spaces.Box(self.spec.minimum, self.spec.maximum, self.spec.shape, jnp.float32)

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the observation space."""
        obs, _ = jax.eval_shape(self.first, jax.random.key(0))
        return spaces.Box(-jnp.inf, jnp.inf, obs.shape, jnp.float32)


def _mask(step: Any) -> Any:
    """Return the mask of legal actions after a step, or None without a mask."""
    return getattr(step.observation, "action_mask", None)


def make(name: str, **kwargs: Any) -> Jumanji:
    """Return an adapter for the environment `jumanji.make(name, **kwargs)`."""
    return Jumanji(jumanji.make(name, **kwargs))
