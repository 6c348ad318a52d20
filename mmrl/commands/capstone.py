"""`mmrl capstone`: check, train and rank a custom memory, as in chapter 19."""

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
from mmrl.runs.shell import command_line

FAILURE = 1
Place = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODULE:CLASS")]


@dataclasses.dataclass(frozen=True)
class Gates:
    """Check the interface and the monoid laws of a memory. This takes a few seconds."""

    memory: Place
    """my_module:MyMemory, a class or function with the arguments (input_size, output_size,
    key=…)."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Check a memory, train it on the held-out tasks, and write its entry for the leaderboard."""

    memory: Place
    """my_module:MyMemory, a class or function with the arguments (input_size, output_size,
    key=…)."""
    out: Path | None = None
    """File of the entry. The source code of the memory is saved in the same folder. Default:
    results/capstone/NAME.json, or quick.json with --quick, which may be overwritten."""
    name: str = ""
    """Name on the leaderboard. Default: MyMemory."""
    tuned_on: tuple[str, ...] = ()
    """Ids of the tasks that you used for tuning."""
    tuning_seeds: tuple[int, ...] = ()
    """Seeds that you used for tuning; they must be 100 or higher."""
    oracle: bool = False
    """Let the network observe the state of the task. Only for the oracle baseline."""
    quick: bool = False
    """Run everything with few steps on a single tuning task, as a test. The result is not
    ranked."""


@dataclasses.dataclass(frozen=True)
class Check:
    """Verify an entry: check its gates, budgets and seeds, and measure its score again, twice."""

    entry: Annotated[Path, tyro.conf.Positional]
    """JSON file, in the same folder as the source code of its memory, or a folder of entries."""
    fresh: tuple[int, ...] = ()
    """Seeds of the second measurement, to repeat an earlier check. Default: random seeds."""
    no_rerun: tyro.conf.FlagCreatePairsOff[bool] = False
    """Skip the measurements. The check then takes seconds, but does not verify the score."""


COMMANDS = {"gates": Gates, "run": Run, "check": Check}


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand; return 0, or 1 if a memory or an entry is rejected.

    Raises `ValueError` for invalid options, and `RunError` for files that cannot be read.
    """
    options = tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        args=arguments or ["--help"],
        prog="mmrl capstone",
        description="Check a custom memory, train it within a budget, and enter the leaderboard.",
    )
    log = functools.partial(open_console().print, highlight=False, soft_wrap=True)
    if isinstance(options, Gates):
        return _gates(options, log)
    return _run(options, log) if isinstance(options, Run) else _check(options, log)


def _gates(options: Gates, log: Callable[[str], None]) -> int:
    verdict = gates.judge(entries.find(options.memory)[0])
    for gate, refusal in verdict.refusals.items():
        log(f"{'✗' if refusal else '✓'} {gate:10s} {refusal}".rstrip())
    if verdict.state or verdict.parameters:
        log(
            f"The memory has {verdict.state} state values and {verdict.parameters} trainable "
            f"parameters. It can recall the first observation for {verdict.remembers} steps."
        )
    return 0 if verdict.passed else FAILURE


def _run(options: Run, log: Callable[[str], None]) -> int:
    name = "quick" if options.quick else options.name or options.memory.rpartition(":")[2]
    out = options.out or pathlib.Path("results/capstone") / f"{name}.json"
    same = {x: getattr(options, x) for x in ("name", "oracle", "tuned_on", "tuning_seeds")}
    protocol = QUICK if options.quick else FULL
    entry = entries.run(options.memory, out, protocol=protocol, log=log, **same)
    low, high = entry["interval_95"]
    log(
        f"{out}: {entry['name']}, {entry['score']:.3f} [{low:.3f}, {high:.3f}] over "
        f"{len(entry['seeds'])} seeds, {entry['cpu_seconds']:.0f} CPU-s."
    )
    check = command_line("capstone", "check", out)
    log(NOTHING if options.quick else f"Anyone can check it: {check}")
    return 0


def _check(options: Check, log: Callable[[str], None]) -> int:
    folder = options.entry.is_dir()
    paths = sorted(options.entry.glob("*.json")) if folder else [options.entry]
    if not paths:
        raise RunError(f"{options.entry} does not contain entries. Pass a folder of JSON files.")
    code = 0
    for path in paths:
        try:
            refusals = entries.check(path, again=not options.no_rerun, fresh=options.fresh, log=log)
        except (RunError, ValueError) as error:
            if not folder:
                raise
            refusals = [str(error)]  # so that the other entries are still checked
        for sentence in refusals:
            log(f"✗ {path}: {sentence}")
        if not refusals:
            again = "not measured again" if options.no_rerun else "measured again"
            log(f"✓ {path} is as reported, {again}.")
        code = FAILURE if refusals else code
    return code
