"""PRNG keys, and a Threefry lowering that compiles faster on CPUs.

On a CPU, JAX lowers every Threefry call to a loop of about ten kernels, each of which XLA compiles.
The lowering in this module is unrolled into a single kernel, and produces the same bits. A training
program draws random numbers in dozens of places, and these loops account for a third of its compile
time.
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
    """Apply Threefry-2x32 to pairs of counters, with 20 unrolled rounds.

    Salmon et al. 2011. Returns two random words per pair.
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


def apart(*operands: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the words of `threefry`, in a separate kernel if there are at most eight pairs.

    Otherwise XLA would recompute a small draw inside every operation that uses it, together with
    the draw of its key, and so on, so each of several successive splits would enlarge the program.
    """
    if operands[2].size > 8:
        return threefry(*operands)
    with set_xla_metadata(inlineable="false"):
        words = jax.jit(lambda *operands: jnp.stack(threefry(*operands)))(*operands)
    return words[0], words[1]


@functools.cache
def compile_quickly() -> None:
    """Use `threefry` for all programs that this process later compiles for a CPU.

    Commands and runs call this function. Importing mmrl does not, because the table of lowerings is
    shared by all code in the process.
    """
    # Do not inline the function: it is long, and is often called with the same shapes.
    mlir.register_lowering(threefry2x32_p, mlir.lower_fun(apart), platform="cpu", inline=False)


def one_key(key: Any) -> Key[Array, ""]:
    """Convert `key` to a Threefry key.

    Two raw words become a Threefry key. A key of another generator is folded into a Threefry key:
    under `vmap`, JAX's other generators draw only from the first key of a batch, so seeds that are
    trained in one program would not be independent.

    Raises `ValueError` unless `key` is a single key.
    """
    is_typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = jax.random.key_data(key) if is_typed else key
    shape, kind = getattr(words, "shape", None), getattr(words, "dtype", None)
    if kind != jnp.uint32 or (jnp.ndim(key) > 0 if is_typed else shape not in ((2,), (4,))):
        what = f"{kind}{list(shape)}" if shape is not None else repr(key)
        raise ValueError(
            f"`key` must be a single key, such as `jax.random.key(0)`; got {what}. Use `jax.vmap` "
            "for several keys."
        )
    if shape == (2,):
        return key if is_typed else jax.random.wrap_key_data(words, impl=THREEFRY)
    result = jax.random.key(0, impl=THREEFRY)
    for word in words:
        result = jax.random.fold_in(result, word)
    return result


def as_words(keys: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Return the raw words of keys, and a function that converts words back to keys.

    Loops carry and scan over words instead of keys, because `vmap` moves axes, and JAX's check for
    key reuse counts a key with a moved axis as used. Words have one more axis than keys.
    """
    if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        return keys, lambda words: words
    return jax.random.key_data(keys), partial(
        jax.random.wrap_key_data, impl=jax.random.key_impl(keys)
    )
