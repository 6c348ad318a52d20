"""Random numbers that compile sooner on a CPU: JAX's own, bit for bit.

For a CPU, JAX writes Threefry as a loop, which is about ten kernels for every draw, and XLA
compiles each of them. Written out it is one. A training program draws some dozens of times, for
its networks, environments and samplers: the loops are a third of what it takes to compile it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
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


# Out of line: the function is long, and a program calls it often with the same shapes.
mlir.register_lowering(threefry2x32_p, mlir.lower_fun(apart), platform="cpu", inline=False)
