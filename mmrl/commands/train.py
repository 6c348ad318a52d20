"""`mmrl train`: an environment, an agent, a memory, some seeds."""

import pathlib
import warnings
from collections.abc import Sequence

import jax
import numpy as np
from rich.console import Console
from rich.text import Text

from mmrl import memory
from mmrl.agents import AGENTS
from mmrl.agents.presets import PRESETS
from mmrl.commands.console import called, open_console, to_resume
from mmrl.commands.folders import unless_empty
from mmrl.commands.options import Options, parse
from mmrl.commands.outcome import FILL, curve, tell_chance
from mmrl.commands.table import table, verdict, watch_sweep
from mmrl.commands.terminal import continued, tell_fewer, tell_preset, watch
from mmrl.commands.words import described, in_words_of_help
from mmrl.envs import registered
from mmrl.runs import Run, interquartile_mean
from mmrl.runs.processes import broadcast, until_preempted
from mmrl.runs.writers import check_writers, logged

PREEMPTED = 143  # the exit code of a shell after SIGTERM: all is saved, and --resume continues


def main(arguments: Sequence[str], command: str = "train") -> int:
    """Train as the command line says. Raises `RunError`, `ValueError` and KeyboardInterrupt."""
    if "--list" in arguments:
        print(_names())
        return 0
    if "--presets" in arguments:
        print(_sources())
        return 0
    options, setup, path = parse(arguments, command)
    try:
        with warnings.catch_warnings(record=True, action="always") as noted, unless_empty(path):
            check_writers(options.log)
            run = Run(setup, path, options.resume, options.devices)
    except ValueError as error:
        raise ValueError(in_words_of_help(str(error), options.config)) from None
    console = open_console(quiet=jax.process_index() > 0)
    log = _introduce(run, options, [str(each.message) for each in noted], console)
    reports = until_preempted(logged(run, *log))
    resume = [command, options, path]
    if len(run.history) >= setup.config.blocks and not setup.over:
        longer = to_resume(*resume, "--blocks", 2 * len(run.history))
        done = f"Complete after block {len(run.history)}. To go on: {longer}"
        console.print(done, soft_wrap=True)
        return 0
    try:
        show = watch_sweep if setup.over else watch
        show(run, console, reports)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_farewell(run, path, to_resume(*resume))) from None
    if len(run.history) < setup.config.blocks:
        console.print(_farewell(run, path, to_resume(*resume)), soft_wrap=True)
        return PREEMPTED
    if not console.quiet:
        longer = to_resume(*resume, "--blocks", 2 * len(run.history))
        tell = _tell_verdict if setup.over else _tell_outcome
        tell(run, options, longer, console)
    return 0


def _introduce(run: Run, options: Options, noted: list[str], console: Console) -> list[str]:
    """Print what is trained, and return the names of its writers."""
    setup, blocks, path = run.setup, run.setup.config.blocks, run.path or pathlib.Path()
    words, _ = described(setup.agent, setup.config)
    words += run.program.devices.words
    console.print(Text.assemble((setup.env, "bold"), f"  {words}  →  {path}"), soft_wrap=True)
    log = [] if setup.over else broadcast(lambda: continued(options, path, console))
    tell_preset(options, console, dict(setup.over))
    if setup.over:
        seeds = f"{len(setup.seeds)} seeds each, {min(setup.seeds)} to {max(setup.seeds)}"
        many = f"{len(run.settings)} settings with {seeds}"
        console.print(f"{many}. Report what is chosen on others.")
    tell_fewer(run, console)
    for text in noted:
        console.print(text, soft_wrap=True)
    if len(run.history) < blocks:
        if run.history:
            console.print(f"resumed after block {len(run.history)} of {blocks}")
        if not setup.over:
            episodes = setup.config.episodes
            console.print(f"Returns are means over {episodes} episodes, played greedily.")
    return log


def _tell_outcome(run: Run, options: Options, longer: str, console: Console) -> None:
    """Print what the run has reached, and the commands that continue from there."""
    returns = np.array([row["returns"] for row in run.history])
    console.print(FILL)
    if not any(max(row["fill"]) for row in run.history):
        console.print("It has learned nothing: too few steps were played to fill any batch.")
    elif jax.process_count() == 1:  # several would wait for the one that plays
        tell_chance(run, returns, longer, console)
    console.print(curve(run.history), end="")
    if run.best is not None and (run.best.returns > returns[-1]).any():
        score = interquartile_mean(run.best.returns)
        play = called("evaluate", run.path, "--best")
        console.print(f"Each seed's best (IQM {score:.2f}) is kept: {play}", soft_wrap=True)
    watch_it = called("evaluate", run.path)
    console.print(f"Done. See how well it plays: {watch_it}", soft_wrap=True)


def _tell_verdict(run: Run, options: Options, longer: str, console: Console) -> None:
    """Print the table of a sweep, its best setting, and the command that trains it."""
    console.print(table(run))
    console.print(verdict(run, options.devices), highlight=False, soft_wrap=True)
    returns = run.curves[run.settings.index(run.verdict().winner.setting)].T
    if np.isfinite(returns).all() and jax.process_count() == 1:
        tell_chance(run, returns, longer, console)


def _names() -> str:
    """List what can be named, a line each, under headings."""
    kinds = {"environments": registered(), "memories": memory.NAMES, "agents": AGENTS}
    return "\n".join("\n  ".join([f"{kind}:", *names]) for kind, names in kinds.items())


def _sources() -> str:
    """List every preset: its source, its settings, and their differences from the source."""
    lines = []
    for agent, presets in PRESETS.items():
        for name, preset in presets.items():
            settings = ", ".join(f"{k}={getattr(preset.config, k)}" for k in preset.places)
            lines += [f"--agent {agent} --preset {name}: {preset.source}", f"  {settings}"]
            lines += [f"  - {note}" for note in preset.notes]
    return "\n".join(lines)


def _farewell(run: Run, path: pathlib.Path, resume: str) -> str:
    done = len(run.history)
    kept = f"At least blocks 1 to {done} are saved in" if done else "No block is complete of"
    if jax.process_count() > 1:
        resume = "the same command and --resume, in each process"
    return f"Stopped. {kept} {path}; go on with: {resume}"
