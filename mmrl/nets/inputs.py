"""Running normalization of each feature of an observation.

Without it, a network sees 30 + cue as 30 and learns little from the cue. `Normalized` centers and
scales each feature by its mean and its deviation over all observations so far. These statistics are
part of a network, so a checkpoint, an exported policy and an evaluation include them. Only `count`
changes them.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from mmrl._dtypes import promoting
from mmrl.monoid import LongMoments

MOST = 10.0
"""Normalized features are clipped to ±MOST."""


LARGEST = 1e15
"""Larger observations count as this, and NaN as 0."""


class Normalized(eqx.Module):
    """Normalization of chosen features: x ↦ clip((x - μ) / σ, ±10); others are unchanged.

    μ and σ are over all observations counted so far. They are pairs of numbers (`LongMoments`),
    which no count overflows. A feature that never changed becomes 0.
    """

    moments: tuple[Float[Array, " features"], ...]  # an element of `LongMoments`
    chosen: tuple[bool, ...] = eqx.field(static=True)

    def __init__(self, chosen: Sequence[bool]):
        self.chosen = tuple(map(bool, chosen))
        self.moments = LongMoments((len(self.chosen),)).identity()

    @property
    def units(self) -> tuple[Float[Array, " features"], Float[Array, " features"]]:
        """μ and 1/σ of the chosen features, 0 and 1 for the others."""
        count, mean, square = jax.lax.stop_gradient(self.moments[:3])
        seen = jnp.array(self.chosen) & (count > 0)
        variance = jnp.where(seen, square / jnp.where(seen, count, 1), 0)
        scale = jnp.where(variance > 0, jax.lax.rsqrt(jnp.maximum(variance, 1e-36)), 1)
        return jnp.where(seen, mean, 0), scale

    @promoting
    def __call__(self, x: Shaped[Array, "*obs"]) -> Float[Array, " features"]:
        x = jnp.ravel(x).astype(jnp.float32)
        center, scale = self.units
        most = jnp.where(jnp.array(self.chosen), MOST, jnp.inf)
        return jnp.clip((x - center) * scale, -most, most)

    @promoting
    def count(self, obs: Shaped[Array, "..."]) -> "Normalized":
        """Return the module with further observations counted, [..., *obs]."""
        rows = obs.reshape(-1, len(self.chosen)).astype(jnp.float32)
        # Squares of larger numbers would overflow and spoil the statistics for good.
        rows = jnp.clip(jnp.nan_to_num(rows), -LARGEST, LARGEST)
        rough = jnp.mean(rows, axis=0, keepdims=True)
        mean = rough + jnp.mean(rows - rough, axis=0, keepdims=True)  # exact if all are equal
        square = jnp.sum((rows - mean) ** 2, axis=0)
        zero = jnp.zeros_like(square)
        new = jnp.full_like(square, len(rows)), mean[0], square, zero, zero, zero
        moments = LongMoments((len(self.chosen),))(self.moments, new)
        return eqx.tree_at(lambda m: m.moments, self, moments)


def count(nets: PyTree, obs: PyTree[Shaped[Array, "..."]]) -> PyTree:
    """Return the networks with observations counted, [..., *obs].

    All of them get the statistics of the first, so a target, an average or a critic sees the same
    observation as the network that acts.
    """
    modules = jax.tree.leaves(nets, is_leaf=_is_normalized)
    first = next(filter(_is_normalized, modules), None)
    if first is None:
        return nets
    now = first.count(obs)
    return jax.tree.map(lambda x: now if _is_normalized(x) else x, nets, is_leaf=_is_normalized)


def _is_normalized(x: Any) -> bool:
    return isinstance(x, Normalized)
