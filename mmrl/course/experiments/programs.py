"""A process that compiles for hours must also forget."""

import gc
import pathlib

import jax

MAPPINGS = pathlib.Path("/proc/self/maps")  # of Linux: a line each


def forget_programs(most: int = 20_000) -> bool:
    """Drop JAX's compiled programs if this process holds more than `most` mappings of memory.

    A program on a CPU holds some dozens, and Linux allows a process 65 530, unless told otherwise:
    JAX crashes where it gets no more. What is used again is compiled again. Whether it was done.
    """
    if not MAPPINGS.exists() or MAPPINGS.read_bytes().count(b"\n") <= most:
        return False
    jax.clear_caches()
    gc.collect()
    return True
