"""Progress display: one line per block of a run, or a table for a sweep."""

from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from mmrl.commands.options import assignments
from mmrl.commands.terminal import duration, in_background, sparkline
from mmrl.runs import Report, Run, Score, interquartile_mean

OTHERS = 45  # width of all columns that do not show seeds, in characters


def watch(run: Run, console: Console, reports: Iterable[Report]) -> None:
    """Train a run; print one line per block, and a progress bar with the remaining time."""
    room = (console.width - OTHERS) // 7
    console.print(_headings(run.setup.seeds, room), style="bold", highlight=False)
    if not console.is_terminal:  # a progress bar requires a terminal
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
    blocks, past = run.setup.config.blocks, len(run.history)
    with progress:
        bar = progress.add_task("", total=blocks, completed=past, left="compiling")
        seconds = []
        for _, report in in_background([lambda: reports]):
            seconds.append(report.seconds)
            progress.update(bar, completed=report.block, left=f"{_left(report, seconds)} left")
            progress.console.print(_line(report, room), highlight=False)


def _headings(seeds: Sequence[int], room: int) -> str:
    each = "".join(f"seed {seed}"[-6:].rjust(7) for seed in seeds)
    if len(seeds) > room:
        each = f"  {len(seeds)} seeds".ljust(17)
    return f"block  env steps{each}    IQM     loss  fill      s"


def _line(report: Report, room: int) -> str:
    """Return the progress line of a block.

    It contains the return of each seed (or the lowest and the highest), their IQM, the loss, the
    fill and the duration.
    """
    returns = report.returns
    each = "".join(f"{value:7.2f}" for value in returns)
    if len(returns) > room:
        each = f"{np.min(returns):7.2f} …{np.max(returns):8.2f}"
    return (
        f"{report.block:5d}{report.env_steps:11,d}{each}{interquartile_mean(returns):7.2f}"
        f"{np.mean(report.loss):9.4f}{np.mean(report.fill):6.0%}{report.seconds:7.1f}"
    )


def _left(report: Report, seconds: list[float]) -> str:
    # Exclude the first block, which includes compilation.
    typical = float(np.mean(seconds[1:] or seconds))
    return duration(typical * (report.blocks - report.block))


def watch_sweep(run: Run, console: Console, reports: Iterable[Report]) -> None:
    """Train a sweep; after each block, update a table, or print a line if there is no terminal."""
    with Live(table(run), console=console, transient=True) as live:
        for _, report in in_background([lambda: reports]):
            live.update(table(run))
            if not console.is_terminal:
                best = run.verdict().winner
                console.print(
                    f"block {report.block}/{report.blocks}, {report.env_steps:,} steps each: "
                    f"{assignments(best.setting)} leads with {best.final:.2f}, "
                    f"{report.seconds:.1f} s",
                    highlight=False,
                    soft_wrap=True,
                )


def table(run: Run) -> Table:
    """Return a table with one row per setting: its values and its returns so far."""
    setup, past, blocks = run.setup, len(run.history), run.setup.config.blocks
    title = f"Greedy return of {len(setup.seeds)} seeds after {past} of {blocks} blocks"
    rows = Table(title=title if past else "compiling, for half a minute or so", box=None)
    names = [name.replace("_", "-") for name, _ in setup.over]
    for name in (*names, "last quarter", "95 % interval", "best", "area"):
        rows.add_column(name, justify="right", no_wrap=True)
    rows.add_column("")
    scores, means = run.scores() if past else [], run.curves.mean(1)
    finite = means[np.isfinite(means)]
    for i, setting in enumerate(run.settings):
        row = [f"{value:g}" for value in setting.values()]
        row += _numbers(scores[i]) if past else [""] * 4
        if finite.size:
            curve = np.nan_to_num(means[i], nan=finite.min())
            row.append(sparkline(curve, finite.min(), finite.max()).ljust(blocks, "·"))
        rows.add_row(*row)
    return rows


def _numbers(one: Score) -> tuple[str, ...]:
    if not np.isfinite(one.final):
        infinite = int(np.sum(~np.isfinite(one.finals)))
        return "-∞", f"{infinite} of {len(one.finals)} diverged", "", ""
    low, high = one.interval
    return f"{one.final:.3f}", f"{low:.3f} to {high:.3f}", f"{one.best:.3f}", f"{one.area:.3f}"
