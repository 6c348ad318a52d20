"""Wrappers that change the agent's observation: hide, disturb or reveal parts, or add the past."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from mmrl._dtypes import promoting
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
from mmrl.envs.wrappers.mask import ActionMask, offers_mask
from mmrl.envs.wrappers.views import Beside, PixelObservation, StateObservation


class FlattenObservation(ObservationWrapper):
    """Observations as float32 vectors: arrays row by row, a discrete observation one-hot.

    The parts of a dictionary follow each other in the order of their keys. Raises `ValueError` for
    one that has a mask of legal actions.
    """

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        return flat(self.env.observation_space(params), obs)

    def observation_space(self, params: Any) -> spaces.Box:
        space = self.env.observation_space(params)
        if isinstance(space, spaces.Dict) and MASK in space.spaces:
            raise ValueError(
                f"`env` must not observe {MASK!r} for FlattenObservation, which would hide its "
                f"meaning from agents; got {space!r}. Use ActionMask."
            )
        return box(*flat_bounds(space))


class MaskObservation(ObservationWrapper):
    """Only the elements `indices` of the observation, from the first observation on."""

    def __init__(self, env: Any, indices: Sequence[int]):
        super().__init__(env)
        width = vector_size(env, "MaskObservation")
        if not indices or any(not 0 <= i < width for i in indices):
            raise ValueError(
                f"`indices` must name elements 0..{width - 1} of the observation, got "
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
    """Noisy observations clip(o + σ ε), ε ~ N(0, 1) per element, clipped to the inner bounds.

    `sigma` is in the observation's units. The first and the last observation of an episode are as
    noisy as any other.
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
    """Observations with the previous action appended: o_t ↦ [o_t, one_hot(a_{t-1})].

    An action that is a vector of numbers is appended without encoding. There is none at the first
    observation of an episode: `null="zero"` appends zeros, `null="action0"` one_hot(0), as popgym
    does, which is also the entry after action 0. Raises `ValueError` for other spaces of actions.
    """

    def __init__(self, env: Any, null: str = "zero"):
        super().__init__(env)
        vector_size(env, "PreviousAction")
        if null not in ("zero", "action0"):
            raise ValueError(f'`null` must be "zero" or "action0", got {null!r}.')
        space = env.action_space(env.default_params)
        self.vector = isinstance(space, spaces.Box)
        self.size = math.prod(space.shape) if self.vector else action_count(env)
        seen = env.observation_space(env.default_params)
        if self.vector and not jnp.issubdtype(seen.dtype, jnp.floating):
            raise ValueError(
                "`env` must observe real numbers, if actions that are vectors are shown next to "
                f"them; got {seen!r}. Put FlattenObservation inside."
            )
        self.null = null

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        if self.vector:
            action = jnp.zeros(self.size) if cause is None else jnp.ravel(cause[0])
            return jnp.concatenate([obs, action.astype(obs.dtype)])
        # "No action" is one_hot(-1), all zeros.
        null = 0 if self.null == "action0" else -1
        action = null if cause is None else cause[0]
        return jnp.concatenate([obs, jax.nn.one_hot(action, self.size, dtype=obs.dtype)])

    def observation_space(self, params: Any) -> spaces.Box:
        low, high = 0.0, 1.0
        if self.vector:  # 0 at the first observation
            ends = bounds(self.env.action_space(params))
            low, high = jnp.minimum(ends[0].min(), low), jnp.maximum(ends[1].max(), 0.0)
        return _append(self.env.observation_space(params), self.size, low, high)


class PreviousReward(ObservationWrapper):
    """Observations with the previous reward appended: o_t ↦ [o_t, scale · r_{t-1}], at first 0."""

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
    """Observations with a flag appended, which is 1 at the first observation of an episode, else 0.

    `one_hot=True` appends (1 - b_t, b_t), as popgym's Antialias does once flattened. A memory
    should take `begin` from the rollout: this is for a network that should *see* the flag.
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
    """Return the observations of Morad et al. 2024: o_t ↦ [o_t, one_hot(a_{t-1}), 1 - b_t, b_t].

    They left the previous action out in RepeatFirst and RepeatPrevious, where it does not matter.
    """
    inner = PreviousAction(env, null="action0") if previous_action else env
    return BeginFlag(inner, one_hot=True)


OBSERVED: dict[str, Callable[[Any], Any]] = {
    "observation": lambda env: env,
    "state": StateObservation,
    "pixels": PixelObservation,
}
"""Observations to choose from: the task's, its Markov state, or a picture."""


def observed(env: Any, observe: str) -> Any:
    """Return an environment with the observation that `observe` names.

    Raises `ValueError` for a name that is not in `OBSERVED`, or if the environment lacks it.
    """
    if observe not in OBSERVED:
        raise ValueError(f"`observe` must be one of {', '.join(OBSERVED)}; got {observe!r}.")
    return OBSERVED[observe](env)


SHOWN = {
    "previous_action": PreviousAction,
    "previous_reward": PreviousReward,
    "begin_flag": BeginFlag,
}
"""Inputs after the observation, in this order: a_{t-1}, r_{t-1}, b_t."""


def shown(
    env: Any,
    params: Any,
    observes: Collection[str],
    observe: str = "observation",
    flat: bool = True,
) -> Any:
    """Return the environment as runs show it to a network: a vector with the inputs in `observes`.

    The vector is the observation of `observed(env, observe)`. A mask of legal actions, if there is
    one, ends it. Without `flat` a picture, [height, width, channel], stays as it is, with the
    inputs beside it.
    """
    env = observed(env, observe)
    space = env.observation_space(params)
    if offers_mask(env, params):
        if not flat and is_picture(space):
            raise ValueError(
                "`encoder` must be 'dense' for pictures with a mask of legal actions, which are "
                f"flattened together; got another one for observations of shape {space.shape}."
            )
        env = ActionMask(env)
    elif not flat and is_picture(space):
        rest = [SHOWN[name] for name in SHOWN if name in observes]
        return Beside(env, rest) if rest else env
    elif len(getattr(space, "shape", ())) != 1:
        env = FlattenObservation(env)
    for name in SHOWN:
        env = SHOWN[name](env) if name in observes else env
    return env


def bare(env: Any) -> Any:
    """Return the environment without the inputs that `shown` appends."""
    while isinstance(env, tuple(SHOWN.values())):
        env = env.env
    return env


def mask_place(env: Any, params: Any) -> tuple[int, int] | None:
    """Return the place of the mask in an observation, (first number, actions), or None.

    Raises `ValueError` if the environment has a mask that an agent would not find.
    """
    inner = bare(env)
    with jax.ensure_compile_time_eval():  # a traced agent computes nothing here
        offers = offers_mask(inner, params)
        if isinstance(inner, ActionMask):
            return inner.observation_space(params).shape[0] - inner.actions, inner.actions
    if offers:
        raise ValueError(
            f"`env` must show its {MASK!r} to agents at the end of a vector; got {inner!r}, which "
            "does not. Use mmrl.envs.wrappers.ActionMask, as runs do."
        )
    while isinstance(inner, Wrapper):
        inner = inner.env
        if isinstance(inner, ActionMask):
            raise ValueError(
                f"`env` must have ActionMask outside of its other wrappers, so that agents find "
                f"the mask; got {env!r}. Only {', '.join(x.__name__ for x in SHOWN.values())} may "
                "stand around it."
            )
    return None


def legal_actions(env: Any, params: Any, obs: Any) -> Bool[Array, " action"] | None:
    """Return the mask in an observation of `shown`; None if it has none. Raises as `mask_place`."""
    if (place := mask_place(env, params)) is None:
        return None
    return obs[place[0] : sum(place)] > 0.5


@promoting
def _append(space: Any, count: int, low: Any, high: Any, dtype: Any = None) -> spaces.Box:
    """Return the space with `count` further elements, each between `low` and `high`."""
    lows, highs = bounds(space)
    more = jnp.ones(count)
    lows, highs = jnp.concatenate([lows, low * more]), jnp.concatenate([highs, high * more])
    return box(lows, highs, space.dtype if dtype is None else dtype)


def _real(dtype: Any) -> Any:
    """Return the type for noise or rewards next to numbers of `dtype`: integers would lose them."""
    return jnp.result_type(dtype, float)
