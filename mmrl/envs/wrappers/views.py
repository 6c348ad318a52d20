"""Wrappers that replace the observation with the Markov state or with an image."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.wrappers.base import Obs, ObservationWrapper, bounds, box
from mmrl.envs.wrappers.mask import MaskInState, mask_in_state


class StateObservation(ObservationWrapper):
    """Wrapper whose observation is the Markov state, so that no memory is needed.

    If the environment has a method `twin`, this wrapper is applied to the result of `twin` instead.
    A twin is a version of the same task whose state includes all hidden information, such as
    face-down cards. The time limit is not part of the state.

    Raises `ValueError` if the environment has no method `state_obs`.
    """

    def __init__(self, env: Any):
        super().__init__(mask_in_state(env.twin() if hasattr(env, "twin") else env))
        self.observation_space(self.default_params)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        return self.state_obs(state, params)

    def observation_space(self, params: Any) -> spaces.Box:
        width = jax.eval_shape(self.reset_env, jax.random.key(0), params)[0].size
        has_space = type(self.unwrapped).state_space is not environment.Environment.state_space
        space = self.env.state_space(params) if has_space else None
        fits = isinstance(space, spaces.Box) and tuple(space.shape) == (width,)
        return box(*bounds(space)) if fits else _box(width)


class PixelObservation(ObservationWrapper):
    """Wrapper that renders the observation as an image, uint8 [height, width, 3].

    Raises `ValueError` if the environment has no method `pixels(obs)`, which renders the image.
    """

    def __init__(self, env: Any):
        super().__init__(mask_in_state(env))
        if not hasattr(env, "pixels"):
            raise ValueError(
                "`env` must have a method `pixels(obs)`, which renders an observation, as POPGym's "
                f"RepeatPrevious and Concentration do; got {env.name}. Omit `observe`, or apply "
                "PixelObservation before other wrappers."
            )

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        env = self.env.env if isinstance(self.env, MaskInState) else self.env
        return env.pixels(obs)

    def observation_space(self, params: Any) -> spaces.Box:
        picture = jax.eval_shape(self.reset_env, jax.random.key(0), params)[0]
        return spaces.Box(0, 255, picture.shape, picture.dtype)


class Pair(spaces.Tuple):
    """Space of an image and a vector, the only tuple that networks accept."""

    is_pair = True


class Beside(ObservationWrapper):
    """Wrapper that pairs an image with the vector of inputs that `wrappers` append."""

    def __init__(self, env: Any, wrappers: Sequence[Callable[[Any], ObservationWrapper]]):
        super().__init__(env)
        self.shown: tuple[ObservationWrapper, ...] = (Nothing(env),)
        for wrapper in wrappers:
            self.shown += (wrapper(self.shown[-1]),)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Any:
        numbers = obs
        for wrapper in self.shown:
            numbers = wrapper.view(key, numbers, state, cause, params)
        return obs, numbers

    def observation_space(self, params: Any) -> Pair:
        pair = self.env.observation_space(params), self.shown[-1].observation_space(params)
        return Pair(pair)


class Nothing(ObservationWrapper):
    """Wrapper that replaces the observation with an empty vector."""

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        return jnp.zeros(0)

    def observation_space(self, params: Any) -> spaces.Box:
        return box(jnp.zeros(0), jnp.zeros(0))


def _box(width: int) -> spaces.Box:
    return box(jnp.full(width, -jnp.inf), jnp.full(width, jnp.inf))
