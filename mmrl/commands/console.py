"""The console of all commands, the paths that they accept, and the commands that they suggest."""

import os
import pathlib
import shlex
import shutil
import sys
from typing import Annotated, Any

from rich.console import Console
from tyro.constructors import PrimitiveConstructorSpec

from mmrl.runs.checkpoint import expanded


def open_console(**options: Any) -> Console:
    """Return a console that prints every string as it is: brackets and colons have no meaning."""
    return Console(markup=False, emoji=False, **options)


Path = Annotated[
    pathlib.Path,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda words: expanded(words[0]),
        is_instance=lambda value: isinstance(value, pathlib.Path),
        str_from_instance=lambda value: [str(value)],
    ),
]


def called(*words: object) -> str:
    """Return the command `mmrl WORDS`, quoted for a shell in this folder.

    Outside an activated environment it starts with a path such as `.venv/bin/mmrl`.
    """
    ours = pathlib.Path(sys.executable).with_name("mmrl")
    found = shutil.which("mmrl")
    program = "mmrl"
    if ours.exists() and not (found and pathlib.Path(found).samefile(ours)):
        near = pathlib.Path(os.path.relpath(ours))
        program = str(ours if near.parts[:2] == ("..", "..") else near)
    return shlex.join([program, *map(_word, words)])


def to_resume(command: str, options: Any, path: pathlib.Path, *more: object) -> str:
    """Return the command that continues a run or a sweep, on as many devices as before."""
    devices = [] if options.devices is None else ["--devices", options.devices]
    return called(command, "--resume", "--out", path, *devices, *more)


def _word(word: object) -> str:
    """Return a word of a command; a path is one also if it looks like an option or a home."""
    text = str(word)
    return f"./{text}" if isinstance(word, pathlib.Path) and text[0] in "-~" else text
