"""Environments of gymnax that cannot be trained in gymnax's form."""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from mmrl._dtypes import in_32_bits, standard
from mmrl.envs._gymnax import environment, gymnax
from mmrl.envs.base import Obs, Step
from mmrl.envs.wrappers.base import ObservationWrapper, Wrapper


def narrow(env: Any) -> Any:
    """Return an environment of gymnax that steps and resets in 32 bits under any setting of JAX."""
    return _with_class(env, _narrow_class(type(env)))


@functools.cache
def _narrow_class(kind: type) -> type:
    """Return a subclass that computes in 32 bits.

    gymnax leaves many numbers untyped, so that in 64 bits a step and a reset have different types.
    """
    names = "reset_env", "step_env", "is_terminated"
    own: dict[str, Any] = {name: in_32_bits(getattr(kind, name)) for name in names}
    own |= {"__module__": kind.__module__, "__reduce__": _reduce}
    return type(kind.__name__, (kind,), own)


def _reduce(env: Any) -> Any:
    return narrow, (_with_class(env, type(env).__bases__[0]),)


def _with_class(env: Any, kind: type) -> Any:
    twin = object.__new__(kind)
    vars(twin).update(vars(env))
    return twin


class DeepSea(gymnax.environments.bsuite.DeepSea):
    """A grid to cross by one action per row: the hard exploration task of bsuite.

    gymnax's `step` carries two counters across episodes, `total_bad_episodes` and
    `denoised_return`; here they count one episode. Observations, rewards and ends are equal.
    """

    step = environment.Environment.step


class WholeSteps(Wrapper):
    """Wrapper that restores a whole number of steps and a real reward where gymnax swaps them."""

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
        """Return the inner step with this wrapper's changes."""
        obs, state, reward, terminated, info = step
        return obs, state, jnp.float32(reward), terminated, info


class Typed(ObservationWrapper):
    """Wrapper whose observations have the dtype of their space."""

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        """Return the new observation."""
        return jnp.asarray(obs, self.env.observation_space(params).dtype)


REPAIRED: dict[str, Callable[..., Any]] = {
    "DeepSea-bsuite": lambda **sizes: narrow(DeepSea(**sizes)),
    "BernoulliBandit-misc": lambda: WholeSteps(narrow(gymnax.environments.misc.BernoulliBandit())),
    "FourRooms-misc": lambda **sizes: Typed(narrow(gymnax.environments.misc.FourRooms(**sizes))),
}


def check_repaired(env: Any) -> None:
    """Raise `ValueError` for gymnax's own form of an environment that is repaired here."""
    name = str(getattr(env, "name", None))
    if type(env).__module__.startswith("gymnax.") and name in REPAIRED:
        raise ValueError(
            f"`env` must be {name!r} as `mmrl.envs.make` returns it; got gymnax's own "
            f"{type(env).__name__}, which cannot be trained. Pass the id, {name!r}, or the "
            "environment and parameters of `mmrl.envs.make`."
        )


@standard()
def make(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return a registered environment and its default parameters."""
    if env_id in REPAIRED:
        return (env := REPAIRED[env_id](**kwargs)), env.default_params
    env, params = gymnax.make(env_id, **kwargs)
    return (narrow(env) if type(env).__module__.startswith("gymnax.") else env), params
