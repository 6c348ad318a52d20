"""Shared parts of commands: a console, paths, work that Ctrl-C can leave, and small curves."""

import pathlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import rich.console
from jaxtyping import Float
from tyro.constructors import PrimitiveConstructorSpec

from mmrl.runs import Run, RunError, reopen
from mmrl.runs.files import expanded
from mmrl.runs.folder import CHECKPOINT

BARS = "▁▂▃▄▅▆▇█"


class Console(rich.console.Console):
    """A console that lets the command end normally when no program reads its output any more."""

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`, which ends the command."""
        raise BrokenPipeError


def open_console(**options: Any) -> Console:
    """Return a console that prints every string unchanged: brackets and colons have no meaning."""
    return Console(markup=False, emoji=False, **options)


def path_of(word: str) -> pathlib.Path:
    """Return the path that a word names. Raise `RunError` without one, which parsers pass on."""
    try:
        return expanded(word)
    except ValueError as error:
        raise RunError(str(error)) from None


Path = Annotated[
    pathlib.Path,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda words: path_of(words[0]),
        is_instance=lambda value: isinstance(value, pathlib.Path),
        str_from_instance=lambda value: [str(value)],
    ),
]


def open_run(path: pathlib.Path, best: bool) -> Run:
    """Return the run in a folder. Print a note if only its best networks are left."""
    run = reopen(path, best)
    if run.state is None:
        open_console().print(
            f"{path / CHECKPOINT} is lost or damaged. Only the best networks are left, and "
            "the run cannot be resumed.",
            soft_wrap=True,
        )
    return run


def in_background(
    jobs: Sequence[Callable[[], Iterable[Any]]], threads: int = 1
) -> Iterator[tuple[int, Any]]:
    """Yield (job, item) for every item of every job as it arrives, with `threads` jobs at a time.

    XLA does not respond to Ctrl-C while it compiles or computes. Here the main thread only waits,
    so it can leave at once. An exception in a job is raised here. Once this iterator is closed, a
    job ends with its next item, and no other starts.
    """
    items: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
    waiting, left = iter(enumerate(jobs)), threading.Event()

    def work() -> None:
        try:
            for index, job in waiting:
                for item in () if left.is_set() else job():
                    items.put((index, item))
                    if left.is_set():
                        return
            items.put(None)
        except BaseException as error:
            items.put((-1, error))

    for _ in range(threads):
        threading.Thread(target=work, name="mmrl", daemon=True).start()
    try:
        while threads:
            entry = items.get()
            if entry is None:
                threads -= 1
            elif isinstance(entry[1], BaseException):
                raise entry[1]
            else:
                yield entry
    finally:
        left.set()


def sparkline(values: Float[np.ndarray, " eval"], low: float, high: float) -> str:
    """Return one bar per value: the lowest for `low`, the highest for `high`."""
    share = (np.asarray(values) - low) / max(high - low, 1e-9)
    return "".join(BARS[i] for i in np.clip(share * len(BARS), 0, len(BARS) - 1).astype(int))


def duration(seconds: float) -> str:
    """Return minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
