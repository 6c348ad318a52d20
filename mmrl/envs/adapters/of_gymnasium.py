"""Gymnasium adapter, as in "gymnasium:Acrobot-v1", for acting and evaluation.

Every step calls Python, so training is slow. Environments that are reset together, under
`jax.vmap`, are games of one vector environment, and must be stepped together. Checkpoints do not
contain games, so a resumed run starts new games and is not an exact continuation.
"""

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, on_host
from mmrl.envs.adapters.pools import Pools, flat, jax_space, split
from mmrl.envs.base import Ends, Reset, Step, never

LIMIT = 1000  # time limit, in steps, of games for which gymnasium defines no limit


class Gymnasium(Adapter):
    """Adapter for the vector environments of n games that `build(n)` returns."""

    python = True

    def __init__(self, build: Callable[[int], Any]):
        super().__init__(env := build(1), getattr(env.spec, "max_episode_steps", None) or LIMIT)
        self.acts, self.shown = env.single_action_space, env.single_observation_space
        if not isinstance(self.acts, gymnasium.spaces.Discrete | gymnasium.spaces.Box):
            raise ValueError(f"`env` must have Discrete or Box actions, got {self.acts}.")
        self.pools, place = Pools(build), (np.int32(0),) * 3
        self.like = np.zeros(self.shown.shape, jax_space(self.shown, whole=True).dtype), place

    def first(self, key: Any) -> tuple[Any, Any]:
        """Reset the library's environment; return its observation and state."""
        return on_host(self.pools.start, self.like, jax.random.bits(key, dtype=jnp.uint32))

    def next(self, key: Any, inner: Any, action: Any) -> Outcome:
        """Step the library's environment from state `inner`, without automatic reset."""
        like = *self.like, np.float32(0), np.bool_(0), np.bool_(0)
        return Outcome(*on_host(self.pools.step, like, *inner, action))

    def step_and_reset(
        self, key: Any, state: Any, action: Any, params: Any, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Return the results of a step and of the reset that follows if the episode ends."""
        step = self.step_env(key, state, action, params)
        last = step[3] | self.is_truncated(step[1], params) | ends(step)
        return step, self._reset_result(*on_host(self.pools.reset, self.like, *step[1].inner, last))

    def action_space(self, params: Any = None) -> Any:
        """Return the action space."""
        if isinstance(self.acts, gymnasium.spaces.Discrete):
            return spaces.Discrete(int(self.acts.n))
        return spaces.Box(self.acts.low, self.acts.high, self.acts.shape)

    def observation_space(self, params: Any = None) -> Any:
        """Return the observation space, a Dict if it contains a mask of legal actions."""
        return jax_space(self.shown)

    def _observation(self, obs: Any) -> Any:
        return split(self.shown, obs)


def make(name: str, **kwargs: Any) -> Gymnasium:
    """Return an adapter for `gymnasium.make_vec(name, n, **kwargs)`, and warn that it is slow.

    Observations that are not arrays are flattened, except for the "action_mask" of a dictionary.
    """
    warnings.warn(
        f"{name} runs in Python and is slow. Use it to act and to evaluate.", stacklevel=4
    )
    kwargs = {"vectorization_mode": "sync"} | kwargs
    if kwargs["vectorization_mode"] in ("sync", "async"):
        kwargs = {"vector_kwargs": {"autoreset_mode": "Disabled"}, "wrappers": [flat]} | kwargs
    return Gymnasium(lambda number: gymnasium.make_vec(name, number, **kwargs))
