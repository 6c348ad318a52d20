"""Keys of JAX, and its random numbers compiled sooner on a CPU, bit for bit.

For a CPU, JAX writes Threefry as a loop, which is about ten kernels for every draw, and XLA
compiles each of them. Written out it is one. A training program draws some dozens of times, for
its networks, environments and samplers: the loops are a third of what it takes to compile it.
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
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011), written out: two random words a count."""
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
    """`threefry`; a few words, which are keys, are made before anything reads them.

    XLA would write a draw into all that reads it, the draw of its key into that, and so on: where
    keys are split, and split again, the program would grow with each.
    """
    if counted[2].size > 8:
        return threefry(*counted)
    with set_xla_metadata(inlineable="false"):
        words = jax.jit(lambda *counted: jnp.stack(threefry(*counted)))(*counted)
    return words[0], words[1]


@functools.cache
def compile_quickly() -> None:
    """Make every later program of this process draw by `threefry` on a CPU: commands and runs do.

    JAX has one table of lowerings for the whole process, so importing leaves it as it is.
    """
    # Out of line: the function is long, and a program calls it often with the same shapes.
    mlir.register_lowering(threefry2x32_p, mlir.lower_fun(apart), platform="cpu", inline=False)


def one_key(key: Any) -> Key[Array, ""]:
    """Return a key as a Threefry key: raw words typed, other generators' words folded into one.

    Under `vmap`, JAX's other generators draw from the first key of a batch, so that seeds trained
    side by side would depend on one another.

    Raises `ValueError` for what is not one key.
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

    Loops carry and scan words: `vmap` moves their axes, and JAX's check for the reuse of keys takes
    a key for used once its axes are moved.
    """
    if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        return keys, lambda words: words
    return jax.random.key_data(keys), partial(
        jax.random.wrap_key_data, impl=jax.random.key_impl(keys)
    )
