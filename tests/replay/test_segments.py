"""Segments of one episode against loops typed from the paper, and rows drawn from a tape."""

from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mmrl.replay import segments, tape, tree


class Step(eqx.Module):
    id: jax.Array
    last: jax.Array


EXAMPLE = Step(np.zeros((), np.int32), np.zeros((), bool))
add = jax.jit(tape.add)
sample = jax.jit(segments.sample, static_argnums=(2, 3))


def tape_of(lengths, capacity=None) -> tape.Tape:
    """A tape of one worker with episodes of these lengths, ids counting from 1."""
    last = np.zeros(sum(lengths), bool)
    last[np.cumsum(lengths) - 1] = True
    rollout = Step(1 + np.arange(len(last), dtype=np.int32)[None], last[None])
    build = jax.jit(lambda x: tape.add(tape.init(EXAMPLE, capacity or len(last)), x))
    return build(rollout)


def dataset(lengths, length) -> list[list[int]]:
    """The rows of Eq. 27 without their padding, in the ids of `tape_of`: a plain loop."""
    rows, first = [], 1
    for steps in lengths:
        episode = list(range(first, first + steps))
        while episode:
            rows.append(episode[:length])
            episode = episode[length:]
        first += steps
    return rows


LENGTHS = [1, 7, 3, 6, 4, 10, 2]


@pytest.mark.parametrize("length", [1, 3, 12])
def test_sampled_rows_are_rows_of_the_dataset(length):
    t = tape_of(LENGTHS, capacity=40)
    expected = dataset(LENGTHS, length)
    draw = jax.jit(jax.vmap(lambda key: segments.sample(t, key, 5 * length, length)))
    batch = jax.device_get(draw(jax.random.split(jax.random.key(length), 200)))
    ids, mask = (x.reshape(-1, length) for x in (batch.steps.id, batch.mask))
    np.testing.assert_array_equal(
        batch.begin.reshape(-1, length), np.tile(np.arange(length) == 0, (1000, 1))
    )
    np.testing.assert_array_equal(batch.episode, np.tile(np.repeat(np.arange(5), length), (200, 1)))
    starts = np.cumsum([0, *LENGTHS])
    counts = Counter()
    for row, real, first in zip(ids, mask, batch.rows.reshape(-1), strict=True):
        steps = row[real].tolist()
        assert steps in expected
        np.testing.assert_array_equal(real, np.arange(length) < len(steps))
        assert not row[~real].any()
        assert first == starts[np.searchsorted(starts, steps[0]) - 1]
        counts["padded" if len(steps) < length else "full"] += 1
        counts[tuple(steps)] += 1
    assert {tuple(row) for row in expected} <= set(counts), "a row is out of reach"
    assert (counts["padded"] > 0) == (length > 1) and (counts["full"] > 0) == (length < 12)


@pytest.mark.slow
def test_every_segment_is_as_likely(monkeypatch):
    """Whatever the lengths: chi-square, from a tree of several levels."""
    monkeypatch.setattr(tree, "TOP", 4)
    monkeypatch.setattr(tree, "BRANCH", 3)
    length = 3
    t = tape_of(LENGTHS, capacity=40)
    draw = jax.jit(jax.vmap(lambda key: segments.sample(t, key, 4 * length, length).steps.id))
    result = draw(jax.random.split(jax.random.key(1), 10_000)).reshape(-1, length)[:, 0]
    rows = dataset(LENGTHS, length)
    counts = Counter(result.tolist())
    counts_of_rows = np.array([counts[row[0]] for row in rows])
    assert counts_of_rows.sum() == len(result)
    expected = np.full(len(rows), len(result) / len(rows))
    assert stats.chisquare(counts_of_rows, expected, sum_check=False).pvalue > 1e-4


@pytest.mark.slow
def test_one_segment_is_the_tape():
    """An episode no longer than a segment: both batching methods give the same batch."""
    t, key = tape_of([8], capacity=30), jax.random.key(0)
    ours, expected = sample(t, key, 8, 8), jax.jit(tape.sample, static_argnums=2)(t, key, 8)
    for name in ("steps", "begin", "mask", "episode"):
        a, b = getattr(ours, name), getattr(expected, name)
        jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.slow
def test_rows_go_around_the_ring():
    t = tape_of([5, 4], capacity=12)
    later = Step(np.arange(10, 18, dtype=np.int32)[None], np.arange(8)[None] == 6)
    t = add(t, later)  # 7 steps from place 9 to place 3: the episode of 5 steps is gone
    batch = sample(t, jax.random.key(0), 60, 3)
    rows = {tuple(row) for row in batch.steps.id.reshape(-1, 3).tolist()}
    assert rows == {(6, 7, 8), (9, 0, 0), (10, 11, 12), (13, 14, 15), (16, 0, 0)}


def test_an_empty_tape_gives_an_empty_batch():
    batch = sample(tape.init(EXAMPLE, 12), jax.random.key(0), 6, 3)
    assert not batch.mask.any() and not batch.steps.id.any()
    assert batch.rows.tolist() == [12, 12]
    np.testing.assert_array_equal(batch.begin, [1, 0, 0, 1, 0, 0])


@pytest.mark.full
@pytest.mark.slow
def test_seeds_under_vmap_are_seeds_alone():
    """An empty tape, one with one episode and a full one."""
    t = [tape.init(EXAMPLE, 33), tape_of([5], capacity=33), tape_of(LENGTHS, capacity=33)]
    t = jax.tree.map(lambda *xs: jnp.stack(xs), *t)
    keys = jax.random.split(jax.random.key(2), 3)
    together = jax.jit(jax.vmap(lambda t, key: segments.sample(t, key, 40, 4)))(t, keys)
    for i in range(3):
        alone = sample(jax.tree.map(lambda x, i=i: x[i], t), keys[i], 40, 4)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), together, alone)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: segments.sample(t, jax.random.key(0), 12, 0), "`length` must be at least 1"),
        (lambda t: segments.sample(t, jax.random.key(0), 12, 5), "= 5, got 12. Try 10"),
        (lambda t: segments.sample(t, jax.random.key(0), 0, 5), "= 5, got 0. Try 5"),
    ],
)
def test_refuses(call, message):
    t = jax.eval_shape(lambda: tape.init(EXAMPLE, 12))
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(call, t)
