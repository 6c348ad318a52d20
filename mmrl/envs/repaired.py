"""Fixes for gymnax environments on which agents cannot be trained without changes."""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from mmrl._dtypes import in_32_bits, standard
from mmrl.envs._gymnax import environment, gymnax, spaces
from mmrl.envs.base import Obs, Step
from mmrl.envs.wrappers.base import ObservationWrapper, Wrapper

MINATAR = "gymnax.environments.minatar."
"""Prefix of the modules that define MinAtar's games."""


def narrow(env: Any) -> Any:
    """Return a version of a gymnax environment that always computes in 32 bits."""
    return _with_class(env, _narrow_class(type(env)))


@functools.cache
def _narrow_class(kind: type) -> type:
    """Return a subclass that computes in 32 bits.

    gymnax leaves many dtypes unspecified. In JAX's 64-bit mode, the results of a step and of a
    reset would have different dtypes.
    """
    names = "reset_env", "step_env", "is_terminated"
    own: dict[str, Any] = {name: in_32_bits(getattr(kind, name)) for name in names}
    own |= _in_bytes(kind) if kind.__module__.startswith(MINATAR) else {}
    own |= {"__module__": kind.__module__, "__reduce__": _reduce}
    return type(kind.__name__, (kind,), own)


def _in_bytes(kind: Any) -> dict[str, Any]:
    """Return methods of a MinAtar game whose observations are uint8.

    gymnax stores these binary observations as float32, which takes four times as much memory.
    """

    def get_obs(self: Any, *args: Any, **kwargs: Any) -> Obs:
        return kind.get_obs(self, *args, **kwargs).astype(jnp.uint8)

    def observation_space(self: Any, params: Any = None) -> spaces.Box:
        return spaces.Box(0, 1, kind.observation_space(self, params).shape, jnp.uint8)

    return {"get_obs": get_obs, "observation_space": observation_space}


def _reduce(env: Any) -> Any:
    return narrow, (_with_class(env, type(env).__bases__[0]),)


def _with_class(env: Any, kind: type) -> Any:
    twin = object.__new__(kind)
    vars(twin).update(vars(env))
    return twin


class DeepSea(gymnax.environments.bsuite.DeepSea):
    """bsuite's DeepSea, a hard exploration task, with the default `step`.

    gymnax's `step` carries the counters `total_bad_episodes` and `denoised_return` across episodes.
    Here the counters restart with each episode. Observations, rewards and terminations are
    unchanged.
    """

    step = environment.Environment.step


class WholeSteps(Wrapper):
    """Wrapper that converts the time limit to an integer and rewards to float32.

    In gymnax's BernoulliBandit, the time limit is a float and rewards are integers.
    """

    @property
    def default_params(self) -> Any:
        """Default parameters."""
        params = self.env.default_params
        return params.replace(max_steps_in_episode=int(params.max_steps_in_episode))

    def inner_params(self, params: Any) -> Any:
        """Return the inner environment's parameters."""
        return params.replace(max_steps_in_episode=1.0 * params.max_steps_in_episode)

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Convert the reward to float32."""
        obs, state, reward, terminated, info = step
        return obs, state, jnp.float32(reward), terminated, info


class CastObservation(ObservationWrapper):
    """Wrapper that converts observations to the dtype of their space."""

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        """Return the observation in the dtype of its space."""
        return jnp.asarray(obs, self.env.observation_space(params).dtype)


REPAIRS: dict[str, Callable[..., Any]] = {
    "DeepSea-bsuite": lambda **sizes: narrow(DeepSea(**sizes)),
    "BernoulliBandit-misc": lambda: WholeSteps(narrow(gymnax.environments.misc.BernoulliBandit())),
    "FourRooms-misc": lambda **sizes: CastObservation(
        narrow(gymnax.environments.misc.FourRooms(**sizes))
    ),
}


def check_repairs(env: Any) -> None:
    """Raise `ValueError` if `env` is gymnax's version of an environment that is fixed here."""
    name = str(getattr(env, "name", None))
    if type(env).__module__.startswith("gymnax.") and name in REPAIRS:
        raise ValueError(
            f"`env` must be the version of {name!r} that `mmrl.envs.make` returns, got gymnax's "
            f"{type(env).__name__}, on which agents cannot be trained. Pass the id {name!r}, or "
            "the environment and parameters that `mmrl.envs.make` returns."
        )


@standard()
def make(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return a registered environment and its default parameters."""
    if env_id in REPAIRS:
        return (env := REPAIRS[env_id](**kwargs)), env.default_params
    env, params = gymnax.make(env_id, **kwargs)
    return (narrow(env) if type(env).__module__.startswith("gymnax.") else env), params
