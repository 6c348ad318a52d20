"""Parts of all commands: training seen from a terminal, and work that Ctrl-C can leave."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mmrl.agents.presets import find_preset
from mmrl.runs import Report, Run, interquartile_mean
from mmrl.runs.folder import CHECKPOINT
from mmrl.runs.writers import begun, check_writers

BARS = "▁▂▃▄▅▆▇█"
OTHERS = 45  # characters of a line beside the seeds

_DONE = object()


def in_background(
    jobs: Sequence[Callable[[], Iterable[Any]]], threads: int = 1
) -> Iterator[tuple[int, Any]]:
    """(job, item) for every item of every job as it comes, with `threads` jobs at a time.

    XLA does not answer to Ctrl-C while it compiles or computes; here the main thread only waits,
    and can leave at once. An exception in a job is raised here. Once this iterator is left, a job
    ends with its next item, and no other starts.
    """
    items: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    waiting, left = list(enumerate(jobs))[::-1], threading.Event()

    def work() -> None:
        while waiting and not left.is_set():
            index, job = waiting.pop()
            try:
                for item in job():
                    items.put((index, item))
                    if left.is_set():
                        return
            except BaseException as error:
                items.put((index, error))
                return
        items.put((-1, _DONE))

    for _ in range(threads):
        threading.Thread(target=work, name="mmrl", daemon=True).start()
    running = threads
    try:
        while running:
            index, item = items.get()
            if isinstance(item, BaseException):
                raise item
            if item is _DONE:
                running -= 1
            else:
                yield index, item
    finally:
        left.set()


def watch(run: Run, console: Console, reports: Iterable[Report] | None = None) -> None:
    """Train, with one line per block and a bar that says how long it will take.

    `reports` are those of the run, if something is to be done with each before it is shown.
    """
    blocks, done = run.setup.config.blocks, len(run.history)
    room = (console.width - OTHERS) // 7
    console.print(_headings(run.setup.seeds, room), style="bold", highlight=False)
    if not console.is_terminal:  # where no bar says so
        console.print("compiling, which takes half a minute or so")
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
        for _, report in in_background([lambda: run if reports is None else reports]):
            seconds.append(report.seconds)
            progress.update(bar, completed=report.block, left=f"{_left(report, seconds)} left")
            progress.console.print(_line(report, room), highlight=False)


def tell_preset(options: Any, console: Console, over: Mapping[str, Any] | None = None) -> None:
    """Say where a preset is from, in what it differs from its source, and what options change.

    `options` are those of a command, and `over` has the values that are swept.
    """
    if not options.preset or options.resume:
        return
    preset = find_preset(options.agent, options.preset)
    ours = {**vars(options.config), **(over or {})}
    console.print(f"Settings of {preset.source}.", *preset.notes, sep="\n- ", highlight=False)
    theirs = {name: getattr(preset.config, name) for name in preset.places}
    if preset.observes is not None:
        ours["observes"], theirs["observes"] = options.observes, preset.observes
    changed = [f"{name}={ours[name]} (from {x})" for name, x in theirs.items() if ours[name] != x]
    if changed:
        console.print(f"Your options change {', '.join(changed)}.", highlight=False)


def continued(options: Any, path: Path, console: Console) -> list[str]:
    """Return the writers of `--log` and, for a resumed run, those that have written.

    Print which of these cannot continue here.
    """
    names = list(options.log)
    for name in begun(path) if options.resume else ():
        if name in options.log:
            continue
        try:
            check_writers([name])
            names.append(name)
        except ValueError as error:
            console.print(f"What {path} has for {name} ends here: {error}", soft_wrap=True)
    return names


def tell_fewer(run: Run, console: Console) -> None:
    """Say what becomes of the blocks that are there, or were planned, if fewer are asked for."""
    config, done = run.setup.config, len(run.history)
    if config.blocks < done:
        said = f"--blocks {config.blocks} is fewer than the {done} that are there: nothing changes."
        console.print(said, soft_wrap=True)
    elif config.blocks < run.planned:
        falls = config.anneal > 0 and config.horizon is None and done < config.blocks
        rate = ", and so does the fall of its learning rate" if falls else ""
        said = f"Planned for {run.planned} blocks, it now ends after block {config.blocks}{rate}."
        console.print(said, soft_wrap=True)


def tell_lost(run: Run, path: Path, console: Console) -> None:
    """Say of a run that is reopened for its best networks if nothing else of it can be read."""
    if run.state is None:
        console.print(
            f"{path / CHECKPOINT} is lost or damaged: the best networks are all that is left, and "
            "the run cannot be resumed.",
            soft_wrap=True,
        )


def sparkline(values: Float[np.ndarray, " eval"], low: float, high: float) -> str:
    """One bar per value, the lowest for `low`, the highest for `high`."""
    share = (np.asarray(values) - low) / max(high - low, 1e-9)
    return "".join(BARS[i] for i in np.clip(share * len(BARS), 0, len(BARS) - 1).astype(int))


def duration(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _headings(seeds: Sequence[int], room: int) -> str:
    each = "".join(f"seed {seed}"[-6:].rjust(7) for seed in seeds)
    if len(seeds) > room:
        each = f"  {len(seeds)} seeds".ljust(17)
    return f"block  env steps{each}    IQM     loss  fill      s"


def _line(report: Report, room: int) -> str:
    """Every seed's return, or the extremes of many; their interquartile mean; how learning goes."""
    returns = report.returns
    each = "".join(f"{value:7.2f}" for value in returns)
    if len(returns) > room:
        each = f"{np.min(returns):7.2f} …{np.max(returns):8.2f}"
    return (
        f"{report.block:5d}{report.env_steps:11,d}{each}{interquartile_mean(returns):7.2f}"
        f"{np.mean(report.loss):9.4f}{np.mean(report.fill):6.0%}{report.seconds:7.1f}"
    )


def _left(report: Report, seconds: list[float]) -> str:
    # The first block also compiles: it says nothing about the others.
    typical = float(np.mean(seconds[1:] or seconds))
    return duration(typical * (report.blocks - report.block))
