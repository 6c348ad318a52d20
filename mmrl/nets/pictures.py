"""Networks that see pictures: convolutions in place of the first dense layer.

    picture [height, width, channel] ──Conv──► features ──┐
    numbers that are shown beside the picture ────────────┴──layer──► x

`Conv` is one of two stacks: that of MinAtar for small pictures, and that of IMPALA.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from mmrl.memory.base import dense

LARGE = 32
"""Pictures of at least this height and width, in pixels, are read by the stack of IMPALA."""
SIDE = 3  # of a filter, in pixels


class Picture(NamedTuple):
    """The kind of an observation: a picture, alone or with numbers beside it."""

    shape: tuple[int, int, int]  # height, width, channels
    more: int = 0  # numbers beside the picture; with 0 the observation is the picture alone
    unit: float = 1.0  # value of a pixel that counts as 1: 255 for bytes
    stack: str = "auto"  # small, impala, or auto: by the size of the picture


class Filters(eqx.Module):
    """3 × 3 filters of stride 1, y = b + Σ_ij W_ij x_{· + (i, j)}; `same` pads x with zeros.

    The patches of a picture are multiplied by one matrix: under `vmap` over seeds, whose filters
    differ, XLA's convolution is three to six times slower on a CPU.
    """

    linear: eqx.nn.Linear
    same: bool = eqx.field(static=True, default=True)

    def __init__(self, inputs: int, outputs: int, same: bool = True, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(SIDE * SIDE * inputs, outputs, key=key)
        self.same = same

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "rows columns out"]:
        if self.same:
            x = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
        rows, columns = (size - SIDE + 1 for size in x.shape[:2])
        shifts = [(i, j) for i in range(SIDE) for j in range(SIDE)]
        patches = [x[i : i + rows, j : j + columns] for i, j in shifts]
        multiplied = jax.vmap(jax.vmap(partial(dense, self.linear)))
        return multiplied(jnp.concatenate(patches, axis=-1))


class Block(eqx.Module):
    """A block of IMPALA: filters, the maximum of 3 × 3 at stride 2, and two residual units."""

    first: Filters
    units: tuple[tuple[Filters, Filters], ...]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray):
        first, *keys = jax.random.split(key, 5)
        self.first = Filters(inputs, outputs, key=first)
        inner = [Filters(outputs, outputs, key=each) for each in keys]
        self.units = (inner[0], inner[1]), (inner[2], inner[3])

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "rows columns out"]:
        x = pooled(self.first(x))
        for first, second in self.units:
            x = x + second(jax.nn.relu(first(jax.nn.relu(x))))
        return x


def pooled(x: Float[Array, "height width channel"]) -> Float[Array, "rows columns channel"]:
    """Return the maximum of each 3 × 3 pixels at stride 2; beyond the edges there is nothing."""
    rows, columns = (-(-size // 2) for size in x.shape[:2])
    edges = [max(2 * n + 1 - size, 0) for n, size in ((rows, x.shape[0]), (columns, x.shape[1]))]
    pads = [(edge // 2, edge - edge // 2) for edge in edges]
    x = jnp.pad(x, (*pads, (0, 0)), constant_values=-jnp.inf)
    most = x[: 2 * rows : 2, : 2 * columns : 2]
    for i, j in ((i, j) for i in range(SIDE) for j in range(SIDE)):
        most = jnp.maximum(most, x[i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2])
    return most


class Conv(eqx.Module):
    """Features of a picture, [height, width, channel] of any type; of bytes, pixel / 255.

    small   16 filters, and 128 dense features, with relu.  Young & Tian 2019, MinAtar.
    impala  three `Block`s of 16, 32 and 32 filters, and 256.  Espeholt et al. 2018, Fig. 3.

        conv = Conv(Picture((84, 84, 4), unit=255), key=key)
        conv(screen)                                      # [conv.output_size]
    """

    blocks: tuple[Callable, ...]
    linear: eqx.nn.Linear
    unit: float = eqx.field(static=True)

    def __init__(self, picture: Picture, *, key: PRNGKeyArray):
        last, *keys = jax.random.split(key, 4)
        height, width, channels = picture.shape
        self.unit = picture.unit
        if stack(picture) == "small":
            self.blocks = (Filters(channels, 16, same=False, key=keys[0]),)
            size, features = (height - SIDE + 1) * (width - SIDE + 1) * 16, 128
        else:
            counts = ((channels, 16), (16, 32), (32, 32))
            self.blocks = tuple(Block(*each, key=k) for each, k in zip(counts, keys, strict=True))
            size, features = math.prod(-(-n // 8) for n in (height, width)) * 32, 256
        self.linear = eqx.nn.Linear(size, features, key=last)

    @property
    def output_size(self) -> int:
        """The number of features."""
        return int(self.linear.out_features)

    def __call__(self, picture: Shaped[Array, "height width channel"]) -> Float[Array, " out"]:
        x = picture.astype(jnp.float32)
        x = x / self.unit if self.unit != 1 else x
        for block in self.blocks:
            x = block(x)
        return jax.nn.relu(dense(self.linear, jax.nn.relu(x).ravel()))


def stack(picture: Picture) -> str:
    """Return the name of the stack that reads a picture. Raises `ValueError` if none can."""
    if len(picture.shape) != 3 or min(picture.shape[:2]) < SIDE:
        raise ValueError(
            "`encoder` must be 'auto' or 'dense' unless observations are pictures, [height, width, "
            f"channel] of at least {SIDE} × {SIDE} pixels; got {picture.stack!r} for observations "
            f"of shape {tuple(picture.shape)}."
        )
    if picture.shape[0] <= 4 and picture.shape[1] == picture.shape[2] >= LARGE:
        raise ValueError(
            "`env` must observe pictures as [height, width, channel]; got the shape "
            f"{tuple(picture.shape)}, whose channels are first. Transpose them in the environment."
        )
    if picture.stack != "auto":
        return picture.stack
    return "impala" if min(picture.shape[:2]) >= LARGE else "small"


class PictureEncoder(eqx.Module):
    """layer([Conv(picture), numbers]): an encoder of a picture, or of (picture, numbers)."""

    conv: Conv
    layer: Callable

    def __call__(self, obs: PyTree[Shaped[Array, "..."]]) -> Float[Array, " out"]:
        picture, *more = obs if isinstance(obs, tuple) else (obs,)
        more = [x.astype(jnp.float32) for x in more]
        return self.layer(jnp.concatenate([self.conv(picture), *more]))


def encoder(
    picture: Picture, layer: Callable[..., Callable], _: int, width: int, *, key: PRNGKeyArray
) -> PictureEncoder:
    """Return a `PictureEncoder` to `width` features, by a `layer` such as `Dense`.

    It is called as the layer is, with a size of the observation that the picture has already.
    """
    conv_key, layer_key = jax.random.split(key)
    conv = Conv(picture, key=conv_key)
    return PictureEncoder(conv, layer(conv.output_size + picture.more, width, key=layer_key))
