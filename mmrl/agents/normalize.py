"""Running scales of rewards and advantages.

Both are folds of monoids: the discounted sum of past rewards is `Affine`; its variance, and the
mean and variance of the advantages, are `Moments`. Hilton et al. 2022 (their code), Cobbe et al.
2021.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mmrl._dtypes import converting, like, promoting
from mmrl.monoid import Affine, LongMoments, Moments
from mmrl.scan import scan_and_last

Scalar = float | Float[Array, ""]
Averages = tuple[Float[Array, ""], ...]
"""(n, μ, M₂): an element of `Moments`, or of `LongMoments`, which agents store."""


class RewardScale(eqx.Module):
    """Standard deviation of R_t = r_t + g R_{t-1}, by which rewards are divided."""

    sums: Float[Array, " env"]  # R at each environment's last step
    moments: Averages


def reward_scale(environments: int) -> RewardScale:
    """Return the scale before any reward: a variance of 1, weighted as 1/10 000 of a reward."""
    prior = jnp.float32(1e-4), jnp.float32(0), jnp.float32(1e-4)
    return RewardScale(jnp.zeros(environments), (*prior, *Moments().identity()))


def rewards_of(config: Any) -> RewardScale | None:
    """Return the scale of a new agent, or None if its `Config` does not normalize rewards."""
    return reward_scale(config.environments) if config.normalize_rewards else None


@promoting
def watch_rewards(scale: RewardScale | None, steps: Any, gamma: Scalar) -> RewardScale | None:
    """Return the scale, if there is one, after the steps of a `Transition` [env, time].

    R_t = r_t + g (1 - b_t) R_{t-1} sums the past from the episode's `begin` on; `gamma` is g.
    """
    if scale is None:
        return None

    def sums(start, rewards, begin):
        maps = like((jnp.where(begin, 0.0, gamma), rewards), (start, start))
        (_, past), (_, last) = scan_and_last(Affine(), maps, (jnp.ones_like(start), start))
        return past, last

    past, last = jax.vmap(sums)(scale.sums, steps.reward, steps.begin)
    return RewardScale(last, _merged(scale.moments, sample(past)))


@promoting
def divided(scale: RewardScale | None, steps: Any, most: Scalar = 10.0) -> Any:
    """Return the steps with r / √(Var R + 1e-8), clipped to ±`most`, in place of r.

    Without a scale the steps are unchanged. The mean of the rewards is not subtracted.
    """
    if scale is None:
        return steps
    scaled = steps.reward * jax.lax.rsqrt(variance(scale.moments) + 1e-8)
    return dataclasses.replace(steps, reward=jnp.clip(scaled, -most, most))


@converting("x")
def standardize(
    moments: Averages, x: Float[Array, "*shape"], decay: Scalar
) -> tuple[Averages, Float[Array, "*shape"]]:
    """Return (x - μ) / (σ + 1e-8), and the moments of x and, faded by `decay`, of earlier x.

    The fading is per call; with decay 0 only x counts. An average with decay d spans (1 + d) / (1 -
    d) calls. Equal numbers give 0, and other numbers give the same as in 64 bits.
    """
    means = slice(1, None, 3)
    faded = [jnp.where(decay > 0, decay * number, 0) for number in moments]
    faded[means] = moments[means]
    # A center near μ keeps the digits of small differences; a unit keeps squares finite.
    center = jnp.sum(x / x.size)
    count, mean, square = (sum(faded[i::3]) for i in range(3))
    step = jnp.where(count > 0, mean - center, 0)
    unit = jnp.maximum(jnp.max(jnp.abs(x - center)), jnp.abs(step))
    unit = jnp.where(unit > 1e9, unit, 1)
    x = (x - center) / unit
    own: Any = sample(x)
    before: Any = count, step / unit, square / unit / unit
    within = Moments()(before, own)
    moments = _merged(
        like(tuple(faded), moments), (own[0], center + unit * own[1], own[2] * unit * unit)
    )
    return moments, (x - within[1]) / (jnp.sqrt(variance(within)) + jnp.maximum(1e-8 / unit, 1e-30))


@converting("x")
def sample(x: Float[Array, "*shape"]) -> Averages:
    """Return the element of `Moments` for all numbers of an array."""
    rough = jnp.mean(x)
    mean = rough + jnp.mean(x - rough)  # exact if all numbers are equal
    return jnp.asarray(x.size, x.dtype), mean, jnp.sum((x - mean) ** 2)


@promoting
def variance(moments: Averages) -> Float[Array, ""]:
    """Return M₂ / n."""
    return moments[2] / moments[0]


def _merged(moments: Any, new: Any) -> Averages:
    """Return `moments` merged with those of a `sample`."""
    if len(moments) == len(new):
        return like(Moments()(moments, new), moments)
    return like(LongMoments()(moments, (*new, *Moments().identity())), moments)
