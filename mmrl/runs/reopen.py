"""Runs and sweeps that are in a folder: their setups, and what they have reached."""

import os
from typing import Any

from mmrl.runs.folder import Folder, kind
from mmrl.runs.identity import restore
from mmrl.runs.processes import RunError
from mmrl.runs.run import Run
from mmrl.runs.setup import Setup


def reopen(path: str | os.PathLike, best: bool = False) -> Run:
    """Return the run saved in a folder, to look at, evaluate or plot. Nothing is written there.

    With `best`, also each seed's best network: `run.best`. These have a separate file, so that they
    can be seen if the checkpoint is lost; `state` is None then, and `history` empty. Raises
    `RunError` if there is no checkpoint, or a damaged one, and the same for `best`.
    """
    folder = Folder(path)
    if (file := folder.path).is_file():
        raise RunError(f"{file} is a file: give the folder of the run, {file.parent}.")
    return Run(_of_a_run(folder.header(best)["setup"]), lambda like: folder.read_only(like, best))


def saved(path: str | os.PathLike) -> Setup | None:
    """Return the setup of the run in a folder, or None; also if it was killed before a checkpoint.

    Raises `RunError` if the run cannot be read, is a sweep, or has the user's own parts.
    """
    there = Folder(path).description()
    return None if there is None else _of_a_run(there)


def saved_sweep(path: str | os.PathLike) -> tuple[Setup, dict[str, Any]] | None:
    """Return the setup of the sweep in a folder and the values that it tries, or None.

    Raises `RunError` if it cannot be read, is a run, or has the user's own parts.
    """
    there = Folder(path).description()
    if there is None:
        return None
    if kind(there) == "run":
        raise RunError(f"{path} holds a run, not a sweep: continue with `mmrl train --resume`.")
    over = dict(there.pop("over"))
    return restore(there), over


def _of_a_run(description: dict[str, Any]) -> Setup:
    """Return a described setup. Raises `RunError` for that of a sweep."""
    if kind(description) == "sweep":
        swept = " and ".join(f"`{name}`" for name, _ in description["over"])
        raise RunError(f"This is a sweep over {swept}: see its results.json, or `mmrl sweep`.")
    return restore(description)
