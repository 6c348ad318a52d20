"""The state of a POPGym task is Markov: a state rebuilt from `state_obs` alone goes on alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import envs
from mmrl.envs import popgym, wrappers


@pytest.mark.full
def test_every_level_has_a_twin_that_is_observed_by_its_state():
    for name in popgym.SPECS:
        env, params = envs.make(name, observe="state")
        obs, _ = jax.eval_shape(env.reset, jax.random.key(0), params)
        space = env.observation_space(params)
        bare, _ = envs.make(name)
        assert obs.shape == space.shape == bare.state_space(params).shape, name
        assert obs.dtype == space.dtype == jnp.float32


def test_the_twin_of_concentration_shows_every_card_also_inside_a_wrapper():
    bare, params = envs.make("popgym-ConcentrationEasy-v0")
    for env in (
        envs.make("popgym-ConcentrationEasy-v0", observe="state")[0],
        wrappers.StateObservation(wrappers.EpisodeStatistics(bare)),
    ):
        cards = env.reset(jax.random.key(0), params)[0][: 2 * bare.cards]
        assert np.sum(cards) == bare.cards
    assert not np.any(bare.state_obs(bare.reset(jax.random.key(0))[1], params))


@pytest.mark.parametrize(
    ("name", "observe", "words"),
    [
        ("CartPole-v1", "state", "`env` must have a method `state_obs\\(.*CartPole-v1"),
        (
            "probe-Memory-v0",
            "all",
            "`observe` must be one of observation, state, pixels; got 'all'",
        ),
    ],
)
def test_what_cannot_be_observed_is_refused(name: str, observe: str, words: str):
    with pytest.raises(ValueError, match=words):
        envs.make(name, observe=observe)
