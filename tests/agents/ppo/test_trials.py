"""Learning to learn: PPO with a memory that it keeps over the episodes of a trial."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import struct
from gymnax.environments import environment

from mmrl.agents import ppo
from mmrl.envs import make, probes
from mmrl.envs.wrappers import ObservationWrapper
from mmrl.envs.wrappers.observation import with_inputs

CONFIG = ppo.Config(memory="gru", width=32, rollout=64, block=5, blocks=6, episodes=256, gamma=0.95)


@struct.dataclass
class Params(environment.EnvParams):
    max_steps_in_episode: Any = 8
    inner: Any = None
    shows: Any = 1.0


class Blindfold(ObservationWrapper):
    """Where `shows` is 0, nothing is seen: what an agent knows that forgets with each episode.

    Here an episode is one step, and its first observation is always the same.
    """

    def inner_params(self, params: Any) -> Any:
        return params.inner

    def view(self, key: Any, obs: Any, state: Any, cause: Any, params: Any) -> Any:
        return obs * params.shows


@pytest.mark.full
def test_a_memory_of_a_trial_finds_the_arm_that_pays_and_one_of_an_episode_does_not():
    bandit, inner = make("probe-Bandit-v0")
    env = with_inputs(bandit, inner, ("previous_action", "previous_reward"))
    env = Blindfold(env)

    @jax.jit
    @jax.vmap
    def train(shows: Any, seed: Any) -> Any:
        params = Params(inner=inner, shows=shows)
        return ppo.train(CONFIG, env, params, jax.random.key(seed))[1].returns[-1].mean()

    returns = train(jnp.array([1.0, 1.0, 1.0, 0.0, 0.0]), jnp.arange(5))
    # Means of 256 trials, whose standard deviation is 1.1, or 3.5 where one arm is always pulled.
    assert (returns[:3] > 0.95 * probes.bandit_return()).all(), returns
    assert (returns[3:] < 8 / 4 + 1).all(), returns
