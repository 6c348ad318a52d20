"""The GPU kernel of `Affine` computes the prefixes and derivatives of the sequential scan.

Pallas' interpreter runs it here. That the kernel compiles is tested as far as a CPU allows: it is
lowered to Triton's language, which refuses shapes and operations that a GPU cannot run.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from mmrl.memory import LRU
from mmrl.monoid import Affine, Resettable, Sum
from mmrl.scan import scan, scan_and_last

CHUNK = 8
WIDTH = 3


def numbers(key, shape, dtype):
    """Random numbers of modulus about 1/2, complex if `dtype` is."""
    real, imag = jax.random.normal(key, (2, *shape)) / 2
    return (real + 1j * imag if dtype == jnp.complex64 else real).astype(dtype)


def tape(length: int, dtype, width: int = WIDTH):
    """(a, x), begin flags at one step in six, a start, and weights of a loss."""
    keys = jax.random.split(jax.random.key(length), 7)
    maps = numbers(keys[0], (length, width), dtype), numbers(keys[1], (length, width), dtype)
    start = numbers(keys[2], (width,), dtype), numbers(keys[3], (width,), dtype)
    weights = tuple(numbers(key, (length, width), dtype) for key in keys[4:6])
    return maps, jax.random.bernoulli(keys[6], 1 / 6, (length,)), start, weights


def assert_close(ours, theirs, tolerance=1e-5):
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.full_except("9-True-float32", "1-False-float32")
# Blocks of 8 steps, and blocks of their 13 products; less than one block; a block and a step.
@pytest.mark.parametrize(
    ("length", "reverse", "dtype"),
    [
        *(
            (100, reverse, dtype)
            for reverse in (False, True)
            for dtype in (jnp.float32, jnp.complex64)
        ),
        (1, False, jnp.float32),
        (9, True, jnp.float32),
    ],
)
def test_prefixes_and_derivatives_are_those_of_the_sequential_scan(length, reverse, dtype):
    monoid = Resettable(Affine((WIDTH,), dtype))
    maps, begin, start, weights = tape(length, dtype)

    def loss(maps, start, method: str):
        xs, init = (maps, begin), (start, jnp.zeros((), bool))
        result = scan_and_last(monoid, xs, init, reverse=reverse, method=method, chunk=CHUNK)
        (gains, sums), _ = result[0]
        return (weights[0] * gains + weights[1] * sums).sum().real, result

    differentiate = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True), static_argnums=2)
    assert_close(differentiate(maps, start, "kernel"), differentiate(maps, start, "sequential"))


@pytest.mark.full
@pytest.mark.slow
def test_maps_without_flags_and_with_real_gains():
    (gains, _), _, _, _ = tape(37, jnp.float32)
    (_, sums), _, (_, total), _ = tape(37, jnp.complex64)

    def loss(gains, sums, method: str):
        init = jnp.ones(WIDTH), total
        hs = scan(Affine((WIDTH,)), (gains, sums), init, method=method, chunk=CHUNK)
        return jnp.abs(hs[1] ** 2).sum()

    differentiate = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)), static_argnums=2)
    assert_close(*(differentiate(gains, sums, way) for way in ("kernel", "sequential")))


@pytest.mark.parametrize("length", [0, 3])
def test_empty_tapes_and_elements(length: int):
    xs = jnp.ones((length, 0)), jnp.ones((length, 0))
    gains, sums = scan(Affine((0,)), xs, method="kernel")
    assert gains.shape == sums.shape == (length, 0)


@pytest.mark.full
def test_nothing_crosses_a_begin_flag():
    (gains, sums), _, start, _ = tape(40, jnp.float32)
    begin = jnp.zeros(40, bool).at[20].set(True)
    poison = sums.at[7].set(jnp.nan), gains.at[9].set(jnp.inf)

    def total(sums, gains):
        xs, init = ((gains, sums), begin), (start, jnp.zeros((), bool))
        return scan(Resettable(Affine((WIDTH,))), xs, init, method="kernel", chunk=CHUNK)[0][1][
            20:
        ].sum()

    value, slopes = jax.value_and_grad(total, argnums=(0, 1))(*poison)
    whole, expected = jax.value_and_grad(total, argnums=(0, 1))(sums, gains)
    assert value == whole
    for ours, theirs in zip(slopes, expected, strict=True):
        np.testing.assert_array_equal(ours[20:], theirs[20:])


@pytest.mark.full
def test_a_batch_of_tapes_in_a_memory():
    model = LRU(4, 2, state_size=5, key=jax.random.key(0))
    xs = jax.random.normal(jax.random.key(1), (3, 50, 4))
    begin = jax.random.bernoulli(jax.random.key(2), 0.1, (3, 50))

    def loss(model, method: str):
        run = jax.vmap(lambda x, b: model(model.init(), x, b, method=method)[1])
        return (run(xs, begin) ** 2).sum()

    ours, theirs = (eqx.filter_value_and_grad(loss)(model, way) for way in ("kernel", "sequential"))
    assert_close(ours, theirs, 1e-4)


class Twice(Affine):
    """Another product: the kernel must not compute that of `Affine`."""

    def __call__(self, a, b):
        return jax.tree.map(lambda x: 2 * x, super().__call__(a, b))


def test_other_monoids_and_integers_are_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=r"`method`.*kernel.*Sum"):
        scan(Sum(jnp.zeros(())), jnp.ones(4), method="kernel")
    with pytest.raises(ValueError, match=r"`method`.*kernel.*Twice"):
        scan(Twice(), (jnp.ones(4), jnp.ones(4)), method="kernel")
    with pytest.raises(ValueError, match=r"`xs`.*kernel.*int32"):
        scan(Affine(), (jnp.ones(4, jnp.int32), jnp.ones(4, jnp.int32)), method="kernel")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64, jnp.bfloat16])
def test_the_kernels_are_lowered_to_triton(dtype):
    def loss(gains, sums, begin, start):
        init = (jnp.ones(70, dtype), start), jnp.zeros((), bool)
        xs = (gains, sums), begin
        hs = scan(Resettable(Affine((70,), dtype)), xs, init, method="kernel")
        return hs[0][1].real.astype(jnp.float32).sum()

    def shape(*axes, kind=dtype):
        return jax.ShapeDtypeStruct(axes, kind)

    batch = jax.vmap(jax.grad(loss, argnums=(0, 1, 3)), in_axes=(None, 0, 0, 0))
    arrays = shape(2048, 70), shape(4, 2048, 70), shape(4, 2048, kind=bool), shape(4, 70)
    text = jax.jit(batch).trace(*arrays).lower(lowering_platforms=("cuda",)).as_text()
    # Three kernels of the walk there, three of the walk back: products of blocks, their prefixes,
    # and the prefixes inside blocks. Gains that no caller uses are not computed.
    assert text.count("custom_call @__gpu$xla.gpu.triton") == 6
