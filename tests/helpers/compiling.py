"""How tests compile: see also the flags in tests/conftest.py."""

import os
import re
from collections.abc import Callable
from typing import Any

import jax

_LONG = {"xla_backend_optimization_level": 1} if "NOTEBOOK_XLA_FLAGS" in os.environ else {}


def jit_long(function: Callable[..., Any]) -> Any:
    """`jax.jit` for what computes for longer than it compiles.

    Tests compile without optimization. With its first level a program takes twice as long to
    compile, and a third of the time to run.
    """
    return jax.jit(function, compiler_options=_LONG)


def text(function: Callable[..., Any], *arguments: Any) -> str:
    """The program of a function, as it is traced; equal texts compute the same."""
    return re.sub("0x[0-9a-f]+", "", str(jax.make_jaxpr(function)(*arguments)))
