"""Release of compiled programs, for processes that compile for hours."""

import gc
import pathlib

import jax

MAPPINGS = pathlib.Path("/proc/self/maps")  # on Linux, with a line per mapping


def forget_programs(most: int = 20_000) -> bool:
    """Drop JAX's compiled programs if this process holds more than `most` mappings of memory.

    A program on a CPU needs some dozens of mappings, and by default Linux allows a process 65 530,
    beyond which JAX crashes. Programs that are used again are compiled again. Returns True if
    programs were dropped.
    """
    if not MAPPINGS.exists() or MAPPINGS.read_bytes().count(b"\n") <= most:
        return False
    jax.clear_caches()
    gc.collect()
    return True
