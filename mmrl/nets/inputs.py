"""Normalization of observations by running statistics.

Networks learn slowly from features with a large mean and a small variance, such as a cue of ±1 with
an offset of 30. `Normalizer` centers and scales each feature by its mean and standard deviation
over all observations so far. The statistics are part of the network, so checkpoints, exported
policies and evaluations include them. Only `count` updates the statistics; applying the network
does not.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from mmrl._dtypes import with_promotion
from mmrl.monoid import LongMoments

MOST = 10.0
"""Largest absolute value of a normalized feature; larger ones are clipped."""


LARGEST = 1e15
"""Largest absolute value of an observation in the statistics.

Before they are counted, larger values are clipped and NaN is replaced by 0.
"""


class Normalizer(eqx.Module):
    """Layer that normalizes the selected features, x ↦ clip((x - μ) / σ, ±10).

    μ and σ are the mean and the standard deviation over all observations that `count` has received.
    These statistics are stored in double-single precision (`LongMoments`), so that the count does
    not overflow. A feature that has been constant so far becomes 0.
    """

    moments: tuple[Float[Array, " features"], ...]  # element of `LongMoments`
    mask: tuple[bool, ...] = eqx.field(static=True)  # True for each feature to normalize

    def __init__(self, mask: Sequence[bool]):
        self.mask = tuple(map(bool, mask))
        self.moments = LongMoments((len(self.mask),)).identity()

    @property
    def units(self) -> tuple[Float[Array, " features"], Float[Array, " features"]]:
        """Centers μ and factors 1/σ of the selected features; 0 and 1 for all other features."""
        count, mean, square = jax.lax.stop_gradient(self.moments[:3])
        some = jnp.array(self.mask) & (count > 0)
        variance = jnp.where(some, square / jnp.where(some, count, 1), 0)
        scale = jnp.where(variance > 0, jax.lax.rsqrt(jnp.maximum(variance, 1e-36)), 1)
        return jnp.where(some, mean, 0), scale

    @with_promotion
    def __call__(self, obs: PyTree[Shaped[Array, "..."]]) -> Float[Array, " features"]:
        x = self._rows(obs)[0]
        center, scale = self.units
        most = jnp.where(jnp.array(self.mask), MOST, jnp.inf)
        return jnp.clip((x - center) * scale, -most, most)

    @with_promotion
    def count(self, obs: PyTree[Shaped[Array, "..."]]) -> "Normalizer":
        """Return a copy of the layer whose statistics include more observations, [..., *obs].

        An observation may be a pair that consists of an image and a vector.
        """
        rows = self._rows(obs)
        # Clip, because a single overflow would make the statistics infinite forever.
        rows = jnp.clip(jnp.nan_to_num(rows), -LARGEST, LARGEST)
        rough = jnp.mean(rows, axis=0, keepdims=True)
        # The second pass over the rows makes the mean exact if all rows are equal.
        mean = rough + jnp.mean(rows - rough, axis=0, keepdims=True)
        square = jnp.sum((rows - mean) ** 2, axis=0)
        zero = jnp.zeros_like(square)
        new = jnp.full_like(square, len(rows)), mean[0], square, zero, zero, zero
        moments = LongMoments((len(self.mask),))(self.moments, new)
        return eqx.tree_at(lambda m: m.moments, self, moments)

    def _rows(self, obs: PyTree[Shaped[Array, "..."]]) -> Float[Array, "rows features"]:
        parts = jax.tree.leaves(obs)
        count = sum(x.size for x in parts) // len(self.mask)
        rows = [x.reshape(count, -1).astype(jnp.float32) for x in parts]
        return jnp.concatenate(rows, axis=1)


def count(nets: PyTree, obs: PyTree[Shaped[Array, "..."]]) -> PyTree:
    """Return copies of networks whose statistics include more observations, [..., *obs].

    All networks receive the updated statistics of the first one, so that target networks, averaged
    networks and critics receive the same inputs as the acting network.
    """
    modules = jax.tree.leaves(nets, is_leaf=_is_normalizer)
    first = next(filter(_is_normalizer, modules), None)
    if first is None:
        return nets
    now = first.count(obs)
    return jax.tree.map(lambda x: now if _is_normalizer(x) else x, nets, is_leaf=_is_normalizer)


def _is_normalizer(x: Any) -> bool:
    return isinstance(x, Normalizer)
