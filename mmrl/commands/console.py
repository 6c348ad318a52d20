"""The console of all commands, the paths that they accept, and the commands that they suggest."""

import pathlib
from typing import Annotated, Any

import rich.console
from tyro.constructors import PrimitiveConstructorSpec

from mmrl.runs.checkpoint import RunError
from mmrl.runs.files import expanded
from mmrl.runs.shell import called as called


class Console(rich.console.Console):
    """A console that leaves it to the command to end when no program reads its output any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def open_console(**options: Any) -> Console:
    """Return a console that prints every string as it is: brackets and colons have no meaning."""
    return Console(markup=False, emoji=False, **options)


def path_of(word: str) -> pathlib.Path:
    """Return the path that a word names. Raises `RunError`, which parsers pass on, without one."""
    try:
        return expanded(word)
    except ValueError as error:
        raise RunError(str(error)) from None


Path = Annotated[
    pathlib.Path,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda words: path_of(words[0]),
        is_instance=lambda value: isinstance(value, pathlib.Path),
        str_from_instance=lambda value: [str(value)],
    ),
]


def to_resume(command: str, options: Any, path: pathlib.Path, *more: object) -> str:
    """Return the command that continues a run or a sweep, on as many devices as before."""
    devices = [] if options.devices is None else ["--devices", options.devices]
    return called(command, "--resume", "--out", path, *devices, *more)
