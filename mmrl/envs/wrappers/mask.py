"""Masks of legal actions, which agents read at the end of the observation."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from mmrl._spaces import MASK, MaskedState
from mmrl.envs._gymnax import spaces
from mmrl.envs.base import Reset, Step
from mmrl.envs.wrappers.base import Wrapper, action_count, box, flat, flat_bounds


class ActionMask(Wrapper):
    """Observations that end in a mask, with 1 for each legal action and 0 for the others.

    The mask is the part `action_mask` of a dictionary observation, or the result of the
    environment's method `action_mask(state, params)`. Runs put this wrapper around an environment
    that has either; all agents then choose among legal actions only, and look ahead only to those.

    In every state, at least one action must be legal, except in the last one of an episode that
    terminated. `MaskedState.stuck` records where this was not so, and runs raise an error there.

    Raises `ValueError` if the environment has no mask or no discrete actions, or if there is not
    one flag for each action.
    """

    def __init__(self, env: Any):
        super().__init__(env)
        self.actions, params = action_count(env), env.default_params
        if not offers_mask(env, params):
            raise ValueError(
                f"`env` must have a mask of legal actions; got {env!r}. Give it a method "
                f"{MASK}(state, params), or a part {MASK!r} of a dictionary observation."
            )
        obs, state = jax.eval_shape(env.reset_env, jax.random.key(0), params)
        mask = jax.eval_shape(lambda obs, state: self._mask(obs, state, params), obs, state)
        if mask.shape != (self.actions,):
            raise ValueError(
                f"`{MASK}` must have one flag for each action, the shape ({self.actions},); got "
                f"{mask.shape}."
            )

    def inner_state(self, state: Any) -> Any:
        """Return the inner environment's state."""
        return state.env_state

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Return the inner reset with this wrapper's changes."""
        obs, state = reset
        mask = self._mask(obs, state, params)
        return self._shown(obs, mask, params), MaskedState(state, _number(mask, state, False))

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Return the inner step with this wrapper's changes."""
        obs, state, reward, terminated, info = step
        mask = self._mask(obs, state, params)
        number = _first(before.stuck, _number(mask, state, terminated))
        return self._shown(obs, mask, params), MaskedState(state, number), reward, terminated, info

    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any
    ) -> tuple[Step, Reset]:
        """Return a step, and the reset that follows an end."""
        step, (obs, begun) = Wrapper.step_and_reset(self, key, state, action, params)
        return step, (obs, begun._replace(stuck=_first(step[1].stuck, begun.stuck)))

    def observation_space(self, params: Any) -> spaces.Box:
        """Return the space of observations."""
        low, high = flat_bounds(self._seen(params))
        more = jnp.zeros(self.actions), jnp.ones(self.actions)
        return box(jnp.append(low, more[0]), jnp.append(high, more[1]))

    def _seen(self, params: Any) -> Any:
        """Return the inner space without the mask."""
        space = self.env.observation_space(self.inner_params(params))
        if not _has_key(space):
            return space
        return spaces.Dict({key: x for key, x in space.spaces.items() if key != MASK})

    def _mask(self, obs: Any, state: Any, params: Any) -> Bool[Array, "*action"]:
        here = self.inner_params(params)
        named = _has_key(self.env.observation_space(here))
        mask = obs[MASK] if named else self.env.action_mask(state, here)
        return jnp.asarray(mask).astype(bool)

    def _shown(self, obs: Any, mask: Bool[Array, " action"], params: Any) -> Any:
        vector = flat(self._seen(params), obs)
        return jnp.concatenate([vector, mask.astype(vector.dtype)])


def offers_mask(env: Any, params: Any) -> bool:
    """Return True if an environment has a mask of legal actions that no `ActionMask` shows."""
    if isinstance(env, ActionMask):
        return False
    if _has_key(env.observation_space(params)):
        return True
    if isinstance(env, Wrapper) and type(env).action_mask is Wrapper.action_mask:
        return offers_mask(env.env, env.inner_params(params))
    return callable(getattr(env, MASK, None))


def _has_key(space: Any) -> bool:
    return isinstance(space, spaces.Dict) and MASK in space.spaces


def _number(mask: Bool[Array, " action"], state: Any, terminated: Any) -> Any:
    """Return the number of the step that begins in a state, if it has no legal action, else 0."""
    none = ~jnp.any(mask) & ~jnp.asarray(terminated, bool)
    return jnp.where(none, jnp.asarray(state.time, jnp.int32) + 1, 0)


def _first(before: Any, now: Any) -> Any:
    return jnp.where(before > 0, before, now)
