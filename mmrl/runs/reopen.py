"""Runs and sweeps in a folder: their setups, and the progress they have made."""

import dataclasses
import os
from typing import Any

from mmrl.runs.folder import Folder
from mmrl.runs.identity import restore
from mmrl.runs.processes import RunError
from mmrl.runs.run import Run
from mmrl.runs.setup import Setup


def reopen(path: str | os.PathLike, best: bool = False) -> Run:
    """Return the run saved in a folder, to inspect, evaluate or plot; the folder is not changed.

    With `best`, also each seed's best network: `run.best`. These have a separate file, so they can
    be loaded if the checkpoint is lost; then `state` is None and `history` empty. Raises `RunError`
    if the checkpoint, or the file of `best`, is missing or damaged.
    """
    folder = Folder(path)
    if (file := folder.path).is_file():
        raise RunError(f"{file} is a file. Pass the folder of the run, {file.parent}.")
    setup = restore(folder.header(best)["setup"])
    if setup.over:
        swept = " and ".join(f"`{name}`" for name, _ in setup.over)
        raise RunError(f"This is a sweep over {swept}. See its results.json, or use `mmrl sweep`.")
    return Run(setup, lambda like: folder.read_only(like, best))


def saved(path: str | os.PathLike) -> Setup | None:
    """Return the setup of the run or sweep in a folder, or None; also before its first checkpoint.

    Raises `RunError` if it cannot be read, or if it has custom parts.
    """
    there = Folder(path).description()
    return None if there is None else restore(there)


def saved_sweep(path: str | os.PathLike) -> tuple[Setup, dict[str, Any]] | None:
    """Return the setup of the sweep in a folder, without `over`, and `over` by itself, or None.

    Raises `RunError` as `saved` does, and for a run.
    """
    setup = saved(path)
    if setup is None:
        return None
    if not setup.over:
        raise RunError(f"{path} holds a run, not a sweep. Continue it with `mmrl train --resume`.")
    over = {name: list(values) for name, values in setup.over}
    return dataclasses.replace(setup, over=()), over
