"""The content of a user's objects, which decides whether a compiled program still fits them."""

import contextlib
import dis
import functools
import hashlib
import inspect
import itertools
import re
import sys
import types
from collections.abc import Hashable, Iterator
from typing import Any

import jax
import numpy as np

from mmrl import _own
from mmrl.runs.setup import Setup

_PLAIN = (type(None), bool, int, float, complex, str, bytes, types.CodeType, types.ModuleType)


class Same:
    """An object that cannot change, compared by identity."""

    def __init__(self, part: Any):
        self.part = part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.part is other.part

    def __hash__(self) -> int:
        return id(self.part)


def own_parts(setup: Setup) -> tuple[Hashable, ...]:
    """Return the contents of what a setup has of the user's own."""
    memory = getattr(setup.config, "memory", "")
    of_memory = (content(memory, "name"),) if ":" in memory else ()
    return content(setup.env), content((setup.make, setup.learn)), *of_memory


def content(part: Any, argument: str = "env") -> Hashable:
    """Return what changes with an object's attributes, and with the code of its class.

    For a function: its code, its closure and the globals that it reads. Followed are the user's own
    modules; installed packages do not change. "my_module:MyEnv" has the content of what it names.
    """
    named = isinstance(part, str) and ":" in part
    return _content(_own.find(part, argument) if named else part, {})


def _content(part: Any, seen: dict[int, tuple[int, Any]]) -> Hashable:
    if isinstance(part, _PLAIN):
        return type(part), part
    if isinstance(part, np.ndarray):
        return part.dtype.str, part.shape, hashlib.sha256(part.tobytes()).digest()
    if isinstance(part, jax.Array):
        return Same(part)
    if id(part) in seen:
        return "seen", seen[id(part)][0]
    seen[id(part)] = len(seen), part  # which keeps its number taken
    return type(part).__qualname__, *(_content(x, seen) for x in _parts(part))


def _parts(part: Any) -> Iterator[Any]:
    """Yield what an object consists of."""
    if isinstance(part, tuple | list):
        yield from part
    elif isinstance(part, dict):
        yield from itertools.chain(*part.items())
    elif isinstance(part, functools.partial):
        yield from (part.func, part.args, part.keywords)
    elif isinstance(part, types.MethodType):
        yield from (part.__self__, part.__func__)
    elif isinstance(part, staticmethod | classmethod):
        yield part.__func__
    elif isinstance(part, property):
        yield from (part.fget, part.fset)
    elif isinstance(inspect.unwrap(part), types.FunctionType):
        yield from _of_function(inspect.unwrap(part))
    elif isinstance(part, type):
        yield from _of_class(part)
    elif hasattr(part, "__dict__") or hasattr(part, "__slots__"):
        slots = [x for kind in type(part).__mro__ for x in vars(kind).get("__slots__", ())]
        yield from (type(part), {x: getattr(part, x) for x in slots if hasattr(part, x)})
        yield dict(sorted(getattr(part, "__dict__", {}).items()))
    else:
        yield re.sub(" at 0x[0-9a-f]+", "", repr(part))


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    if not _is_own(function.__module__):
        yield f"{function.__module__}.{function.__qualname__}"
        return
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__)
    with contextlib.suppress(ValueError):  # a cell that is still empty
        yield from (cell.cell_contents for cell in function.__closure__ or ())
    for name in _globals(function.__code__):
        value = function.__globals__.get(name)
        steady = isinstance(value, (*_PLAIN, tuple, np.ndarray, jax.Array, type))
        yield value if steady or isinstance(value, types.FunctionType) else id(value)


def _of_class(kind: type) -> Iterator[Any]:
    if not _is_own(kind.__module__):
        yield f"{kind.__module__}.{kind.__qualname__}"
        return
    yield from kind.__bases__
    for name, value in vars(kind).items():  # Python adds special attributes when they are read
        special = name.startswith("__") and not isinstance(value, types.FunctionType)
        yield from () if special or name == "_abc_impl" else (name, value)


@functools.lru_cache(1024)
def _globals(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of the globals that a function, or one inside of it, reads."""
    names = {
        x.argval for x in dis.get_instructions(code) if x.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = [_globals(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return tuple(sorted(names.union(*inner)))


def _is_own(module: str | None) -> bool:
    """True for a module of the user's, which may be edited while this process runs."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if module in sys.builtin_module_names or "site-packages" in (file or ""):
        return False
    return file is None or not file.startswith(_own.NOT_OWN)
