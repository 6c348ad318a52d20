"""Helpers for compilation in tests; tests/conftest.py sets the XLA flags."""

import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_LONG = {"xla_backend_optimization_level": 1} if "NOTEBOOK_XLA_FLAGS" in os.environ else {}


def jit_long(function: Callable[..., Any]) -> Any:
    """Compile with optimization a function that takes longer to run than to compile.

    By default, tests compile without optimization. This function enables the first optimization
    level, which doubles the compilation time and reduces the run time to a third.
    """
    return jax.jit(function, compiler_options=_LONG)


def text(function: Callable[..., Any], *arguments: Any) -> str:
    """Return the jaxpr and the constants of a function as a string, to compare programs."""
    jaxpr = jax.make_jaxpr(function)(*arguments)
    arrays = [x for x in jaxpr.consts if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    constants = [np.asarray(x).tobytes() for x in arrays]
    return f"{re.sub('0x[0-9a-f]+', '', str(jaxpr))}\n{constants}"
