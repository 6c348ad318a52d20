"""Diagnostics of policy optimization, per block: Hilton et al. 2022, Section 6.2, and noise."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mmrl._dtypes import promoting
from mmrl.agents.ppo.learner import BOTH, Batch, Learner, Loss, Measures, loss, shuffle, take


class NoiseScale(NamedTuple):
    """B = S / |G|²: the batch size, in steps, at which a gradient has as much noise as signal."""

    noise: Float[Array, ""]  # S, the trace of the covariance of one step's gradient
    signal: Float[Array, ""]  # |G|², of the true gradient
    scale: Float[Array, ""]  # near the critical batch size; ≤ 0 if noise dominates


class Diagnostics(NamedTuple):
    """Means over a block of the quantities that the paper recommends to watch."""

    steps: Measures  # measures of the gradient steps
    advantage_std: Float[Array, "*blocks"]  # the estimate that advantages are divided by
    advantage_swing: Float[Array, "*blocks"]  # the largest of these over the smallest
    explained: Float[Array, "*blocks"]  # 1 - Var[targets - actor's values] / Var[targets]
    noise: NoiseScale | None = None  # of the policy gradient, if `noise_scale` is True


@promoting
def summarize(measures: Measures, scales: Any, noise: NoiseScale | None = None) -> Diagnostics:
    """Return the diagnostics of a block, from measures of its gradient steps and iterations."""
    std, explained = scales
    return Diagnostics(
        steps=jax.tree.map(jnp.mean, measures),
        advantage_std=jnp.mean(std),
        advantage_swing=jnp.max(std) / jnp.maximum(jnp.min(std), 1e-8),
        explained=jnp.mean(explained),
        noise=jax.tree.map(lambda x: jnp.ravel(x)[-1], noise),
    )


@promoting
def noise_scale(
    config: Any,
    learner: Learner,
    batch: Batch,
    key: PRNGKeyArray,
    terms: tuple[str, ...] = BOTH,
    loss: Loss = loss,
) -> NoiseScale:
    """Return the gradient noise scale.  McCandlish et al. 2018, Appendix A.1.

    The small batches are the minibatches of one epoch, with constant parameters; the large one is
    all of them. A single iteration gives a rough estimate: average S and |G|² over several.
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


@promoting
def policy_noise(
    config: Any,
    learner: Learner,
    batch: Batch,
    key: PRNGKeyArray,
    now: Bool[Array, ""] | bool,
    loss: Loss = loss,
) -> NoiseScale:
    """Return the `noise_scale` of the policy gradient if `now`, otherwise NaN at no cost.

    It costs as much as an epoch. `now` should be equal for all seeds; otherwise all are measured.
    """

    def measure() -> NoiseScale:
        return noise_scale(config, learner, batch, key, ("policy",), loss)

    nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), jax.eval_shape(measure))
    return jax.lax.cond(now, measure, lambda: nothing)
