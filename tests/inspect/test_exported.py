"""Exported policies as agents to inspect: equal to the player, which is plain NumPy."""

import equinox as eqx
import jax
import numpy as np
import pytest

from mmrl.inspect import policy_subject
from mmrl.runs import zoo


@pytest.mark.full_except("RepeatFirstEasy-dqn-lru", "PositionOnlyCartPoleEasy-r2d2-gru")
@pytest.mark.parametrize("name", zoo.names())
def test_an_exported_policy_has_the_values_of_its_player(name: str):
    policy = zoo.load(f"zoo/{name}")
    agent = policy_subject(policy, None, None)
    step = eqx.filter_jit(agent.step)
    state, mine, reward = policy.init(), agent.start, 0.0
    rng = np.random.default_rng(0)
    for begin in (True, False, False, True, False):
        obs = rng.uniform(size=policy.about["observation"])
        before = None if begin else state[1]
        inputs = policy.inputs(obs, before, reward, begin)
        state, expected = policy.outputs(state, obs, begin, reward)
        mine, values = step(mine, jax.numpy.asarray(inputs), jax.numpy.asarray(begin))
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)
        state, reward = (state[0], policy.greedy(expected)), float(rng.normal())
        assert int(agent.choose(values)) == state[1]
