"""Content of user-defined objects, which is compared to detect outdated compiled programs."""

import collections
import contextlib
import copyreg
import dis
import functools
import hashlib
import inspect
import itertools
import logging
import re
import sys
import types
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from mmrl import _own
from mmrl.envs import adapters
from mmrl.runs.setup import Setup

_LEAVES = (type(None), bool, int, float, complex, str, bytes, types.CodeType, types.ModuleType)
# Compare loggers by identity, because their attributes reference all loggers of the process.
_LEAVES += (logging.Logger,)
_CONTAINERS = (tuple, list, dict, set, frozenset, collections.deque, np.ndarray)


class ModuleReads(NamedTuple):
    """A user's module, and the names of the attributes that a function may read from it."""

    module: types.ModuleType
    names: tuple[str, ...]


class Same:
    """Wrapper that compares an object by identity."""

    def __init__(self, part: Any):
        self.part = part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.part is other.part

    def __hash__(self) -> int:
        return id(self.part)


def own_parts(setup: Setup) -> tuple[Hashable, ...]:
    """Return hashable values that change if a custom part of a setup, or its code, changes."""
    memory = getattr(setup.config, "memory", "")
    of_memory = (content(memory, "name"),) if ":" in memory else ()
    return content(setup.env), content((setup.make, setup.learn)), *of_memory


def content(part: Any, argument: str = "env") -> Hashable:
    """Return a hashable value that changes if an object or its code changes.

    The content of an object includes its attributes and the code of its class. The content of a
    function includes its code, its closure and the globals that it reads. Only the user's modules
    are searched, because installed packages do not change. The content of a string such as
    "my_module:MyEnv" is the content of the object that it names.
    """
    is_name = isinstance(part, str) and ":" in part and not adapters.is_adapter(part)
    return _content(_own.find(part, argument) if is_name else part)


def _content(root: Any) -> Hashable:
    """Return the types and values of an object and of everything that it references.

    This is a depth-first search with an explicit stack, because objects may be nested deeply.
    """
    values: list[Hashable] = []
    places: dict[Hashable, tuple[int, Any]] = {}
    stack = [root]
    while stack:
        part = stack.pop()
        key = part if isinstance(part, ModuleReads) else id(part)
        if (value := _value(part)) is not None:
            values += value
        elif key in places:
            values += "seen", places[key][0]
        else:
            places[key] = len(places), part  # keep a reference, so that the id is not reused
            parts = list(_parts(part))
            values += type(part).__qualname__, len(parts)
            stack += reversed(parts)
    return tuple(values)


def _value(part: Any) -> tuple[Hashable, ...] | None:
    """Return the value of a leaf, or None if the object has parts."""
    if isinstance(part, float | complex):
        return type(part), repr(part)  # as strings, NaN equals NaN, and 0 differs from -0
    if isinstance(part, _LEAVES):
        return type(part), part
    if isinstance(part, np.ndarray) and not part.dtype.hasobject:
        return part.dtype.str, part.shape, hashlib.sha256(part.tobytes()).digest()
    return (Same(part),) if isinstance(part, jax.Array) else None


def _parts(part: Any) -> Iterator[Any]:
    """Yield the parts of an object: attributes, items, or the objects that a function reads."""
    if isinstance(part, ModuleReads):
        yield from _of_module(part)
    elif isinstance(part, _CONTAINERS):
        yield from _of_many(part)
    elif isinstance(part, functools.partial):
        yield from (part.func, part.args, part.keywords)
    elif isinstance(part, types.MethodType):
        yield from (part.__self__, part.__func__)
    elif isinstance(part, staticmethod | classmethod):
        yield part.__func__
    elif isinstance(part, property):
        yield from (part.fget, part.fset)
    elif isinstance(part, types.FunctionType):
        yield from _of_function(part)
    elif isinstance(inspect.unwrap(part), types.FunctionType):
        yield part.__wrapped__
    elif isinstance(part, type):
        yield from _of_class(part)
    elif hasattr(part, "__dict__") or hasattr(part, "__slots__"):
        yield from _of_attributes(part)
    else:
        yield re.sub(" at 0x[0-9a-f]+", "", repr(part))


def _of_many(part: Any) -> Iterator[Any]:
    """Yield the items of a container, and the attributes of a user-defined container."""
    if isinstance(part, np.ndarray):
        yield from (part.shape, part.ravel().tolist())
    elif isinstance(part, dict):
        yield from itertools.chain(*part.items())
    elif isinstance(part, set | frozenset):
        yield from sorted(part, key=lambda x: repr(_content(x)))
    else:
        yield from part
    if type(part) not in _CONTAINERS:
        yield from _of_attributes(part)


def _of_attributes(part: Any) -> Iterator[Any]:
    slots = copyreg._slotnames(type(part))  # type: ignore[attr-defined]
    yield from (type(part), {x: getattr(part, x) for x in slots if hasattr(part, x)})
    yield dict(sorted(getattr(part, "__dict__", {}).items()))


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    # Use the name in the globals, because `functools.wraps` changes `__module__`.
    if not _is_own(function.__globals__.get("__name__")):
        yield f"{function.__module__}.{function.__qualname__}"
        yield getattr(function, "__wrapped__", None)
        return
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__, vars(function))
    with contextlib.suppress(ValueError):  # reading an empty cell raises ValueError
        yield from (cell.cell_contents for cell in function.__closure__ or ())
    names, modules, attributes = _names(function.__code__)
    values = [function.__globals__.get(name) for name in names]
    yield from (_read(value, attributes) for value in values)
    yield from (_read(sys.modules.get(name), attributes) for name in modules)


def _of_module(reads: ModuleReads) -> Iterator[Any]:
    """Yield the attributes of a module that a function may read."""
    attributes = vars(reads.module)
    for name in (name for name in reads.names if name in attributes):
        yield from (name, _read(attributes[name], reads.names))


def _read(value: Any, names: tuple[str, ...]) -> Any:
    """Limit the search of a value that a function reads; return the object to search instead.

    A user's module becomes a `ModuleReads`, in which only the attributes in `names` are searched.
    An instance of an installed class becomes its id, so that it is compared by identity. Any other
    value is returned unchanged, and searched completely.
    """
    if isinstance(value, types.ModuleType):
        return ModuleReads(value, names) if _is_own(value.__name__) else value
    function = isinstance(inspect.unwrap(value), types.FunctionType)
    kinds = (*_LEAVES, *_CONTAINERS, types.SimpleNamespace, jax.Array, type)
    search = function or isinstance(value, kinds) or _is_own(type(value).__module__)
    return value if search else id(value)


def _of_class(kind: type) -> Iterator[Any]:
    if not _is_own(kind.__module__):
        yield f"{kind.__module__}.{kind.__qualname__}"
        return
    yield from kind.__bases__
    for name, value in vars(kind).items():
        # Skip special attributes that are not functions, because Python adds some of them when
        # they are read.
        special = name.startswith("__") and not isinstance(value, types.FunctionType)
        yield from () if special or name == "_abc_impl" else (name, value)


@functools.lru_cache(1024)
def _names(code: types.CodeType) -> tuple[tuple[str, ...], ...]:
    """Return the names of the globals, modules and attributes that a function reads.

    Nested functions are included.
    """
    steps = list(dis.get_instructions(code))
    names = {x.argval for x in steps if x.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    modules = {x.argval for x in steps if x.opname == "IMPORT_NAME"}
    read = [(names, modules, code.co_names)]
    read += [_names(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return tuple(tuple(sorted(set().union(*each))) for each in zip(*read, strict=True))


def _is_own(module: str | None) -> bool:
    """Return True for a user's module, which may change while this process runs."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if module in sys.builtin_module_names or "site-packages" in (file or ""):
        return False
    return file is None or not file.startswith(_own.NOT_OWN)
