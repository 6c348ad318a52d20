"""Clear JAX's compiled programs in processes that compile for hours."""

import gc
import pathlib

import jax

MAPPINGS = pathlib.Path("/proc/self/maps")  # file with a line per memory mapping, on Linux


def forget_programs(most: int = 20_000) -> bool:
    """Clear JAX's caches if this process has more than `most` memory mappings.

    A compiled CPU program uses dozens of memory mappings. By default, Linux limits a process to
    65 530 of them, and JAX crashes beyond that limit. A removed program that is used again is
    compiled again. Returns True if the caches were cleared.
    """
    if not MAPPINGS.exists() or MAPPINGS.read_bytes().count(b"\n") <= most:
        return False
    jax.clear_caches()
    gc.collect()
    return True
