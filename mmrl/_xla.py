"""XLA flags that must be set before JAX initializes its backends."""

import importlib.metadata
import os
import sys
import warnings

_FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"
_SCHEDULER_FLAGS = (_FLAG, "--xla_cpu_scheduler_type")


def avoid_cpu_deadlock() -> None:
    """Disable XLA's concurrency-optimized CPU scheduler, which can deadlock.

    With that scheduler, training programs (a `scan` inside a `scan`, under `vmap`) can hang forever
    on a CPU with few cores. This function therefore sets its default to false in `XLA_FLAGS`. XLA
    reads the variable only once, when the backend starts, and aborts the process on unknown flags,
    so the flag is added only for versions of jaxlib that accept it.

    `XLA_FLAGS` is left unchanged if the user has already chosen a scheduler, or if it is the path
    of a file of flags. Repeated calls have no effect. Issues a warning if a JAX backend is already
    running.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    names_a_file = bool(flags) and not flags.startswith("-")
    has_choice = any(flag.startswith(_SCHEDULER_FLAGS) for flag in flags.split())
    if names_a_file or has_choice or not _accepts_flag(_jaxlib_version()):
        return
    os.environ["XLA_FLAGS"] = f"{flags} {_FLAG}=false".strip()
    if _backend_has_started():
        warnings.warn(
            "JAX had already computed something when `mmrl` was imported, so training on a CPU "
            "may hang in this process. Import `mmrl` before running any JAX computation, or start "
            f"Python with XLA_FLAGS={_FLAG}=false.",
            RuntimeWarning,
            stacklevel=3,
        )


def _accepts_flag(version: str) -> bool:
    # The deadlock was observed and the flag was tested with jaxlib 0.10.2.
    return version.split(".")[:2] == ["0", "10"]


def _jaxlib_version() -> str:
    return importlib.metadata.version("jaxlib")


def _backend_has_started() -> bool:
    # JAX has no public function for this, and the check must not import jax.
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_initialized = getattr(bridge, "backends_are_initialized", None)
    return is_initialized is not None and is_initialized()
