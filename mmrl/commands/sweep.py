"""`mmrl sweep`: which learning rate, which discount? A grid of settings, in one program."""

import argparse
import dataclasses
import inspect
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mmrl.commands.console import Path, called, open_console, path_of, to_resume
from mmrl.commands.folders import RESULTS, new_folder, newest, unless_empty
from mmrl.commands.outcome import tell_chance
from mmrl.commands.terminal import in_background, sparkline, tell_fewer, tell_preset
from mmrl.commands.train import (
    AGENT,
    OF_A_SETUP,
    check_options,
    first_setup,
)
from mmrl.commands.words import described, in_words_of_help, option, options_of
from mmrl.runs import SEEDS, Report, Run, RunError, Scored, Setup, Sweep, saved_sweep
from mmrl.runs.sweep import CLOSE

_EXAMPLE = "--over learning-rate 1e-3 3e-3 1e-2"


@dataclasses.dataclass(frozen=True)
class Options:
    """Train with every combination of some values of settings, each with several seeds.

    All are lanes of one program, so only real-valued settings can be swept: sizes and names shape
    the program. Every block ends with a checkpoint; stop with Ctrl-C and go on with --resume. At
    the end a table says which setting is best, how sure that is, and whether its values ended too
    early.

    mmrl sweep popgym-RepeatFirstEasy-v0 --agent ppo --over learning-rate 1e-4 3e-4 1e-3 --over
    entropy-weight 0 0.01
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENVIRONMENT")] = ""
    """Its id, e.g. popgym-RepeatFirstEasy-v0, or my_module:MyEnv of your own. With --resume: that
    of the sweep."""
    over: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """A setting and its values, `--over learning-rate 1e-4 3e-4 1e-3`; once for each setting."""
    agent: Annotated[str, tyro.conf.arg(help=AGENT)] = Setup.agent
    preset: str = ""
    """Settings of a paper, such as paper; other options win over them."""
    out: Path | None = None
    """Folder of the sweep. Default: a new one under results/; with --resume the latest there."""
    resume: bool = False
    """Go on with the sweep in --out, with its settings; more --blocks prolong it."""
    seeds: tuple[int, ...] = SEEDS
    """To tune on. Report other seeds, such as those of `mmrl train`: a setting that was chosen on a
    seed looks better there than it is."""
    observes: tuple[Literal["previous_action", "previous_reward", "begin_flag"], ...] = ()
    """Shown to the network beside the observation. `--observes` alone: nothing."""
    shards: int = Setup.shards
    """Of every agent, each with an equal part of its sizes. They share one network."""
    precision: Literal["default", "float32", "tf32", "bfloat16"] = "default"
    """Precision of the factors in all float32 matrix products of training on a GPU, those of the
    environment included. Default: what JAX is set to. `mmrl evaluate` does not use it."""
    devices: int | None = None
    """Over how many the agents are divided, or the shards: numbers change by rounding alone."""
    config: tyro.conf.OmitArgPrefixes[Any] = None
    """Those of the agent."""

    @property
    def setup(self) -> Setup:
        """All but what is swept."""
        return Setup(**{name: getattr(self, name) for name in OF_A_SETUP})


def main(arguments: Sequence[str]) -> int:
    """Sweep as the command line says. Raises `RunError`, `ValueError` and KeyboardInterrupt."""
    options, over, path = _options(arguments)
    try:
        with warnings.catch_warnings(record=True, action="always") as said, unless_empty(path):
            sweep = Sweep(options.setup, over, path, options.resume, options.devices)
    except ValueError as error:
        raise ValueError(in_words_of_help(str(error), options.config)) from None
    console, many = open_console(), len(sweep.settings)
    words, _ = described(options.agent, options.config)
    console.print(Text.assemble((options.env, "bold"), f"  {words}  →  {path}"), soft_wrap=True)
    tell_preset(options, console, dict(sweep.setup.over))
    seeds = f"{many} settings with {len(options.seeds)} seeds each, {min(options.seeds)} to "
    console.print(f"{seeds}{max(options.seeds)}. Report what is chosen on others.")
    tell_fewer(sweep, console)
    for warning in said:
        console.print(str(warning.message), soft_wrap=True)
    if 0 < len(sweep.history) <= options.config.blocks:
        console.print(f"resumed after block {len(sweep.history)} of {options.config.blocks}")
    try:
        _watch(sweep, console)
    except KeyboardInterrupt:
        done, resume = len(sweep.history), to_resume("sweep", options, path)
        kept = f"At least blocks 1 to {done} are saved in" if done else "No block is complete of"
        raise KeyboardInterrupt(f"Stopped. {kept} {path}; go on with: {resume}") from None
    console.print(_table(sweep))
    console.print(_verdict(sweep, options.devices), highlight=False, soft_wrap=True)
    returns = sweep.curves[sweep.settings.index(sweep.verdict().winner.setting)].T
    longer = to_resume("sweep", options, path, "--blocks", 2 * len(sweep.history))
    if np.isfinite(returns).all():
        tell_chance(sweep, returns, longer, console)
    return 0


def _watch(sweep: Run, console: Console) -> None:
    """Train, with a table whose rows settle block by block, or a line for each where none moves."""
    with Live(_table(sweep), console=console, transient=True) as live:
        for _, report in in_background([lambda: sweep]):
            live.update(_table(sweep))
            if not console.is_terminal:
                console.print(_line(sweep, report), highlight=False, soft_wrap=True)


def _line(sweep: Run, report: Report) -> str:
    best = sweep.verdict().winner
    return (
        f"block {report.block}/{report.blocks}, {report.env_steps:,} steps each: "
        f"{_words(best.setting)} leads with {best.final:.2f}, {report.seconds:.1f} s"
    )


def _table(sweep: Run) -> Table:
    """A row for every setting: its values, and how it has done so far."""
    blocks, done = sweep.setup.config.blocks, len(sweep.history)
    title = f"Greedy return of {len(sweep.setup.seeds)} seeds after {done} of {blocks} blocks"
    table = Table(title=title if done else "compiling, for half a minute or so", box=None)
    for name in (
        *map(_option, dict(sweep.setup.over)),
        "last quarter",
        "95 % interval",
        "best",
        "area",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    scores = sweep.scores() if done else []
    means = sweep.curves.mean(1)
    seen = means[np.isfinite(means)]
    for i, setting in enumerate(sweep.settings):
        row = [f"{value:g}" for value in setting.values()]
        row += _numbers(scores[i]) if scores else [""] * 4
        if seen.size:
            curve = np.nan_to_num(means[i], nan=seen.min())
            row.append(sparkline(curve, seen.min(), seen.max()).ljust(blocks, "·"))
        table.add_row(*row)
    return table


def _numbers(one: Scored) -> tuple[str, ...]:
    if not np.isfinite(one.final):
        diverged = int(np.sum(~np.isfinite(one.finals)))
        return "-∞", f"{diverged} of {len(one.finals)} diverged", "", ""
    low, high = one.interval
    return f"{one.final:.3f}", f"{low:.3f} to {high:.3f}", f"{one.best:.3f}", f"{one.area:.3f}"


def _verdict(sweep: Run, devices: int | None = None) -> str:
    """The winner in words, and what to doubt about it."""
    winner, edges, equals, tied = sweep.verdict()
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
    lines.append(f"Train it on other seeds: {_train(sweep.setup, winner.setting, devices)}")
    return "\n".join(lines)


def _train(setup: Setup, setting: Mapping[str, float], devices: int | None) -> str:
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


def _options(arguments: Sequence[str]) -> tuple[Options, dict[str, Any], pathlib.Path]:
    """The options, on top of those of the sweep to resume, what is swept, and the folder."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--agent", nargs="?")
    parser.add_argument("--out", nargs="?", type=path_of)
    parser.add_argument("--resume", action="store_true")
    named, others = parser.parse_known_args(arguments)
    path = named.out or (_latest() if named.resume else None)
    there = saved_sweep(path) if named.resume and path else None
    agent = named.agent or (there[0].agent if there else Setup.agent)
    check_options([word for word in others if word.startswith("--")], agent)
    if path is None or there is None:
        options = _parse(arguments, dataclasses.replace(first_setup(arguments, agent), seeds=SEEDS))
        if not options.env and path:
            raise RunError(
                f"There is no sweep in {path}: nothing to resume. Leave --resume out to begin one."
            )
        if not options.env:
            example = called("sweep", "popgym-RepeatFirstEasy-v0", *_EXAMPLE.split())
            raise ValueError(f"Say which ENVIRONMENT, such as `{example}`.")
        name, over = f"{described(agent, options.config)[1]}-sweep", _over(options.over)
        path = path or new_folder(options.env, name)
        return dataclasses.replace(options, resume=False), over, path
    setup, over = there
    options = _parse(arguments, setup)
    if (options.env, options.agent) != (setup.env, setup.agent):
        raise RunError(
            f"{path} holds a sweep of {setup.agent} on {setup.env}: leave ENVIRONMENT and --agent "
            "out."
        )
    return options, _over(options.over) or dict(over), path


def _over(words: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The words of --over by the names of the settings. Raises `ValueError` for one named twice."""
    names = [each[0].lstrip("-").replace("-", "_") for each in words if each]
    if len(set(names)) < len(names):
        raise ValueError(f"`over` must name a setting once, with all its values; got {names}.")
    return {name: each[1:] for name, each in zip(names, filter(None, words), strict=True)}


def _parse(arguments: Sequence[str], default: Setup) -> Options:
    options = Options(**{name: getattr(default, name) for name in OF_A_SETUP})
    own = "" if default.agent == Setup.agent else f" --agent {default.agent}"
    words = inspect.getdoc(Options)
    return tyro.cli(
        Options, args=arguments, default=options, prog=f"mmrl sweep{own}", description=words
    )


def _latest() -> pathlib.Path:
    """The sweep under results/ that was written last."""
    for path in newest():
        try:
            if saved_sweep(path):
                return path
        except RunError:
            continue
    raise RunError(
        f"There is no sweep under {RESULTS}/ to resume. Name one with --out, or leave --resume "
        "out to begin one."
    )
