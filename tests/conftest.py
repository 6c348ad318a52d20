"""One strict setting for every test: exact types, no silent broadcasting, no warnings of ours."""

import os
import signal
from pathlib import Path

_CACHE = Path(__file__).parent.parent / ".cache" / "jax"

# Compiling takes most of the time, so compiled programs are kept between runs. The environment,
# not jax.config, because the processes that tests start should share them.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

# A shell tells what it starts in the background to ignore Ctrl-C; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import mmrl  # noqa: E402, F401, I001  first of all: it sets a flag that jax reads only once

from collections.abc import Iterator  # noqa: E402

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

# From here on every annotation in mmrl is checked whenever a function of it is called.
jaxtyping.install_import_hook("mmrl", "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def few_programs() -> Iterator[None]:
    """A worker that keeps the programs of hundreds of tests would crash."""
    yield
    from mmrl.runs.programs import forget_programs

    forget_programs()


@pytest.fixture
def x64() -> Iterator[None]:
    """Run one test in 64-bit, where an exact algorithm agrees with its oracle to 1e-12."""
    with jax.enable_x64(True):
        yield
