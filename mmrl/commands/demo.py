"""`mmrl demo`: what this project is about, in a few minutes on a laptop.

Two tasks that need memory, three agents: one network with a memory trained on tapes (whole
episodes), the same network trained on segments of 10 steps, and a network without memory. All three
see the same number of steps in each update and have the same loss.

RepeatPreviousPaper asks for the card that was shown 9 steps ago. In a segment of 10 steps only the
last one still has that card behind it: the agent learns from a tenth of its steps, late and not to
the end. A segment of 9 steps could not teach it at all.
"""

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

from mmrl.agents.dqn import Config
from mmrl.commands.terminal import called, duration, in_background, sparkline
from mmrl.runs import Run, Setup, append, interquartile_mean, interval, saved
from mmrl.runs.checkpoint import replace, writing
from mmrl.show import figure, learning_curves

TASKS = ("RepeatPreviousPaper", "RepeatFirstEasy")
LENGTH = 10  # steps in a segment
ARMS: dict[str, dict[str, Any]] = {
    "LRU, tape": {},
    f"LRU, segments of {LENGTH}": {"batching": "segments", "segment_length": LENGTH},
    "no memory, tape": {"memory": "none"},
}
CHANCE, BEST = -0.5, 1.0  # returns of both tasks: four suits, ±1 in all
LEARNED = 0.95
RESULTS, CURVES = "results.jsonl", "curves.png"

Names = tuple[str, str]
"""A task and an agent."""
Plan = dict[Names, Setup]


@dataclasses.dataclass(frozen=True)
class Options:
    """Train agents that remember, and one that cannot, on two tasks of POPGym.

    Every demo gets a folder of its own; one that was interrupted is taken up again.
    """

    out: pathlib.Path = pathlib.Path("results/demo")
    """Where the folders, and the results of all demos, are kept."""
    seeds: int = 5
    """Independent agents of each kind."""
    threads: int = 2
    """Agents trained at a time."""


def main(arguments: Sequence[str]) -> int:
    """Train, print the table, save curves, results and checkpoints."""
    options = tyro.cli(Options, args=arguments, prog="mmrl demo")
    for name in ("seeds", "threads"):
        if getattr(options, name) < 1:
            raise ValueError(f"`{name}` must be at least 1; got {getattr(options, name)}.")
    demo(setups(tuple(range(options.seeds))), options.out, options.threads)
    return 0


def setups(seeds: tuple[int, ...], config: Config | None = None) -> Plan:
    """The runs of the demo, by task and arm. The batch becomes a whole number of segments."""
    config = Config() if config is None else config
    config = dataclasses.replace(config, batch=config.batch // LENGTH * LENGTH)
    return {
        (task, arm): Setup(
            env=f"popgym-{task}-v0", config=dataclasses.replace(config, **changes), seeds=seeds
        )
        for task in TASKS
        for arm, changes in ARMS.items()
    }


def demo(plan: Plan, out: pathlib.Path, threads: int) -> pathlib.Path:
    """Train all of `plan`; returns the folder with the curves and the runs."""
    console, began = Console(), time.perf_counter()
    folder = _folder(out, plan)
    try:
        runs = _train(plan, folder, threads, console)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Stopped. What is complete is saved in {folder}; go on with the same command."
        ) from None
    rows = [_row(*names, run) for names, run in runs.items()]
    with writing(out):
        _draw(runs, folder / CURVES)
    for row in rows:
        append(out / RESULTS, {"demo": folder.name, **row})
    replace(folder / "complete", b"")
    console.print(_table(runs, rows))
    console.print(f"All in {duration(time.perf_counter() - began)} minutes.\n")
    _next_steps(console, rows, out, folder)
    return folder


def _folder(out: pathlib.Path, plan: Plan) -> pathlib.Path:
    """The folder of the last demo if it was interrupted, or else a new one with the next number."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        numbers = [int(path.name) for path in out.iterdir() if path.name.isdecimal()]
        last = out / str(max(numbers, default=0))
        if numbers and not (last / "complete").exists() and _fits(last, plan):
            return last
        new = out / str(max(numbers, default=0) + 1)
        new.mkdir()
    return new


def _fits(folder: pathlib.Path, plan: Plan) -> bool:
    """Whether the runs in a folder, as far as there are any, are those of the plan."""
    return all(saved(folder / _name(*names)) in (None, setup) for names, setup in plan.items())


def _name(task: str, arm: str) -> str:
    return f"{task}-{arm}".replace(",", "").replace(" ", "-")


def _train(plan: Plan, folder: pathlib.Path, threads: int, console: Console) -> dict[Names, Run]:
    """Train everything with live progress; complete runs are only read."""
    runs: dict[Names, Run] = {}

    def job(names: Names, setup: Setup) -> Iterator[Any]:
        path = folder / _name(*names)
        yield "compiling"
        runs[names] = Run(setup, path, resume=saved(path) is not None)
        yield from runs[names]
        yield "done"

    console.print(f"{len(plan)} kinds of agents are trained in {folder}; Ctrl-C loses nothing.")
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
    """How far every kind of agent has come."""
    table = Table("", "blocks", "return", "IQM", "", box=None)
    for names, setup in plan.items():
        curve = _curve(runs[names]) if names in runs else np.array([])
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
    """A row with the task's name above its first agent."""
    if names == next(other for other in plan if other[0] == names[0]):
        table.add_row(f"[bold]{names[0]}[/]")


def _curve(run: Run) -> np.ndarray:
    return np.array([interquartile_mean(np.array(row["returns"])) for row in run.history])


def _row(task: str, arm: str, run: Run) -> dict[str, Any]:
    """One line of the results: what the agents of one kind reached."""
    final = np.array(run.history[-1]["returns"])
    middle, low, high = interval(final)
    return {
        "task": task,
        "agent": arm,
        "interquartile_mean": middle,
        "interval_95": [low, high],
        "min_over_seeds": float(final.min()),
        "returns": final.tolist(),
        "seeds": list(run.setup.seeds),
        "episodes": run.setup.config.episodes,
        "env_steps": run.history[-1]["env_steps"],
        "seconds": round(sum(row["seconds"] for row in run.history), 1),
    }


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
            sparkline(_curve(run), CHANCE, BEST),
            f"{row['interquartile_mean']:.2f} [{low:5.2f}, {high:5.2f}]",
            f"{row['min_over_seeds']:.2f}",
        )
    return table


def _draw(runs: dict[Names, Run], path: pathlib.Path) -> None:
    tasks = list(dict.fromkeys(task for task, _ in runs))
    fig, axes = figure(len(tasks))
    for task, ax in zip(tasks, axes, strict=True):
        histories = {arm: run.history for (of, arm), run in runs.items() if of == task}
        curves = {arm: np.array([row["returns"] for row in h]).T for arm, h in histories.items()}
        steps = np.array([row["env_steps"] for row in next(iter(histories.values()))])
        learning_curves(curves, steps, title=task, ax=ax, chance=CHANCE, best=BEST)
    fig.savefig(path)


def _next_steps(
    console: Console, rows: list[dict[str, Any]], out: pathlib.Path, folder: pathlib.Path
) -> None:
    """The outcome in a sentence, and what to look at now."""
    first = rows[0]["agent"]
    learned = [row["min_over_seeds"] >= LEARNED for row in rows if row["agent"] == first]
    if all(learned):
        console.print(f"{first}: every seed remembered what it had to, on every task.")
    else:
        console.print(f"[yellow]{first}: not every seed reached {LEARNED}; see the lowest.[/]")
    console.print(f"  the curves        {folder / CURVES}")
    console.print(f"  every number      {out / RESULTS}")
    play = called(f"evaluate {folder / _name(rows[0]['task'], first)}")
    console.print(f"  watch one play    {play}", soft_wrap=True)
    console.print(f"  train your own    {called('train --help')}")
