"""JAX keys, and random numbers that compile faster on a CPU, bit for bit equal to JAX's.

On a CPU, JAX writes Threefry as a loop of about ten kernels for every draw, and XLA compiles each
of them. Written out without a loop it is one kernel. A training program has dozens of draws, for
its networks, environments and samplers, and their loops take a third of its compile time.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir
from jaxtyping import Array, Key

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
THREEFRY = "threefry2x32"
PARITY = np.uint32(0x1BD11BDA)


def threefry(
    key1: jax.Array, key2: jax.Array, x1: jax.Array, x2: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return two random words per count by Threefry-2x32 with 20 unrolled rounds.  Salmon et al.
    2011.
    """
    keys = key1, key2, key1 ^ key2 ^ PARITY
    x1, x2 = x1 + key1, x2 + key2
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x1 = x1 + x2
            x2 = x1 ^ (x2 << np.uint32(bits) | x2 >> np.uint32(32 - bits))
        x1 = x1 + keys[(group + 1) % 3]
        x2 = x2 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x1, x2


def apart(*counted: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute `threefry`, in a separate kernel if there are only a few words, as for keys.

    XLA would otherwise fuse a draw into every operation that uses it, with the draw of its key, and
    so on: where keys are split repeatedly, the program would grow with each split.
    """
    if counted[2].size > 8:
        return threefry(*counted)
    with set_xla_metadata(inlineable="false"):
        words = jax.jit(lambda *counted: jnp.stack(threefry(*counted)))(*counted)
    return words[0], words[1]


@functools.cache
def compile_quickly() -> None:
    """Use `threefry` for all later programs of this process on a CPU; commands and runs call this.

    JAX has one table of lowerings for the whole process, so importing mmrl does not change it.
    """
    # Not inlined, because the function is long and often called with the same shapes.
    mlir.register_lowering(threefry2x32_p, mlir.lower_fun(apart), platform="cpu", inline=False)


def one_key(key: Any) -> Key[Array, ""]:
    """Return `key` as a Threefry key: wrap raw words, fold words of other generators into one key.

    Under `vmap`, JAX's other generators draw from the first key of a batch, so that seeds trained
    in one program would depend on one another.

    Raises `ValueError` unless `key` is one key.
    """
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = jax.random.key_data(key) if typed else key
    shape, kind = getattr(words, "shape", None), getattr(words, "dtype", None)
    if kind != jnp.uint32 or (jnp.ndim(key) > 0 if typed else shape not in ((2,), (4,))):
        what = f"{kind}{list(shape)}" if shape is not None else repr(key)
        raise ValueError(
            f"`key` must be one key, such as `jax.random.key(0)`; got {what}. Split a key and use "
            "`jax.vmap` for several."
        )
    if shape == (2,):
        return key if typed else jax.random.wrap_key_data(words, impl=THREEFRY)
    folded = jax.random.key(0, impl=THREEFRY)
    for word in words:
        folded = jax.random.fold_in(folded, word)
    return folded


def as_words(keys: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Return the words of keys, with one more axis, and the function from words to keys.

    Loops carry and scan words because `vmap` moves the axes of keys, and JAX's check for key reuse
    counts a key as used once its axes are moved.
    """
    if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        return keys, lambda words: words
    return jax.random.key_data(keys), partial(
        jax.random.wrap_key_data, impl=jax.random.key_impl(keys)
    )
