"""Running statistics for the normalization of rewards and advantages.

All statistics are folds of monoids. The discounted sum of past rewards is a fold of `Affine`. Its
variance, and the mean and variance of advantages, are folds of `Moments`. The formulas follow the
published code of Hilton et al. 2022 and of Cobbe et al. 2021.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mmrl._dtypes import convert_arguments, like, with_promotion
from mmrl.monoid import Affine, LongMoments, Moments
from mmrl.scan import scan_and_last

Scalar = float | Float[Array, ""]
Averages = tuple[Float[Array, ""], ...]
"""(n, μ, M₂): an element of `Moments`, or of `LongMoments` in an agent's state."""


class RewardScale(eqx.Module):
    """Running moments of R_t = r_t + g R_{t-1}, whose standard deviation divides rewards."""

    sums: Float[Array, " env"]  # R after the last step of each environment
    moments: Averages


def reward_scale(environments: int) -> RewardScale:
    """Return the initial statistics, with a prior variance of 1.

    The prior counts as 1/10 000 of one observed reward.
    """
    prior = jnp.float32(1e-4), jnp.float32(0), jnp.float32(1e-4)
    return RewardScale(jnp.zeros(environments), (*prior, *Moments().identity()))


def rewards_of(config: Any) -> RewardScale | None:
    """Return the initial reward statistics, or None if the config does not normalize rewards."""
    return reward_scale(config.environments) if config.normalize_rewards else None


@with_promotion
def watch_rewards(scale: RewardScale | None, steps: Any, gamma: Scalar) -> RewardScale | None:
    """Update the statistics with the rewards of a `Transition` [env, time].

    R_t = r_t + g (1 - b_t) R_{t-1}, where g is `gamma`. The sum restarts at each `begin` flag b_t.
    If `scale` is None, return None.
    """
    if scale is None:
        return None

    def sums(start, rewards, begin):
        maps = like((jnp.where(begin, 0.0, gamma), rewards), (start, start))
        (_, past), (_, last) = scan_and_last(Affine(), maps, (jnp.ones_like(start), start))
        return past, last

    past, last = jax.vmap(sums)(scale.sums, steps.reward, steps.begin)
    return RewardScale(last, _merge(scale.moments, sample(past)))


@with_promotion
def scale_rewards(scale: RewardScale | None, steps: Any, most: Scalar = 10.0) -> Any:
    """Normalize the rewards of steps: r / √(Var R + 1e-8), clipped to ±`most`.

    The mean is not subtracted. If `scale` is None, the steps are returned unchanged.
    """
    if scale is None:
        return steps
    scaled = steps.reward * jax.lax.rsqrt(variance(scale.moments) + 1e-8)
    return dataclasses.replace(steps, reward=jnp.clip(scaled, -most, most))


@convert_arguments("x")
def standardize(
    moments: Averages, x: Float[Array, "*shape"], decay: Scalar
) -> tuple[Averages, Float[Array, "*shape"]]:
    """Update moments with an array x, and return (x - μ) / (σ + 1e-8) with the updated moments.

    Each call multiplies the weight of the previous moments by `decay`, so with a decay of 0 only
    the moments of x are used. A decay of d corresponds to an average over about (1 + d) / (1 - d)
    calls. If all values are equal, the result is 0. Otherwise, the result is as accurate as a
    computation in 64 bits.

        >>> moments, x = standardize(Moments().identity(), [1.0, 3.0], decay=0.9)
        >>> print(x, variance(moments))
        [-1.  1.] 1.0
    """
    means = slice(1, None, 3)
    terms = [jnp.where(decay > 0, decay * number, 0) for number in moments]
    terms[means] = moments[means]
    # Subtract a center close to μ, to preserve the precision of small differences, and divide by a
    # scale, to prevent overflow of the squares.
    center = jnp.sum(x / x.size)
    count, mean, square = (sum(terms[i::3]) for i in range(3))
    step = jnp.where(count > 0, mean - center, 0)
    unit = jnp.maximum(jnp.max(jnp.abs(x - center)), jnp.abs(step))
    unit = jnp.where(unit > 1e9, unit, 1)
    x = (x - center) / unit
    own: Any = sample(x)
    before: Any = count, step / unit, square / unit / unit
    within = Moments()(before, own)
    moments = _merge(
        like(tuple(terms), moments), (own[0], center + unit * own[1], own[2] * unit * unit)
    )
    return moments, (x - within[1]) / (jnp.sqrt(variance(within)) + jnp.maximum(1e-8 / unit, 1e-30))


@convert_arguments("x")
def sample(x: Float[Array, "*shape"]) -> Averages:
    """Return the moments (n, μ, M₂) of all values of an array."""
    rough = jnp.mean(x)
    # The second term makes the mean exact if all values are equal.
    mean = rough + jnp.mean(x - rough)
    return jnp.asarray(x.size, x.dtype), mean, jnp.sum((x - mean) ** 2)


@with_promotion
def variance(moments: Averages) -> Float[Array, ""]:
    """Return the variance M₂ / n."""
    return moments[2] / moments[0]


def _merge(moments: Any, new: Any) -> Averages:
    """Merge `moments` with the moments of another `sample`."""
    if len(moments) == len(new):
        return like(Moments()(moments, new), moments)
    return like(LongMoments()(moments, (*new, *Moments().identity())), moments)
