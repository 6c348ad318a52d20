"""Every wrapper against the bare environment's record, rebuilt in numpy by its definition."""

import copy
import functools
import pickle

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnax.environments import environment, spaces
from gymnax.wrappers import LogWrapper

from mmrl import envs, rollout
from mmrl.envs import probes, wrappers

WORKERS, STEPS = 3, 40


@struct.dataclass
class State(environment.EnvState):
    time: jax.Array
    tag: jax.Array


class Tags(environment.Environment):
    """Episodes of 1 to 6 steps; odd tags terminate, even ones truncate. Shows (tag, time)."""

    @property
    def default_params(self):
        return environment.EnvParams(max_steps_in_episode=1000)

    @property
    def num_actions(self):
        return 3

    def reset_env(self, key, params):
        state = State(time=jnp.int32(0), tag=jax.random.randint(key, (), 0, 60))
        return self.observe(key, state, None, params), state

    def step_env(self, key, state, action, params):
        state = state.replace(time=state.time + 1)
        reward = 1.0 + action + 10.0 * state.time
        obs = self.observe(key, state, action, params)
        return obs, state, reward, self.over(state) & (state.tag % 2 == 1), {}

    def over(self, state):
        return state.time >= 1 + state.tag % 6

    def observe(self, key, state, action, params):
        return jnp.stack([state.tag, state.time]).astype(jnp.float32)

    def state_obs(self, state, params):
        return jnp.stack([state.tag, state.time, state.tag]).astype(jnp.float32)

    def is_terminated(self, state, params):
        return self.over(state) & (state.tag % 2 == 1)

    def is_truncated(self, state, params):
        late = state.time >= params.max_steps_in_episode
        return late | (self.over(state) & (state.tag % 2 == 0))

    def action_space(self, params=None):
        return spaces.Discrete(3)

    def observation_space(self, params):
        return spaces.Box(0.0, jnp.array([59.0, 6.0]), (2,), jnp.float32)


TAGS = Tags()
TASK, _ = envs.make("popgym-RepeatPreviousEasy-v0", k=2)
BARE = {"gymnax": TAGS, "task": TASK}


@functools.cache
def rollouts(env, params=None):
    """[worker, time] of random actions; the same keys for every environment."""
    params = env.default_params if params is None else params

    def policy(state, obs, begin, key):
        return state, jax.random.randint(key, (), 0, env.num_actions)

    def one(key):
        carry = rollout.start(env, params, None, key)
        return rollout.collect(policy, env, params, carry, jax.random.fold_in(key, 1), STEPS)[1]

    return jax.device_get(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), WORKERS)))


@pytest.fixture(params=BARE)
def env(request):
    return BARE[request.param]


def same_but_observations(env, bare):
    """The wrapped record, once everything else of it has been found unchanged."""
    result, want = rollouts(env), rollouts(bare)
    for field in ("action", "reward", "begin", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(result, field), getattr(want, field), err_msg=field)
    space = env.observation_space(env.default_params)
    assert result.obs.shape[2:] == result.next_obs.shape[2:] == space.shape
    for obs in (result.obs, result.next_obs):
        assert obs.dtype == np.float32
        assert (obs >= np.asarray(space.low)).all() and (obs <= np.asarray(space.high)).all()
    return result, want


def previous(x, begin, first):
    """x of the step before, `first` where an episode begins."""
    past = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1)
    shape = begin.shape + (1,) * (x.ndim - 2)
    return np.where(begin.reshape(shape), first, past)


def test_the_bare_record_has_both_ends():
    tape = rollouts(TAGS)
    assert tape.terminated.sum() > 5 and tape.truncated.sum() > 5
    assert not (tape.terminated & tape.truncated).any()


def test_the_base_changes_nothing(env):
    result, want = same_but_observations(wrappers.Wrapper(env), env)
    np.testing.assert_array_equal(result.obs, want.obs)
    np.testing.assert_array_equal(result.next_obs, want.next_obs)


def test_mask(env):
    result, want = same_but_observations(wrappers.MaskObservation(env, [1]), env)
    np.testing.assert_array_equal(result.obs, want.obs[..., [1]])
    np.testing.assert_array_equal(result.next_obs, want.next_obs[..., [1]])


@pytest.mark.parametrize(
    ("env", "null"), [("gymnax", "zero"), ("task", "action0")], indirect=["env"]
)
def test_previous_action(env, null):
    result, want = same_but_observations(wrappers.PreviousAction(env, null), env)
    one_hot = np.eye(env.num_actions, dtype=np.float32)
    actions = one_hot[want.action]
    first = one_hot[0] * (null == "action0")
    obs = np.concatenate([want.obs, previous(actions, want.begin, first)], -1)
    np.testing.assert_array_equal(result.obs, obs)
    np.testing.assert_array_equal(result.next_obs, np.concatenate([want.next_obs, actions], -1))


def test_previous_reward(env):
    result, want = same_but_observations(wrappers.PreviousReward(env, scale=2.0), env)
    rewards = 2 * want.reward[..., None]
    obs = np.concatenate([want.obs, previous(rewards, want.begin, 0)], -1)
    np.testing.assert_array_equal(result.obs, obs)
    np.testing.assert_array_equal(result.next_obs, np.concatenate([want.next_obs, rewards], -1))
    assert not np.signbit(result.obs[want.begin][:, -1]).any()


def test_a_reward_beside_whole_numbers_stays_what_it_was():
    obs = wrappers.PreviousReward(TASK).view(jax.random.key(0), jnp.arange(2), None, (0, 0.5), None)
    np.testing.assert_array_equal(obs, [0, 1, 0.5])


@pytest.mark.parametrize(("env", "one_hot"), [("task", False), ("gymnax", True)], indirect=["env"])
def test_begin_flag(env, one_hot):
    result, want = same_but_observations(wrappers.BeginFlag(env, one_hot), env)
    flag = want.begin[..., None]
    flag = np.concatenate([~flag, flag], -1) if one_hot else flag
    later = np.broadcast_to([1.0, 0.0] if one_hot else [0.0], flag.shape)
    np.testing.assert_array_equal(result.obs, np.concatenate([want.obs, flag], -1))
    np.testing.assert_array_equal(result.next_obs, np.concatenate([want.next_obs, later], -1))


def test_state_observation():
    result, want = same_but_observations(wrappers.StateObservation(TAGS), TAGS)
    np.testing.assert_array_equal(result.obs, want.obs[..., [0, 1, 0]])
    np.testing.assert_array_equal(result.next_obs, want.next_obs[..., [0, 1, 0]])
    result, want = same_but_observations(wrappers.StateObservation(TASK), TASK)
    newest = slice(4, 8)  # k = 2 suits, the newest last
    np.testing.assert_array_equal(result.obs[..., newest], want.obs)
    np.testing.assert_array_equal(result.next_obs[..., newest], want.next_obs)


@pytest.mark.slow
def test_noise():
    """All that this environment shows is whole numbers, so rounding removes the noise."""
    noisy = rollouts(wrappers.NoisyObservation(TAGS, 0.1, clip=False))
    clean = rollouts(wrappers.NoisyObservation(TAGS, 0.1))
    space = TAGS.observation_space(TAGS.default_params)
    for field in ("obs", "next_obs"):
        obs = getattr(noisy, field)
        noise = obs - np.round(obs)
        assert abs(noise.mean()) < 0.02 and abs(noise.std() - 0.1) < 0.01, field
        assert len(np.unique(noise)) > 0.9 * noise.size
        expected = np.clip(obs, space.low, space.high)
        np.testing.assert_allclose(getattr(clean, field), expected, atol=1e-6)
    inside = ~noisy.last[:, :-1]
    ends, began = noisy.next_obs[:, :-1][inside], noisy.obs[:, 1:][inside]
    np.testing.assert_allclose(ends, began, atol=1e-6)
    np.testing.assert_array_equal(noisy.begin[:, 1:], noisy.last[:, :-1])
    first = noisy.obs[noisy.begin]
    assert len(first) >= WORKERS and (first != np.round(first)).all()


class Chance(Tags):
    """Begins with an observation of pure chance."""

    def reset_env(self, key, params):
        return jax.random.normal(key, (2,)), super().reset_env(key, params)[1]


def test_noise_is_independent_of_other_chance():
    """The sum of two independent draws of the same size is larger by √2, of twice the same by 2."""
    once = wrappers.NoisyObservation(Chance(), 1.0, clip=False)
    twice = wrappers.NoisyObservation(once, np.sqrt(2), clip=False)
    keys = jax.random.split(jax.random.key(0), 2000)

    @jax.jit
    @jax.vmap
    def first(key):
        return once.reset_env(key, None)[0], twice.reset_env(key, None)[0]

    seen_once, seen_twice = first(keys)
    assert abs(seen_once.std() - np.sqrt(2)) < 0.08
    assert abs(seen_twice.std() - 2) < 0.12


def test_noise_of_a_reset_is_not_that_of_the_last_step():
    noisy = rollouts(wrappers.NoisyObservation(TAGS, 0.1, clip=False))
    ends, begins = noisy.next_obs[:, :-1], noisy.obs[:, 1:]
    both = noisy.last[:, :-1]
    assert both.any()
    difference = (ends - np.round(ends))[both] - (begins - np.round(begins))[both]
    assert (np.abs(difference) > 1e-5).all()


def test_scale_reward(env):
    result, want = rollouts(wrappers.ScaleReward(env, 0.5)), rollouts(env)
    np.testing.assert_array_equal(result.reward, np.float32(0.5) * want.reward)
    np.testing.assert_array_equal(result.obs, want.obs)
    assert result.reward.dtype == np.float32


def has_all_ships(env, state):
    return jax.lax.population_count(state.ships).sum() == env.squares


def has_a_whole_maze(env, state):
    entrances = 2 if "Escape" in env.name else 1
    return jax.lax.population_count(state.open).sum() == 2 * env.size**2 - 1 + entrances


WHOLE = {
    "popgym-BattleshipEasy-v0": has_all_ships,
    "popgym-LabyrinthEscapeEasy-v0": has_a_whole_maze,
    "popgym-LabyrinthExploreEasy-v0": has_a_whole_maze,
}
EARLY = {
    "limit": lambda env: wrappers.TimeLimit(env, 3),
    "outside": lambda env: wrappers.TimeLimit(wrappers.BeginFlag(env), 3),
    "inside": lambda env: wrappers.BeginFlag(wrappers.ScaleReward(wrappers.TimeLimit(env, 3), 2.0)),
    "trial": lambda env: wrappers.Trial(env, 2),
}


@pytest.mark.parametrize("early", EARLY)
@pytest.mark.parametrize("env_id", WHOLE)
def test_episodes_that_a_wrapper_ends_early_are_followed_by_complete_tasks(env_id, early):
    task, _ = envs.make(env_id)
    env = EARLY[early](task)
    params = env.default_params.replace(max_steps_in_episode=3)

    def step(state, key):
        action = jax.random.randint(key, (), 0, env.num_actions)
        _, state, *_, truncated, _ = env.step(key, state, action, params)
        inner = state.env_state if early == "trial" else state
        return state, (truncated, WHOLE[env_id](task, inner))

    @jax.jit
    def play(key):
        key, first = jax.random.split(key)
        return jax.lax.scan(step, env.reset_env(first, params)[1], jax.random.split(key, 30))[1]

    truncated, whole = jax.vmap(play)(jax.random.split(jax.random.key(0), 20))
    assert truncated.sum() == 200 and whole.all()


def test_time_limit():
    tape = rollouts(wrappers.TimeLimit(TAGS, 4))
    tag, time = tape.obs[..., 0].astype(int), tape.obs[..., 1].astype(int) + 1
    natural = time == 1 + tag % 6
    np.testing.assert_array_equal(tape.terminated, natural & (tag % 2 == 1))
    np.testing.assert_array_equal(tape.truncated, (natural & (tag % 2 == 0)) | (time == 4))
    assert time.max() == 4 and (tape.terminated & tape.truncated).any()


def test_a_time_limit_leaves_the_task_its_own_clock():
    """A deck's rewards and end do not move with the limit, and a longer limit does nothing."""
    short = wrappers.TimeLimit(TASK, 10)
    tape, bare = rollouts(short), rollouts(TASK)
    np.testing.assert_array_equal(np.flatnonzero(tape.last[0]), [9, 19, 29, 39])
    assert tape.truncated.sum() == 12 and not tape.terminated.any()
    np.testing.assert_array_equal(tape.reward[:, :10], bare.reward[:, :10])
    assert short.default_params.max_steps_in_episode == 10
    long = wrappers.TimeLimit(TASK, 1000)
    assert long.default_params == TASK.default_params


def test_a_time_limit_holds_with_the_parameters_of_the_task():
    tape = rollouts(wrappers.TimeLimit(TASK, 10), TASK.default_params)
    np.testing.assert_array_equal(np.flatnonzero(tape.last[0]), [9, 19, 29, 39])


class Pace(Tags):
    """Pays by its own time limit, as popgym's cart-pole does."""

    def step_env(self, key, state, action, params):
        obs, state, _, *rest = super().step_env(key, state, action, params)
        return obs, state, jnp.float32(1 / params.max_steps_in_episode), *rest


def test_a_time_limit_does_not_change_what_is_paid():
    env = wrappers.TimeLimit(wrappers.TimeLimit(Pace(), 5), 3)
    _, state = env.reset(jax.random.key(0))
    assert env.step(jax.random.key(1), state, 0)[2] == np.float32(1 / 1000)


def test_a_time_limit_may_be_traced():
    short = wrappers.TimeLimit(TAGS, 3)

    @jax.jit
    def length(limit):
        params = short.default_params.replace(max_steps_in_episode=limit)
        _, state = short.reset(jax.random.key(0), params)
        state = state.replace(tag=jnp.int32(5), time=jnp.int32(1))
        return short.step(jax.random.key(1), state, 0, params)[3:5]

    assert [tuple(map(bool, length(n))) for n in (2, 3)] == [(False, True), (False, False)]


@functools.cache
def accounts(env):
    """(reward, last, info["episode"]) [time] of one environment."""
    params = env.default_params

    def step(carry, key):
        state, _ = carry
        action = jax.random.randint(key, (), 0, env.num_actions)
        _, state, reward, terminated, truncated, info = env.step(key, state, action, params)
        return (state, reward), (reward, terminated | truncated, info["episode"])

    def run(key):
        _, state = env.reset(key, params)
        return jax.lax.scan(step, (state, jnp.float32(0)), jax.random.split(key, 80))[1]

    return jax.device_get(jax.jit(run)(jax.random.key(4)))


@pytest.mark.parametrize(
    "env",
    [
        wrappers.EpisodeStatistics(TAGS),
        wrappers.EpisodeStatistics(wrappers.TimeLimit(TASK, 4)),
        wrappers.ScaleReward(wrappers.EpisodeStatistics(TASK), 2.0),
        wrappers.BeginFlag(wrappers.EpisodeStatistics(TAGS)),
    ],
    ids=["alone", "around", "inside a scale", "inside a flag"],
)
def test_episode_statistics(env):
    reward, last, episode = accounts(env)
    scale = 2.0 if isinstance(env, wrappers.ScaleReward) else 1.0
    total, length = 0.0, 0
    for t in range(len(reward)):
        total, length = total + reward[t] / scale, length + 1
        np.testing.assert_allclose(episode["return"][t], total, rtol=1e-5, atol=1e-6)
        assert episode["length"][t] == length and episode["ended"][t] == last[t]
        if last[t]:
            total, length = 0.0, 0
    assert last.any()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            lambda: wrappers.EpisodeStatistics(wrappers.BeginFlag(wrappers.ScaleReward(TASK, 2.0))),
            r"ScaleReward\(EpisodeStatistics",
        ),
        (
            lambda: wrappers.TimeLimit(wrappers.EpisodeStatistics(TASK), 3),
            r"EpisodeStatistics\(TimeLimit",
        ),
        (lambda: wrappers.BeginFlag(LogWrapper(TASK)), "`env` must be a gymnax Environment"),
        (lambda: wrappers.Wrapper(gymnax.make("DeepSea-bsuite")[0]), "DeepSea"),
        (lambda: wrappers.Wrapper(wrappers.VmapAutoReset(TASK, 2)), "VmapAutoReset last"),
        (lambda: wrappers.Wrapper(3), "int"),
        (lambda: wrappers.BeginFlag(gymnax.make("Catch-bsuite")[0]), "FlattenObservation"),
        (lambda: wrappers.MaskObservation(TASK, [4]), "elements 0..3"),
        (lambda: wrappers.MaskObservation(TASK, [-1]), "elements 0..3"),
        (lambda: wrappers.MaskObservation(TASK, []), "`indices`"),
        (lambda: wrappers.NoisyObservation(TASK, -1.0), "`sigma`"),
        (lambda: wrappers.NoisyObservation(TASK, float("nan")), "`sigma`"),
        (lambda: wrappers.PreviousAction(TASK, "one"), "`null`"),
        (lambda: wrappers.StateObservation(gymnax.make("CartPole-v1")[0]), "state_obs"),
        (lambda: wrappers.TimeLimit(TASK, 0), "`steps`"),
        (lambda: wrappers.Trial(TASK, 0), "`episodes`.*got 0"),
        (lambda: wrappers.VmapAutoReset(TASK, 0), "`num_envs`"),
    ],
)
def test_misuse_says_what_to_do(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong()


@pytest.mark.parametrize("env_id", ["Catch-bsuite", "FrozenLake-misc"])
def test_flatten(env_id):
    bare, _ = gymnax.make(env_id)
    result, want = same_but_observations(wrappers.FlattenObservation(bare), bare)
    if want.obs.ndim == 2:
        flat = np.eye(result.obs.shape[-1], dtype=np.float32)[want.obs]
    else:
        flat = want.obs.reshape(result.obs.shape)
    np.testing.assert_array_equal(result.obs, flat)


@pytest.mark.slow
def test_vmap_auto_reset():
    """Step by step what each environment would do alone, with a reset only where one is due."""
    env = wrappers.BeginFlag(wrappers.TimeLimit(envs.make("CartPole-v1")[0], 12))
    many = wrappers.VmapAutoReset(env, 5)
    params = many.default_params
    step = jax.jit(jax.vmap(env.step_env, in_axes=(0, 0, 0, None)))
    reset = jax.jit(jax.vmap(env.reset_env, in_axes=(0, None)))
    obs, state = many.reset(jax.random.key(0), params)
    ends = 0
    for t in range(40):
        key, actions = jax.random.key(t), jnp.arange(5) % 2
        key_step, key_reset = jax.random.split(key)
        final, after, reward, terminated, _ = step(
            jax.random.split(key_step, 5), state, actions, params
        )
        first = reset(jax.random.split(key_reset, 5), params)
        obs, state, *result, info = many.step(key, state, actions, params)
        last = np.asarray(result[1] | result[2])
        np.testing.assert_array_equal(result[0], reward)
        np.testing.assert_array_equal(result[1], terminated)
        np.testing.assert_array_equal(result[2], after.time >= 12)
        np.testing.assert_array_equal(info["final_observation"], final)
        np.testing.assert_array_equal(obs, np.where(last[:, None], first[0], final))
        np.testing.assert_array_equal(state.time, np.where(last, 0, after.time))
        ends += last.sum()
    assert ends > 10 and obs.shape[0] == 5


def test_a_previous_action_of_numbers_is_seen_as_it_was():
    env = wrappers.PreviousAction(envs.make("popgym-PositionOnlyPendulumEasy-v0")[0])
    params = env.default_params.replace(max_steps_in_episode=2)
    space = env.observation_space(params)
    np.testing.assert_array_equal(space.low, [-1, -1, -2])
    np.testing.assert_array_equal(space.high, [1, 1, 2])
    obs, state = env.reset(jax.random.key(0), params)
    obs_list = [obs[-1]]
    for torque in (-1.5, 0.25, 1.0):
        obs, state, *_ = env.step(jax.random.key(1), state, jnp.array([torque]), params)
        obs_list.append(obs[-1])
    np.testing.assert_array_equal(obs_list, [0, -1.5, 0, 1.0])  # the episode ended in between


def best_pulls(arms, pulls, arm):
    """Actions and rewards of the policy that tries one arm after the other."""
    actions = np.minimum(np.arange(pulls), arm)
    return actions, (actions == arm).astype(np.float32)


@pytest.mark.parametrize(("arms", "pulls"), [(4, 8), (3, 2), (2, 5)])
def test_a_bandit_keeps_its_arm_for_a_trial(arms, pulls):
    env, params = envs.make("probe-Bandit-v0", arms=arms, pulls=pulls)
    assert params.max_steps_in_episode == pulls
    step = jax.jit(env.step)
    returns, results = [], []
    for seed in range(12):
        obs, state = env.reset(jax.random.key(seed), params)
        arm = int(state.env_state.cue)
        actions, rewards = best_pulls(arms, pulls, arm)
        assert obs.tolist() == [1, 1]
        for t, action in enumerate(actions):
            obs, state, reward, terminated, truncated, info = step(
                jax.random.key(100 * seed + t), state, action, params
            )
            assert reward == rewards[t]
            assert (bool(terminated), bool(truncated)) == (t == pulls - 1, t == pulls - 1)
            assert info["final_observation"].tolist() == [1, t < pulls - 1]
        assert state.time == 0  # and the next trial has begun
        results.append(arm)
    assert {*results} == {*range(arms)}
    returns = [best_pulls(arms, pulls, arm)[1].sum() for arm in range(arms)]
    np.testing.assert_allclose(np.mean(returns), probes.bandit_return(arms, pulls))


def test_a_trial_is_the_same_as_its_episodes_one_by_one():
    """Without `next_episode` each inner episode is a reset; ends inside a trial are hidden."""
    inner, params = envs.make("probe-Delay-v0", num_steps=3)
    env = wrappers.Trial(inner, 2)
    whole = env.default_params
    assert whole.max_steps_in_episode == 2 * params.max_steps_in_episode
    obs, state = env.reset(jax.random.key(0), whole)
    flags, rewards, ends = [obs[-1]], [], []
    for t in range(12):
        obs, state, reward, terminated, truncated, _ = env.step(jax.random.key(t), state, 0, whole)
        flags.append(obs[-1])
        rewards.append(reward)
        ends.append(terminated | truncated)
        np.testing.assert_array_equal(obs[:-1], np.eye(3)[(t + 1) % 3])
    np.testing.assert_array_equal(flags, np.arange(13) % 3 == 0)
    np.testing.assert_array_equal(rewards, np.arange(12) % 3 == 2)
    np.testing.assert_array_equal(ends, np.arange(12) % 6 == 5)


def test_a_user_s_reset_runs_in_every_episode_of_a_trial():
    class Marks(wrappers.Wrapper):
        """Its own `reset_env` shows 9 in the first observation of an episode."""

        def reset_env(self, key, params):
            obs, state = super().reset_env(key, params)
            return obs.at[0].set(9), state

    inner, _ = envs.make("probe-Delay-v0", num_steps=3)
    env = wrappers.Trial(Marks(inner), 3)
    params = env.default_params
    obs, state = env.reset(jax.random.key(0), params)
    marks = [float(obs[0])]
    for t in range(8):
        obs, state, *_ = env.step(jax.random.key(t), state, 0, params)
        marks.append(float(obs[0]))
    assert [t for t, mark in enumerate(marks) if mark == 9] == [0, 3, 6]


def test_a_wrapper_inside_a_trial_keeps_its_task():
    """The arm stays over a trial, and each of its episodes has no previous reward at first."""
    env = wrappers.Trial(wrappers.PreviousReward(probes.Arm(3)), 4)
    params = env.default_params
    step, obs_list = jax.jit(env.step), []
    obs, state = env.reset(jax.random.key(0), params)
    for t in range(40):
        obs_list.append(int(state.env_state.cue))
        np.testing.assert_array_equal(obs, [1, 0, 1])
        obs, state, *_ = step(jax.random.key(t), state, 0, params)
    arms = np.reshape(obs_list, (10, 4))
    assert np.all(arms == arms[:, :1]) and len(np.unique(arms[:, 0])) == 3


def test_the_state_of_a_trial_shows_how_far_it_has_come():
    env, params = envs.make("probe-Bandit-v0", arms=3, pulls=4)
    state = env.reset(jax.random.key(0), params)[1]
    for t in range(4):
        obs = env.state_obs(state, params)
        assert obs.shape == env.state_space(params).shape
        np.testing.assert_allclose(obs[-2:], [t / 4, t / 4])
        state = env.step(jax.random.key(t), state, 0, params)[1]


def test_a_trial_can_be_cut_and_a_truncated_last_episode_truncates_it():
    inner, _ = envs.make("probe-Truncation-v0")
    env = wrappers.Trial(inner, 2)
    for limit, length in ((None, 4), (3, 3)):
        params = env.default_params
        params = params if limit is None else params.replace(max_steps_in_episode=limit)
        state = env.reset(jax.random.key(0), params)[1]
        for t in range(length):
            _, state, _, terminated, truncated, _ = env.step(jax.random.key(t), state, 0, params)
            assert not terminated and bool(truncated) == (t == length - 1)


PAPER_WIDTHS = {
    "popgym-RepeatFirstEasy-v0": (False, 6),
    "popgym-RepeatPreviousPaper-v0": (False, 6),
    "popgym-CountRecallEasy-v0": (True, 33),
    "popgym-PositionOnlyCartPoleEasy-v0": (True, 6),
    "popgym-AutoencodeEasy-v0": (True, 12),
    "popgym-MultiarmedBanditEasy-v0": (True, 14),
}


@pytest.mark.parametrize("env_id", PAPER_WIDTHS)
def test_the_papers_stack_has_the_papers_width(env_id):
    previous_action, width = PAPER_WIDTHS[env_id]
    bare, params = envs.make(env_id)
    env = wrappers.paper_stack(bare, previous_action)
    assert env.observation_space(params).shape == (width,)
    assert jax.eval_shape(env.reset, jax.random.key(0), params)[0].shape == (width,)


def test_the_papers_stack_equals_popgyms_wrappers():
    """What popgym's PreviousAction, Antialias and Flatten append, over the end of an episode."""
    import popgym
    from popgym.wrappers import Antialias, Flatten, PreviousAction

    theirs = Flatten(Antialias(PreviousAction(popgym.envs.autoencode.AutoencodeEasy())))
    env = wrappers.paper_stack(envs.make("popgym-AutoencodeEasy-v0")[0])
    _, state = env.reset(jax.random.key(0))
    frames = [theirs.reset(seed=0)[0][6:]]
    ours = [env.reset(jax.random.key(0))[0][6:]]
    actions = np.random.default_rng(0).integers(0, 4, 110)
    for action in actions:
        frame, _, terminated, truncated, _ = theirs.step(int(action))
        obs, state, _, _, _, info = env.step(jax.random.key(1), state, int(action))
        np.testing.assert_array_equal(info["final_observation"][6:], frame[6:])
        ours.append(obs[6:])
        frames.append(theirs.reset()[0][6:] if terminated or truncated else frame[6:])
    np.testing.assert_array_equal(np.stack(ours), np.stack(frames))
    assert np.stack(ours)[:, -1].sum() == 2


def test_wrappers_are_values():
    """Equal wrappers are one static argument; copies and pickles work, unlike gymnax's own."""
    build = lambda: wrappers.paper_stack(envs.make("popgym-RepeatFirstEasy-v0")[0])  # noqa: E731
    env = build()
    for twin in (build(), copy.copy(env), copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert twin == env and hash(twin) == hash(env)
    assert wrappers.BeginFlag(TASK) != wrappers.BeginFlag(TASK, one_hot=True)
    assert wrappers.BeginFlag(TASK) != wrappers.PreviousReward(TASK)
    assert repr(wrappers.TimeLimit(wrappers.BeginFlag(TASK), 3)).startswith("TimeLimit(BeginFlag(")


@pytest.mark.slow
def test_a_wrapper_is_an_environment():
    env = wrappers.EpisodeStatistics(wrappers.PreviousReward(wrappers.TimeLimit(TAGS, 2)))
    params = env.default_params
    assert isinstance(env, environment.Environment) and env.unwrapped is TAGS
    assert params.max_steps_in_episode == 2 and env.num_actions == 3 and env.name == "Tags"
    assert env.action_space().n == env.action_space(params).n == 3
    obs, state = env.reset(jax.random.key(0))
    assert env.observation_space(params).contains(obs) and state.time == 0
    assert env.state_obs(state, params).shape == (3,)
    assert not env.is_terminated(state, params) and not env.is_truncated(state, params)
    assert len(env.step(jax.random.key(0), state, 1)) == 6
    wrapper = LogWrapper(env)
    _, state = wrapper.reset(jax.random.key(0), params)
    assert "returned_episode_returns" in wrapper.step(jax.random.key(0), state, 1, params)[-1]


def test_transition_gradients_pass_through():
    bare, params = gymnax.make("Pendulum-v1")
    env = wrappers.BeginFlag(bare)
    assert env.supports_transition_gradients and not env.transition_gradients_enabled
    smooth = env.with_transition_gradients()
    assert smooth.transition_gradients_enabled and not env.transition_gradients_enabled

    def slope(env):
        _, state = env.reset(jax.random.key(0), params)
        step = lambda a: env.step(jax.random.key(1), state, a, params)[0].sum()  # noqa: E731
        return float(jax.grad(step)(jnp.float32(0.5)))

    assert slope(env) == 0 and slope(smooth) != 0


@pytest.mark.parametrize("env_id", ["popgym-RepeatPreviusEasy-v0", "", "Cartpole-v1"])
def test_unknown_names_suggest_the_nearest(env_id):
    with pytest.raises(ValueError, match="`env_id`") as error:
        envs.make(env_id)
    nearest = str(error.value).split("Nearest: ")[1].split(". ")[0].split(", ")
    assert len(nearest) == 3 and set(nearest) <= set(envs.registered_ids())


def test_the_nearest_name_is_the_meant_one():
    with pytest.raises(ValueError, match="Nearest: CartPole-v1,"):
        envs.make("Cartpole-v1")
    with pytest.raises(ValueError, match="Nearest: popgym-RepeatPreviousEasy-v0,"):
        envs.make("popgym-RepeatPreviusEasy-v0")


def test_wrong_arguments_list_the_right_ones():
    with pytest.raises(ValueError, match=r"`kwargs` must .*probe-Memory-v0.*num_steps: int = 5"):
        envs.make("probe-Memory-v0", steps=3)


def test_registering_twice_changes_nothing():
    before = envs.registered_ids()
    envs.register()
    assert envs.registered_ids() == before and len(set(before)) == len(before)
    assert gymnax.make("popgym-RepeatFirstEasy-v0")[0] == envs.make("popgym-RepeatFirstEasy-v0")[0]
    assert {"CartPole-v1", "probe-Memory-v0", "popgym-RepeatPreviousPaper-v0"} <= set(before)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "bool", "float16"])
def test_observations_have_the_dtype_of_their_space(dtype: str):
    """Also behind a wrapper that appends to them, or adds noise."""

    class Pixels(Tags):
        def observe(self, *args):
            return Tags.observe(self, *args).astype(dtype)

        def observation_space(self, params):
            return spaces.Box(0, 1, (2,), jnp.dtype(dtype))

    env = Pixels()
    for wrap in (
        *(wrappers.BeginFlag, wrappers.PreviousAction, wrappers.PreviousReward),
        *(wrappers.StateObservation, wrappers.FlattenObservation),
        functools.partial(wrappers.MaskObservation, indices=[1]),
        *(
            functools.partial(wrappers.NoisyObservation, sigma=0.1, clip=clip)
            for clip in (True, False)
        ),
    ):
        wrapper = wrap(env)
        obs, _ = jax.eval_shape(wrapper.reset_env, jax.random.key(0), env.default_params)
        space = wrapper.observation_space(wrapper.default_params)
        assert (obs.shape, obs.dtype) == (space.shape, space.dtype), wrap
