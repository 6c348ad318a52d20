"""The cue that is named one step later, by its rules, in numbers of any size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import checks, rollout
from mmrl.envs.echo import Echo, State


@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (30_000, 100), (0, 1e-3), (0, 1e4)])
def test_an_echo_pays_for_the_cue_before(offset: float, scale: float):
    env = Echo()
    params = env.default_params.replace(offset=offset, scale=scale)

    def remember(state, obs, begin, key):
        cue = jnp.where(obs[0] > offset + 0.5 * scale, 1, 0)
        return cue, jnp.where(begin, 0, state)

    @jax.jit
    def play(key):
        carry = rollout.start(env, params, jnp.int32(0), key)
        return rollout.collect(remember, env, params, carry, key, 200)[1]

    tape = play(jax.random.key(0))
    cue = (np.asarray(tape.obs[:, 0]) - np.float32(offset)) / np.float32(scale)
    np.testing.assert_allclose(cue, np.round(cue), atol=1e-2)
    assert set(np.round(cue)) == {0, 1}
    np.testing.assert_array_equal(tape.reward, np.arange(200) % Echo.num_steps > 0)
    np.testing.assert_array_equal(tape.action[1:], np.where(tape.begin, 0, np.roll(cue, 1))[1:])
    assert np.reshape(tape.reward, (40, 5)).sum(1).tolist() == [Echo.optimal_return] * 40


def test_a_wrong_answer_costs_as_much():
    env = Echo()
    state = State(time=jnp.int32(1), cue=jnp.int32(0), previous=jnp.int32(1))
    rewards = [env.advance(jnp.zeros(1), state, a, env.default_params)[1] for a in (0, 1)]
    assert rewards == [-1, 1]


@pytest.mark.full
def test_the_task_keeps_the_rules():
    checks.environment(Echo())
