"""The primitive of convolutions: equal to XLA's convolution, with all derivatives, under `vmap`."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.nets.convolve import convolve

SEEDS, WORKERS = 3, 2


def by_xla(images: Any, filters: Any, edges: tuple[int, int]) -> Any:
    """The oracle, whose batching rule is a grouped convolution."""
    pads, axes = [(edge, edge) for edge in edges], ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, filters, (1, 1), pads, dimension_numbers=axes)


def every_result(function: Callable[..., Any], edges: tuple[int, int]) -> Any:
    """The outputs, first and second derivatives for several seeds, or for one of them."""
    images_key, filters_key = jax.random.split(jax.random.key(0))
    images = jax.random.normal(images_key, (SEEDS, WORKERS, 2, 5, 4, 3))
    filters = jax.random.normal(filters_key, (SEEDS, 3, 3, 3, 2))

    def loss(images: Any, filters: Any) -> Any:
        rows = jax.vmap(lambda x: function(x, filters, edges))(images)
        return jnp.sum(jnp.sin(rows))

    def steep(images: Any, filters: Any) -> Any:
        gradient = jax.grad(loss, (0, 1))(images, filters)
        return sum(jnp.sum(x**2) for x in gradient)

    pair = images, filters
    return jax.jit(lambda: (
        jax.vmap(jax.value_and_grad(loss, (0, 1)))(*pair),
        jax.vmap(jax.grad(steep, (0, 1)))(*pair),
        jax.jvp(jax.vmap(loss), pair, pair),
        jax.vmap(jax.grad(loss, (0, 1)), (None, 0))(images[0], filters),
        jax.vmap(jax.grad(loss, (0, 1)), (0, None))(images, filters[0]),
        function(images[0, 0], filters[0], edges),
    ))()  # fmt: skip


@pytest.mark.parametrize("edges", [(1, 1), (0, 2)])
def test_a_convolution_and_its_derivatives_are_those_of_xla(edges: tuple[int, int]):
    ours, theirs = every_result(convolve, edges), every_result(by_xla, edges)
    for mine, their in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_allclose(mine, their, rtol=1e-3, atol=1e-3)


def test_several_seeds_compile_to_a_loop_over_their_filters():
    """A grouped convolution takes many times longer on a CPU."""
    images, filters = jnp.zeros((SEEDS, 2, 5, 5, 3)), jnp.zeros((SEEDS, 3, 3, 3, 2))

    def gradient(images: Any, filters: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(convolve(images, w, (1, 1)) ** 2))(filters)

    text = jax.jit(jax.vmap(gradient)).lower(images, filters).as_text()
    groups = re.findall(r"feature_group_count = (\d+)", text)
    assert groups and set(groups) == {"1"}


def test_dtypes_are_promoted():
    y = convolve(jnp.ones((1, 3, 3, 1), jnp.bfloat16), jnp.ones((3, 3, 1, 1)), (0, 0))
    assert y.dtype == jnp.float32 and y.item() == 9
