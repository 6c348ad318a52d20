"""Metrics of policy optimization (Hilton et al. 2022, Section 6.2), and noise scales."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl.agents.minibatches import shuffle, take
from mmrl.agents.ppo.learner import BOTH, Batch, Learner, Loss, Measures, loss


class NoiseScale(NamedTuple):
    """Gradient noise scale B = S / |G|², the batch size at which noise equals signal."""

    noise: Float[Array, ""]  # S, trace of the covariance of the gradient of a step
    signal: Float[Array, ""]  # |G|², squared norm of the true gradient
    scale: Float[Array, ""]  # B, in steps; close to the critical batch size; ≤ 0 if noise dominates


class Diagnostics(NamedTuple):
    """Quantities that the paper recommends monitoring, averaged over a block."""

    steps: Measures  # means over the gradient steps
    advantage_std: Float[Array, "*blocks"]  # standard deviation of the advantages
    advantage_swing: Float[Array, "*blocks"]  # largest / smallest standard deviation in the block
    explained_variance: Float[Array, "*blocks"]  # 1 - Var[targets - actor's values] / Var[targets]
    noise: NoiseScale | None = None  # noise of the policy gradient if `noise_scale` is True


@with_promotion
def summarize(measures: Measures, scales: Any, noise: NoiseScale | None = None) -> Diagnostics:
    """Average the measures of gradient steps and iterations over a block."""
    std, explained_variance = scales
    return Diagnostics(
        steps=jax.tree.map(jnp.mean, measures),
        advantage_std=jnp.mean(std),
        advantage_swing=jnp.max(std) / jnp.maximum(jnp.min(std), 1e-8),
        explained_variance=jnp.mean(explained_variance),
        noise=jax.tree.map(lambda x: jnp.ravel(x)[-1], noise),
    )


@with_promotion
def noise_scale(
    config: Any,
    learner: Learner,
    batch: Batch,
    key: PRNGKeyArray,
    terms: tuple[str, ...] = BOTH,
    loss: Loss = loss,
) -> NoiseScale:
    """Return the gradient noise scale.  McCandlish et al. 2018, Appendix A.1.

    The estimator compares the gradients of small batches and of a large batch. Here the small
    batches are the minibatches of one epoch, with constant parameters, and the large batch is the
    entire batch. The estimate from a single iteration is rough; for a better estimate, average S
    and |G|² over several iterations.
    """
    grad = eqx.filter_grad(lambda net, some: loss(net, learner.average, some, config, terms)[0])

    def add(total, rows):
        gradient = grad(learner.net, take(batch, rows))
        return jax.tree.map(jnp.add, total, gradient), optax.tree.norm(gradient, squared=True)

    zeros = jax.tree.map(jnp.zeros_like, eqx.filter(learner.net, eqx.is_inexact_array))
    orders = shuffle(key, len(batch.begin), config.minibatches, 1)
    total, squares = jax.lax.scan(add, zeros, orders)
    small, large = jnp.mean(squares), optax.tree.norm(total, squared=True) / config.minibatches**2
    many = batch.begin.size
    few = many / config.minibatches
    noise = (small - large) / (1 / few - 1 / many)
    signal = (many * large - few * small) / (many - few)
    return NoiseScale(noise, signal, noise / signal)


@with_promotion
def policy_noise(
    config: Any,
    learner: Learner,
    batch: Batch,
    key: PRNGKeyArray,
    now: Bool[Array, ""] | bool,
    loss: Loss = loss,
) -> NoiseScale:
    """Return the `noise_scale` of the policy gradient if `now` is True, otherwise NaN.

    A measurement costs about as much as an epoch, and is skipped if `now` is False. `now` should be
    the same for all seeds, because otherwise `vmap` computes the measurement for all of them.
    """

    def measure() -> NoiseScale:
        return noise_scale(config, learner, batch, key, ("policy",), loss)

    nans = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), jax.eval_shape(measure))
    return jax.lax.cond(now, measure, lambda: nans)
