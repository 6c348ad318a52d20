"""`mmrl capstone`: gates, budget and leaderboard of a custom memory."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Annotated

import tyro

from mmrl.commands.terminal import Path, open_console
from mmrl.course.capstone import entries, gates
from mmrl.course.capstone.evaluation import FULL, NOTHING, QUICK
from mmrl.runs import RunError
from mmrl.runs.shell import called

REFUSED = 1
Place = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODULE:CLASS")]


@dataclasses.dataclass(frozen=True)
class Gates:
    """Test whether a memory keeps the laws and interfaces of a memory; this takes seconds."""

    memory: Place
    """my_module:MyMemory, called with (input_size, output_size, key=…)."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Test a memory, train it within the budget on the held-out tasks, and write its entry."""

    memory: Place
    """my_module:MyMemory, called with (input_size, output_size, key=…)."""
    out: Path | None = None
    """The entry; the source of the memory is saved next to it. Default: results/capstone/NAME.json,
    or quick.json for --quick, the only file that is overwritten."""
    name: str = ""
    """Name on the leaderboard. Default: the name after the colon."""
    tuned_on: tuple[str, ...] = ()
    """Ids of the tasks on which you tuned."""
    tuning_seeds: tuple[int, ...] = ()
    """Seeds with which you tuned, from 100 on."""
    oracle: bool = False
    """Show the network the state of the task, for the oracle baseline only."""
    quick: bool = False
    """Try everything on one tuning task with few steps. The result is never ranked."""


@dataclasses.dataclass(frozen=True)
class Check:
    """Check an entry: its gates, budgets and seeds, and its score, measured again twice."""

    entry: Annotated[Path, tyro.conf.Positional]
    """The JSON file, with the source of its memory next to it; or a folder of such files."""
    fresh: tuple[int, ...] = ()
    """Seeds of the second measurement, to repeat a check. Default: drawn now."""
    no_rerun: tyro.conf.FlagCreatePairsOff[bool] = False
    """Skip the measurements. This takes seconds, and does not check the score."""


COMMANDS = {"gates": Gates, "run": Run, "check": Check}


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand; return 0, or 1 if an entry is refused. Raise `ValueError` or `RunError`."""
    options = tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        args=arguments or ["--help"],
        prog="mmrl capstone",
        description="A custom memory: through gates, within a budget, onto the leaderboard.",
    )
    say = functools.partial(open_console().print, highlight=False, soft_wrap=True)
    if isinstance(options, Gates):
        return _gates(options, say)
    return _run(options, say) if isinstance(options, Run) else _check(options, say)


def _gates(options: Gates, say: Callable[[str], None]) -> int:
    judged = gates.judge(entries.find(options.memory)[0])
    for gate, refusal in judged.refusals.items():
        say(f"{'✗' if refusal else '✓'} {gate:10s} {refusal}".rstrip())
    if judged.state or judged.parameters:
        say(
            f"{judged.state} numbers in its state, {judged.parameters} trainable ones; it tells "
            f"the first observation {judged.remembers} steps later."
        )
    return 0 if judged.passed else REFUSED


def _run(options: Run, say: Callable[[str], None]) -> int:
    name = "quick" if options.quick else options.name or options.memory.rpartition(":")[2]
    out = options.out or pathlib.Path("results/capstone") / f"{name}.json"
    same = {x: getattr(options, x) for x in ("name", "oracle", "tuned_on", "tuning_seeds")}
    protocol = QUICK if options.quick else FULL
    entry = entries.run(options.memory, out, protocol=protocol, say=say, **same)
    low, high = entry["interval_95"]
    say(
        f"{out}: {entry['name']}, {entry['score']:.3f} [{low:.3f}, {high:.3f}] over "
        f"{len(entry['seeds'])} seeds, {entry['cpu_seconds']:.0f} CPU-s."
    )
    check = called("capstone", "check", out)
    say(NOTHING if options.quick else f"Anyone can check it: {check}")
    return 0


def _check(options: Check, say: Callable[[str], None]) -> int:
    folder = options.entry.is_dir()
    paths = sorted(options.entry.glob("*.json")) if folder else [options.entry]
    if not paths:
        raise RunError(f"{options.entry} holds no entry. Pass a folder of JSON files.")
    code = 0
    for path in paths:
        try:
            refused = entries.check(path, again=not options.no_rerun, fresh=options.fresh, say=say)
        except (RunError, ValueError) as error:
            if not folder:
                raise
            refused = [str(error)]  # the others are still checked
        for sentence in refused:
            say(f"✗ {path}: {sentence}")
        if not refused:
            measured = "not measured again" if options.no_rerun else "measured again"
            say(f"✓ {path} is as reported, {measured}.")
        code = REFUSED if refused else code
    return code
