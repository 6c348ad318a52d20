"""Policy objectives against the formulas of the papers: value and gradient, in 64-bit."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import losses

STEPS, OBS, ACTIONS, EPSILON = 256, 8, 5, 0.2

pytestmark = pytest.mark.usefixtures("x64")


class Problem:
    """A linear softmax policy θ; behavior and proximal policies some way off; actions of μ."""

    def __init__(self):
        keys = jax.random.split(jax.random.key(0), 6)
        self.theta = jax.random.normal(keys[0], (OBS, ACTIONS))
        self.mu = self.theta + 0.3 * jax.random.normal(keys[1], (OBS, ACTIONS))
        self.near = self.theta + 0.2 * jax.random.normal(keys[2], (OBS, ACTIONS))
        self.obs = jax.random.normal(keys[3], (STEPS, OBS))
        self.actions = jax.random.categorical(keys[4], self.obs @ self.mu)
        self.advantages = jax.random.normal(keys[5], (STEPS,))
        self.behavior, self.proximal = self.log_prob(self.mu), self.log_prob(self.near)

    def log_prob(self, theta: jax.Array) -> jax.Array:
        return losses.select_values(jax.nn.log_softmax(self.obs @ theta), self.actions)


@pytest.fixture
def problem() -> Problem:
    return Problem()


def compare(problem: Problem, ours: Callable, theirs: Callable) -> tuple[float, float]:
    """The largest differences of value and gradient at θ; both are functions of log π."""

    def at(f: Callable) -> tuple[Any, Any]:
        return jax.value_and_grad(lambda w: jnp.mean(f(problem.log_prob(w))))(problem.theta)

    (value, gradient), (other, other_gradient) = at(ours), at(theirs)
    return abs(float(value - other)), float(jnp.abs(gradient - other_gradient).max())


def assert_same(problem: Problem, ours: Callable, theirs: Callable) -> None:
    assert max(compare(problem, ours, theirs)) < 1e-14


def ppo(log_prob, log_prob_old, advantages, epsilon):
    """Schulman et al. 2017, Eq. 7, as printed."""
    ratio = jnp.exp(log_prob - log_prob_old)
    bounds = jnp.clip(ratio, 1 - epsilon, 1 + epsilon)
    return -jnp.minimum(ratio * advantages, bounds * advantages)


def vanilla(log_prob, log_prob_behavior, advantages):
    """Schulman et al. 2017, Eq. 6, importance-sampled."""
    return -jnp.exp(log_prob - log_prob_behavior) * advantages


def decoupled_loss(log_prob, log_prob_behavior, log_prob_proximal, advantages, epsilon):
    """Hilton et al. 2022, Section 2, as printed."""
    weight = jnp.exp(log_prob_proximal) / jnp.exp(log_prob_behavior)
    return weight * ppo(log_prob, log_prob_proximal, advantages, epsilon)


@pytest.mark.slow
def test_coupled_is_ppo(problem: Problem):
    p = problem
    assert_same(
        p,
        lambda x: losses.clip_loss(x, p.behavior, p.behavior, p.advantages, EPSILON),
        lambda x: ppo(x, p.behavior, p.advantages, EPSILON),
    )


@pytest.mark.slow
def test_decoupled_is_the_papers_formula(problem: Problem):
    p = problem
    assert_same(
        p,
        lambda x: losses.clip_loss(x, p.behavior, p.proximal, p.advantages, EPSILON),
        lambda x: decoupled_loss(x, p.behavior, p.proximal, p.advantages, EPSILON),
    )
    # The steps that are clipped one way and the other both occur, and the policies differ.
    ratio = jnp.exp(p.log_prob(p.theta) - p.proximal)
    assert (ratio > 1 + EPSILON).sum() > 10 and (ratio < 1 - EPSILON).sum() > 10
    assert np.abs(p.behavior - p.proximal).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [jnp.inf, 1e9])
def test_without_a_clip_the_proximal_policy_does_not_matter(problem: Problem, epsilon: float):
    p = problem
    for proximal in (p.proximal, p.behavior):
        assert_same(
            p,
            lambda x, proximal=proximal: losses.clip_loss(
                x, p.behavior, proximal, p.advantages, epsilon
            ),
            lambda x: vanilla(x, p.behavior, p.advantages),
        )


def test_a_proximal_policy_that_is_the_policy_clips_nothing(problem: Problem):
    """β_prox = 0: vanilla importance sampling, and not PPO."""
    p = problem

    def ours(x):
        return losses.clip_loss(x, p.behavior, jax.lax.stop_gradient(x), p.advantages, EPSILON)

    assert_same(p, ours, lambda x: vanilla(x, p.behavior, p.advantages))
    assert compare(p, ours, lambda x: ppo(x, p.behavior, p.advantages, EPSILON))[1] > 0.01


@pytest.mark.parametrize("off", [0.0, -1.0, jnp.inf])
def test_the_importance_weight_has_a_limit(problem: Problem, off: float):
    p, limit = problem, 1.3
    ratio = np.exp(p.log_prob(p.theta) - p.behavior)
    assert (ratio > limit).sum() > 10
    ours = losses.importance_ratio(p.log_prob(p.theta), p.behavior, limit)
    np.testing.assert_allclose(ours, np.minimum(ratio, limit), rtol=1e-14)
    free = losses.importance_ratio(p.log_prob(p.theta), p.behavior, off)
    np.testing.assert_allclose(free, ratio, rtol=1e-14)
    # At the limit the weight stands still and the gradient is c ∇ log π.
    assert_same(
        p,
        lambda x: losses.clip_loss(x, p.behavior, p.proximal, p.advantages, jnp.inf, limit),
        lambda x: (
            -jnp.where(ratio > limit, limit * (1 + x - jax.lax.stop_gradient(x)), jnp.exp(x))
            * jnp.where(ratio > limit, 1, jnp.exp(-p.behavior))
            * p.advantages
        ),
    )


def test_the_penalized_objective_is_the_papers_formula(problem: Problem):
    p = problem
    near, beta = jax.nn.log_softmax(p.obs @ p.near), 0.7

    def total(theta, penalty):
        loss = losses.kl_loss(p.log_prob(theta), p.behavior, p.advantages, penalty(theta), beta)
        return jnp.mean(loss)

    def exact(theta):
        return jnp.sum(jnp.exp(near) * (near - jax.nn.log_softmax(p.obs @ theta)), axis=-1)

    def formula(theta):
        surrogate = jnp.mean(jnp.exp(p.log_prob(theta) - p.behavior) * p.advantages)
        return -(surrogate - beta * jnp.mean(exact(theta)))

    ours, theirs = (jax.grad(f)(p.theta) for f in (lambda w: total(w, exact), formula))
    np.testing.assert_allclose(ours, theirs, atol=1e-14)
    np.testing.assert_allclose(total(p.theta, exact), formula(p.theta), rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(("drift", "least"), [(0.003, 0.999), (0.3, 0.95)])
def test_the_sampled_penalty_follows_the_divergence(drift: float, least: float):
    """On actions of π: the gradient of KL[π, π_p] exactly on average, of KL[π_p, π] nearly."""
    keys = jax.random.split(jax.random.key(1), 4)
    theta = jax.random.normal(keys[0], (OBS, ACTIONS))
    near = theta + drift * jax.random.normal(keys[1], (OBS, ACTIONS))
    obs = jax.random.normal(keys[2], (64, OBS))

    def log_pi(w):
        return jax.nn.log_softmax(obs @ w)

    def divergence(first, second):
        return jnp.mean(jnp.sum(jnp.exp(first) * (first - second), axis=-1))

    def expectation(w):  # the expectation over actions of π, none drawn
        penalty = losses.squared_log_ratio(log_pi(w), log_pi(near))
        return jnp.mean(jnp.sum(jnp.exp(log_pi(theta)) * penalty, axis=-1))

    ours = jax.grad(expectation)(theta)
    reverse = jax.grad(lambda w: divergence(log_pi(w), log_pi(near)))(theta)
    forward = jax.grad(lambda w: divergence(log_pi(near), log_pi(w)))(theta)
    np.testing.assert_allclose(ours, reverse, atol=1e-14)
    cosine = jnp.sum(ours * forward) / jnp.linalg.norm(ours) / jnp.linalg.norm(forward)
    assert least < cosine <= 1 + 1e-12
    if drift < 0.1:
        np.testing.assert_allclose(
            expectation(theta), divergence(log_pi(near), log_pi(theta)), rtol=0.01
        )


def test_values_learn_and_targets_do_not():
    values, targets = jnp.array([1.0, -2.0]), jnp.array([3.0, 0.5])
    loss = losses.value_loss(values, targets)
    np.testing.assert_allclose(loss, [4.0, 6.25])
    by_values, by_targets = jax.grad(lambda v, y: losses.value_loss(v, y).sum(), (0, 1))(
        values, targets
    )
    np.testing.assert_allclose(by_values, 2 * (values - targets))
    assert not by_targets.any()


def test_nothing_overflows_far_from_the_behavior_policy():
    far = jnp.array([-1.0, -800.0], jnp.float32), jnp.array([-800.0, -1.0], jnp.float32)
    value, gradient = jax.value_and_grad(
        lambda x: losses.clip_loss(x, far[1], far[1], jnp.ones(2, jnp.float32), EPSILON).sum()
    )(far[0])
    assert jnp.isfinite(value) and jnp.isfinite(gradient).all()
