"""Rollouts against an environment whose every number can be predicted."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnax.environments import environment, spaces

from mmrl import rollout
from mmrl._dtypes import accumulate
from mmrl.envs import wrappers
from mmrl.rollout import legal


@struct.dataclass
class State(environment.EnvState):
    time: jax.Array
    tag: jax.Array
    length: jax.Array


class Diary(environment.Environment):
    """Observes (tag of the episode, time). Odd tags terminate, even ones truncate: 1 to 6 steps."""

    @property
    def default_params(self):
        return environment.EnvParams(max_steps_in_episode=1000)

    def reset_env(self, key, params):
        tag = jax.random.randint(key, (), 0, 2**20)
        state = State(time=jnp.int32(0), tag=tag, length=1 + tag % 6)
        return self.observe(key, state, None, params), state

    def step_env(self, key, state, action, params):
        reward = 10 * state.time + action  # an integer, as some environments pay
        state = state.replace(time=state.time + 1)
        obs = self.observe(key, state, action, params)
        return obs, state, reward, self.is_terminated(state, params), {}

    def observe(self, key, state, action, params):
        return jnp.stack([state.tag, state.time]).astype(jnp.float32)

    def is_terminated(self, state, params):
        return (state.time >= state.length) & (state.tag % 2 == 1)

    def is_truncated(self, state, params):
        return (state.time >= state.length) & (state.tag % 2 == 0)

    def action_space(self, params=None):
        return spaces.Discrete(3)

    def observation_space(self, params):
        return spaces.Box(0.0, 2.0**20, (2,), jnp.float32)


ENV = Diary()
PARAMS = ENV.default_params


def policy(state, obs, begin, key):
    """Counts its own steps without ever resetting, and acts at random."""
    return state + 1, jax.random.randint(key, (), 0, 3)


@functools.partial(jax.jit, static_argnames="steps")
def many(key, steps):
    """One rollout per worker, from fresh environments; leaves [worker, time, ...]."""
    key_start, key_steps = jax.random.split(key)
    carries = jax.vmap(lambda k: rollout.start(ENV, PARAMS, jnp.int32(0), k))(
        jax.random.split(key_start, 7)
    )
    return jax.vmap(lambda c, k: rollout.collect(policy, ENV, PARAMS, c, k, steps))(
        carries, jax.random.split(key_steps, 7)
    )


@pytest.fixture(scope="module")
def carry_and_steps():
    return jax.device_get(many(jax.random.key(0), 60))


def test_shapes_and_types(carry_and_steps):
    carry, transition = carry_and_steps
    assert transition.obs.shape == transition.next_obs.shape == (7, 60, 2)
    assert transition.reward.shape == (7, 60) and transition.reward.dtype == np.float32
    for flag in (transition.begin, transition.terminated, transition.truncated, transition.last):
        assert flag.shape == (7, 60) and flag.dtype == bool
    assert carry.begin.shape == (7,)


def test_flags_across_the_reset(carry_and_steps):
    _, transition = carry_and_steps
    assert transition.begin[:, 0].all()
    np.testing.assert_array_equal(transition.begin[:, 1:], transition.last[:, :-1])
    np.testing.assert_array_equal(transition.begin, transition.obs[..., 1] == 0)
    tag = transition.obs[..., 0].astype(int)
    ends = transition.obs[..., 1] + 1 == 1 + tag % 6
    np.testing.assert_array_equal(transition.last, ends)
    np.testing.assert_array_equal(transition.terminated, ends & (tag % 2 == 1))
    np.testing.assert_array_equal(transition.truncated, ends & (tag % 2 == 0))
    assert transition.terminated.sum() > 20 and transition.truncated.sum() > 20


def test_next_obs_belongs_to_the_same_episode(carry_and_steps):
    _, transition = carry_and_steps
    expected = transition.obs + np.array([0.0, 1.0], np.float32)
    np.testing.assert_array_equal(transition.next_obs, expected)
    inside = ~transition.last[:, :-1]
    np.testing.assert_array_equal(
        transition.next_obs[:, :-1][inside], transition.obs[:, 1:][inside]
    )
    assert (transition.next_obs[:, :-1] != transition.obs[:, 1:]).any(-1)[~inside].all()


def test_reward_follows_the_action(carry_and_steps):
    _, transition = carry_and_steps
    expected = 10 * transition.obs[..., 1] + transition.action
    np.testing.assert_array_equal(transition.reward, expected)
    assert set(np.unique(transition.action)) == {0, 1, 2}


def test_policy_state_is_never_reset(carry_and_steps):
    carry, _ = carry_and_steps
    np.testing.assert_array_equal(carry.policy_state, 60)


def test_one_long_rollout_equals_two_halves():
    @jax.jit
    def both(key):
        carry = rollout.start(ENV, PARAMS, jnp.int32(0), key)
        keys = jax.random.split(key, (41, 2))
        whole = rollout.unroll(policy, ENV, PARAMS, carry, keys)
        carry, first = rollout.unroll(policy, ENV, PARAMS, carry, keys[:17])
        carry, second = rollout.unroll(policy, ENV, PARAMS, carry, keys[17:])
        halves = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, second)
        steps = rollout.collect(
            policy, ENV, PARAMS, rollout.start(ENV, PARAMS, jnp.int32(0), key), key, 41
        )
        return whole, (carry, halves), steps

    whole, halves, steps = jax.device_get(both(jax.random.key(3)))
    assert not halves[1].begin[17]
    jax.tree.map(np.testing.assert_array_equal, whole, halves)
    jax.tree.map(np.testing.assert_array_equal, whole, steps)


def test_vmap_equals_one_at_a_time():
    key_start, key_steps = jax.random.split(jax.random.key(0))
    one = jax.jit(
        lambda a, b: rollout.collect(
            policy, ENV, PARAMS, rollout.start(ENV, PARAMS, jnp.int32(0), a), b, 60
        )
    )
    alone = one(jax.random.split(key_start, 7)[4], jax.random.split(key_steps, 7)[4])
    lane = jax.tree.map(lambda x: x[4], many(jax.random.key(0), 60))
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(alone), jax.device_get(lane))


@pytest.mark.slow
def test_a_policy_may_keep_more_than_its_action():
    """Extras come back step for step, whatever they are, and change nothing else."""

    def keeping(state, obs, begin, key):
        after, action = policy(state, obs, begin, key)
        return after, action, {"state": state, "seen": (obs, action, begin)}

    @jax.jit
    def both(key):
        carry = rollout.start(ENV, PARAMS, jnp.int32(0), key)
        results = [rollout.collect(p, ENV, PARAMS, carry, key, 20)[1] for p in (policy, keeping)]
        scores = [
            rollout.evaluate(p, ENV, PARAMS, jnp.int32(0), key, 5, 10) for p in (policy, keeping)
        ]
        return results, scores

    (plain, outputs), scores = jax.device_get(both(jax.random.key(2)))
    assert plain.extras is None
    np.testing.assert_array_equal(outputs.extras["state"], np.arange(20))
    inputs = outputs.obs, outputs.action, outputs.begin
    jax.tree.map(np.testing.assert_array_equal, outputs.extras["seen"], inputs)
    jax.tree.map(np.testing.assert_array_equal, dataclasses.replace(outputs, extras=None), plain)
    jax.tree.map(np.testing.assert_array_equal, *scores)


@functools.partial(jax.jit, static_argnames="max_steps")
def evaluate_many(keys, max_steps):
    """Twelve episodes for each key."""
    return jax.vmap(
        lambda key: rollout.evaluate(policy, ENV, PARAMS, jnp.int32(0), key, 12, max_steps)
    )(keys)


@jax.jit
def one_step(keys, states):
    actions = jax.vmap(lambda k: policy(0, None, None, k)[1])(keys[:, 0])
    step = jax.vmap(ENV.step, in_axes=(0, 0, 0, None))
    _, states, reward, terminated, truncated, _ = step(keys[:, 1], states, actions, PARAMS)
    return states, reward, terminated | truncated


def by_hand(key, max_steps):
    """(return, length, ended) of twelve first episodes, added up in Python."""
    key, key_start = jax.random.split(key)
    _, states = jax.vmap(ENV.reset, in_axes=(0, None))(jax.random.split(key_start, 12), PARAMS)
    steps = []
    for t in range(max_steps):
        keys = jax.random.split(jax.random.fold_in(key, t), (12, 2))
        states, *step = one_step(keys, states)
        steps.append(jax.device_get(step))
    for episode in range(12):
        total, length, end = 0.0, 0, False
        for reward, last in steps:
            if not end:
                total, length, end = total + reward[episode], length + 1, last[episode]
        yield total, length, end


@pytest.mark.slow
@pytest.mark.parametrize("max_steps", [3, 10])
def test_evaluate_equals_a_loop_also_under_vmap(max_steps):
    keys = jax.random.split(jax.random.key(5), 3)
    result = evaluate_many(keys, max_steps)
    for i in range(3):
        returns, lengths, flags = zip(*by_hand(keys[i], max_steps), strict=True)
        np.testing.assert_array_equal(result.returns[i], returns)
        np.testing.assert_array_equal(result.lengths[i], lengths)
        np.testing.assert_array_equal(result.ended[i], flags)
        assert len(set(lengths)) > 1 and all(flags) == (max_steps == 10)


def test_evaluate_ignores_what_follows_the_first_episode():
    """A policy that turns to NaN after its first episode changes nothing."""

    def poison(state, obs, begin, key):
        return state + begin, jnp.where(state + begin > 1, jnp.nan, 1.0)

    result = jax.jit(lambda key: rollout.evaluate(poison, ENV, PARAMS, jnp.int32(0), key, 20, 30))(
        jax.random.key(1)
    )
    n = np.asarray(result.lengths)
    np.testing.assert_array_equal(result.returns, 10.0 * n * (n - 1) / 2 + n)
    assert result.ended.all()


def test_a_gymnax_environment_with_weak_types():
    """CartPole keeps its clock as a Python int and its reward as a float."""
    from gymnax.environments.classic_control import cartpole

    env = cartpole.CartPole()
    params = env.default_params

    def leave(state, obs, begin, key):
        return state, 0

    @jax.jit
    def run(key):
        carry = rollout.start(env, params, None, key)
        _, transition = rollout.collect(leave, env, params, carry, key, 30)
        return transition, rollout.evaluate(leave, env, params, None, key, 4, 50)

    transition, result = run(jax.random.key(0))
    assert transition.reward.dtype == jnp.float32 and transition.action.shape == (30,)
    assert (np.asarray(result.lengths) <= 12).all() and result.ended.all()
    np.testing.assert_array_equal(result.returns, result.lengths)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda c: rollout.collect(policy, ENV, PARAMS, c, jax.random.key(0), 0), "steps"),
        (lambda c: rollout.evaluate(policy, ENV, PARAMS, 0, jax.random.key(0), 0, 5), "episodes"),
        (lambda c: rollout.evaluate(policy, ENV, PARAMS, 0, jax.random.key(0), 5, 0), "max_steps"),
    ],
)
def test_nothing_to_do_is_an_error(call, name):
    carry = rollout.start(ENV, PARAMS, jnp.int32(0), jax.random.key(0))
    with pytest.raises(ValueError, match=f"`{name}`"):
        call(carry)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.5, 0.5, [-0.5, 0.25]),
        (100.0, 200.0, [100.0, 100.0]),
        (np.array([-1.0, 3.0]), np.array([1.0, np.inf]), [-1.0, 3.0]),
        (-np.inf, np.inf, [-7.0, 0.25]),
    ],
)
def test_environments_receive_the_nearest_legal_action(low, high, expected):
    """The transition keeps the action of the policy."""

    class Echo(Diary):
        def step_env(self, key, state, action, params):
            return action, state.replace(time=state.time + 1), 0.0, jnp.array(False), {}

        def action_space(self, params=None):
            return spaces.Box(low, high, (2,), jnp.float32)

    env, action = Echo(), jnp.array([-7.0, 0.25])
    carry = rollout.start(env, PARAMS, (), jax.random.key(0))
    keys = jax.random.split(jax.random.key(1))
    _, step = rollout.act(lambda *_: ((), action), env, PARAMS, carry, keys)
    np.testing.assert_array_equal(step.next_obs, expected)
    np.testing.assert_array_equal(step.action, action)


def test_legal_actions_of_64_bits_are_legal():
    """In float32, 0.1 lies above the bound."""
    with jax.enable_x64(True):
        space = spaces.Box(-0.1, 0.1, (2,), jnp.float64)
        for kind in (jnp.float32, jnp.float64, int):
            action = legal(space, jnp.array([-7, 7], kind))
            assert action.dtype == jnp.float64
            np.testing.assert_array_equal(action, [-0.1, 0.1])


class Rich(Diary):
    """Pays 2²⁴, and then 1 for each of eight steps, which float32 cannot add one by one."""

    def step_env(self, key, state, action, params):
        obs, state, _, _, info = super().step_env(key, state, action, params)
        return obs, state, jnp.where(state.time == 1, 2.0**24, 1.0), state.time >= 9, info

    def is_truncated(self, state, params):
        return False


@pytest.mark.parametrize("wrap", [False, True])
def test_a_return_does_not_stop_growing(wrap):
    env: Any = wrappers.EpisodeStatistics(Rich()) if wrap else Rich()
    if not wrap:
        result = rollout.evaluate(policy, env, PARAMS, jnp.int32(0), jax.random.key(0), 2, 20)
        np.testing.assert_array_equal(result.returns, 2**24 + 8)
        np.testing.assert_array_equal(result.lengths, 9)
        return
    _, state = env.reset_env(jax.random.key(0), PARAMS)
    step = jax.jit(lambda state: env.step_env(jax.random.key(0), state, 0, PARAMS))
    for _ in range(9):
        _, state, _, _, info = step(state)
    assert info["episode"] == {"return": 2**24 + 8, "length": 9, "ended": True}


@pytest.mark.parametrize("reward", [jnp.inf, jnp.nan])
def test_a_return_that_is_not_finite_stays_so(reward):
    total = accumulate(accumulate((jnp.float32(1), jnp.float32(0)), reward), 1.0)
    np.testing.assert_array_equal(total[0], reward)


class Crash(Diary):
    """All that an episode shows last is NaN."""

    def observe(self, key, state, action, params):
        obs = super().observe(key, state, action, params)
        return jnp.where(state.time >= state.length, jnp.nan, obs)


@pytest.mark.slow
def test_observations_that_are_not_finite():
    """Behind a termination they are 0, behind a truncation they stay."""
    env = Crash()
    carry = rollout.start(env, PARAMS, jnp.zeros(()), jax.random.key(0))
    keep = functools.partial(rollout.collect, policy, env, PARAMS, carry, steps=40)
    _, steps = jax.jit(keep)(key=jax.random.key(1))
    assert steps.terminated.any() and steps.truncated.any()
    assert np.isnan(steps.next_obs[steps.truncated]).all()
    np.testing.assert_array_equal(steps.next_obs[steps.terminated], 0)
    assert np.isfinite(steps.next_obs[~steps.last]).all() and np.isfinite(steps.obs).all()
    result = jax.jit(lambda key: rollout.evaluate(policy, env, PARAMS, jnp.zeros(()), key, 8, 9))(
        jax.random.key(2)
    )
    odd = np.asarray(result.observed)
    assert odd.any() and not odd.all() and result.ended.all()
