"""Coordination of the processes of a run.

Without `jax.distributed`, there is a single process, and these functions do not communicate.
"""

import builtins
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

T = TypeVar("T")
_MESSAGE_BYTES = 2**26  # bytes per message


class RunError(Exception):
    """Exception for a run that cannot start or continue. Files on disk remain intact."""


class ProcessLoss(Exception):
    """Exception for the failure of another process, after which this one cannot exit normally."""


def broadcast(work: Callable[[], T]) -> T:
    """Run `work` on process 0, and broadcast its result to all processes.

    The result must be bytes or JSON data. All processes must call this function. An exception in
    `work` is raised in all processes, so that none of them waits forever. Raises `ProcessLoss` if a
    process has failed.
    """
    if jax.process_count() == 1:
        return work()
    result: Any = None
    error: BaseException | None = None
    content = b""
    if jax.process_index() == 0:
        try:
            result = work()
            content = _encode(result)
        except BaseException as reason:
            error = reason
            content = b"e" + json.dumps([type(reason).__name__, reason.args], default=str).encode()
    with process_errors():
        content = _send(content)
    if jax.process_index() > 0:
        return _decode(content[:1], content[1:])
    if error is not None:
        raise error
    return result


def _encode(result: Any) -> bytes:
    return b"b" + result if isinstance(result, bytes) else b"j" + json.dumps(result).encode()


def _decode(kind: bytes, data: bytes) -> Any:
    """Decode the result of process 0, or raise its error."""
    if kind == b"b":
        return data
    result = json.loads(data)
    if kind == b"j":
        return result
    name, arguments = result
    try:
        exception = getattr(builtins, name, RunError)(*arguments)
    except TypeError:
        exception = RunError(*arguments)
    raise exception


def agree(settings: dict[str, Any]) -> None:
    """Raise `ValueError` in all processes if their settings differ."""
    if jax.process_count() == 1:
        return
    first, own = broadcast(lambda: settings), json.loads(json.dumps(settings))
    names = [name for name in sorted({*first, *own}) if first.get(name) != own.get(name)]
    with process_errors():
        others = np.flatnonzero(multihost_utils.process_allgather(np.array(len(names))))
    if others.size:
        pairs = [f"{x} is {first.get(x)!r} in process 0, and {own.get(x)!r} here" for x in names]
        raise ValueError(
            "All processes must have the same settings; the settings of process "
            f"{', '.join(map(str, others))} differ{': ' * bool(pairs)}{'; '.join(pairs)}."
        )


def until_preempted(blocks: Iterable[T]) -> Iterator[T]:
    """Yield blocks until any process receives SIGTERM. All processes stop after the same block."""
    for step, block in enumerate(blocks):
        yield block
        if multihost_utils.reached_preemption_sync_point(step):
            return


@contextlib.contextmanager
def process_errors() -> Iterator[None]:
    """Convert the errors that JAX raises after the loss of a process to `ProcessLoss`.

    These are `ValueError` and `JaxRuntimeError`. With a single process, they are not converted.
    """
    try:
        yield
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        if jax.process_count() == 1:
            raise
        raise ProcessLoss(
            "A process of this run has failed, so all processes stop. The saved files are intact. "
            "Start all processes again with --resume. JAX reports: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _send(content: bytes) -> bytes:
    """Send the bytes of process 0 to all processes, in several messages, and return them."""
    size = int.from_bytes(_broadcast_bytes(len(content).to_bytes(8)))
    content = content[:size].ljust(size, b"\0")
    starts = range(0, size, _MESSAGE_BYTES)
    return b"".join(_broadcast_bytes(content[i : i + _MESSAGE_BYTES]) for i in starts)


def _broadcast_bytes(part: bytes) -> bytes:
    return multihost_utils.broadcast_one_to_all(np.frombuffer(part, np.uint8)).tobytes()
