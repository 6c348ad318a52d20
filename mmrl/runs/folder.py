"""The folder of a run or a sweep: its files, its setup and its claim."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from mmrl.runs.best import BEST
from mmrl.runs.checkpoint import RunError, loads, read
from mmrl.runs.files import Claim, claim, expanded, writing
from mmrl.runs.hosts import told

CHECKPOINT, RESULTS = "checkpoint", "results.json"  # in a run's folder


def described(path: pathlib.Path) -> dict[str, Any] | None:
    """Return the setup in a run's folder, as `describe` has it; None without one.

    Raises `RunError` if its files were not written by mmrl.
    """
    checkpoint, results = path / CHECKPOINT, path / RESULTS
    try:
        if told(checkpoint.exists):
            return read(checkpoint)[0]["setup"]
        return dict(loads(told(results.read_bytes))["setup"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunError(f"Cannot read {error.filename or path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{results} cannot be read: it was not written by mmrl.") from None


def claimed(path: pathlib.Path) -> Claim:
    """Make and claim a folder for all processes of a run, of which the first holds the lock."""
    own: list[Claim] = []

    def on_disk() -> None:
        path.mkdir(parents=True, exist_ok=True)
        own.append(claim(path))

    with writing(path):
        told(on_disk)
    return next(iter(own), Claim())  # in each process, so that all of them go the same way


@contextlib.contextmanager
def taken(path: pathlib.Path) -> Iterator[None]:
    """Turn the error about a file that exists already into a `RunError` about its folder."""
    try:
        yield
    except FileExistsError:
        raise RunError(
            f"Another run has begun in {path} at the same moment: choose another folder."
        ) from None


def stamp(path: pathlib.Path) -> tuple[int, int] | None:
    """Return what every replacement of a folder's checkpoint changes, or None without one."""
    try:
        file = (path / CHECKPOINT).stat()
    except OSError:
        return None
    return file.st_ino, file.st_mtime_ns


def origin(header: dict[str, Any]) -> dict[str, Any]:
    """The provenance in the header of a file."""
    return {k: v for k, v in header.items() if k not in ("setup", "history", BEST)}


def folder(path: str | os.PathLike | None, resume: bool) -> pathlib.Path | None:
    """The path of a folder. Raises `ValueError` if there is none to resume."""
    if resume and path is None:
        raise ValueError("`path` must name the folder of the run to `resume`; got None.")
    return None if path is None else expanded(path)


def kind(told: dict[str, Any]) -> str:
    return "sweep" if "over" in told else "run"
