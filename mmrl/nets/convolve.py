"""Convolution of images that stays fast under `vmap` over filters, such as those of several seeds.

XLA computes a batch of filters as a grouped convolution, which takes many times longer on a CPU
than one convolution after another. The gradients of a convolution are convolutions, too, so this
module defines a primitive whose derivatives are the primitive itself, and whose batching rule loops
over the filters.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

Edges = tuple[int, int]  # rows and columns of zeros on each side of an image


def convolve(
    images: Float[Array, "image height width in"],
    filters: Float[Array, "rows columns in out"],
    edges: Edges,
) -> Float[Array, "image new_height new_width out"]:
    """Convolve images with filters, with stride 1."""
    dtype = jnp.result_type(images, filters)
    return _convolve.bind(images.astype(dtype), filters.astype(dtype), edges=edges)


def _by_xla(images: Any, filters: Any, *, edges: Edges) -> Any:
    pads, axes = [(edge, edge) for edge in edges], ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, filters, (1, 1), pads, dimension_numbers=axes)


def _shape(images: Any, filters: Any, *, edges: Edges) -> ShapedArray:
    sides = zip(images.shape[1:3], filters.shape, edges, strict=False)
    height, width = (size + 2 * edge - side + 1 for size, side, edge in sides)
    return ShapedArray((images.shape[0], height, width, filters.shape[3]), images.dtype)


def _images_gradient(g: Any, images: Any, filters: Any, *, edges: Edges) -> Any:
    rows, columns = (side - 1 - edge for side, edge in zip(filters.shape, edges, strict=False))
    return convolve(g, filters[::-1, ::-1].swapaxes(2, 3), (rows, columns))


def _filters_gradient(g: Any, images: Any, filters: Any, *, edges: Edges) -> Any:
    swapped = convolve(images.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3), edges)
    return swapped.transpose(1, 2, 0, 3)


def _batch(arguments: Any, axes: Any, *, edges: Edges) -> tuple[Any, int]:
    images, filters = (
        x if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(arguments, axes, strict=True)
    )
    if axes[0] is None:
        return jax.lax.map(lambda each: convolve(images, each, edges), filters), 0
    if axes[1] is None:
        y = convolve(images.reshape(-1, *images.shape[2:]), filters, edges)
        return y.reshape(*images.shape[:2], *y.shape[1:]), 0
    return jax.lax.map(lambda pair: convolve(pair[0], pair[1], edges), (images, filters)), 0


_convolve = Primitive("convolve")
_convolve.def_impl(jax.jit(_by_xla, static_argnames="edges"))
_convolve.def_abstract_eval(_shape)
mlir.register_lowering(_convolve, mlir.lower_fun(_by_xla, multiple_results=False))
ad.defbilinear(_convolve, _images_gradient, _filters_gradient)
batching.primitive_batchers[_convolve] = _batch
