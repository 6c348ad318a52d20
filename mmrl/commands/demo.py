"""`mmrl demo`: train agents with and without memory, and compare their results."""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mmrl.commands.options import make_folder
from mmrl.commands.terminal import Path, duration, in_background, open_console, sparkline
from mmrl.course.demo import (
    BEST,
    CHANCE,
    THRESHOLD,
    Names,
    Plan,
    draw,
    learning_curve,
    outcome,
    setups,
)
from mmrl.runs import Run, RunError, Setup, append, saved_setup
from mmrl.runs.files import Claim, claim, replace, write_errors
from mmrl.runs.shell import command_line

RESULTS, CURVES = "results.jsonl", "curves.png"


@dataclasses.dataclass(frozen=True)
class Options:
    """Train agents with and without memory on two POPGym tasks.

    Each demo creates a new folder, but an interrupted demo is resumed.
    """

    out: Path = pathlib.Path("results/demo")
    """Folder with the results of all demos."""
    seeds: int = 5
    """Number of independent seeds for each agent and task."""
    threads: int = 2
    """Number of parallel runs. Each run trains all seeds of one agent on one task."""


def main(arguments: Sequence[str]) -> int:
    """Train the agents, print a table, and save curves, results and checkpoints."""
    options = tyro.cli(Options, args=arguments, prog="mmrl demo")
    for name in ("seeds", "threads"):
        if getattr(options, name) < 1:
            raise ValueError(f"`{name}` must be at least 1; got {getattr(options, name)}.")
    demo(setups(tuple(range(options.seeds))), options.out, options.threads)
    return 0


def demo(plan: Plan, out: pathlib.Path, threads: int) -> pathlib.Path:
    """Train all runs of `plan`; return the folder with the learning curves and the runs."""
    console, start_time = open_console(), time.perf_counter()
    folder, _claim = _folder(out, plan)
    try:
        runs = _train(plan, folder, threads, console)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Stopped. The completed blocks are in {folder}; run the same command to continue."
        ) from None
    rows = [outcome(*names, run) for names, run in runs.items()]
    with write_errors(out):
        draw(runs, folder / CURVES)
    for row in rows:
        append(out / RESULTS, {"demo": folder.name, **row})
    replace(folder / "complete", b"")
    console.print(_table(runs, rows))
    console.print(f"The demo took {duration(time.perf_counter() - start_time)} minutes.\n")
    _next_steps(console, rows, out, folder)
    return folder


def _folder(out: pathlib.Path, plan: Plan) -> tuple[pathlib.Path, Claim]:
    """Claim a folder: the last one if its demo was interrupted, otherwise a new one."""
    with write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        last = max((int(path.name) for path in out.iterdir() if path.name.isdecimal()), default=1)
        while True:
            folder, last = out / str(last), last + 1
            new = make_folder(folder)
            try:
                own = claim(folder)
            except RunError:  # another process is using this folder
                continue
            if new or (not (folder / "complete").exists() and _fits(folder, plan)):
                return folder, own


def _fits(folder: pathlib.Path, plan: Plan) -> bool:
    """Return True if all runs in a folder have the setups of the plan."""
    return all(
        saved_setup(folder / _name(*names)) in (None, setup) for names, setup in plan.items()
    )


def _name(task: str, arm: str) -> str:
    return f"{task}-{arm}".replace(",", "").replace(" ", "-")


def _train(plan: Plan, folder: pathlib.Path, threads: int, console: Console) -> dict[Names, Run]:
    """Train all runs and show their progress. Complete runs are opened without training."""
    runs: dict[Names, Run] = {}

    def job(names: Names, setup: Setup) -> Iterator[Any]:
        path = folder / _name(*names)
        yield "compiling"
        runs[names] = Run(setup, path, resume=saved_setup(path) is not None)
        yield from runs[names]
        yield "done"

    console.print(
        f"Training {len(plan)} runs in {folder}. Ctrl-C stops; all complete blocks are saved."
    )
    keys, status = list(plan), dict.fromkeys(plan, "waiting")
    jobs = [functools.partial(job, names, setup) for names, setup in plan.items()]
    with Live(_progress(plan, runs, status), console=console, transient=True) as live:
        for index, item in in_background(jobs, threads):
            status[keys[index]] = item if isinstance(item, str) else f"{item.seconds:.1f} s/block"
            live.update(_progress(plan, runs, status))
            if not console.is_terminal and item == "done":
                console.print(f"{', '.join(keys[index])}: done")
    return {names: runs[names] for names in plan}


def _progress(plan: Plan, runs: dict[Names, Run], status: dict[Names, str]) -> Table:
    """Return a table with the progress of all runs."""
    table = Table("", "blocks", "return", "IQM", "", box=None)
    for names, setup in plan.items():
        curve = learning_curve(runs[names]) if names in runs else np.array([])
        _heading(table, plan, names)
        table.add_row(
            f"  {names[1]}",
            f"{len(curve):2d}/{setup.config.blocks}",
            sparkline(curve, CHANCE, BEST).ljust(setup.config.blocks, "·"),
            f"{curve[-1]:5.2f}" if len(curve) else "",
            status[names],
        )
    return table


def _heading(table: Table, plan: Iterable[Names], names: Names) -> None:
    """Add a row with the name of the task above its first agent."""
    if names == next(other for other in plan if other[0] == names[0]):
        table.add_row(Text(names[0], "bold"))


def _table(runs: dict[Names, Run], rows: list[dict[str, Any]]) -> Table:
    steps = max(row["env_steps"] for row in rows)
    title = f"Greedy return of {len(rows[0]['seeds'])} seeds after {steps:,} environment steps each"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("best 1, chance -0.5", no_wrap=True)
    table.add_column("in training", no_wrap=True)
    for name in ("IQM, 95 % interval", "lowest"):
        table.add_column(name, justify="right", no_wrap=True)
    for (names, run), row in zip(runs.items(), rows, strict=True):
        low, high = row["interval_95"]
        _heading(table, runs, names)
        table.add_row(
            f"  {names[1]}",
            sparkline(learning_curve(run), CHANCE, BEST),
            f"{row['interquartile_mean']:.2f} [{low:5.2f}, {high:5.2f}]",
            f"{row['min_over_seeds']:.2f}",
        )
    return table


def _next_steps(
    console: Console, rows: list[dict[str, Any]], out: pathlib.Path, folder: pathlib.Path
) -> None:
    """Print a summary of the results and commands to try next."""
    first = rows[0]["agent"]
    if all(row["min_over_seeds"] >= THRESHOLD for row in rows if row["agent"] == first):
        console.print(f"{first}: every seed solved every task, which requires memory.")
    else:
        console.print(f"{first}: the lowest return of a seed is below {THRESHOLD}.", style="yellow")
    console.print(
        f"  learning curves   {folder / CURVES}",
        f"  all results       {out / RESULTS}",
        f"  evaluate agents   {command_line('evaluate', folder / _name(rows[0]['task'], first))}",
        f"  train an agent    {command_line('train', '--help')}",
        sep="\n",
        soft_wrap=True,
    )
