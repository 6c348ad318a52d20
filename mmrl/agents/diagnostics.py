"""What policy optimization is watched by, per block: Hilton et al. 2022, Section 6.2, and noise."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mmrl.agents.learner import Batch, Learner, Measures, NoiseScale, noise_scale


class Diagnostics(NamedTuple):
    """What the paper advises to watch: means over a block."""

    steps: Measures  # of gradient steps
    advantage_std: Float[Array, "*blocks"]  # the estimate that advantages are divided by
    advantage_swing: Float[Array, "*blocks"]  # the largest of these over the smallest
    explained: Float[Array, "*blocks"]  # share of the value targets' variance, before learning
    noise: NoiseScale | None = None  # of the policy's gradient, if the config asks for it


def summarize(measures: Measures, scales: Any, noise: NoiseScale | None = None) -> Diagnostics:
    """A block's, from those of its gradient steps and iterations; the noise was measured last."""
    std, explained = scales
    return Diagnostics(
        steps=jax.tree.map(jnp.mean, measures),
        advantage_std=jnp.mean(std),
        advantage_swing=jnp.max(std) / jnp.maximum(jnp.min(std), 1e-8),
        explained=jnp.mean(explained),
        noise=jax.tree.map(lambda x: jnp.ravel(x)[-1], noise),
    )


def policy_noise(
    config: Any, learner: Learner, batch: Batch, key: PRNGKeyArray, now: Bool[Array, ""] | bool
) -> NoiseScale:
    """`noise_scale` of the policy's gradient if it is wanted `now`, else NaN at no cost.

    It costs as much as an epoch. `now` should be the same for all seeds: else all are measured.
    """

    def measure() -> NoiseScale:
        return noise_scale(config, learner, batch, key, ("policy",))

    nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), jax.eval_shape(measure))
    return jax.lax.cond(now, measure, lambda: nothing)
