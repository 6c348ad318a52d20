"""Scales of rewards and advantages: long runs, equal numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import normalize
from mmrl.monoid import LongMoments, Moments

EMPTY = Moments().identity()


@jax.jit
def running_moments(start, xs):
    """The moments of `start` and of every row of `xs`, one call of `standardize` a row."""
    return jax.lax.scan(lambda m, x: (normalize.standardize(m, x, 1.0)[0], None), start, xs)[0]


def samples(calls: int, size: int) -> jax.Array:
    x = np.random.default_rng(0).normal(3, 1, (calls, size))
    return jnp.asarray((x - x.mean()) / x.std() + 3, jnp.float32)


@pytest.mark.parametrize("size", [1, 16, 4096])
@pytest.mark.parametrize("start", [2**24, 2**28, 10**10])
@pytest.mark.parametrize("long", [False, True], ids=["moments", "long"])
def test_the_variance_stays_right_however_many_samples_there_were(start, size, long):
    xs = samples(max(2**20 // size, 2**10), size)
    before = jnp.float32(start), jnp.float32(3), jnp.float32(start)
    after = running_moments((*before, *EMPTY) if long else before, xs)
    assert abs(normalize.variance(after) - 1) < 2e-3 and abs(after[1] - 3) < 1e-3
    if long:
        assert float(after[0]) + float(after[3]) == start + xs.size


def test_recent_samples_weigh_as_much_as_early_ones():
    """2²⁸ samples of variance 1, as a product of products, and as many of variance 9."""
    double = jax.jit(lambda m: jax.lax.fori_loop(0, 20, lambda _, m: LongMoments()(m, m), m))
    both = [double((*normalize.sample(c * samples(1, 256)), *EMPTY)) for c in (1.0, 3.0)]
    moments = LongMoments()(*both)
    assert moments[0] == 2**29
    np.testing.assert_allclose(moments[1], 6, rtol=1e-5)
    np.testing.assert_allclose(normalize.variance(moments), 5 + 9, rtol=1e-5)
    one = (jnp.float32(1), jnp.float32(6), jnp.float32(0))
    assert LongMoments()(moments, (*one, *EMPTY))[3] == 1


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 1000, 2048])
@pytest.mark.parametrize("value", [0.0, 0.1, -0.3, 1000.1, 1e-6, 3e8, 2e19, -1e30, 1e38])
def test_equal_numbers_are_standardized_to_zero(value: float, count: int):
    x = jnp.full((3, count), value, jnp.float32)
    before = tuple(jnp.float32(m) for m in (5, 77.7, 9))
    for moments in (EMPTY, before, (*before, *EMPTY)):
        alone = jax.vmap(lambda x, m=moments: normalize.standardize(m, x, 0.0)[1])(x)
        np.testing.assert_array_equal(alone, 0)
        np.testing.assert_array_equal(normalize.standardize(moments, x, 0.0)[1], 0)
    moments, _ = normalize.standardize(EMPTY, x, 0.9)
    np.testing.assert_array_equal(normalize.standardize(moments, x, 0.9)[1], 0)


STANDARDIZE = jax.jit(normalize.standardize)


@pytest.mark.parametrize("count", [1, 2, 2048])
@pytest.mark.parametrize("mean", [0.0, 0.1, -1000.0, 3e8, 1e30])
def test_numbers_that_differ_are_standardized_as_in_float64(mean: float, count: int):
    """However small their differences are next to their mean, or large."""
    for deviation in 10.0 ** np.arange(-30, 31, 3):
        x = np.random.default_rng(1).normal(mean, deviation, count).astype(np.float32)
        exact = x.astype(float)
        expected = (exact - exact.mean()) / (exact.std() + 1e-8)
        for before in (5, 77.7, 9), (5, 1e30, np.inf):
            ours = STANDARDIZE(tuple(map(jnp.float32, before)), x, 0.0)[1]
            np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_numbers_are_standardized_with_those_before():
    first, second = np.random.default_rng(1).normal(1000, 1e-2, (2, 512)).astype(np.float32)
    moments, _ = STANDARDIZE((*EMPTY, *EMPTY), first, 0.5)
    ours = STANDARDIZE(moments, second, 0.5)[1]
    both, weights = np.append(first, second).astype(float), np.repeat([0.5, 1], 512)
    mean = np.average(both, weights=weights)
    deviation = np.sqrt(np.average((both - mean) ** 2, weights=weights))
    np.testing.assert_allclose(ours, (second - mean) / deviation, atol=1e-3)
