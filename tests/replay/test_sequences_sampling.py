"""How sequences are drawn: the law, the weights, the priorities, and what must change nothing."""

import jax
import numpy as np
import pytest
from scipy import stats

from mmrl.replay import sequences, tree
from tests.replay import sequences_oracle as oracle
from tests.replay.sequences_oracle import (
    EXAMPLE,
    SMALL,
    STATE,
    add,
    assert_same,
    begins,
    sample,
    set_priority,
    steps,
    storage_of,
    weights,
    window,
)


def assert_law(results, weights) -> None:
    """Chi-square: indices with probability ∝ weights."""
    weights = np.asarray(weights, float)
    counts = np.bincount(results, minlength=weights.size)
    expected = weights / weights.sum() * results.size
    assert not counts[weights == 0].any()
    real = weights > 0
    assert expected[real].min() > 5, "too few draws for the test"
    assert stats.chisquare(counts[real], expected[real]).pvalue > 1e-3


LENGTHS = [1, 9, 3, 6, 4]
DRAWS = 20_000


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("top", [2, 1024])
def test_frequencies_and_weights_are_the_formulas(alpha, top, monkeypatch):
    """P_i = p_i^α / Σ p^α, and (N P_i)^-β over its maximum; before and after set_priority."""
    monkeypatch.setattr(tree, "TOP", top)
    monkeypatch.setattr(tree, "BRANCH", 3)
    generator = np.random.default_rng(4)
    errors = np.float32(generator.exponential(size=sum(LENGTHS)))
    t = storage_of(LENGTHS, 52, errors, alpha=alpha, eta=0.25)
    rows, starts = begins(t), np.cumsum([0, *LENGTHS])
    own = [
        errors[first + s : first + min(s + 4, n)]
        for first, n in zip(starts, LENGTHS, strict=False)
        for s in oracle.cuts(n, 4, 2)
    ]
    law = np.array([0.25 * x.max() + 0.75 * x.mean() for x in own])
    for beta, key in [(1.0, 1), (0.5, 2), (0.0, 3)]:
        batch = sample(t, jax.random.key(key), DRAWS, beta)
        result = np.searchsorted(rows, batch.rows)
        assert_law(result, law**alpha)
        share = rows.size * (law**alpha / np.sum(law**alpha))[result]
        np.testing.assert_allclose(batch.weights, (share / share.min()) ** -beta, rtol=1e-5)
        law[1:] = generator.exponential(size=rows.size - 1) + 0.05  # and one is left alone
        t = set_priority(t, rows[1:], np.float32(law[1:]))


@pytest.mark.slow
def test_a_row_given_twice_takes_the_larger():
    t = storage_of([3, 1, 5], 32, alpha=1.0)
    rows = begins(t)[[1, 2, 1, 2]]
    both = set_priority(t, rows, np.float32([2, 7, 5, 3]))
    once = set_priority(t, rows[:2], np.float32([5, 7]))
    jax.tree.map(np.testing.assert_array_equal, both.sums, once.sums)


def test_draws_are_independent():
    """The joint law of two draws of a batch is the product: the same one may come twice."""
    t = storage_of([3, 1, 5], 32, alpha=1.0)
    t = set_priority(t, begins(t), np.float32([1, 2, 3, 4]))
    keys = jax.random.split(jax.random.key(5), DRAWS)
    pairs = jax.jit(jax.vmap(lambda key: sequences.sample(t, key, 2).rows))(keys)
    result = np.searchsorted(begins(t), pairs)
    law = np.arange(1, 5)
    assert_law(result[:, 0] * 4 + result[:, 1], np.outer(law, law).ravel())


@pytest.mark.slow
def test_rows_that_are_gone_change_nothing():
    t = storage_of(LENGTHS, 40)
    for i in range(2):  # those that fill the ring, and the next ones
        nothing = np.setdiff1d(np.arange(42), begins(t))
        assert_same(set_priority(t, nothing, np.full(nothing.size, 9.0, np.float32)), t)
        before = begins(t)
        ids = np.arange(20 * i, 20 * i + 20)[None]
        t = add(t, *steps(ids, ids % 7 == 0), np.ones(ids.shape, np.float32))
    missing = np.setdiff1d(before, begins(t))
    assert missing.size
    empty = window(t, missing, 1)
    assert not empty.mask.any() and not empty.steps.id.any()
    assert_same(set_priority(t, missing, np.full(missing.size, 9.0, np.float32)), t)


@pytest.mark.slow
def test_numbers_that_are_not_finite_are_harmless():
    """An error that is not a number leaves all other sequences as they were, for good."""
    errors = np.ones(sum(LENGTHS), np.float32)
    for bad in (np.nan, np.inf):
        t = storage_of(LENGTHS, 40, np.where(np.arange(errors.size) == 4, np.float32(bad), errors))
        good = storage_of(LENGTHS, 40, errors)
        rows, ours, expected = begins(t), *(weights(x) for x in (t, good))
        assert rows.tolist() == begins(good).tolist()
        # Step 4 is in the sequences of steps 1 to 4 and 3 to 6 of the second episode.
        np.testing.assert_array_equal(ours[3:], expected[3:])
        assert ours[0] == expected[0] and np.isfinite(ours).all() and (ours > 0).all()
        after = set_priority(t, rows, np.full(rows.size, bad, np.float32))
        assert_same(after, t)
        batch = sample(after, jax.random.key(0), 50)
        assert np.isfinite(batch.weights).all() and batch.mask.any(axis=1).all()


def test_priorities_are_positive():
    t = storage_of([3, 1, 5], 32, alpha=1.0)
    rows, least, most = begins(t), *tree.PRIORITIES
    t = set_priority(t, rows, np.float32([0, -1, 1e9, 2]))
    np.testing.assert_allclose(weights(t), [least, least, most, 2])


@pytest.mark.parametrize("eta", [0.0, 0.9, 1.0])
def test_priority_of_a_batch(eta):
    """Over trained steps alone: what stands in the others, even NaN, does not count."""
    generator = np.random.default_rng(6)
    errors = np.float32(generator.normal(size=(7, 9)))
    mask = generator.random((7, 9)) < 0.5
    mask[0], mask[1] = False, np.arange(9) == 5
    expected = [
        eta * np.abs(e[m]).max() + (1 - eta) * np.abs(e[m]).mean() if m.any() else 0
        for e, m in zip(errors, mask, strict=True)
    ]
    results = jax.jit(sequences.priority)(np.where(mask, errors, np.float32(np.nan)), mask, eta)
    np.testing.assert_allclose(results, expected, rtol=1e-6)


@pytest.mark.slow
def test_an_empty_storage_gives_an_empty_batch():
    """For one seed of two: the other has stored something."""
    t = jax.jit(lambda: sequences.init(EXAMPLE, STATE, 32, **SMALL))()
    both = jax.tree.map(lambda *x: np.stack(x), t, storage_of([3], 32))
    batch = jax.jit(jax.vmap(lambda t, key: sequences.sample(t, key, 3)))(
        both, jax.random.split(jax.random.key(9))
    )
    assert batch.rows.tolist() == [[32] * 3, [0] * 3]
    np.testing.assert_array_equal(batch.weights, 1)
    np.testing.assert_array_equal(batch.mask.any(axis=(1, 2)), [False, True])
    assert all(np.isfinite(x).all() and not x[0].any() for x in jax.tree.leaves(batch.steps))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(batch.state))
    assert not (batch.loss_mask | batch.begin)[0].any()
    assert_same(set_priority(t, batch.rows[0], np.ones(3, np.float32)), t)
