"""Environments of gymnax that could not be trained as gymnax has them."""

from typing import Any

import jax.numpy as jnp

from mmrl.envs._gymnax import environment, gymnax


class DeepSea(gymnax.environments.bsuite.DeepSea):
    """A grid to cross by one action per row: the hard exploration task of bsuite.

    gymnax's own `step` carries two counters across episodes, `total_bad_episodes` and
    `denoised_return`; here they count one episode. Observations, rewards and ends are equal.
    """

    step = environment.Environment.step


class BernoulliBandit(gymnax.environments.misc.BernoulliBandit):
    """A bandit with two arms; gymnax has its steps as a float and its reward as a whole number."""

    @property
    def default_params(self) -> Any:
        params = super().default_params
        return params.replace(max_steps_in_episode=int(params.max_steps_in_episode))

    def observation_space(self, params: Any) -> Any:
        steps = float(params.max_steps_in_episode)
        return super().observation_space(params.replace(max_steps_in_episode=steps))

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, *others = super().step_env(key, state, action, params)
        return obs, state, jnp.float32(reward), *others


REPAIRED = {"DeepSea-bsuite": DeepSea, "BernoulliBandit-misc": BernoulliBandit}
