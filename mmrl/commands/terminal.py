"""What the commands share: training seen from a terminal, and work that Ctrl-C can leave."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mmrl.runs import Report, Run, interquartile_mean

BARS = "▁▂▃▄▅▆▇█"
MANY = 8  # seeds; more are summed up

_DONE = object()


def in_background(
    jobs: Sequence[Callable[[], Iterable[Any]]], threads: int = 1
) -> Iterator[tuple[int, Any]]:
    """(job, item) for every item of every job as it comes, with `threads` jobs at a time.

    XLA does not answer to Ctrl-C while it compiles or computes; here the main thread only waits,
    and can leave at once. An exception in a job is raised here, and no further job starts.
    """
    items: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    waiting = list(enumerate(jobs))[::-1]

    def work() -> None:
        while waiting:
            index, job = waiting.pop()
            try:
                for item in job():
                    items.put((index, item))
            except BaseException as error:
                waiting.clear()
                items.put((index, error))
        items.put((-1, _DONE))

    for _ in range(threads):
        threading.Thread(target=work, name="mmrl", daemon=True).start()
    running = threads
    while running:
        index, item = items.get()
        if isinstance(item, BaseException):
            raise item
        if item is _DONE:
            running -= 1
        else:
            yield index, item


def watch(run: Run, console: Console) -> None:
    """Train, with one line per block and a bar that says how long it will take."""
    blocks, done = run.setup.config.blocks, len(run.history)
    console.print(_headings(run), style="bold", highlight=False)
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} blocks"),
        BarColumn(bar_width=None),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
    )
    with progress:
        bar = progress.add_task("", total=blocks, completed=done, left="compiling")
        seconds = []
        for _, report in in_background([lambda: run]):
            seconds.append(report.seconds)
            progress.update(bar, completed=report.block, left=f"{_left(report, seconds)} left")
            progress.console.print(_line(report), highlight=False)


def sparkline(values: Float[np.ndarray, " eval"], low: float, high: float) -> str:
    """One bar per value, the lowest for `low`, the highest for `high`."""
    share = (np.asarray(values) - low) / max(high - low, 1e-9)
    return "".join(BARS[i] for i in np.clip(share * len(BARS), 0, len(BARS) - 1).astype(int))


def duration(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def per_seed(values: Float[np.ndarray, " seed"]) -> str:
    """Every seed's value, or the extremes of many."""
    if len(values) > MANY:
        return f"{np.min(values):6.2f} … {np.max(values):6.2f}"
    return " ".join(f"{value:6.2f}" for value in values)


def _headings(run: Run) -> str:
    seeds = run.setup.seeds
    names = " ".join(f"seed {s}"[-6:].rjust(6) for s in seeds)
    names = names if len(seeds) <= MANY else f"{len(seeds)} seeds".center(15)
    return f"block   env steps   mean return: {names}  middle     loss   fill  seconds"


def _line(report: Report) -> str:
    middle = float(interquartile_mean(report.returns))
    return (
        f"{report.block:5d}  {report.env_steps:10,d}                {per_seed(report.returns)}  "
        f"{middle:6.2f}  {np.mean(report.loss):7.4f}  {np.mean(report.fill):5.0%}  "
        f"{report.seconds:7.1f}"
    )


def _left(report: Report, seconds: list[float]) -> str:
    # The first block also compiles: it says nothing about the others.
    typical = float(np.mean(seconds[1:] or seconds))
    return duration(typical * (report.blocks - report.block))
