"""XLA settings that must be made before JAX starts."""

import importlib.metadata
import os
import sys
import warnings

_FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"
_SCHEDULER_FLAGS = (_FLAG, "--xla_cpu_scheduler_type")


def avoid_cpu_deadlock() -> None:
    """Make XLA's CPU backend run a program's operations in an order that cannot deadlock.

    Training programs (a `scan` inside a `scan`, under `vmap`) can hang forever on a CPU with few
    cores when XLA uses its concurrency-optimized scheduler, so its default is turned off in
    `XLA_FLAGS`. XLA reads that variable once, when the backend starts, and aborts the process if a
    flag is unknown; so the flag is added only for versions of jaxlib that accept it.

    A scheduler that the user has chosen, or an `XLA_FLAGS` that names a file of flags, is not
    changed. A second call has no effect. Warns if JAX has already computed something.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    names_a_file = bool(flags) and not flags.startswith("-")
    chosen = any(flag.startswith(_SCHEDULER_FLAGS) for flag in flags.split())
    if names_a_file or chosen or not _accepts_flag(_jaxlib_version()):
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
    # The deadlock was observed, and the flag tested, with jaxlib 0.10.2.
    return version.split(".")[:2] == ["0", "10"]


def _jaxlib_version() -> str:
    return importlib.metadata.version("jaxlib")


def _backend_has_started() -> bool:
    # JAX has no public function for this; the check must not import jax.
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", None)
    return started is not None and started()
