"""Find the user's environments, memories and other custom parts: "my_module:MyEnv"."""

import difflib
import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

# Paths left out of a user's traceback: mmrl, and the standard library.
NOT_OWN = (f"{Path(__file__).parent}{os.sep}", f"{Path(os.__file__).parent}", "<frozen")


def find(path: str, argument: str) -> Any:
    """Return the object called "my_module:name".

    Raises `ValueError`, which names `argument`, if there is no such object.
    """
    place, _, name = path.partition(":")
    value: Any = (module := _module(path, place, argument))
    for part in name.split("."):
        if not hasattr(value, part):
            own = [
                k
                for k, x in vars(module).items()
                if not k.startswith("_") and not isinstance(x, ModuleType)
                if getattr(x, "__module__", place) == module.__name__
            ]
            near = difflib.get_close_matches(name, own, n=3)
            advice = f"Nearest: {', '.join(near)}" if near else f"It has: {', '.join(own[:9])}"
            raise ValueError(
                f"`{argument}` must name an object of {place} after the colon, got {path!r}: "
                f"{f'it has no {part!r}' if part else 'no name follows the colon'}. "
                f"{advice if own else 'It defines no public names'}."
            )
        value = getattr(value, part)
    return value


def _module(path: str, place: str, argument: str) -> ModuleType:
    # Same path as with `python -m`; it stays, because the module may import more later.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()  # the file may be new
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        absent = f"{error.name}." if isinstance(error, ModuleNotFoundError) else ":"
        named = f"{place}.".startswith(absent)  # `place` is missing, not one of its imports
        if place and not place.startswith(".") and not named:
            raise ValueError(
                f"`{argument}` must name a module that can be imported, got {path!r}: {place} "
                f"raised {told(error)}."
            ) from error
        near = difflib.get_close_matches(place, [file.stem for file in Path().glob("*.py")], n=3)
        advice = f" Nearest here: {', '.join(near)}." if near else ""
        raise ValueError(
            f"`{argument}` must name a module before the colon, got {path!r}: there is no "
            f"{place!r} in the current folder, nor on PYTHONPATH.{advice} Run mmrl in the folder "
            "that holds it, or put that folder on PYTHONPATH; write folder.module, as in an "
            "import statement, without .py."
        ) from None


def told(error: BaseException) -> str:
    """Return an error in one line: its type, its first line, and the line of the user's code.

    For errors that the user's code raises when mmrl calls it.
    """
    trace = traceback.extract_tb(error.__traceback__)
    frames = [x for x in trace if not x.filename.startswith(NOT_OWN)]
    frames = [x for x in frames if "site-packages" not in x.filename]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    says = f"{error}".strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}{f': {says}' if says else ''}{place}"
