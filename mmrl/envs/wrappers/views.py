"""Wrappers that show something else: the state, a picture, or a picture with numbers beside it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.wrappers.base import Obs, ObservationWrapper, bounds, box


class StateObservation(ObservationWrapper):
    """The Markov state as observation: the fully observed twin of a task, which needs no memory.

    An environment with a method `twin` is replaced by its result: the same task in a form whose
    `state_obs` shows everything that is already decided. The time limit of an episode is not part
    of the state. Raises `ValueError` if the environment does not offer `state_obs`.
    """

    def __init__(self, env: Any):
        super().__init__(env.twin() if hasattr(env, "twin") else env)
        self.observation_space(self.default_params)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        return self.state_obs(state, params)

    def observation_space(self, params: Any) -> spaces.Box:
        width = jax.eval_shape(self.reset_env, jax.random.key(0), params)[0].size
        declared = type(self.unwrapped).state_space is not environment.Environment.state_space
        space = self.env.state_space(params) if declared else None
        fits = isinstance(space, spaces.Box) and tuple(space.shape) == (width,)
        return box(*bounds(space)) if fits else _unbounded(width)


class PixelObservation(ObservationWrapper):
    """o ↦ its picture, uint8 [height, width, 3], by the environment's method `pixels(obs)`.

    Raises `ValueError` if the environment has none.
    """

    def __init__(self, env: Any):
        super().__init__(env)
        if not hasattr(env, "pixels"):
            raise ValueError(
                "`env` must have a method pixels(obs) to be observed by pixels, as RepeatPrevious "
                f"and Concentration of POPGym have; got {env.name}. Leave `observe` out, or put "
                "PixelObservation inside the other wrappers."
            )

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        return self.env.pixels(obs)

    def observation_space(self, params: Any) -> spaces.Box:
        picture = jax.eval_shape(self.reset_env, jax.random.key(0), params)[0]
        return spaces.Box(0, 255, picture.shape, picture.dtype)


class Beside(ObservationWrapper):
    """o ↦ (o, numbers): a picture as it is, and beside it what `wrappers` append to a vector."""

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

    def observation_space(self, params: Any) -> spaces.Tuple:
        pair = self.env.observation_space(params), self.shown[-1].observation_space(params)
        return spaces.Tuple(pair)


class Nothing(ObservationWrapper):
    """o ↦ a vector without numbers."""

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        return jnp.zeros(0)

    def observation_space(self, params: Any) -> spaces.Box:
        return box(jnp.zeros(0), jnp.zeros(0))


def _unbounded(width: int) -> spaces.Box:
    return box(jnp.full(width, -jnp.inf), jnp.full(width, jnp.inf))
