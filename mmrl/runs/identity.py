"""Conversion of setups to JSON data, which identifies the run in a folder."""

import dataclasses
import functools
import hashlib
import itertools
import json
import pathlib
import re
import sys
import warnings
from typing import Any

import jax
import numpy as np

from mmrl.agents import AGENTS
from mmrl.runs.checkpoint import unquote, unwrap_keys
from mmrl.runs.earlier import EARLIER, earlier
from mmrl.runs.processes import RunError
from mmrl.runs.setup import Setup


def describe(setup: Setup) -> dict[str, Any]:
    """Convert a setup to JSON data. `restore` is the inverse, except for custom parts."""
    data = {field.name: getattr(setup, field.name) for field in dataclasses.fields(setup)}
    for name in ("over", "observe"):  # omit defaults, for earlier versions
        if getattr(setup, name) == getattr(Setup, name):
            del data[name]
    data["config"] = dataclasses.asdict(setup.config)
    own = {name: _name(data.pop(name)) for name in ("env", "make", "learn")}
    own = {name: text for name, text in own.items() if text is not None}
    if isinstance(setup.env, str):
        data["env"] = own.pop("env")
    data |= {"own": own} if own else {}
    return json.loads(json.dumps(data, default=lambda x: np.asarray(x).tolist()))


def check_same(path: Any, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise `RunError` if two setups differ, except in the number of blocks."""
    if differences := _differences(old, new):
        raise RunError(
            f"{path} contains a run of another setup: {'; '.join(differences)}. Use the settings "
            "with which it was started, or choose another folder. (Custom parts are compared by "
            "name and arguments.)"
        )


def restore(data: dict[str, Any]) -> Setup:
    """Return the setup for JSON data from `describe`.

    Raises `RunError` if the setup has custom parts, or if this version cannot read it.
    """
    if data.get("own"):
        parts = ", ".join(f"{name}={text}" for name, text in data["own"].items())
        raise RunError(
            f"This run was trained with custom parts: {parts}. Open it in Python with "
            "`Run(Setup(…), path, resume=True)` and the same parts."
        )
    try:
        data = {**earlier(data), "seeds": tuple(data["seeds"])}
        kind = AGENTS[data["agent"]].Config
        defaults = {f.name: EARLIER[f.name] for f in dataclasses.fields(kind) if f.name in EARLIER}
        config = {k: _tuples(v) for k, v in unquote(data["config"]).items()}
        config = kind(**{**defaults, **config})
        observes = tuple(data["observes"])
        return Setup(**{**data, "config": config, "observes": observes})
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"This run is from another version of mmrl: {error}. Open it with that version."
        ) from None


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return a phrase for each setting that differs, except for the number of blocks."""
    if old.get("agent") != new.get("agent"):  # settings of different agents cannot be compared
        return [f"agent was {old.get('agent')!r}, is {new.get('agent')!r}"]
    # Flatten both descriptions, and exclude three entries by giving them equal values.
    old, new = (
        {**EARLIER, **x, **x.get("config", {}), **x.get("own", {})}
        | {"config": 0, "blocks": 0, "own": 0}
        for x in map(earlier, (old, new))
    )
    names = sorted(old.keys() | new.keys())
    names = [k for k in names if old.get(k) not in (new.get(k), _of_main(new.get(k)))]
    return [f"{k} was {old.get(k)!r}, is {new.get(k)!r}" for k in names]


def _of_main(text: Any) -> Any:
    """Replace the name of the running script with `__main__`, which earlier versions recorded."""
    name = script()
    if name is None or not isinstance(text, str):
        return text
    return re.sub(rf"\b{re.escape(name)}\.", "__main__.", text)


def _name(part: Any) -> str | None:
    """Describe a custom part by its module, name and arguments. Strings are unchanged."""
    if part is None or isinstance(part, str):
        return part
    if isinstance(part, tuple):
        return f"({', '.join(str(_name(x)) for x in part)})"
    if isinstance(part, functools.partial):
        arguments = [*map(_name, part.args), *(f"{k}={_name(v)}" for k, v in part.keywords.items())]
        return f"{_name(part.func)}({', '.join(map(str, arguments))})"
    if isinstance(part, set | frozenset):  # sort, because the order differs between processes
        return f"{{{', '.join(sorted(str(_name(x)) for x in part))}}}"
    if hasattr(part, "__qualname__"):
        return f"{_module(part)}.{part.__qualname__}"
    if isinstance(part, np.ndarray | jax.Array):
        numbers = np.asarray(unwrap_keys(part))
        # NumPy abbreviates the `repr` of an array with more than 1000 elements, so use a hash.
        digest = f"{numbers.dtype}{numbers.shape} {hashlib.sha256(numbers.tobytes()).hexdigest()}"
        return repr(numbers) if numbers.size <= 1000 else digest
    if not hasattr(part, "__dict__"):
        # Remove the memory address, which differs between processes.
        return re.sub(" at 0x[0-9a-f]+", "", repr(part))
    parts = sorted(vars(part).items())
    arguments = [f"{k}={v!r}" if isinstance(v, str) else f"{k}={_name(v)}" for k, v in parts]
    return f"{_module(type(part))}.{type(part).__qualname__}({', '.join(arguments)})"


def _module(part: Any) -> str:
    """Return the name under which other programs can import the module of `part`."""
    main = part.__module__ in ("__main__", "__mp_main__")
    return (main and script()) or str(part.__module__)


def script() -> str | None:
    """Return the name under which `__main__` can be imported, or None in an interactive session."""
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return spec.name
    if getattr(main, "__file__", None) is None:
        return None
    path = pathlib.Path(str(main.__file__)).resolve()
    packages = itertools.takewhile(lambda x: (x / "__init__.py").exists(), path.parents)
    return ".".join(reversed([path.stem, *(x.name for x in packages)]))


def warn_of_main(path: Any, data: dict[str, Any]) -> None:
    """Warn about custom parts that are defined in `__main__`."""
    parts = [name for name, text in data.get("own", {}).items() if "__main__." in text]
    if parts and path is not None:
        warnings.warn(
            f"No other program can resume this run, because its "
            f"{' and '.join(f'`{x}`' for x in parts)} can be found only here, in `__main__`. "
            f"Define {'it' if len(parts) == 1 else 'them'} in a module that you import.",
            stacklevel=4,
        )


def _tuples(data: Any) -> Any:
    """Convert lists in JSON data to tuples."""
    return tuple(map(_tuples, data)) if isinstance(data, list) else data
