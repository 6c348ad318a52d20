"""Functions that open saved runs and sweeps."""

import dataclasses
import os
from typing import Any

from mmrl.runs.folder import Folder
from mmrl.runs.identity import restore
from mmrl.runs.processes import RunError
from mmrl.runs.run import Run
from mmrl.runs.setup import Setup


def reopen(path: str | os.PathLike, best: bool = False) -> Run:
    """Return the run saved in a folder, for example to evaluate or plot it.

    The folder is not changed. If `best` is True, `run.best` contains the best network of each seed.
    These networks are stored in a separate file, so they can be loaded even if the checkpoint is
    lost. In this case, `state` is None and `history` is empty.

    Raises `RunError` if the checkpoint, or the file with the best networks, is missing or damaged.
    """
    folder = Folder(path)
    if (file := folder.path).is_file():
        raise RunError(f"{file} is a file. Pass the folder of the run, {file.parent}.")
    setup = restore(folder.header(best)["setup"])
    if setup.over:
        names = " and ".join(f"`{name}`" for name, _ in setup.over)
        raise RunError(
            f"This is a sweep over {names}, not a run. See its results.json, or use `mmrl sweep`."
        )
    return Run(setup, lambda like: folder.read_only(like, best))


def saved_setup(path: str | os.PathLike) -> Setup | None:
    """Return the setup of the run or sweep in a folder, or None if the folder contains neither.

    No checkpoint is required. Raises `RunError` if the setup cannot be read or has custom parts.
    """
    there = Folder(path).description()
    return None if there is None else restore(there)


def saved_sweep(path: str | os.PathLike) -> tuple[Setup, dict[str, Any]] | None:
    """Return the setup of a sweep without `over`, and `over` as a dictionary.

    Returns None if the folder contains no run. Raises `RunError` if the setup cannot be read, if it
    has custom parts, or if the run is not a sweep.
    """
    setup = saved_setup(path)
    if setup is None:
        return None
    if not setup.over:
        raise RunError(f"{path} contains a run, not a sweep. Resume it with `mmrl train --resume`.")
    over = {name: list(values) for name, values in setup.over}
    return dataclasses.replace(setup, over=()), over
