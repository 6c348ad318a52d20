"""Several processes that train one run: work of process 0, and a common end.

Without `jax.distributed` there is one process, and nothing is sent.
"""

import contextlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

T = TypeVar("T")
_PART = 2**26  # bytes that are sent at a time


class RunError(Exception):
    """A run cannot start or continue; the message has the reason and the remedy. The files on disk
    stay intact."""


class Lost(Exception):
    """Another process is gone, so that this one cannot continue or end as usual."""


def broadcast(work: Callable[[], T]) -> T:
    """Run `work` on process 0 and return its result in all processes, which must all call it.

    An exception of `work` is raised in all of them, so that none waits for one that has failed.
    Raises `Lost` if a process is gone.
    """
    if jax.process_count() == 1:
        return work()
    result: Any = None
    error: BaseException | None = None
    if jax.process_index() == 0:
        try:
            result = work()
        except BaseException as raised:
            error = raised
    with together():
        content = _sent(pickle.dumps((result, error)))
    if jax.process_index() > 0:
        result, error = pickle.loads(content)
    if error is not None:
        raise error
    return result


def agree(settings: dict[str, Any]) -> None:
    """Raise `ValueError` in all processes unless these settings are equal in all of them."""
    if jax.process_count() == 1:
        return
    first = broadcast(lambda: settings)
    names = [x for x in sorted({*first, *settings}) if first.get(x) != settings.get(x)]
    with together():
        others = np.flatnonzero(multihost_utils.process_allgather(np.array(len(names))))
    if others.size:
        apart = [
            f"{x} is {first.get(x)!r} in process 0, and {settings.get(x)!r} here" for x in names
        ]
        raise ValueError(
            "All processes must be given the same settings; those of process "
            f"{', '.join(map(str, others))} differ{': ' * bool(apart)}{'; '.join(apart)}."
        )


def until_preempted(blocks: Iterable[T]) -> Iterator[T]:
    """Yield blocks until SIGTERM reaches any process; all processes stop after the same one."""
    for step, block in enumerate(blocks):
        yield block
        if multihost_utils.reached_preemption_sync_point(step):
            return


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Raise `Lost` where JAX cannot reach the other processes; errors of one process pass."""
    try:
        yield
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        if jax.process_count() == 1:
            raise
        raise Lost(
            "A process of this run is gone, or this one failed; all end here. What was saved is "
            "whole: start all of them again, with --resume. JAX says: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _sent(content: bytes) -> bytes:
    """Return the bytes of process 0, in all processes."""

    def same(part: bytes) -> bytes:
        return multihost_utils.broadcast_one_to_all(np.frombuffer(part, np.uint8)).tobytes()

    size = int.from_bytes(same(len(content).to_bytes(8)))
    content = content[:size].ljust(size, b"\0")
    return b"".join(same(content[i : i + _PART]) for i in range(0, size, _PART))
