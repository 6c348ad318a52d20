"""A sweep in a terminal: a table of its settings, and the best of them in words."""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from mmrl.commands.console import called
from mmrl.commands.terminal import in_background, sparkline
from mmrl.commands.words import option, options_of
from mmrl.runs import Report, Run, Scored, Setup
from mmrl.runs.sweep import CLOSE


def watch_sweep(run: Run, console: Console, reports: Iterable[Report]) -> None:
    """Train, with a table that is drawn anew after each block, or a line where none can move."""
    with Live(table(run), console=console, transient=True) as live:
        for _, report in in_background([lambda: reports]):
            live.update(table(run))
            if not console.is_terminal:
                console.print(_line(run, report), highlight=False, soft_wrap=True)


def _line(run: Run, report: Report) -> str:
    best = run.verdict().winner
    return (
        f"block {report.block}/{report.blocks}, {report.env_steps:,} steps each: "
        f"{_words(best.setting)} leads with {best.final:.2f}, {report.seconds:.1f} s"
    )


def table(run: Run) -> Table:
    """Return a row for every setting: its values, and its returns so far."""
    setup, done, blocks = run.setup, len(run.history), run.setup.config.blocks
    title = f"Greedy return of {len(setup.seeds)} seeds after {done} of {blocks} blocks"
    rows = Table(title=title if done else "compiling, for half a minute or so", box=None)
    names = [_option(name) for name, _ in setup.over]
    for name in (*names, "last quarter", "95 % interval", "best", "area"):
        rows.add_column(name, justify="right", no_wrap=True)
    rows.add_column("")
    scores = run.scores() if done else []
    means = run.curves.mean(1)
    seen = means[np.isfinite(means)]
    for i, setting in enumerate(run.settings):
        row = [f"{value:g}" for value in setting.values()]
        row += _numbers(scores[i]) if scores else [""] * 4
        if seen.size:
            curve = np.nan_to_num(means[i], nan=seen.min())
            row.append(sparkline(curve, seen.min(), seen.max()).ljust(blocks, "·"))
        rows.add_row(*row)
    return rows


def _numbers(one: Scored) -> tuple[str, ...]:
    if not np.isfinite(one.final):
        diverged = int(np.sum(~np.isfinite(one.finals)))
        return "-∞", f"{diverged} of {len(one.finals)} diverged", "", ""
    low, high = one.interval
    return f"{one.final:.3f}", f"{low:.3f} to {high:.3f}", f"{one.best:.3f}", f"{one.area:.3f}"


def verdict(run: Run, devices: int | None = None) -> str:
    """Return the winner in words, how certain it is, and the command that trains it."""
    winner, edges, equals, tied = run.verdict()
    if not np.isfinite(winner.final):
        return "The loss of every setting diverged: lower `learning_rate`."
    low, high = winner.interval
    lines = [f"Best: {_words(winner.setting)}, {winner.final:.3f} [{low:.3f}, {high:.3f}]."]
    if tied:
        first = ", and of equal areas the first" * any(x.area == winner.area for x in tied)
        lines.append(
            f"A tie with {'; '.join(_words(one.setting) for one in tied)}: scores within "
            f"{100 * CLOSE:g} % of the span of all returns count as equal, and among these the "
            f"larger area under the curve decides{first}."
        )
    if equals:
        others = "; ".join(_words(one.setting) for one in equals)
        lines.append(f"These seeds cannot tell it from {len(equals)} of the others: {others}.")
    if edges:
        names = " and ".join(map(_option, edges))
        lines.append(f"On an edge of the values that were tried: {names}. Try some beyond it.")
    lines.append(f"Train it on other seeds: {to_train(run.setup, winner.setting, devices)}")
    return "\n".join(lines)


def to_train(setup: Setup, setting: Mapping[str, float], devices: int | None) -> str:
    """Return the command that trains a setting of the sweep on the seeds of `mmrl train`."""
    chosen = [word for name, value in setting.items() for word in option(name, value)]
    fixed = {name: getattr(type(setup.config)(), name) for name in setting}
    others = dataclasses.replace(setup, config=dataclasses.replace(setup.config, **fixed))
    places = [] if devices is None else ["--devices", devices]
    return called("train", setup.env, *chosen, *options_of(others), *places)


def _words(setting: Mapping[str, float]) -> str:
    return ", ".join(f"{_option(name)} {value:g}" for name, value in setting.items())


def _option(name: str) -> str:
    return name.replace("_", "-")
