"""How tests compile: see also the flags in tests/conftest.py."""

import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_LONG = {"xla_backend_optimization_level": 1} if "NOTEBOOK_XLA_FLAGS" in os.environ else {}


def jit_long(function: Callable[..., Any]) -> Any:
    """Return `jax.jit` of a function that computes for longer than it compiles.

    Tests compile without optimization. With its first level a program takes twice as long to
    compile, and a third of the time to run.
    """
    return jax.jit(function, compiler_options=_LONG)


def text(function: Callable[..., Any], *arguments: Any) -> str:
    """Return the program of a function, and its constants: equal texts compute the same."""
    traced = jax.make_jaxpr(function)(*arguments)
    arrays = [x for x in traced.consts if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    constants = [np.asarray(x).tobytes() for x in arrays]
    return f"{re.sub('0x[0-9a-f]+', '', str(traced))}\n{constants}"
