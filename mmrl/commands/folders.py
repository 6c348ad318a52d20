"""Folders of runs and sweeps, where the command line names none."""

import pathlib
from collections.abc import Iterator

RESULTS = pathlib.Path("results")


def new_folder(env: str, name: str) -> pathlib.Path:
    """results/<task>-<name>-<number>, the first number that is free."""
    task = env.rpartition(":")[2]  # of my_module:MyEnv
    task = task.removeprefix("popgym-").removesuffix("-v0").replace("/", "-")
    stem = f"{task}-{name}"
    number = 1
    while (RESULTS / f"{stem}-{number}").exists():
        number += 1
    return RESULTS / f"{stem}-{number}"


def newest() -> Iterator[pathlib.Path]:
    """The folders under results/, from the one that was written last."""
    files = sorted(RESULTS.glob("*/results.json"), key=lambda file: -file.stat().st_mtime)
    return (file.parent for file in files)
