"""`mmrl experiment`: measure again what the book shows."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated

import tyro
from rich.console import Console

from mmrl.commands.terminal import in_background
from mmrl.course import experiments


@dataclasses.dataclass(frozen=True)
class Options:
    """Run one experiment of the book; what its results file holds already is not repeated.

    Stop with Ctrl-C whenever you like, and go on with the same command.
    """

    name: Annotated[str, tyro.conf.Positional] = ""
    """Which one. Without a name they are listed."""
    out: pathlib.Path = pathlib.Path("results/experiments")
    """The folder of the results, one file of JSON lines per experiment. The book's own are in
    book/results of the repository."""
    minutes: float = float("inf")
    """Start nothing that would take longer."""
    quick: bool = False
    """Tiny sizes: does everything run? The numbers mean nothing."""
    only: str = ""
    """Measure only what has this in its name, as the lines of progress have it."""


def main(arguments: Sequence[str]) -> int:
    """Measure, with a line for each result."""
    options, console = tyro.cli(Options, args=arguments, prog="mmrl experiment"), Console()
    if not options.name:
        for name, what in experiments.EXPERIMENTS.items():
            console.print(f"{name:16s}{what}", highlight=False)
        return 0
    if options.quick and options.out.name == "results" and options.out.parent.name == "book":
        raise ValueError("`quick` results mean nothing: keep them out of the book with `--out`.")
    if not options.minutes > 0:
        raise ValueError(
            f"`minutes` must be positive; got {options.minutes:g}. Leave it out for all."
        )
    rows = experiments.run(options.name, options.out, options.minutes, options.quick, options.only)
    for _, line in in_background([lambda: rows]):
        console.print(line, highlight=False, soft_wrap=True)
    return 0
