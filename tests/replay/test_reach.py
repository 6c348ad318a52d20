"""Every step that is stored can be learned from, however long its episode is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import dqn
from mmrl.course import plain
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag
from mmrl.replay import reservoir, segments, sequences, tape

LENGTHS = (23, 1, 40, 7)
STEPS = sum(LENGTHS)
LAST = np.isin(np.arange(STEPS), np.cumsum(LENGTHS) - 1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Step:
    number: jax.Array  # of the step, from 1: padding is 0
    last: jax.Array


EXAMPLE = Step(jnp.zeros((), jnp.int32), jnp.zeros((), bool))
ROLLOUT = Step(jnp.arange(1, STEPS + 1)[None], jnp.asarray(LAST)[None])
KEYS = jax.random.split(jax.random.key(0), 300)


def trained_steps(draw) -> set[int]:
    """The numbers of the steps that `draw(key)` -> (numbers, is it trained?) gives in 300 draws."""
    numbers, mask = jax.jit(jax.vmap(draw))(KEYS)
    return set(np.asarray(numbers)[np.asarray(mask)].tolist())


@pytest.fixture(scope="module")
def tape_data() -> tape.Tape:
    return jax.jit(lambda rollout: tape.add(tape.init(EXAMPLE, STEPS), rollout))(ROLLOUT)


@pytest.mark.slow
def test_a_tape_reaches_every_step_of_episodes_that_fit_the_batch(tape_data):
    def draw(key):
        batch = tape.sample(tape_data, key, max(LENGTHS))
        return batch.steps.number, batch.mask

    assert trained_steps(draw) == set(range(1, STEPS + 1))


def test_a_tape_never_reaches_what_comes_after_a_batch(tape_data):
    """Eq. 35: B[:B] ends an episode that is longer. Hence the rule of `dqn.check`."""

    def draw(key):
        batch = tape.sample(tape_data, key, 30)
        return batch.steps.number, batch.mask

    beyond = range(sum(LENGTHS[:2]) + 31, sum(LENGTHS[:3]) + 1)
    assert trained_steps(draw) == set(range(1, STEPS + 1)) - set(beyond)


@pytest.mark.parametrize("length", [3, 10])
def test_segments_reach_every_step_whatever_the_batch(tape_data, length):
    def draw(key):
        batch = segments.sample(tape_data, key, 30, length)
        return batch.steps.number, batch.mask

    assert trained_steps(draw) == set(range(1, STEPS + 1))


@pytest.mark.parametrize(("length", "overlap", "tail"), [(4, 2, 0), (10, 0, 4), (10, 5, 2)])
def test_sequences_reach_every_step(length, overlap, tail):
    sizes = {"length": length, "overlap": overlap, "burn_in": 3, "tail": tail}

    @jax.jit
    def build(rollout):
        rings = sequences.init(EXAMPLE, jnp.zeros(()), 200, **sizes)
        return sequences.add(rings, rollout, jnp.zeros((1, STEPS)), jnp.ones((1, STEPS)))

    rings = build(ROLLOUT)

    def draw(key):
        batch = sequences.sample(rings, key, 8)
        return batch.steps.number, batch.loss_mask

    assert trained_steps(draw) == set(range(1, STEPS + 1))


def test_a_reservoir_reaches_every_step_of_what_it_keeps():
    """Unrolls know no episodes: their ends are stored like any other step."""
    storage = reservoir.init(EXAMPLE, jnp.zeros(()), 70, length=7)
    unrolls = jax.tree.map(lambda x: x[0, :70].reshape(10, 7), ROLLOUT)
    key = jax.random.key(1)
    storage = jax.jit(reservoir.add)(storage, reservoir.Unrolls(jnp.zeros(10), unrolls), key)

    def draw(key):
        batch = reservoir.sample(storage, key, 5)
        return batch.steps.number, batch.steps.number > 0

    assert trained_steps(draw) == set(range(1, 71))


HARD = "popgym-RepeatFirstHard-v0"  # 831 steps


def test_dqn_refuses_a_batch_that_an_episode_may_outlast():
    env, params = make(HARD)
    with pytest.raises(ValueError, match="Set batch=831, or batching='segments'"):
        dqn.check(plain.DQN, env, params)
    with pytest.raises(ValueError, match=r"`batch` must .*831 steps; got 500"):
        jax.eval_shape(lambda: dqn.train(plain.DQN, env, params, jax.random.key(0)))
    dqn.check(dataclasses.replace(plain.DQN, batch=831, environments=8), env, params)
    dqn.check(dataclasses.replace(plain.DQN, batching="segments", environments=8), env, params)


LONGEST, TURN = 12, 5  # steps of an episode and of a rollout


def holds_episode(depth: int) -> np.ndarray:
    """Does a tape hold a whole episode, after each of 60 rollouts of the longest episodes?"""
    last = jnp.asarray(np.arange(1, 60 * TURN + 1) % LONGEST == 0).reshape(60, 1, TURN)

    def add(storage, last):
        storage = tape.add(storage, Step(jnp.ones(last.shape, jnp.int32), last))
        return storage, jnp.any(tape.valid(storage))

    return np.asarray(jax.lax.scan(add, tape.init(EXAMPLE, depth), last)[1])


@pytest.mark.slow
def test_a_tape_for_two_episodes_and_a_rollout_is_never_empty_again():
    depth, first = 2 * LONGEST + TURN, -(-LONGEST // TURN)
    assert holds_episode(depth)[first - 1 :].all()
    assert holds_episode(LONGEST).mean() < 0.3 < holds_episode(LONGEST + TURN).mean() < 0.9


@pytest.mark.parametrize("batching", ["tape", "segments"])
def test_dqn_refuses_a_tape_that_often_holds_no_episode(batching):
    env, params = make(HARD)
    config = dataclasses.replace(
        plain.DQN, batching=batching, batch=840, environments=16, rollout=16
    )
    with pytest.raises(ValueError, match="Set capacity=26848, or use fewer environments"):
        dqn.check(config, env, params)
    dqn.check(dataclasses.replace(config, capacity=26_848), env, params)


@pytest.mark.slow
def test_dqn_learns_from_every_step_of_the_longest_episode():
    env, params = make(HARD)
    env, time = BeginFlag(env), params.max_steps_in_episode
    small = dataclasses.replace(
        plain.DQN, width=4, memory_sizes=(("state_size", 2),), environments=1, rollout=time
    )
    config = dataclasses.replace(small, batch=831, capacity=3 * 831)
    dqn.check(config, env, params)

    @jax.jit
    def steps(key):
        state = dqn.init(config, env, params, key)
        state, _ = dqn.act_and_store(config, env, params, state, key)
        batch = dqn.sample(config, state, key)
        return jnp.sum(batch.mask), jnp.sum(batch.begin & batch.mask), batch.steps.terminated

    count, begins, terminated = steps(jax.random.key(0))
    assert (count, begins) == (831, 1) and np.flatnonzero(terminated).tolist() == [830]
