"""`mmrl export`: write a trained policy to one file that NumPy plays."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from mmrl.commands.options import numbered
from mmrl.commands.terminal import Path, open_console, open_run
from mmrl.runs import Run, RunError
from mmrl.runs.export import export


@dataclasses.dataclass(frozen=True)
class Options:
    """Write the greedy policy of one network of a run to a file that needs only NumPy.

    The file `mmrl/runs/player.py` plays it, and can be copied out of mmrl.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    seed: int | None = None
    """Seed whose network is exported. Default: the seed with the highest return."""
    best: bool = False
    """Export the network after the seed's best block in training, instead of the last one."""
    out: Path | None = None
    """The new file. Default: a file under results/ named after the run."""


def main(arguments: Sequence[str]) -> int:
    """Export, and print a summary of the file. Raise `RunError` or `ValueError`."""
    options = tyro.cli(Options, args=arguments, prog="mmrl export")
    out, about = _exported(open_run(options.path, options.best), options)
    open_console().print(
        f"{out}, {out.stat().st_size / 1000:.0f} kB: {about['agent']} with memory "
        f"{about['memory']} on {about['env']}, seed {about['seed']} after block {about['block']}, "
        f"return {about['return']:.3f}.\n"
        "Play it with mmrl/runs/player.py, which needs only NumPy.",
        soft_wrap=True,
    )
    return 0


def _exported(run: Run, options: Options) -> tuple[pathlib.Path, dict[str, Any]]:
    """Export to the file that the options name, or to a new one; return its path and contents."""
    names = numbered(f"{options.path.resolve().name}-policy", ".npz")
    while True:
        out = options.out or next(name for name in names if not name.exists())
        try:
            return out, export(run, out, options.seed, options.best)
        except RunError:
            if options.out or not out.exists():  # otherwise another process took the name
                raise
