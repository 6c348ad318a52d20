"""Pictures are stored once, and come back as if every step had stored its two."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.replay import frames, reservoir, segments, sequences, tape
from mmrl.replay.reservoir import Unrolls
from mmrl.rollout import Transition

SHAPE = (2, 2, 1)
WORKERS, TIME, SHORT = 2, 6, 3


def play(rollouts: int, seed: int, least: int = SHORT, mean: int = 6) -> Any:
    """Return a rollout of [worker, rollouts · TIME] whose pictures are all different.

    Episodes end by chance, in truncation, termination or both; none truncates before `least` steps.
    """
    rng, steps = np.random.default_rng(seed), rollouts * TIME
    shape = (WORKERS, steps)
    ends, both = rng.random(shape) < 1 / mean, rng.random(shape) < 0.2
    terminated, truncated = np.zeros(shape, bool), np.zeros(shape, bool)
    begin, age = np.ones(shape, bool), np.zeros(WORKERS, int)
    for t in range(steps):
        age += 1
        by_limit = (rng.random(WORKERS) < 0.6) & (age >= least)
        truncated[:, t] = ends[:, t] & (by_limit | both[:, t])
        terminated[:, t] = ends[:, t] & (~by_limit | both[:, t])
        age = np.where(ends[:, t], 0, age)
    last = terminated | truncated
    begin[:, 1:] = last[:, :-1]
    obs = rng.integers(1, 256, (*shape, *SHAPE)).astype(np.uint8)
    final = rng.integers(1, 256, (*shape, *SHAPE)).astype(np.uint8)
    ahead = np.concatenate([obs[:, 1:], final[:, -1:]], axis=1)
    next_obs = np.where(last[..., None, None, None], final, ahead)
    number = rng.random((*shape, 1)).astype(np.float32)
    return jax.tree.map(
        jnp.asarray,
        Transition(
            obs=(obs, number),
            action=rng.integers(0, 3, shape).astype(np.int32),
            reward=rng.random(shape).astype(np.float32),
            next_obs=(next_obs, number + 1),
            begin=begin,
            terminated=terminated,
            truncated=truncated,
        ),
    )


def cut(steps: Any, start: int, stop: int) -> Any:
    return jax.tree.map(lambda x: x[:, start:stop], steps)


def flat(steps: Any) -> Any:
    """Return steps whose pictures are vectors, which every step stores twice."""

    def vectors(obs):
        return obs[0].reshape(*obs[0].shape[:-3], -1), obs[1]

    return dataclasses.replace(steps, obs=vectors(steps.obs), next_obs=vectors(steps.next_obs))


def example(steps: Any) -> Any:
    return jax.tree.map(lambda x: x[0, 0], steps)


def same(mine: Any, theirs: Any, mask: Any) -> None:
    """Everything is equal, but for next pictures where an episode terminated."""
    mine = flat(mine)
    matters = np.asarray(mask & ~mine.terminated)[..., None]
    ahead, expected = (np.where(matters, x.next_obs[0], 0) for x in (mine, theirs))
    np.testing.assert_array_equal(ahead, expected)
    other = dataclasses.replace(mine, next_obs=theirs.next_obs)
    jax.tree.map(np.testing.assert_array_equal, other, theirs)


@jax.jit
def add_to_tapes(tapes: Any, rollout: Any) -> Any:
    return tape.add(tapes[0], rollout), tape.add(tapes[1], flat(rollout))


@jax.jit
def samples(tapes: Any, key: Any) -> Any:
    batch = [tape.sample(each, key, 40) for each in tapes]
    return batch, [segments.sample(each, key, 40, 4) for each in tapes]


def test_a_tape_of_pictures_equals_one_that_stores_them_twice():
    steps = play(40, 0)
    inits = [
        tape.init(example(x), WORKERS * 20, workers=WORKERS, shortest=SHORT)
        for x in (steps, flat(steps))
    ]
    assert inits[1].frames is None
    tapes, count = tuple(inits), 0
    for i in range(40):
        tapes = add_to_tapes(tapes, cut(steps, i * TIME, (i + 1) * TIME))
        np.testing.assert_array_equal(tapes[0].length, tapes[1].length)
        for mine, theirs in samples(tapes, jax.random.key(i)):
            np.testing.assert_array_equal(mine.mask, theirs.mask)
            same(mine.steps, theirs.steps, mine.mask)
            count += int(mine.mask.sum())
    assert count > 1000


def test_a_truncated_episode_that_is_too_short_lacks_its_last_step():
    steps = play(20, 5, least=1, mean=3)
    store = tape.init(example(steps), WORKERS * 20, workers=WORKERS, shortest=SHORT)
    pair = (store, tape.init(example(flat(steps)), WORKERS * 20, workers=WORKERS))
    count = 0
    for i in range(20):
        pair = add_to_tapes(pair, cut(steps, i * TIME, (i + 1) * TIME))
        here, there = pair[0].length, pair[1].length
        less = here != there
        assert np.all(here[less] == there[less] - 1) and np.all(there[less] < SHORT)
        count += int((less & (here > 0)).sum())
        rows = np.arange(len(here)) // 20 * 20
        ends = rows + (np.arange(len(here)) - rows + here - 1) % 20
        early = np.asarray(pair[0].steps.truncated)[ends[less & (here > 0)]]
        assert early.all() and not np.asarray(pair[1].steps.last)[ends[less & (here > 0)]].any()
        (mine, _), _ = samples(pair, jax.random.key(i))
        final = np.append(np.asarray(mine.begin)[1:], True) & np.asarray(mine.mask)
        assert np.all(np.asarray(mine.steps.last)[final][:-1])
        expected = {tuple(x) for x in np.asarray(flat(steps).next_obs[0]).reshape(-1, 4).tolist()}
        real = np.asarray(mine.mask & ~mine.steps.terminated)
        pictures = np.asarray(flat(mine.steps).next_obs[0])[real]
        assert {tuple(x) for x in pictures.tolist()} <= expected
    assert count > 5


@jax.jit
def add_to_sequences(pair: Any, rollout: Any) -> Any:
    errors = rollout.reward
    state = rollout.reward[..., None]
    return tuple(
        sequences.add(each, x, state, errors)
        for each, x in zip(pair, (rollout, flat(rollout)), strict=True)
    )


@jax.jit
def windows(pair: Any, key: Any) -> Any:
    return [sequences.sample(each, key, 8) for each in pair]


def test_sequences_of_pictures_equal_those_that_store_them_twice():
    steps = play(40, 1)
    sizes: dict[str, Any] = {"workers": WORKERS, "length": 4, "overlap": 2, "burn_in": 2, "tail": 1}
    pair: Any = tuple(
        sequences.init(example(x), jnp.zeros(1), WORKERS * 24, shortest=SHORT, **sizes)
        for x in (steps, flat(steps))
    )
    count = 0
    for i in range(40):
        pair = add_to_sequences(pair, cut(steps, i * TIME, (i + 1) * TIME))
        mine, theirs = windows(pair, jax.random.key(i))
        np.testing.assert_array_equal(mine.mask, theirs.mask)
        same(mine.steps, theirs.steps, mine.mask)
        count += int(mine.mask.sum())
    assert count > 1000


@jax.jit
def add_and_sample(pair: Any, unrolls: Unrolls, key: Any) -> Any:
    other = unrolls._replace(steps=flat(unrolls.steps))
    pair = reservoir.add(pair[0], unrolls, key), reservoir.add(pair[1], other, key)
    return pair, [reservoir.sample(each, key, 4) for each in pair]


@pytest.mark.full
def test_a_reservoir_of_pictures_equals_one_that_stores_them_twice():
    steps = play(30, 7)
    pair: Any = tuple(
        reservoir.init(example(x), jnp.zeros(1), 60, workers=WORKERS, length=TIME, shortest=SHORT)
        for x in (steps, flat(steps))
    )
    for i in range(30):
        unrolls = Unrolls(jnp.full((WORKERS, 1), i), cut(steps, i * TIME, (i + 1) * TIME))
        unrolls = unrolls._replace(state=unrolls.state.astype(jnp.float32))
        pair, (mine, theirs) = add_and_sample(pair, unrolls, jax.random.key(i))
        np.testing.assert_array_equal(mine.state, theirs.state)
        same(mine.steps, theirs.steps, np.ones(mine.steps.begin.shape, bool))
    union = reservoir.merge(*[pair[0]] * 2)
    assert int(union.counts.sum()) == int(pair[0].counts.sum())


def test_an_unroll_with_too_many_truncations_is_not_kept():
    steps = play(1, 0)
    often = dataclasses.replace(
        steps, truncated=jnp.ones_like(steps.truncated), terminated=jnp.zeros_like(steps.truncated)
    )
    sizes: dict[str, Any] = {"workers": WORKERS, "length": TIME, "shortest": SHORT}
    store = reservoir.init(example(steps), jnp.zeros(1), 60, **sizes)
    add = jax.jit(reservoir.add)
    for kind, count in ((often, 0), (steps, WORKERS)):
        store = add(store, Unrolls(jnp.zeros((WORKERS, 1)), kind), jax.random.key(0))
        assert int(store.counts.sum()) == count


SCREEN = (84, 84, 4)


@pytest.mark.parametrize("kind", ["tape", "sequences", "reservoir"])
def test_a_step_takes_little_more_than_its_picture(kind: str):
    """At most 1.15 times the bytes of the picture, in the type that the environment has."""
    picture, flag = jnp.zeros(SCREEN, jnp.uint8), jnp.zeros((), bool)
    obs = picture, jnp.zeros(20)
    number = jnp.zeros(())
    one = Transition(obs, jnp.int32(0), number, obs, flag, flag, flag)
    steps, state = 64_000, jnp.zeros(256)

    def init() -> Any:
        if kind == "tape":
            return tape.init(one, steps, workers=16)
        if kind == "sequences":
            return sequences.init(one, state, steps, workers=16, overlap=0)
        return reservoir.init(one, state, steps, workers=16, length=64)

    leaves = jax.tree.leaves(jax.eval_shape(init))
    size = sum(x.size * x.dtype.itemsize for x in leaves)
    assert size / steps <= 1.15 * 28_224
    assert {x.dtype for x in leaves if x.shape[-3:] == SCREEN} == {jnp.dtype(jnp.uint8)}


def test_pictures_of_another_shape_are_refused():
    steps = play(1, 0)
    store = tape.init(example(steps), WORKERS * 20, workers=WORKERS)
    wrong = dataclasses.replace(steps, obs=(steps.obs[0][..., :1, :], steps.obs[1]))
    with pytest.raises(ValueError, match=r"`rollout` must .*images .*`init`"):
        tape.add(store, wrong)
    assert frames.SHORTEST == 16


@pytest.mark.full
def test_the_error_of_a_step_that_is_not_stored_does_not_matter():
    """An episode of two steps is stored without its second, and so is its error."""
    steps = cut(play(2, 0), 0, 2 * TIME)
    never = jnp.zeros_like(steps.truncated)
    begin = never.at[:, jnp.array([0, 2])].set(True)
    steps = dataclasses.replace(
        steps, terminated=never, truncated=never.at[:, 1].set(True), begin=begin
    )
    sizes: dict[str, Any] = {"workers": WORKERS, "length": 4, "overlap": 2, "burn_in": 2, "tail": 1}
    store = sequences.init(example(steps), jnp.zeros(1), WORKERS * 24, shortest=SHORT, **sizes)
    errors = jnp.ones(steps.truncated.shape)

    def priorities(errors: Any) -> Any:
        sums = store
        for k in (0, TIME):
            here = cut((steps, errors), k, k + TIME)
            sums = sequences.add(sums, here[0], jnp.zeros((WORKERS, TIME, 1)), here[1])
        return sums.sums

    expected = priorities(errors)
    jax.tree.map(np.testing.assert_array_equal, priorities(errors.at[:, 1].set(9)), expected)
    other = priorities(errors.at[:, 0].set(9))
    assert any(
        np.any(x != y) for x, y in zip(*map(jax.tree.leaves, (other, expected)), strict=True)
    )
