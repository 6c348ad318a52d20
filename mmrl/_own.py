"""Import of user-defined environments, memories and other objects, given as "my_module:MyEnv"."""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

# Frames of mmrl and of the standard library, whose filenames have one of these prefixes, are not
# user code.
NOT_OWN = (f"{Path(__file__).parent}{os.sep}", f"{Path(os.__file__).parent}", "<frozen")


def find(path: str, argument: str, libraries: Iterable[str] = ()) -> Any:
    """Return the object that a string such as "my_module:name" refers to.

    `argument` is the name of the option to which the string was passed; error messages contain it.
    They suggest one of `libraries`, which may stand before the colon, if its name is similar.
    Raises `ValueError` if the object cannot be imported.
    """
    place, _, name = path.partition(":")
    value: Any = (module := _module(path, place, argument, libraries))
    for part in name.split("."):
        if not hasattr(value, part):
            own = [
                k
                for k, x in vars(module).items()
                if not k.startswith("_") and not isinstance(x, ModuleType)
                if getattr(x, "__module__", place) == module.__name__
            ]
            near = difflib.get_close_matches(name, own, n=3)
            advice = f"Nearest: {', '.join(near)}" if near else f"{place} has: {', '.join(own[:9])}"
            raise ValueError(
                f"`{argument}` must name an object of {place} after the colon, got {path!r}: "
                f"{f'{part!r} does not exist' if part else 'no name follows the colon'}. "
                f"{advice if own else f'{place} defines no public names'}."
            )
        value = getattr(value, part)
    return value


def _module(path: str, place: str, argument: str, libraries: Iterable[str]) -> ModuleType:
    # Search the current folder, as `python -m` does. Leave the folder on the path, because the
    # module may import other modules later.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()  # find files created since this process started
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        absent = f"{error.name}." if isinstance(error, ModuleNotFoundError) else ":"
        # True if `place` itself is missing, and not a module that it imports.
        is_named = f"{place}.".startswith(absent)
        if place and not place.startswith(".") and not is_named:
            raise ValueError(
                f"`{argument}` must name a module that can be imported, got {path!r}: {place} "
                f"raised {one_line(error)}."
            ) from error
        near = difflib.get_close_matches(place, [file.stem for file in Path().glob("*.py")], n=3)
        advice = f" Nearest in this folder: {', '.join(near)}." if near else ""
        if library := difflib.get_close_matches(place, libraries, n=1):
            advice += f" Nearest library: {library[0]}."
        raise ValueError(
            f"`{argument}` must name a module before the colon, got {path!r}: there is no module "
            f"{place!r} in the current folder or on PYTHONPATH.{advice} Run mmrl in the folder "
            "that contains it, or add that folder to PYTHONPATH. Write folder.module, as in an "
            "import statement, without .py."
        ) from None


def one_line(error: BaseException) -> str:
    """Format an exception from user code on one line.

    The result contains the exception's type, the first line of its message, and the file and line
    of the innermost frame in user code.
    """
    trace = traceback.extract_tb(error.__traceback__)
    frames = [x for x in trace if not x.filename.startswith(NOT_OWN)]
    frames = [x for x in frames if "site-packages" not in x.filename]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    text = f"{error}".strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}{f': {text}' if text else ''}{place}"
