"""Wrappers for masks of legal actions."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray, Shaped

from mmrl._own import one_line
from mmrl._spaces import MASK, MaskedState, first_stuck, keep_stuck, limits
from mmrl.envs._gymnax import spaces
from mmrl.envs.base import Ends, Reset, Step, never
from mmrl.envs.wrappers.base import Wrapper, action_count, box, flat, flat_bounds


class ActionMask(Wrapper):
    """Wrapper that appends the mask of legal actions to the observation.

    The mask is 1 for legal and 0 for illegal actions. The environment provides it as the entry
    "action_mask" of a dictionary observation, or by a method `action_mask(state, params)`. Runs
    apply this wrapper automatically. All agents then select only legal actions, and ignore illegal
    actions in their targets.

    Every state must have at least one legal action, except the last state of an episode that
    terminates. `MaskedState.stuck` records the first step that violates this, and runs then raise
    an error.

    Raises `ValueError` if the environment has no mask, if its actions are not discrete, if the mask
    cannot be traced or does not have one entry per action, or if its entries are not flags.
    """

    def __init__(self, env: Any):
        super().__init__(env)
        self.actions, params = action_count(env), env.default_params
        if not offers_mask(env, params):
            raise ValueError(
                f"`env` must have a mask of legal actions, got {env!r}. Define a method "
                f"{MASK}(state, params), or add {MASK!r} to a dictionary observation."
            )
        obs, state = jax.eval_shape(env.reset_env, jax.random.key(0), params)
        try:
            mask = jax.eval_shape(lambda obs, state: self._raw(obs, state, params), obs, state)
        except Exception as error:
            raise ValueError(
                f"`{MASK}(state, params)` cannot be traced: {one_line(error)}. Return an array "
                "that is True for each legal action."
            ) from error
        _check_flags(env.observation_space(params), mask.dtype)
        if mask.shape != (self.actions,):
            raise ValueError(
                f"`{MASK}` must have shape ({self.actions},), with one entry per action; got "
                f"{mask.shape}."
            )

    def inner_state(self, state: Any) -> Any:
        """Return the inner environment's state."""
        return state.env_state

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Append the mask to the observation of the inner reset."""
        obs, state = reset
        mask = self._mask(obs, state, params)
        return self._with_mask(obs, mask, params), MaskedState(state, _number(mask, state, False))

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Append the mask to the observation of the inner step."""
        obs, state, reward, terminated, info = step
        mask = self._mask(obs, state, params)
        number = first_stuck(before.stuck, _number(mask, state, terminated))
        return (
            self._with_mask(obs, mask, params),
            MaskedState(state, number),
            reward,
            terminated,
            info,
        )

    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Return the results of a step and of the reset that follows if the episode ends."""
        step, (obs, fresh) = Wrapper.step_and_reset(self, key, state, action, params, ends)
        return step, (obs, keep_stuck(fresh, step[1]))

    def observation_space(self, params: Any) -> spaces.Box:
        """Return the observation space, including the mask."""
        low, high = flat_bounds(self._inner_space(params))
        more = jnp.zeros(self.actions), jnp.ones(self.actions)
        return box(jnp.append(low, more[0]), jnp.append(high, more[1]))

    def _inner_space(self, params: Any) -> Any:
        """Return the inner observation space without the mask."""
        return without_mask(self.env.observation_space(self.inner_params(params)))

    def _mask(self, obs: Any, state: Any, params: Any) -> Bool[Array, "*action"]:
        return self._raw(obs, state, params).astype(bool)

    def _raw(self, obs: Any, state: Any, params: Any) -> Shaped[Array, "*action"]:
        """Return the mask in the dtype that the environment returns."""
        here = self.inner_params(params)
        has_key = _has_key(self.env.observation_space(here))
        return jnp.asarray(obs[MASK] if has_key else self.env.action_mask(state, here))

    def _with_mask(self, obs: Any, mask: Bool[Array, " action"], params: Any) -> Any:
        vector = flat(self._inner_space(params), obs)
        return jnp.concatenate([vector, mask.astype(vector.dtype)])


class MaskedObservation(NamedTuple):
    """State of `MaskInState`."""

    env_state: Any  # state of the inner environment
    mask: Bool[Array, "*action"]  # mask of the latest observation

    @property
    def time(self) -> Any:
        """Number of steps since the reset, as in every gymnax state."""
        return self.env_state.time


class MaskInState(Wrapper):
    """Wrapper that copies the mask of a dictionary observation to the state.

    The method `action_mask` returns this copy. Wrappers that replace the dictionary apply this
    wrapper first, so that the mask is not lost. Raises `ValueError` if the mask's entries are not
    flags.
    """

    def __init__(self, env: Any):
        super().__init__(env)
        space = env.observation_space(env.default_params)
        _check_flags(space, space.spaces[MASK].dtype)

    def inner_state(self, state: Any) -> Any:
        """Return the inner environment's state."""
        return state.env_state

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Store the mask of the first observation."""
        obs, state = reset
        return obs, MaskedObservation(state, jnp.asarray(obs[MASK]).astype(bool))

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Store the mask of the new observation."""
        obs, state, reward, terminated, info = step
        mask = jnp.asarray(obs[MASK]).astype(bool)
        return obs, MaskedObservation(state, mask), reward, terminated, info

    def action_mask(self, state: Any, params: Any) -> Bool[Array, "*action"]:
        """Return the mask of the latest observation."""
        return state.mask


def mask_in_state(env: Any) -> Any:
    """Apply `MaskInState` if the observation contains a mask."""
    return MaskInState(env) if _has_key(env.observation_space(env.default_params)) else env


def offers_mask(env: Any, params: Any) -> bool:
    """Return True if `env` has a mask of legal actions and is not an `ActionMask` wrapper."""
    if isinstance(env, ActionMask):
        return False
    if _has_key(env.observation_space(params)):
        return True
    if isinstance(env, Wrapper) and type(env).action_mask is Wrapper.action_mask:
        return offers_mask(env.env, env.inner_params(params))
    return callable(getattr(env, MASK, None))


def without_mask(space: Any) -> Any:
    """Remove the mask from a dictionary space. Other spaces are returned unchanged."""
    if not _has_key(space):
        return space
    return spaces.Dict({key: x for key, x in space.spaces.items() if key != MASK})


def _check_flags(space: Any, dtype: Any) -> None:
    """Raise `ValueError` if a mask may contain numbers that are added to logits, such as -inf."""
    ends = limits(space.spaces[MASK]) if _has_key(space) else None
    if jnp.issubdtype(dtype, jnp.inexact) and (ends is None or np.any(ends[0] < 0)):
        bound = "" if ends is None else f" with the lower bound {ends[0].min():g}"
        raise ValueError(
            f"`{MASK}` must consist of flags, which are True or 1 for legal actions; got {dtype}"
            f"{bound}. Return booleans instead of numbers that are added to logits."
        )


def _has_key(space: Any) -> bool:
    return isinstance(space, spaces.Dict) and MASK in space.spaces


def _number(mask: Bool[Array, " action"], state: Any, terminated: Any) -> Any:
    """Return the next step's number, counted from 1, if it has no legal action, and 0 otherwise."""
    none = ~jnp.any(mask) & ~jnp.asarray(terminated, bool)
    return jnp.where(none, jnp.asarray(state.time, jnp.int32) + 1, 0)
