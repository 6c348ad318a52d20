"""Folders of runs and sweeps, where the command line names none."""

import contextlib
import itertools
import pathlib
from collections.abc import Iterator

from mmrl.runs.files import writing

RESULTS = pathlib.Path("results")


def new_folder(env: str, name: str) -> pathlib.Path:
    """Make results/<task>-<name>-<number> with the first number that is free."""
    task = env.rpartition(":")[2]  # of my_module:MyEnv
    task = task.removeprefix("popgym-").removesuffix("-v0")
    stem = f"{task}-{name}".replace("/", "-")
    with writing(RESULTS):
        RESULTS.mkdir(exist_ok=True)
        return next(filter(made, (RESULTS / f"{stem}-{n}" for n in itertools.count(1))))


def new_files(stem: str, suffix: str) -> Iterator[pathlib.Path]:
    """Yield results/<stem>-<number><suffix> for each number that is free."""
    paths = (RESULTS / f"{stem}-{n}{suffix}" for n in itertools.count(1))
    return (path for path in paths if not path.exists())


def made(path: pathlib.Path) -> bool:
    """Make a folder; False if the path exists already, for example because another run made it."""
    try:
        path.mkdir(parents=True)  # results/ may be gone with another run that could not begin
    except FileExistsError:
        return False
    return True


@contextlib.contextmanager
def unless_empty(path: pathlib.Path) -> Iterator[None]:
    """Remove the new folder of a run that cannot begin."""
    try:
        yield
    except BaseException:
        for folder in (path, RESULTS) if path.parent == RESULTS else ():
            with contextlib.suppress(OSError):  # it holds something
                folder.rmdir()
        raise


def newest() -> Iterator[pathlib.Path]:
    """The folders under results/, from the one that was written last."""
    files = sorted(RESULTS.glob("*/results.json"), key=lambda file: -file.stat().st_mtime)
    return (file.parent for file in files)
