"""Environments, and other parts, of the user's own, found by their place: "my_module:MyEnv"."""

import difflib
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

# Of an error's way through these a user need not know: mmrl, and what comes with Python.
_NOT_OWN = (f"{Path(__file__).parents[1]}{os.sep}", f"{Path(os.__file__).parent}", "<frozen")


def make(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """An environment of the user's own and its parameters; raises as `mmrl.envs.make` does."""
    found = find(env_id)
    if isinstance(found, type) or (callable(found) and not hasattr(found, "step_env")):
        check_arguments(env_id, found, kwargs)
        try:
            found = found(**kwargs)
        except Exception as error:
            raise ValueError(
                f"`env_id` must name what makes an environment, got {env_id!r}, which raised "
                f"{told(error)}."
            ) from error
    elif kwargs:
        raise ValueError(
            f"`kwargs` are for a class or a function, got {kwargs} for {env_id}, an object."
        )
    env, *params = found if isinstance(found, tuple) and len(found) == 2 else (found,)
    if not hasattr(env, "step_env"):
        raise ValueError(
            "`env_id` must name an environment as gymnax has them, with `reset_env` and "
            f"`step_env`, or a class or a function that makes one; got {env_id!r}, which is "
            f"{_article(env)}."
        )
    return env, params[0] if params else getattr(env, "default_params", None)


def find(env_id: str, argument: str = "env_id") -> Any:
    """The object called "my_module:name". Raises `ValueError`, about `argument`, without one."""
    place, _, name = env_id.partition(":")
    value: Any = (module := _module(env_id, place, argument))
    for part in name.split("."):
        if not hasattr(value, part):
            own = [
                k
                for k, x in vars(module).items()
                if not k.startswith("_") and not isinstance(x, ModuleType)
                if getattr(x, "__module__", place) == module.__name__
            ]
            nearest = difflib.get_close_matches(name, own, n=3, cutoff=0.3) or own[:3] or ["none"]
            raise ValueError(
                f"`{argument}` must name something in {place} after the colon, got {env_id!r}: "
                f"there is {f'no {part!r} in it' if part else 'none'}. "
                f"Nearest: {', '.join(nearest)}."
            )
        value = getattr(value, part)
    return value


def _module(env_id: str, place: str, argument: str) -> ModuleType:
    # As `python -m` has it; it stays, for what the module imports later.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()  # it may have been written a moment ago
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        absent = f"{error.name}." if isinstance(error, ModuleNotFoundError) else ":"
        named = f"{place}.".startswith(absent)  # and not what the module imports
        if place and not place.startswith(".") and not named:
            raise ValueError(
                f"`{argument}` must name a module that can be imported, got {env_id!r}: {place} "
                f"raised {told(error)}."
            ) from error
        near = difflib.get_close_matches(place, [path.stem for path in Path().glob("*.py")], n=3)
        advice = f" Nearest here: {', '.join(near)}." if near else ""
        raise ValueError(
            f"`{argument}` must name a module before the colon, got {env_id!r}: there is no "
            f"{place!r} in the current folder, nor on PYTHONPATH.{advice} Run mmrl in the folder "
            "that holds it, or put that folder on PYTHONPATH; write it as after `import`, "
            "folder.module, without .py."
        ) from None


def check_arguments(env_id: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Raises `ValueError` unless `factory` can be called with `kwargs`."""
    try:
        signature = inspect.signature(factory)
    except ValueError:  # it does not tell its arguments
        return
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        takes = ", ".join(str(p) for p in signature.parameters.values()) or "none"
        raise ValueError(
            f"`kwargs` of {env_id} do not fit, got {kwargs}: {error}. It takes: {takes}."
        ) from None


def told(error: BaseException) -> str:
    """An error in one line: its kind, what it says first, and the line of the user that led to it.

    For errors of code that is not ours, which mmrl calls.
    """
    trace = traceback.extract_tb(error.__traceback__)
    frames = [x for x in trace if not x.filename.startswith(_NOT_OWN)]
    frames = [x for x in frames if "site-packages" not in x.filename]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    says = f"{error}".strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}{f': {says}' if says else ''}{place}"


def _article(found: Any) -> str:
    return "None" if found is None else f"of type {type(found).__name__}"
