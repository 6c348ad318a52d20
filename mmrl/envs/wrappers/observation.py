"""Wrappers that flatten, mask or perturb observations, or append inputs to them."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl._spaces import MASK, is_picture
from mmrl.envs._gymnax import spaces
from mmrl.envs.wrappers.base import (
    Obs,
    ObservationWrapper,
    Wrapper,
    action_count,
    bounds,
    box,
    flat,
    flat_bounds,
    vector_size,
)
from mmrl.envs.wrappers.mask import ActionMask, mask_in_state, offers_mask, without_mask
from mmrl.envs.wrappers.views import Beside, PixelObservation, StateObservation


class FlattenObservation(ObservationWrapper):
    """Wrapper that flattens observations to float32 vectors. Discrete values are one-hot encoded.

    Arrays are flattened in row-major order, and dictionaries are sorted by key. A mask of legal
    actions is removed, but remains available through the method `action_mask`.
    """

    def __init__(self, env: Any):
        super().__init__(mask_in_state(env))

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        return flat(without_mask(self.env.observation_space(params)), obs)

    def observation_space(self, params: Any) -> spaces.Box:
        return box(*flat_bounds(without_mask(self.env.observation_space(params))))


class MaskObservation(ObservationWrapper):
    """Wrapper that selects the elements `indices` of the observation."""

    def __init__(self, env: Any, indices: Sequence[int]):
        super().__init__(env)
        width = vector_size(env, "MaskObservation")
        if not indices or any(not 0 <= i < width for i in indices):
            raise ValueError(
                f"`indices` must be among the elements 0..{width - 1} of the observation, got "
                f"{list(indices)}."
            )
        self.indices = tuple(int(i) for i in indices)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        return obs[jnp.array(self.indices)]

    def observation_space(self, params: Any) -> spaces.Box:
        space, indices = self.env.observation_space(params), jnp.array(self.indices)
        low, high = bounds(space)
        return box(low[indices], high[indices], space.dtype)


class NoisyObservation(ObservationWrapper):
    """Wrapper that adds Gaussian noise to observations: o ↦ o + σ ε, with ε ~ N(0, 1).

    `sigma` is in the units of the observation. If `clip` is True, the result is clipped to the
    bounds of the inner observation space. The first and the last observation of an episode are
    noisy, too.
    """

    def __init__(self, env: Any, sigma: float, clip: bool = True):
        super().__init__(env)
        vector_size(env, "NoisyObservation")
        if not sigma >= 0:
            raise ValueError(f"`sigma` must be at least 0, got {sigma}.")
        self.sigma, self.clip = float(sigma), bool(clip)

    def keys(self, key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
        key, key_noise = jax.random.split(key)
        return key, key_noise

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        noise = jax.random.normal(key, obs.shape, _real(obs.dtype))
        noisy = obs + self.sigma * noise
        space = self.env.observation_space(params)
        low, high = (x.astype(noisy.dtype) for x in bounds(space))
        return jnp.clip(noisy, low, high) if self.clip else noisy

    def observation_space(self, params: Any) -> spaces.Box:
        space = self.env.observation_space(params)
        low, high = bounds(space)
        whole = (
            (low, high)
            if self.clip
            else (jnp.full_like(low, -jnp.inf), jnp.full_like(low, jnp.inf))
        )
        return box(*whole, _real(space.dtype))


class PreviousAction(ObservationWrapper):
    """Wrapper that appends the previous action to the observation: o_t ↦ [o_t, one_hot(a_{t-1})].

    Continuous actions are appended without encoding. The first step of an episode has no previous
    action. There, `null` = "zero" appends zeros, and `null` = "action0" appends one_hot(0), as in
    popgym, which cannot be distinguished from action 0.

    Raises `ValueError` if the action space is neither discrete nor a Box.
    """

    def __init__(self, env: Any, null: str = "zero"):
        super().__init__(env)
        vector_size(env, "PreviousAction")
        if null not in ("zero", "action0"):
            raise ValueError(f'`null` must be "zero" or "action0", got {null!r}.')
        space = env.action_space(env.default_params)
        self.vector = isinstance(space, spaces.Box)
        self.size = math.prod(space.shape) if self.vector else action_count(env)
        of_obs = env.observation_space(env.default_params)
        if self.vector and not jnp.issubdtype(of_obs.dtype, jnp.floating):
            raise ValueError(
                "`env` must have floating-point observations if actions are continuous, got "
                f"{of_obs!r}. Wrap it in FlattenObservation first."
            )
        self.null = null

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        if self.vector:
            action = jnp.zeros(self.size) if cause is None else jnp.ravel(cause[0])
            return jnp.concatenate([obs, action.astype(obs.dtype)])
        # one_hot(-1) is a vector of zeros.
        null = 0 if self.null == "action0" else -1
        action = null if cause is None else cause[0]
        return jnp.concatenate([obs, jax.nn.one_hot(action, self.size, dtype=obs.dtype)])

    def observation_space(self, params: Any) -> spaces.Box:
        low, high = 0.0, 1.0
        if self.vector:  # include 0, the previous action at the first step of an episode
            ends = bounds(self.env.action_space(params))
            low, high = jnp.minimum(ends[0].min(), low), jnp.maximum(ends[1].max(), 0.0)
        return _append(self.env.observation_space(params), self.size, low, high)


class PreviousReward(ObservationWrapper):
    """Wrapper that appends the previous reward to the observation: o_t ↦ [o_t, scale · r_{t-1}].

    At the first step of an episode, 0 is appended.
    """

    def __init__(self, env: Any, scale: float = 1.0):
        super().__init__(env)
        vector_size(env, "PreviousReward")
        self.scale = float(scale)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        reward = 0.0 if cause is None else self.scale * cause[1]
        return jnp.concatenate([obs, jnp.asarray(reward, _real(obs.dtype))[None]])

    def observation_space(self, params: Any) -> spaces.Box:
        space = self.env.observation_space(params)
        return _append(space, 1, -jnp.inf, jnp.inf, _real(space.dtype))


class BeginFlag(ObservationWrapper):
    """Wrapper that appends a flag b_t, which is 1 at the first step of an episode, and 0 elsewhere.

    If `one_hot` is True, (1 - b_t, b_t) is appended, like popgym's Antialias after flattening. The
    flag is only an additional input of the network. The field `begin` of the rollout resets
    memories, with or without this wrapper.

        >>> from mmrl import envs
        >>> env, params = envs.make("probe-Memory-v0")
        >>> BeginFlag(env).observation_space(params).shape
        (4,)
    """

    def __init__(self, env: Any, one_hot: bool = False):
        super().__init__(env)
        vector_size(env, "BeginFlag")
        self.one_hot = bool(one_hot)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        begin = int(cause is None)
        flag = [1 - begin, begin] if self.one_hot else [begin]
        return jnp.concatenate([obs, jnp.array(flag, obs.dtype)])

    def observation_space(self, params: Any) -> spaces.Box:
        return _append(self.env.observation_space(params), 1 + self.one_hot, 0.0, 1.0)


def paper_stack(env: Any, previous_action: bool = True) -> BeginFlag:
    """Append the inputs that Morad et al. 2024 use: o_t ↦ [o_t, one_hot(a_{t-1}), 1 - b_t, b_t].

    The authors omit the previous action in RepeatFirst and RepeatPrevious, where it is irrelevant.
    """
    inner = PreviousAction(env, null="action0") if previous_action else env
    return BeginFlag(inner, one_hot=True)


OBSERVE: dict[str, Callable[[Any], Any]] = {
    "observation": lambda env: env,
    "state": StateObservation,
    "pixels": PixelObservation,
}
"""Wrapper for each value of `observe`."""


def apply_observe(env: Any, observe: str) -> Any:
    """Apply the wrapper that `observe` selects.

    Raises `ValueError` if `observe` is not a key of `OBSERVE`, or if the environment does not
    support it.
    """
    if observe not in OBSERVE:
        raise ValueError(f"`observe` must be one of {', '.join(OBSERVE)}; got {observe!r}.")
    return OBSERVE[observe](env)


INPUTS = {
    "previous_action": PreviousAction,
    "previous_reward": PreviousReward,
    "begin_flag": BeginFlag,
}
"""Wrappers of the additional inputs, in the order in which they are appended."""


def with_inputs(
    env: Any,
    params: Any,
    observes: Collection[str],
    observe: str = "observation",
    flat: bool = True,
) -> Any:
    """Apply all wrappers that runs use, so that observations are vectors with all inputs.

    The vector consists of the observation that `observe` selects, the mask of legal actions if the
    environment has one, and the inputs in `observes`. If `flat` is False, images of shape
    [height, width, channel] are not flattened, and the inputs form a separate vector.
    """
    env = apply_observe(env, observe)
    space = env.observation_space(params)
    if offers_mask(env, params):
        if not flat and is_picture(space):
            raise ValueError(
                "`encoder` must be 'dense' for images with a mask of legal actions, because both "
                "are flattened to a single vector; got another encoder for observations of shape "
                f"{space.shape}."
            )
        env = ActionMask(env)
    elif not flat and is_picture(space):
        rest = [INPUTS[name] for name in INPUTS if name in observes]
        return Beside(env, rest) if rest else env
    elif len(getattr(space, "shape", ())) != 1:
        env = FlattenObservation(env)
    for name in INPUTS:
        env = INPUTS[name](env) if name in observes else env
    return env


def bare(env: Any) -> Any:
    """Remove the wrappers that append the inputs in `INPUTS`."""
    while isinstance(env, tuple(INPUTS.values())):
        env = env.env
    return env


def mask_place(env: Any, params: Any) -> tuple[int, int] | None:
    """Return the first index and the size of the mask in an observation, or None without a mask.

    Raises `ValueError` if the environment has a mask that agents would not find.
    """
    inner = bare(env)
    with jax.ensure_compile_time_eval():  # return Python integers even while an agent is traced
        offers = offers_mask(inner, params)
        if isinstance(inner, ActionMask):
            return inner.observation_space(params).shape[0] - inner.actions, inner.actions
    if offers:
        raise ValueError(
            f"`env` must include its {MASK!r} in the observation, from which agents read the mask; "
            f"got {inner!r}. Wrap `env` in mmrl.envs.wrappers.ActionMask, as runs do."
        )
    while isinstance(inner, Wrapper):
        inner = inner.env
        if isinstance(inner, ActionMask):
            raise ValueError(
                f"`env` must have ActionMask as its outermost wrapper, so that agents find the "
                f"mask; got {env!r}. Only {', '.join(x.__name__ for x in INPUTS.values())} may be "
                "applied after ActionMask."
            )
    return None


def legal_actions(env: Any, params: Any, obs: Any) -> Bool[Array, " action"] | None:
    """Return the mask of legal actions in an observation, or None without a mask.

    Raises `ValueError` if the environment has a mask that agents would not find.
    """
    if (place := mask_place(env, params)) is None:
        return None
    return obs[place[0] : sum(place)] > 0.5


@with_promotion
def _append(space: Any, count: int, low: Any, high: Any, dtype: Any = None) -> spaces.Box:
    """Append `count` elements, with values between `low` and `high`, to a space of vectors."""
    lows, highs = bounds(space)
    more = jnp.ones(count)
    lows, highs = jnp.concatenate([lows, low * more]), jnp.concatenate([highs, high * more])
    return box(lows, highs, space.dtype if dtype is None else dtype)


def _real(dtype: Any) -> Any:
    """Promote `dtype` to a floating-point dtype."""
    return jnp.result_type(dtype, float)
