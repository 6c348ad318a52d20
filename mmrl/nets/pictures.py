"""Convolutional encoders for images.

    image [height, width, channel] ──Conv──► features ──┐
    additional features ────────────────────────────────┴──layer──► x

For small images, `Conv` has the architecture of MinAtar, and for larger images that of IMPALA.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from mmrl._spaces import channels_first
from mmrl.memory.base import dense
from mmrl.nets.convolve import convolve

LARGE = 32
"""Smallest height and width, in pixels, for which the default architecture is IMPALA's."""
SIDE = 3  # height and width of a filter, in pixels


class Picture(NamedTuple):
    """Description of an image observation, which may include additional features."""

    shape: tuple[int, int, int]  # height, width, channels
    more: int = 0  # number of additional features besides the image
    unit: float = 1.0  # divisor of the pixels, such as 255 for uint8
    # architecture: small, impala, dense (no convolutions), or auto (depends on the image size)
    stack: str = "auto"


class Filters(eqx.Module):
    """3 × 3 convolution with stride 1.

    If `same` is True, the image is padded with zeros, so the output has the same height and width.
    Without padding, images are small, and a product of image patches and a matrix is faster on a
    CPU under `vmap` over seeds than a convolution, because each seed has different filters.
    """

    linear: eqx.nn.Linear
    same: bool = eqx.field(static=True, default=True)

    def __init__(self, inputs: int, outputs: int, same: bool = True, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(SIDE * SIDE * inputs, outputs, key=key)
        self.same = same

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "rows columns out"]:
        if self.same:
            filters = self.linear.weight.T.reshape(SIDE, SIDE, x.shape[-1], -1)
            bias: Any = self.linear.bias
            return convolve(x[None], filters, (1, 1))[0] + bias[None, None]
        rows, columns = (size - SIDE + 1 for size in x.shape[:2])
        shifts = [(i, j) for i in range(SIDE) for j in range(SIDE)]
        patches = [x[i : i + rows, j : j + columns] for i, j in shifts]
        multiply = jax.vmap(jax.vmap(partial(dense, self.linear)))
        return multiply(jnp.concatenate(patches, axis=-1))


class Block(eqx.Module):
    """IMPALA block: a convolution, 3 × 3 max pooling with stride 2, and two residual units."""

    first: Filters
    units: tuple[tuple[Filters, Filters], ...]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray):
        first, *keys = jax.random.split(key, 5)
        self.first = Filters(inputs, outputs, key=first)
        inner = [Filters(outputs, outputs, key=each) for each in keys]
        self.units = (inner[0], inner[1]), (inner[2], inner[3])

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "rows columns out"]:
        x = pool(self.first(x))
        for first, second in self.units:
            x = x + second(jax.nn.relu(first(jax.nn.relu(x))))
        return x


def pool(x: Float[Array, "height width channel"]) -> Float[Array, "rows columns channel"]:
    """Apply 3 × 3 max pooling with stride 2 and same padding."""
    rows, columns = (-(-size // 2) for size in x.shape[:2])
    edges = [max(2 * n + 1 - size, 0) for n, size in ((rows, x.shape[0]), (columns, x.shape[1]))]
    pads = [(edge // 2, edge - edge // 2) for edge in edges]
    x = jnp.pad(x, (*pads, (0, 0)), constant_values=-jnp.inf)
    most = x[: 2 * rows : 2, : 2 * columns : 2]
    for i, j in ((i, j) for i in range(SIDE) for j in range(SIDE)):
        most = jnp.maximum(most, x[i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2])
    return most


class Conv(eqx.Module):
    """Convolutional network that maps an image, [height, width, channel], to features.

    small   16 filters and a dense layer of 128 units.  Young & Tian 2019, MinAtar.
    impala  `Block`s of 16, 32 and 32 filters, and 256 units.  Espeholt et al. 2018, Fig. 3.

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
        """Number of output features."""
        return int(self.linear.out_features)

    def __call__(self, picture: Shaped[Array, "height width channel"]) -> Float[Array, " out"]:
        x = picture.astype(jnp.float32)
        x = x / self.unit if self.unit != 1 else x
        for block in self.blocks:
            x = block(x)
        return jax.nn.relu(dense(self.linear, jax.nn.relu(x).ravel()))


def stack(picture: Picture) -> str:
    """Return "small", "impala" or "dense", the architecture for an image.

    Raises `ValueError` if the shape does not fit the architecture.
    """
    if picture.stack == "auto" and len(picture.shape) == 3 and channels_first(picture.shape):
        raise ValueError(
            "`env` must have images of shape [height, width, channel]; got shape "
            f"{tuple(picture.shape)}, which looks like [channel, height, width]. Transpose the "
            "images in the environment. If the last axis does contain the channels, set "
            "encoder='small' or 'impala'. With 'dense', images of any shape are flattened."
        )
    if len(picture.shape) != 3 or min(picture.shape[:2]) < SIDE:
        raise ValueError(
            "`encoder` must be 'auto' or 'dense' unless observations are images, [height, width, "
            f"channel], of at least {SIDE} × {SIDE} pixels; got {picture.stack!r} for observations "
            f"of shape {tuple(picture.shape)}."
        )
    if picture.stack != "auto":
        return picture.stack
    return "impala" if min(picture.shape[:2]) >= LARGE else "small"


class Pixels(eqx.Module):
    """Layer that flattens an image; replaces `Conv` in a dense encoder."""

    output_size: int = eqx.field(static=True)

    def __call__(self, picture: Shaped[Array, "*shape"]) -> Float[Array, " out"]:
        return jnp.ravel(picture).astype(jnp.float32)


class PictureEncoder(eqx.Module):
    """Encoder for an image, or for a pair: an image and additional features.

    The output is layer([conv(image) ‖ features]).
    """

    conv: Conv | Pixels
    layer: Callable

    def __call__(self, obs: PyTree[Shaped[Array, "..."]]) -> Float[Array, " out"]:
        picture, *more = obs if isinstance(obs, tuple) else (obs,)
        more = [x.astype(jnp.float32) for x in more]
        return self.layer(jnp.concatenate([self.conv(picture), *more]))


def encoder(
    picture: Picture, layer: Callable[..., Callable], _: int, width: int, *, key: PRNGKeyArray
) -> PictureEncoder:
    """Build an encoder for images with `width` output features.

    `layer` is the class of the last layer, such as `Dense`. The third argument, the size of an
    observation, is ignored, because it follows from `picture`; it is accepted so that this function
    can replace the constructor of a layer. If `picture.stack` is "dense", the image is flattened
    instead of convolved.
    """
    if picture.stack == "dense":
        flat = Pixels(math.prod(picture.shape))
        return PictureEncoder(flat, layer(flat.output_size + picture.more, width, key=key))
    conv_key, layer_key = jax.random.split(key)
    conv = Conv(picture, key=conv_key)
    return PictureEncoder(conv, layer(conv.output_size + picture.more, width, key=layer_key))
