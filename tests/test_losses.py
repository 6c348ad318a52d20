"""Losses against rlax, and what a mask has to keep out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from mmrl import losses, returns

TIME, ACTIONS = 64, 5


def draw(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


@pytest.mark.slow
def test_huber_equals_rlax_in_value_and_gradient():
    # Not at ±δ itself, where the two forms may round differently; 0 and far outliers are in.
    x = jnp.concatenate([3 * draw(0, 200), jnp.array([0.0, 1e4, -1e4, 1e-4])])
    for delta in (0.5, 1.0, 2.0):
        np.testing.assert_allclose(
            losses.huber(x, delta), rlax.huber_loss(x, delta), rtol=2e-6, atol=1e-7
        )
        ours = jax.vmap(jax.grad(lambda v, d=delta: losses.huber(v, d)))(x)
        np.testing.assert_allclose(ours, jnp.clip(x, -delta, delta), rtol=1e-6, atol=1e-7)


@pytest.fixture
def batch() -> dict[str, jax.Array]:
    """Rewards, discounts with terminations, actions, and three sets of action values."""
    terminated = jax.random.bernoulli(jax.random.key(1), 0.2, (TIME,))
    return {
        "reward": draw(2, TIME),
        "discount": 0.9 * (1 - terminated),
        "action": jax.random.randint(jax.random.key(3), (TIME,), 0, ACTIONS),
        "q": draw(4, TIME, ACTIONS),
        "next_q": draw(5, TIME, ACTIONS),
        "next_q_target": draw(6, TIME, ACTIONS),
    }


@pytest.mark.slow
def test_double_q_target_equals_rlax(batch: dict[str, jax.Array]):
    b = batch
    theirs = jax.vmap(rlax.double_q_learning)(
        b["q"], b["action"], b["reward"], b["discount"], b["next_q_target"], b["next_q"]
    )
    y = losses.double_q_target(b["reward"], b["discount"], b["next_q"], b["next_q_target"])
    np.testing.assert_allclose(
        y - losses.select_values(b["q"], b["action"]), theirs, rtol=1e-5, atol=1e-6
    )
    # The two networks play different parts: swapped, the target is another one.
    other = losses.double_q_target(b["reward"], b["discount"], b["next_q_target"], b["next_q"])
    assert np.abs(y - other).max() > 0.1


def test_no_gradient_reaches_a_target(batch: dict[str, jax.Array]):
    b = batch

    def total(next_q, next_q_target):
        return jnp.sum(losses.double_q_target(b["reward"], b["discount"], next_q, next_q_target))

    for gradient in jax.grad(total, (0, 1))(b["next_q"], b["next_q_target"]):
        assert not gradient.any()


def test_a_mean_is_over_real_steps_only():
    x, mask = draw(7, TIME), jax.random.bernoulli(jax.random.key(8), 0.5, (TIME,))
    assert 0 < mask.sum() < TIME
    np.testing.assert_allclose(losses.masked_mean(x, mask), np.mean(np.asarray(x)[mask]), atol=1e-6)
    np.testing.assert_allclose(
        losses.td_loss(x, mask), np.mean(rlax.huber_loss(x[mask])), rtol=1e-5
    )
    assert losses.masked_mean(x, jnp.zeros(TIME, bool)) == 0


td_loss_and_slope = jax.jit(jax.value_and_grad(losses.td_loss))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_are_summed_in_32_bits(kind: str):
    x = jnp.ones(70_000, kind)
    assert losses.masked_mean(x, jnp.ones(70_000, bool)) == 1
    assert losses.value_loss(300 * x[:1], 0 * x[:1]) == 300**2
    assert returns.discounted_return(x, x)[0] == 70_000


@pytest.mark.parametrize("kind", [bool, int, float, np.uint8])
def test_flags_are_accepted_as_numbers(kind: type):
    x, flags = np.arange(4.0), [0, 1, 0, 1]
    mask = np.array(flags, kind)
    for flag in (mask, jnp.asarray(mask), [kind(flag) for flag in flags], 2 * mask):
        assert losses.masked_mean(x, flag) == 2
        assert losses.td_loss(x, flag) == (0.5 + 2.5) / 2
        np.testing.assert_array_equal(returns.discounts(0.5, flag), [0.5, 0, 0.5, 0])
    if kind is not float:  # which would be the argument before `last`
        np.testing.assert_array_equal(returns.discounted_return(x, x, x, mask), [0, 2, 26, 12])


@pytest.mark.parametrize("poison", [jnp.nan, jnp.inf, 1e30])
def test_nothing_under_the_mask_reaches_value_or_gradient(poison: float):
    x, mask = np.asarray(draw(9, TIME)), np.arange(TIME) < 40
    clean, gradient = td_loss_and_slope(x, mask)
    value, poisoned_gradient = td_loss_and_slope(np.where(mask, x, np.float32(poison)), mask)
    assert value == clean
    np.testing.assert_array_equal(poisoned_gradient, gradient)


def test_the_loss_of_segments_is_not_the_papers_other_one():
    """Huber of the mean |δ|, as the paper's code has it on segments, is another loss."""
    x, mask = 3 * draw(10, TIME), jnp.ones(TIME, bool)
    other = rlax.huber_loss(losses.masked_mean(jnp.abs(x), mask))
    assert abs(losses.td_loss(x, mask) - other) > 0.01
