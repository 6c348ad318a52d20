"""Checks that a run fits into memory."""

import contextlib
import pathlib
import resource
from collections.abc import Iterator
from typing import Any

import jax
from jaxtyping import PyTree

from mmrl.runs.processes import RunError
from mmrl.runs.setup import Setup

# Settings that affect the size of temporary arrays in a block.
INSIDE = ("environments", "rollout", "batch", "segment_length", "length", "burn_in", "width")
INSIDE += ("episodes",)
STATES = 2  # number of states in memory during a block: the previous and the current one
STATES_WITH_CHECKPOINT = 3  # the same while a checkpoint is written, which is assembled in memory


def check_room(setup: Setup, state: PyTree, is_saved: bool = False) -> None:
    """Raise `ValueError` if the state does not fit into the free memory.

    `state` contains the shapes of the state of all agents. If `is_saved` is True, the run writes
    checkpoints, which take as much memory as another state while they are written. Accelerators are
    not checked, because a failed allocation raises an error there. Runs of several processes are
    not checked either, because a process must not stop before the others.
    """
    free = _free()
    states = STATES_WITH_CHECKPOINT if is_saved else STATES
    if free is not None and states * _bytes(state) > free:
        raise ValueError(_state_message(setup, state, f"; {_human(free)} are free", states))


def size(state: PyTree) -> str:
    """Return the size of a state as a string, such as "1.5 GB"."""
    return _human(_bytes(state))


def check_block(setup: Setup, block: Any, config: Any, state: PyTree) -> None:
    """Raise `RunError` if the temporary arrays of a block do not fit in free memory.

    Rollouts, gradients and evaluations need temporary arrays. The check compiles the block, and
    later calls of the block reuse the compiled program. Accelerators and runs on several processes
    or devices are not checked.
    """
    free, is_debugging = _free(), getattr(jax.config, "jax_disable_jit", False)
    if free is None or is_debugging or not hasattr(block, "lower"):
        return
    sizes = block.lower(config, state).compile().memory_analysis()
    temporary = sizes.temp_size_in_bytes + sizes.output_size_in_bytes if sizes else 0
    if temporary > free:
        more = f"; {_human(free)} are free"
        takes = f"take {_human(temporary)}, in addition to"
        raise RunError(_block_message(setup, state, takes, more))


@contextlib.contextmanager
def memory_errors(setup: Setup, state: PyTree, *, in_block: bool = False) -> Iterator[None]:
    """Convert an allocation error to a `RunError` that names the largest array of the state.

    If `in_block` is True, the code in this context runs a block, and the message describes its
    temporary arrays instead.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        more = f"; JAX reports: {str(error).splitlines()[0].rstrip('. ')}" if str(error) else ""
        if in_block:
            raise RunError(_block_message(setup, state, "do not fit next to", more)) from error
        raise RunError(_state_message(setup, state, more)) from error


def _free() -> int | None:
    """Return the free memory in bytes, or None if it is unknown or not to be checked."""
    is_checked = jax.process_count() == 1 and jax.default_backend() == "cpu"
    return free_bytes() if is_checked else None


def free_bytes() -> int | None:
    """Return the number of bytes that this process can still allocate, or None if unknown."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        kilobytes = _counters(pathlib.Path("/proc/meminfo"))
        limits.append(1024 * (kilobytes["MemAvailable"] + kilobytes["SwapFree"]))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(OSError):
        pages = int(pathlib.Path("/proc/self/statm").read_text("utf-8").split()[0])
        if limit != resource.RLIM_INFINITY:
            limits.append(max(limit - pages * resource.getpagesize(), 0))
    with contextlib.suppress(OSError, ValueError):  # limit of a container; "max" means unlimited
        group = pathlib.Path("/sys/fs/cgroup")
        most, now = (int((group / f"memory.{x}").read_text("utf-8")) for x in ("max", "current"))
        limits.append(max(most - now + _counters(group / "memory.stat")["file"], 0))
    return min(limits, default=None)


def _counters(path: pathlib.Path) -> dict[str, int]:
    """Parse the named numbers in a file such as /proc/meminfo."""
    lines = map(str.split, path.read_text("utf-8").splitlines())
    return {name.rstrip(":"): int(number) for name, number, *_ in lines}


def _state_message(setup: Setup, state: PyTree, free: str = "", states: int = STATES) -> str:
    """Return the error message for a state that does not fit into memory."""
    path, array = max(jax.tree_util.tree_leaves_with_path(state), key=lambda x: _bytes(x[1]))
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    return (
        f"There is not enough memory: `{name}`, the largest array of this run, takes "
        f"{_human(_bytes(array))}. The complete state takes {_human(_bytes(state))} and is stored "
        f"{states} times while a block is trained{' and saved' * (states > STATES)}{free}. Lower "
        f"{_names(setup, 'capacity', 'environments', 'rollout', 'width')} or the number of seeds."
    )


def _block_message(setup: Setup, state: PyTree, takes: str, free: str) -> str:
    """Return the error message for temporary arrays that do not fit into memory."""
    higher = _names(setup, "minibatches", "auxiliary_minibatches")
    remedy = f", or raise {higher}" if higher else ""
    return (
        "There is not enough memory: the temporary arrays of a block, for rollouts, gradients and "
        f"evaluation, {takes} the state of {_human(_bytes(state))}{free}. "
        f"Lower {_names(setup, *INSIDE)} or the number of seeds{remedy}."
    )


def _names(setup: Setup, *sizes: str) -> str:
    return ", ".join(f"`{x}`" for x in sizes if hasattr(setup.config, x))


def _bytes(state: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _human(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
