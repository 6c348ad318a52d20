"""What CLEAR adds to an actor-critic, by its formulas: values, gradients, and where both vanish."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.special import rel_entr, softmax

from mmrl import losses
from mmrl.nets import Categorical

STEPS, ACTIONS = 64, 5


@pytest.fixture
def logits() -> tuple[jax.Array, jax.Array]:
    """π and μ: far apart, since all differences vanish nearby."""
    keys = jax.random.split(jax.random.key(0))
    return tuple(2 * jax.random.normal(key, (STEPS, ACTIONS)) for key in keys)


def test_policy_cloning_is_the_divergence_from_who_acted(logits):
    pi, mu = logits
    result = losses.policy_cloning(pi, mu)
    expected = rel_entr(softmax(mu, axis=-1), softmax(pi, axis=-1)).sum(axis=-1)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result, Categorical(mu).kl(Categorical(pi)), rtol=1e-5, atol=1e-6)
    assert (result > 0).all()
    # The other direction is another number.
    assert np.abs(result - losses.policy_cloning(mu, pi)).max() > 0.1


@pytest.mark.slow
def test_its_gradient_is_what_is_missing(logits, x64):
    """∂KL[μ ‖ π]/∂z = π - μ."""
    pi, mu = (x.astype(jnp.float64) for x in logits)
    gradient = jax.grad(lambda z: losses.policy_cloning(z, mu).sum())(pi)
    np.testing.assert_allclose(gradient, softmax(pi, -1) - softmax(mu, -1), atol=1e-14)
    check_grads(lambda z: losses.policy_cloning(jnp.asarray(z), mu), (pi,), order=1)


def test_value_cloning_is_a_square(x64):
    v, then = jax.random.normal(jax.random.key(1), (2, STEPS), jnp.float64)
    np.testing.assert_allclose(losses.value_cloning(v, then), (v - then) ** 2)
    gradient = jax.grad(lambda v: losses.value_cloning(v, then).sum())(v)
    np.testing.assert_allclose(gradient, 2 * (v - then))


def test_cloning_is_at_rest_where_the_network_is_what_it_was(logits):
    pi, _ = logits
    for loss, x in ((losses.policy_cloning, pi), (losses.value_cloning, pi[:, 0])):
        value, gradient = jax.value_and_grad(lambda x, f=loss, then=x: f(x, then).sum())(x)
        assert value == 0
        np.testing.assert_allclose(gradient, 0, atol=1e-6)
    # A shift of all logits is the same policy.
    np.testing.assert_allclose(losses.policy_cloning(pi + 3, pi), 0, atol=1e-5)


def test_nothing_moves_what_was_stored(logits):
    pi, mu = logits
    for loss, x, then in (
        (losses.policy_cloning, pi, mu),
        (losses.value_cloning, pi[:, 0], mu[:, 0]),
        (losses.policy_gradient_loss, pi[:, 0], mu[:, 0]),
    ):
        gradient = jax.grad(lambda y, f=loss, x=x: f(x, y).sum())(then)
        np.testing.assert_array_equal(gradient, 0)


def test_forbidden_actions_cost_nothing():
    """-∞ where μ never goes: no NaN in the value, nor in the gradient; ∞ where π cannot follow."""
    pi, mu = jnp.array([[1.0, 2, -jnp.inf]]), jnp.array([[0.5, 0, -jnp.inf]])
    value, gradient = jax.value_and_grad(lambda z: losses.policy_cloning(z, mu).sum())(pi)
    p, q = softmax([0.5, 0]), softmax([1.0, 2])
    np.testing.assert_allclose(value, rel_entr(p, q).sum(), rtol=1e-5)
    np.testing.assert_allclose(gradient[0, :2], q - p, rtol=1e-5)
    assert np.isfinite(gradient).all()
    assert losses.policy_cloning(pi, jnp.zeros((1, 3)))[0] == np.inf


def test_the_policy_gradient_is_its_closed_form(logits, x64):
    """∂/∂z of -log π(a) A is (π - 1{a}) A."""
    pi, mu = (x.astype(jnp.float64) for x in logits)
    actions = jax.random.randint(jax.random.key(2), (STEPS,), 0, ACTIONS)
    advantages = mu[:, 0]

    def ours(z):
        log_prob = losses.select_values(jax.nn.log_softmax(z), actions)
        return losses.policy_gradient_loss(log_prob, advantages).sum()

    expected = (softmax(pi, axis=-1) - np.eye(ACTIONS)[actions]) * np.asarray(advantages)[:, None]
    np.testing.assert_allclose(jax.grad(ours)(pi), expected, atol=1e-12)
