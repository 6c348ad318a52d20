"""`GatedRecurrent` computes the same states and derivatives as a loop over its cells."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import memory
from mmrl.memory import GatedRecurrent, Recurrent

MODELS = ("gru", "lstm", "elman")
T, WIDTH = 13, 3


def unrolls(name: str) -> tuple[Any, Any, tuple]:
    """Return functions that unroll a model as each class does, and their arguments."""
    keys = jax.random.split(jax.random.key(0), 4)
    model: Any = memory.make(name, WIDTH, WIDTH, key=keys[0])
    params, static = eqx.partition(model, eqx.is_inexact_array)
    state = jax.tree.map(lambda x: x + jax.random.normal(keys[1], x.shape), model.init())
    xs = jax.random.normal(keys[2], (T, WIDTH))
    begin = jax.random.bernoulli(keys[3], 0.2, (T,))

    def by_class(form: Any) -> Any:
        return lambda params, state, xs: form._unroll(eqx.combine(params, static), state, xs, begin)

    return by_class(GatedRecurrent), by_class(Recurrent), (params, state, xs)


def close(ours: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_values_and_derivatives_equal_a_loop(name: str):
    gated, loop, arguments = unrolls(name)
    close(gated(*arguments), loop(*arguments))
    tangents = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)), arguments)
    tangents = jax.tree.map(lambda dx, x: dx.reshape(x.shape), tangents, arguments)
    close(jax.jvp(gated, arguments, tangents), jax.jvp(loop, arguments, tangents))
    results, back = jax.vjp(gated, *arguments)
    cotangents = jax.tree.map(lambda x: jnp.sin(jnp.arange(x.size) + 1.0).reshape(x.shape), results)
    close(back(cotangents), jax.vjp(loop, *arguments)[1](cotangents))


def test_only_the_observations_may_have_tangents():
    gated, loop, (params, state, xs) = unrolls("lstm")
    ours, expected = (
        jax.jacrev(lambda xs, f=f: f(params, state, xs)[1])(xs) for f in (gated, loop)
    )
    close(ours, expected)
    assert max(float(abs(x).max()) for x in jax.tree.leaves(ours)) > 0


def test_second_derivatives_equal_a_loop():
    gated, loop, (params, state, xs) = unrolls("gru")

    def loss(form: Any, xs: jax.Array) -> jax.Array:
        return jnp.sum(form(params, state, xs)[1] ** 2)

    ours, expected = (jax.hessian(partial(loss, form))(xs) for form in (gated, loop))
    close(ours, expected)
