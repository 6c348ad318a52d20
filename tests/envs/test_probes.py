"""The stated optimal values against what a table learns from recorded episodes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import envs, rollout
from mmrl.envs import probes

GAMMA = 0.8
IDS = sorted(probes.SPECS)
WITH_MEMORY = ("probe-Memory-v0", "probe-Delay-v0")  # of these the best value depends on the past
WORKERS, STEPS = 20, 120


@functools.cache
def recorder(env_id, **kwargs):
    """One compiled program per environment: a tape [worker, time] and Q* along it."""
    env, params = envs.make(env_id, **kwargs)

    def one(key, always):
        def policy(state, obs, begin, key):
            random = jax.random.randint(key, (), 0, 2)
            return state, jnp.where(always < 0, random, always)

        carry = rollout.start(env, params, None, key)
        _, tape = rollout.collect(policy, env, params, carry, jax.random.fold_in(key, 1), STEPS)
        return tape, env.optimal_q(tape.obs, tape.begin, GAMMA)

    keys = jax.random.split(jax.random.key(0), WORKERS)
    program = jax.jit(lambda always: jax.vmap(one, in_axes=(0, None))(keys, always))
    return env, program


@functools.cache
def record(env_id, action=-1, **kwargs):
    """What happens under a policy that always takes `action`, or acts at random if that is -1."""
    env, program = recorder(env_id, **kwargs)
    return env, jax.device_get(program(action))


def value_iteration(tape, remember, wrong=None):
    """Q by value iteration on the tape, one entry per history (or per observation)."""
    data, history = {}, ()
    for w, t in np.ndindex(tape.reward.shape):
        history = () if tape.begin[w, t] or not remember else history
        history = (*history, tuple(tape.obs[w, t])) if remember else (tuple(tape.obs[w, t]),)
        after = tape.next_obs[w, t]
        if wrong == "reset" and tape.last[w, t] and t + 1 < STEPS:
            after = tape.obs[w, t + 1]
        after = (*history, tuple(after)) if remember else (tuple(after),)
        ends = tape.last[w, t] if wrong == "end" else tape.terminated[w, t]
        key = (history, int(tape.action[w, t]))
        data.setdefault(key, []).append((tape.reward[w, t], after, ends))
    q = dict.fromkeys(data, 0.0)
    for _ in range(150):
        value = {h: max(q[h, 0], q[h, 1]) for h, _ in q}
        q = {
            key: np.mean([r if ends else r + GAMMA * value[after] for r, after, ends in steps])
            for key, steps in data.items()
        }
    return q


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_optimal_q_is_what_value_iteration_finds(env_id):
    _, (tape, optimal) = record(env_id)
    remember = env_id in WITH_MEMORY
    q = value_iteration(tape, remember)
    for w in range(WORKERS):
        history = ()
        for t in range(STEPS):
            history = () if tape.begin[w, t] or not remember else history
            history = (*history, tuple(tape.obs[w, t])) if remember else (tuple(tape.obs[w, t]),)
            expected = [q[history, 0], q[history, 1]]
            np.testing.assert_allclose(optimal[w, t], expected, rtol=1e-5)


@pytest.mark.slow
def test_the_truncation_probe_tells_both_mistakes_apart():
    _, (tape, _) = record("probe-Truncation-v0")
    in_b = ((0.0, 1.0),)
    assert value_iteration(tape, False)[in_b, 0] == pytest.approx(1 / (1 - GAMMA))
    assert value_iteration(tape, False, wrong="end")[in_b, 0] == pytest.approx(
        3 / (3 - GAMMA), abs=0.02
    )
    stale = 3 / ((1 - GAMMA) * (3 + GAMMA))
    assert value_iteration(tape, False, wrong="reset")[in_b, 0] == pytest.approx(stale, abs=0.1)


@pytest.mark.parametrize("env_id", IDS)
def test_optimal_return(env_id):
    """No action changes what is seen next, so two constant policies show every reward there is."""
    env, (steps, optimal) = record(env_id, action=0)
    _, (right, _) = record(env_id, action=1)
    np.testing.assert_array_equal(steps.obs, right.obs)
    reward = np.where(optimal[..., 1] > optimal[..., 0], right.reward, steps.reward)
    episodes = steps.last.sum()
    whole = np.concatenate(
        [r[: np.flatnonzero(e)[-1] + 1] for r, e in zip(reward, steps.last, strict=True)]
    )
    assert whole.sum() / episodes == pytest.approx(env.optimal_return, abs=0.1)


def test_no_memory_no_reward():
    """At the question nothing but the question is in view: without memory one must guess."""
    env, (tape, optimal) = record("probe-Memory-v0", num_steps=4)
    question = tape.obs[..., 2] == 1
    np.testing.assert_array_equal(tape.obs[question], [[0, 0, 1]] * question.sum())
    np.testing.assert_array_equal(question, tape.last)
    assert not tape.reward[~question].any() and set(tape.reward[question]) == {-1.0, 1.0}
    right = tape.action[question] == optimal[question].argmax(-1)
    np.testing.assert_array_equal(tape.reward[question], np.where(right, 1, -1))
    for action in (0, 1):
        _, (constant, _) = record("probe-Memory-v0", action=action, num_steps=4)
        assert abs(constant.reward[constant.last].mean()) < 0.1
    assert env.optimal_return_without_memory == 0


@pytest.mark.parametrize("env_id", IDS)
def test_observations_and_states_fit_their_spaces(env_id):
    env, (tape, _) = record(env_id)
    _, params = envs.make(env_id)
    space = env.observation_space(params)
    assert tape.obs.shape[2:] == space.shape and env.action_space(params).n == 2
    assert tape.obs.min() >= 0 and tape.obs.max() <= 1
    _, state = env.reset(jax.random.key(0), params)
    assert env.state_obs(state, params).shape == env.state_space(params).shape


@pytest.mark.parametrize(
    ("env_id", "kwargs", "says"),
    [
        ("probe-Memory-v0", {"num_steps": 1}, "`num_steps` must be at least 2"),
        ("probe-Delay-v0", {"num_steps": 0}, "`num_steps` must be at least 1"),
    ],
)
def test_too_short_an_episode_is_an_error(env_id, kwargs, says):
    with pytest.raises(ValueError, match=says):
        envs.make(env_id, **kwargs)
