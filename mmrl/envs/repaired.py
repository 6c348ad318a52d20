"""Environments of gymnax that cannot be trained as gymnax has them."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from mmrl.envs._gymnax import environment, gymnax
from mmrl.envs.base import Obs, Step
from mmrl.envs.wrappers.base import ObservationWrapper, Wrapper


class DeepSea(gymnax.environments.bsuite.DeepSea):
    """A grid to cross by one action per row: the hard exploration task of bsuite.

    gymnax's own `step` carries two counters across episodes, `total_bad_episodes` and
    `denoised_return`; here they count one episode. Observations, rewards and ends are equal.
    """

    step = environment.Environment.step


class WholeSteps(Wrapper):
    """An environment with a whole number of steps and a real reward, around one that swaps them."""

    @property
    def default_params(self) -> Any:
        params = self.env.default_params
        return params.replace(max_steps_in_episode=int(params.max_steps_in_episode))

    def inner_params(self, params: Any) -> Any:
        return params.replace(max_steps_in_episode=1.0 * params.max_steps_in_episode)

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        obs, state, reward, terminated, info = step
        return obs, state, jnp.float32(reward), terminated, info


class Typed(ObservationWrapper):
    """An environment whose observations have the dtype of their space, around another one."""

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        return jnp.asarray(obs, self.env.observation_space(params).dtype)


REPAIRED: dict[str, Callable[..., Any]] = {
    "DeepSea-bsuite": DeepSea,
    "BernoulliBandit-misc": lambda: WholeSteps(gymnax.environments.misc.BernoulliBandit()),
    "FourRooms-misc": lambda **sizes: Typed(gymnax.environments.misc.FourRooms(**sizes)),
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
