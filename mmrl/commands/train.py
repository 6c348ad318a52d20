"""`mmrl train`: train an agent with a memory on an environment, for several seeds."""

import pathlib
import warnings
from collections.abc import Iterator, Sequence

import jax
from rich.text import Text

from mmrl import memory
from mmrl.agents import AGENTS
from mmrl.agents.presets import PRESETS, find_preset
from mmrl.commands.options import Options, in_words_of_help, parse, summarize, unless_empty
from mmrl.commands.outcome import show_outcome, show_verdict
from mmrl.commands.progress import watch, watch_sweep
from mmrl.commands.terminal import open_console
from mmrl.envs import registered_ids
from mmrl.envs.adapters import LIBRARIES
from mmrl.runs import Run, Setup
from mmrl.runs.processes import broadcast, until_preempted
from mmrl.runs.shell import command_line
from mmrl.runs.writers import check_writers, log_reports, writers_in

PREEMPTION_CODE = 143  # exit code after SIGTERM; the run is saved and can be resumed


def main(arguments: Sequence[str], command: str = "train") -> int:
    """Train a run or a sweep, and print its progress and a summary.

    Raises `ValueError` for invalid options, `RunError` if the folder cannot be used, and
    KeyboardInterrupt, with a command that continues, after Ctrl-C.
    """
    for flag, text in (("--list", _names), ("--presets", _sources)):
        if flag in arguments:
            print(text())
            return 0
    options, setup, path = parse(arguments, command)
    try:
        with warnings.catch_warnings(record=True, action="always") as notes, unless_empty(path):
            check_writers(options.log)
            run = Run(setup, path, options.resume, options.devices)
    except ValueError as error:
        raise ValueError(in_words_of_help(str(error), options.config)) from None
    console = open_console(quiet=jax.process_index() > 0)
    log, failures = broadcast(lambda: _writers(options, path, setup))
    words = summarize(setup.agent, setup.config)[0] + run.program.devices.words
    first = Text.assemble((setup.env, "bold"), f"  {words}  →  {path}")
    console.print(first, *failures, sep="\n", highlight=False, soft_wrap=True)
    for line in (*(str(each.message) for each in notes), *_preset(options, setup), *_plan(run)):
        console.print(line, highlight=False)
    reports = until_preempted(log_reports(run, *log))
    places = [] if options.devices is None else ["--devices", options.devices]
    resume = [command, "--resume", "--out", path, *places]
    longer = command_line(*resume, "--blocks", 2 * len(run.history))
    if len(run.history) >= setup.config.blocks and not setup.over:
        summary = f"Complete after block {len(run.history)}. To continue: {longer}"
        console.print(summary, soft_wrap=True)
        return 0
    try:
        show = watch_sweep if setup.over else watch
        show(run, console, reports)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_farewell(run, path, command_line(*resume))) from None
    if len(run.history) < setup.config.blocks:
        console.print(_farewell(run, path, command_line(*resume)), soft_wrap=True)
        return PREEMPTION_CODE
    longer = command_line(*resume, "--blocks", 2 * len(run.history))
    if setup.over and not console.quiet:
        show_verdict(run, longer, options.devices, console)
    elif not console.quiet:
        show_outcome(run, longer, console)
    return 0


def _writers(options: Options, path: pathlib.Path, setup: Setup) -> tuple[list[str], list[str]]:
    """Return the names of the writers, and messages about unavailable ones.

    A resumed run also uses the writers of earlier blocks, unless a package is missing.
    """
    names: list[str] = [*options.log]
    failures = []
    before = writers_in(path) if options.resume and not setup.over else []
    for name in (name for name in before if name not in options.log):
        try:
            check_writers([name])
            names.append(name)
        except ValueError as error:
            failures.append(f"New blocks are not logged by {name} in {path}: {error}")
    return names, failures


def _preset(options: Options, setup: Setup) -> Iterator[str]:
    """Yield lines about a preset: its source, its deviations, and options that override it."""
    if not options.preset or options.resume:
        return
    preset = find_preset(setup.agent, options.preset)
    yield from (f"Settings of {preset.source}.", *(f"- {note}" for note in preset.notes))
    ours = {**vars(setup.config), **dict(setup.over), "observes": setup.observes}
    theirs = {name: getattr(preset.config, name) for name in preset.places}
    theirs |= {} if preset.observes is None else {"observes": preset.observes}
    changes = [f"{name}={ours[name]} (from {x})" for name, x in theirs.items() if ours[name] != x]
    if changes:
        yield f"Your options change {', '.join(changes)}."


def _plan(run: Run) -> Iterator[str]:
    """Yield lines about the settings of a sweep, and existing and planned blocks."""
    setup, config, past = run.setup, run.setup.config, len(run.history)
    if setup.over:
        seeds = f"{len(setup.seeds)} seeds each, {min(setup.seeds)} to {max(setup.seeds)}"
        yield f"{len(run.settings)} settings with {seeds}. Report the best one on other seeds."
    if setup.precision != "default" and jax.default_backend() == "cpu":
        yield f"--precision {setup.precision} has no effect on a CPU."
    if config.blocks < past:
        yield f"--blocks {config.blocks} is fewer than the {past} that exist: no block is trained."
    elif config.blocks < run.total_blocks:
        falls = config.anneal > 0 and config.horizon is None and past < config.blocks
        rate = ", and so does the decrease of its learning rate" if falls else ""
        yield (
            f"The run was planned for {run.total_blocks} blocks and now ends after block "
            f"{config.blocks}{rate}."
        )
    if 0 < past < config.blocks:
        yield f"resumed after block {past} of {config.blocks}"
    if past < config.blocks:
        yield f"The training state needs {run.memory} of memory, and twice as much during a block."
    if past < config.blocks and not setup.over:
        yield f"Returns are means over {config.episodes} greedy episodes."


def _names() -> str:
    """List the names of all environments, libraries, memories and agents."""
    kinds = {
        "environments": registered_ids(),
        "libraries of environments, as LIBRARY:NAME": LIBRARIES,
    }
    kinds |= {"memories": memory.NAMES, "agents": AGENTS}
    return "\n".join("\n  ".join([f"{kind}:", *names]) for kind, names in kinds.items())


def _sources() -> str:
    """List all presets with their sources, settings, and deviations from the sources."""
    lines = []
    for agent, presets in PRESETS.items():
        for name, preset in presets.items():
            settings = ", ".join(f"{k}={getattr(preset.config, k)}" for k in preset.places)
            lines += [f"--agent {agent} --preset {name}: {preset.source}", f"  {settings}"]
            lines += [f"  - {note}" for note in preset.notes]
    return "\n".join(lines)


def _farewell(run: Run, path: pathlib.Path, resume: str) -> str:
    past = len(run.history)
    state = f"At least blocks 1 to {past} are saved in" if past else "No block is complete of"
    if jax.process_count() > 1:
        resume = "the same command and --resume, in each process"
    return f"Stopped. {state} {path}; continue with: {resume}"
