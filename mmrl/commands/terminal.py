"""Console, paths, background jobs and sparklines, shared by the commands."""

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
from mmrl.runs.files import expand
from mmrl.runs.folder import CHECKPOINT

BARS = "▁▂▃▄▅▆▇█"


class Console(rich.console.Console):
    """Console that raises `BrokenPipeError` when its output pipe is closed."""

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`, which ends the command normally."""
        raise BrokenPipeError


def open_console(**options: Any) -> Console:
    """Return a console that prints strings verbatim, without markup and emoji codes."""
    return Console(markup=False, emoji=False, **options)


def path_of(word: str) -> pathlib.Path:
    """Parse a path. Raises `RunError` if it is empty, because parsers catch `ValueError`."""
    try:
        return expand(word)
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
    """Open the run in a folder. Print a note if only its best networks can be read."""
    run = reopen(path, best)
    if run.state is None:
        open_console().print(
            f"{path / CHECKPOINT} is lost or damaged. Only the best networks are available, and "
            "the run cannot be resumed.",
            soft_wrap=True,
        )
    return run


def in_background(
    jobs: Sequence[Callable[[], Iterable[Any]]], threads: int = 1
) -> Iterator[tuple[int, Any]]:
    """Run jobs in `threads` background threads; yield (job index, item) for each item.

    XLA does not respond to Ctrl-C while it compiles or computes. With background threads, the main
    thread only waits, so that Ctrl-C stops it immediately. If a job raises an exception, the
    iterator raises it. After the iterator is closed, running jobs stop after their next item, and
    no other job is started.
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
    """Return a string with one bar per value, scaled from `low` to `high`."""
    share = (np.asarray(values) - low) / max(high - low, 1e-9)
    return "".join(BARS[i] for i in np.clip(share * len(BARS), 0, len(BARS) - 1).astype(int))


def duration(seconds: float) -> str:
    """Format a duration as minutes:seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
