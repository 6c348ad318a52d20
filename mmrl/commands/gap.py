"""`mmrl gap`: measure the cost of partial observability, and how much a memory recovers."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.table import Table

from mmrl.commands.options import Options as Options
from mmrl.commands.options import in_words_of_help, parse, unless_empty
from mmrl.commands.progress import watch
from mmrl.commands.terminal import open_console
from mmrl.runs import Run, Setup, append, interval, saved_setup
from mmrl.runs.checkpoint import loads
from mmrl.runs.results import whole_lines
from mmrl.runs.shell import command_line

ABOUT = """Train an agent three times: on the state of a task, with a memory, and without either.
An agent that observes the state does not need a memory. A table compares the returns of the last
evaluation. You can stop with Ctrl-C and continue with the same --out. The command accepts the
options of `mmrl train` below, except {refused}.
"""
EXCLUSIONS = ("--over", "--resume", "--observe", "--log", "--list", "--presets")
EXCLUSIONS += ("--distributed", "--coordinator", "--processes", "--process")
FILE = "gap.jsonl"

Returns = Mapping[str, Float[np.ndarray, " seed"]]


def main(arguments: Sequence[str]) -> int:
    """Train three agents and compare their returns.

    Raises `ValueError` for invalid options, and `RunError` if a folder contains another run.
    """
    words = [word.partition("=")[0] for word in arguments]
    if {"-h", "--help"} & {*words}:
        print(ABOUT.format(refused=", ".join(EXCLUSIONS)))
    for name in EXCLUSIONS:
        if name in words:
            raise ValueError(f"`mmrl gap` does not support {name}. Omit this option.")
    options, setup, path = parse(arguments, "gap")
    again = command_line("gap", *arguments, *([] if "--out" in words else ["--out", path]))
    try:
        with unless_empty(path):
            runs = {name: _run(x, path / name, options) for name, x in setups(setup).items()}
    except ValueError as error:
        raise ValueError(in_words_of_help(str(error), options.config)) from None
    console = open_console()
    for name, run in runs.items():
        console.print(f"{setup.env}, {name}  →  {run.path}", highlight=False, soft_wrap=True)
        try:
            watch(run, console, run)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"Stopped. To continue: {again}") from None
    returns = {name: np.array(run.history[-1]["returns"]) for name, run in runs.items()}
    table = Table(setup.env, "IQM", "95 % interval", "each seed")
    for name, each in returns.items():
        middle, low, high = interval(each)
        row = (f"{middle:.3f}", f"{low:.3f} to {high:.3f}", " ".join(f"{x:.2f}" for x in each))
        table.add_row(_title(name, setup), *row)
    console.print(table)
    console.print(*verdict(returns), sep="\n", soft_wrap=True, highlight=False)
    row = {
        "env": setup.env,
        "seeds": list(setup.seeds),
        "env_steps": {name: run.history[-1]["env_steps"] for name, run in runs.items()},
        "returns": {name: x.tolist() for name, x in returns.items()},
    }
    if not _contains(path / FILE, row):
        append(path / FILE, row)
    return 0


def _contains(file: pathlib.Path, row: dict[str, Any]) -> bool:
    """Return True if a file contains a row with these values, and any provenance."""
    lines = whole_lines(file.read_bytes()).splitlines() if file.exists() else []
    return any(row.items() <= loads(line).items() for line in lines)


def setups(setup: Setup) -> dict[str, Setup]:
    """Return the setups of three runs: on the state, with a memory, and without either.

    Raises `ValueError` if the setup has no memory.
    """
    if setup.config.memory == "none":
        raise ValueError(
            "`memory` must differ from none, because the command compares a memory with none; got "
            "none."
        )
    bare = dataclasses.replace(setup.config, memory="none", memory_sizes=())
    return {
        "state": dataclasses.replace(setup, config=bare, observe="state"),
        "memory": setup,
        "none": dataclasses.replace(setup, config=bare),
    }


def verdict(returns: Returns) -> Iterator[str]:
    """Yield sentences about the observability gap and how much of it the memory closes.

    Intervals are computed from the differences between agents with the same seed.
    """
    gap, low, high = interval(returns["state"] - returns["none"])
    yield f"Observability gap, state minus none: {gap:.3f} [{low:.3f}, {high:.3f}]."
    gain, *ends = interval(returns["memory"] - returns["none"])
    share = f", {gain / gap:.0%} of the gap" if low > 0 else ""
    yield f"The memory gains {gain:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]{share}."
    if low <= 0:
        yield "With these seeds, agents without a memory are not significantly worse."


def _run(setup: Setup, path: pathlib.Path, options: Options) -> Run:
    """Resume the run in a folder, or start a new one."""
    return Run(setup, path, resume=saved_setup(path) is not None, devices=options.devices)


def _title(name: str, setup: Setup) -> str:
    return {"memory": f"memory {setup.config.memory}", "none": "neither"}.get(name, name)
