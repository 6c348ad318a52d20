"""`mmrl export`: write a trained policy to a file that only requires NumPy."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from mmrl.commands.options import numbered_paths
from mmrl.commands.terminal import Path, open_console, open_run
from mmrl.runs import Run, RunError
from mmrl.runs.export import export


@dataclasses.dataclass(frozen=True)
class Options:
    """Export the greedy policy of one network of a run, to run it with only NumPy.

    The module `mmrl/runs/player.py` loads the file. You can copy this module to other projects.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    network: int | None = None
    """Seed whose network is exported. Default: the one with the highest return."""
    best: bool = False
    """Export the network from the seed's best block in training, instead of the last block."""
    out: Path | None = None
    """File to create. Default: a file under results/ that is named after the run."""


def main(arguments: Sequence[str]) -> int:
    """Export a policy and print a summary.

    Raises `RunError` if the run cannot be opened or the file exists, and `ValueError` if `network`
    is not one of its seeds.
    """
    options = tyro.cli(Options, args=arguments, prog="mmrl export")
    run = open_run(options.path, options.best)
    if options.network is not None and options.network not in run.setup.seeds:
        raise ValueError(
            f"`network` must be a seed of the run, one of {list(run.setup.seeds)}; got "
            f"{options.network}."
        )
    out, about = _export(run, options)
    open_console().print(
        f"{out}, {out.stat().st_size / 1000:.0f} kB: {about['agent']} with memory "
        f"{about['memory']} on {about['env']}, seed {about['seed']} after block {about['block']}, "
        f"return {about['return']:.3f}.\n"
        "Play it with mmrl/runs/player.py, which only requires NumPy.",
        soft_wrap=True,
    )
    return 0


def _export(run: Run, options: Options) -> tuple[pathlib.Path, dict[str, Any]]:
    """Export to `out` or to a new file; return its path and a description of the policy."""
    names = numbered_paths(f"{options.path.resolve().name}-policy", ".npz")
    while True:
        out = options.out or next(name for name in names if not name.exists())
        try:
            return out, export(run, out, options.network, options.best)
        except RunError:
            # If another process has just created a file with this name, try the next name.
            if options.out or not out.exists():
                raise
