"""Check that a run fits into memory, and report in one sentence if it does not."""

import contextlib
import pathlib
import resource
from collections.abc import Iterator
from typing import Any

import jax
from jaxtyping import PyTree

from mmrl.runs.processes import RunError
from mmrl.runs.setup import Setup

INSIDE = ("environments", "rollout", "batch", "segment_length", "length", "burn_in", "width")
INSIDE += ("episodes",)  # sizes of the arrays inside a block
STATES = 2  # states in memory during a block: the previous one is kept


def check_room(setup: Setup, state: PyTree) -> None:
    """Raise `ValueError` if training cannot fit into the memory that is free now.

    `state` has the shapes of all lanes. Accelerators are not checked, because they raise their own
    errors, nor are several processes, because one of them must not stop before the others.
    """
    free = _free()
    if free is not None and STATES * _bytes(state) > free:
        raise ValueError(_sentence(setup, state, f"; {_said(free)} are free"))


def size(state: PyTree) -> str:
    """Return how much memory a state takes, in words."""
    return _said(_bytes(state))


def check_block(setup: Setup, block: Any, config: Any, state: PyTree) -> None:
    """Raise `RunError` if the arrays inside a block cannot fit into the memory that is free now.

    These arrays are for rollouts, gradients and evaluations. The check compiles the block, so later
    calls need not. It runs where `check_room` does, on a single device.
    """
    free, debugged = _free(), getattr(jax.config, "jax_disable_jit", False)
    if free is None or debugged or not hasattr(block, "lower"):
        return
    sizes = block.lower(config, state).compile().memory_analysis()
    inside = sizes.temp_size_in_bytes + sizes.output_size_in_bytes if sizes else 0
    if inside > free:
        raise RunError(_inside(setup, state, f"{_said(inside)} for", f"; {_said(free)} are free"))


@contextlib.contextmanager
def naming_storage(setup: Setup, state: PyTree, *, inside: bool = False) -> Iterator[None]:
    """Turn an allocation error into a `RunError` that names the largest storage.

    During a block, `inside`, it names the arrays of the block.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        more = f"; JAX reports: {str(error).splitlines()[0].rstrip('. ')}" if str(error) else ""
        said = _inside(setup, state, "more for", more) if inside else _sentence(setup, state, more)
        raise RunError(said) from error


def _free() -> int | None:
    alone = jax.process_count() == 1 and jax.default_backend() == "cpu"
    return free_bytes() if alone else None


def free_bytes() -> int | None:
    """Return the bytes that this process may still allocate, or None if that is unknown."""
    known = []
    with contextlib.suppress(OSError, ValueError):
        kilobytes = _counters(pathlib.Path("/proc/meminfo"))
        known.append(1024 * (kilobytes["MemAvailable"] + kilobytes["SwapFree"]))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(OSError):
        pages = int(pathlib.Path("/proc/self/statm").read_text("utf-8").split()[0])
        if limit != resource.RLIM_INFINITY:
            known.append(max(limit - pages * resource.getpagesize(), 0))
    with contextlib.suppress(OSError, ValueError):  # a container's limit; "max" means none
        group = pathlib.Path("/sys/fs/cgroup")
        most, used = (int((group / f"memory.{x}").read_text("utf-8")) for x in ("max", "current"))
        known.append(max(most - used + _counters(group / "memory.stat")["file"], 0))
    return min(known, default=None)


def _counters(path: pathlib.Path) -> dict[str, int]:
    """Return the numbers in a kernel file, by name."""
    lines = map(str.split, path.read_text("utf-8").splitlines())
    return {name.rstrip(":"): int(number) for name, number, *_ in lines}


def _sentence(setup: Setup, state: PyTree, free: str = "") -> str:
    path, array = max(jax.tree_util.tree_leaves_with_path(state), key=lambda x: _bytes(x[1]))
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    return (
        f"There is not enough memory: `{name}`, the largest array of this run, takes "
        f"{_said(_bytes(array))}, and the whole state takes {_said(_bytes(state))}, "
        f"{STATES} times while a block is trained{free}. Lower "
        f"{_names(setup, 'capacity', 'environments', 'rollout')} or the number of seeds."
    )


def _inside(setup: Setup, state: PyTree, takes: str, free: str) -> str:
    higher = _names(setup, "minibatches", "auxiliary_minibatches")
    raised = f", or raise {higher}" if higher else ""
    return (
        f"There is not enough memory: a block takes {takes} temporary arrays, of its rollouts, "
        f"gradients and evaluation, next to the state of {_said(_bytes(state))}{free}. Lower "
        f"{_names(setup, *INSIDE)} or the number of seeds{raised}."
    )


def _names(setup: Setup, *sizes: str) -> str:
    return ", ".join(f"`{x}`" for x in sizes if hasattr(setup.config, x))


def _bytes(state: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _said(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
