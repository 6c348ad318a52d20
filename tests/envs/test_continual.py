"""Families of tasks, shared spaces, and the orders to meet them in."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import rollout
from mmrl.agents import clear
from mmrl.course import plain
from mmrl.course.continual import cycles
from mmrl.envs import continual, make
from mmrl.envs.wrappers import BeginFlag, TimeLimit

TASKS, STEPS = 3, 40
FAMILY, PARAMS = continual.permuted_catch(TASKS, rows=5, columns=4, seed=1)
BARE = FAMILY.env


def of(task, params=PARAMS):
    return dataclasses.replace(params, task=task)


@jax.jit
def tape(task, actions, key):
    """What the family does when it is given these actions."""

    def policy(t, obs, begin, key):
        return t + 1, actions[t]

    carry = rollout.start(FAMILY, of(task), jnp.int32(0), key)
    return rollout.collect(policy, FAMILY, of(task), carry, key, STEPS)[1]


@jax.jit
def bare_tape(actions, key):
    def policy(t, obs, begin, key):
        return t + 1, actions[t]

    params = BARE.default_params
    carry = rollout.start(BARE, params, jnp.int32(0), key)
    return rollout.collect(policy, BARE, params, carry, key, STEPS)[1]


@pytest.mark.slow
@pytest.mark.parametrize("task", range(TASKS))
def test_a_task_is_the_game_in_disguise(task: int):
    """The same chance and the actions that mean the same give the same game, pixels reordered."""
    key = jax.random.key(2)
    actions = jax.random.randint(key, (STEPS,), 0, 3)
    bare = bare_tape(actions, key)
    # Action a of task k does what a + k does in the game.
    tape_of_task = tape(task, (actions - task) % 3, key)
    order = FAMILY.orders()[task]
    for name in ("obs", "next_obs"):
        np.testing.assert_array_equal(getattr(tape_of_task, name), getattr(bare, name)[:, order])
    for name in ("reward", "begin", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(tape_of_task, name), getattr(bare, name))
    assert bare.terminated.sum() >= 8 and -1 in bare.reward


def test_orders_are_permutations_that_differ():
    orders = continual.PermutedTasks(BARE, 5, seed=3).orders()
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(20), (5, 1)))
    np.testing.assert_array_equal(orders[0], np.arange(20))
    assert len({tuple(order) for order in orders}) == 5
    assert not np.array_equal(orders[1], continual.PermutedTasks(BARE, 5, seed=4).orders()[1])
    np.testing.assert_array_equal(orders[:2], continual.PermutedTasks(BARE, 2, seed=3).orders())


def test_one_program_plays_all_tasks_side_by_side():
    """The task is traced: a batch of environments may play a task each."""
    key, actions = jax.random.key(4), jnp.ones(STEPS, jnp.int32)
    together = jax.vmap(lambda task: tape(task, actions, key))(jnp.arange(TASKS))
    for task in range(TASKS):
        alone = tape(task, actions, key)
        np.testing.assert_array_equal(together.obs[task], alone.obs)
        np.testing.assert_array_equal(together.reward[task], alone.reward)
    assert tape._cache_size() <= 2  # an int and a traced one, whatever the task


def test_families_with_equal_arguments_are_equal():
    assert (
        FAMILY == continual.PermutedTasks(BARE, TASKS, 1) != continual.PermutedTasks(BARE, TASKS, 2)
    )
    assert hash(FAMILY) == hash(continual.PermutedTasks(BARE, TASKS, 1))


def test_a_family_lives_among_wrappers():
    """A time limit truncates it, a flag is appended behind its pixels."""
    env = BeginFlag(TimeLimit(FAMILY, 2))
    params = of(2, env.default_params)
    obs, state = env.reset(jax.random.key(0), params)
    assert env.observation_space(params).shape == obs.shape == (21,) and obs[-1] == 1
    obs, state, *_ = env.step(jax.random.key(1), state, 0, params)
    obs, state, _, terminated, truncated, info = env.step(jax.random.key(2), state, 0, params)
    assert truncated and not terminated and info["final_observation"][-1] == 0 and obs[-1] == 1
    np.testing.assert_array_equal(info["final_observation"][:-1].sum(), 2)  # ball and paddle


def test_a_family_of_memory_tasks():
    """Any environment with a vector to look at and actions to count."""
    env = continual.PermutedTasks(make("popgym-RepeatFirstEasy-v0")[0], 2)
    obs, _ = env.reset(jax.random.key(0), of(1, env.default_params))
    assert obs.shape == (env.size,)


# Shared spaces


@pytest.mark.slow
def test_padding_changes_nothing_else():
    env, params = make("Catch-bsuite", rows=5, columns=4)
    padding = continual.PadObservation(env, (7, 4), 5)
    assert padding.observation_space(params).shape == (7, 4)
    assert padding.num_actions == padding.action_space(params).n == 5
    key = jax.random.key(0)
    (obs, state), (wide, other) = env.reset(key, params), padding.reset(key, params)
    for t, action in enumerate([0, 2, 3, 4, 1, 2]):
        own_action = action if action < 3 else 0
        obs, state, reward, *flags, info = env.step(jax.random.key(t), state, own_action, params)
        wide, other, *rest, extras = padding.step(jax.random.key(t), other, action, params)
        for ours, theirs in ((wide, obs), (extras["final_observation"], info["final_observation"])):
            np.testing.assert_array_equal(ours[:5], theirs)
            np.testing.assert_array_equal(ours[5:], 0)
        np.testing.assert_array_equal(rest, [reward, *flags])


def test_sharing_takes_the_largest_of_each():
    names = (
        "popgym-RepeatPreviousEasy-v0",
        "popgym-CountRecallEasy-v0",
        "popgym-AutoencodeEasy-v0",
    )
    envs = [make(name)[0] for name in names]
    common = continual.share(envs)
    sizes = [env.observation_space(env.default_params).shape[0] for env in envs]
    assert len(set(sizes)) > 1
    for env in common:
        params = env.default_params
        assert env.observation_space(params).shape == (max(sizes),)
        assert env.action_space(params).n == max(e.num_actions for e in envs)
        assert env.reset(jax.random.key(0), params)[0].shape == (max(sizes),)


@pytest.mark.full
@pytest.mark.parametrize("game", ["Asterix", "Breakout", "SpaceInvaders"])
def test_minatar_games_share_ten_channels_and_six_actions(game: str):
    env, params = continual.minatar(game)
    assert env.observation_space(params).shape == (10, 10, 10)
    assert env.action_space(params).n == 6
    obs, state = env.reset(jax.random.key(0), params)
    own = env.env.observation_space(params).shape[-1]
    obs = env.step(jax.random.key(1), state, 5, params)[0]
    assert obs.shape == (10, 10, 10) and obs.dtype == jnp.float32
    assert obs[..., :own].any() and not obs[..., own:].any()


CARDS = ("RepeatFirstEasy", "RepeatPreviousEasy", "CountRecallEasy")


@pytest.mark.slow
def test_popgym_tasks_share_spaces_and_are_themselves():
    """Numbers in other places and actions shifted: else the same game by the same chance."""
    tasks, key = continual.popgym(CARDS), jax.random.key(5)
    assert len({env.observation_space(params).shape for env, params in tasks}) == 1
    assert {env.action_space(params).n for env, params in tasks} == {27}  # of CountRecall
    for task, (env, params) in enumerate(tasks):
        bare, own = make(f"popgym-{CARDS[task]}-v0")
        (view, state), (obs, other) = env.reset(key, params), bare.reset(key, own)
        back = np.argsort(env.orders()[task])
        for step in range(8):
            np.testing.assert_array_equal(view[back][: len(obs)], obs)
            assert view.shape == (12,) and view.sum() == obs.sum() > 0
            action, step_key = step % bare.num_actions, jax.random.key(step)
            view, state, reward, *flags, _ = env.step(step_key, state, (action - task) % 27, params)
            obs, other, *rest, _ = bare.step(step_key, other, action, own)
            np.testing.assert_array_equal(rest, [reward, *flags])


def test_popgym_tasks_that_look_alike_are_told_apart_by_places():
    """RepeatFirst and RepeatPrevious both show a suit and nothing else."""
    places = []
    for task, (env, params) in enumerate(continual.popgym(CARDS[:2])):
        pairs = [env.reset(jax.random.key(seed), params) for seed in range(20)]
        places.append({int(np.argmax(obs)) for obs, _ in pairs})
        assert len(places[-1]) == 4 and env.seed == 0 and params.task == task
    assert places[0] != places[1]


@pytest.mark.full
def test_popgym_tasks_are_toured():
    """One network with a memory learns from one after the other and is evaluated in both."""
    config = dataclasses.replace(
        plain.CLEAR,
        memory="lru",
        memory_sizes=(("state_size", 4),),
        width=8,
        shared=True,
        environments=2,
        rollout=6,
        capacity=48,
        block=2,
        blocks=1,
        episodes=2,
    )
    games = continual.popgym(CARDS[:2])
    state, curves = cycles.tour(clear, config, games, (0, 1), jax.random.key(0))
    scores = curves.by_policy["sampled"].scores
    assert curves.finite and scores.shape == (2, 1, 2) and state.iteration == 4
    assert (np.abs(scores) <= 1 + 1e-5).all() and np.ptp(scores) > 0
    # What is stored is of both tasks, two unrolls each of each environment, in their own places.
    storage = state.reservoir
    obs = np.asarray(storage.unrolls.steps.obs)[np.isfinite(storage.lots).ravel()]
    own = [np.isin(np.arange(8), np.argsort(env.orders()[p.task])[:4]) for env, p in games]
    fits = [(obs[..., ~places] == 0).all((1, 2)) for places in own]
    assert len(obs) == 8 and fits[0].sum() == fits[1].sum() == 4 and np.any(fits, axis=0).all()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("tasks", lambda: continual.PermutedTasks(BARE, 0)),
        ("env", lambda: continual.PermutedTasks(make("Catch-bsuite")[0])),
        ("env", lambda: continual.PermutedTasks(make("Pendulum-v1")[0])),
        ("shape", lambda: continual.PadObservation(BARE, (19,), 3)),
        ("shape", lambda: continual.PadObservation(BARE, (4, 20), 3)),
        ("actions", lambda: continual.PadObservation(BARE, (20,), 2)),
        ("envs", lambda: continual.share([BARE, make("Catch-bsuite")[0]])),
        ("game", lambda: continual.minatar("Pong")),
        ("names", lambda: continual.popgym(())),
        ("env_id", lambda: continual.popgym(("RepeatFirst",))),
    ],
)
def test_errors_name_the_argument(name: str, call):
    with pytest.raises(ValueError, match=f"`{name}`"):
        call()
