"""Lazy imports and deprecated names (PEP 562), and mappings with lazily loaded values."""

import ast
import functools
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
REMOVAL = "0.2"  # version without the names that are deprecated now


def on_demand(
    package: str, *own: str, **former: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` for a package with lazy imports.

    The package lists its public names as imports under `if TYPE_CHECKING:`, so that editors and
    type checkers can find them. A name is imported when it is first accessed:

        if TYPE_CHECKING:
            from mmrl.memory.lru import LRU as LRU

        __all__, __getattr__, __dir__ = on_demand(__name__)

    `own` lists the public names that the package itself defines, and `former` maps deprecated names
    to the new ones.
    """
    module, home, find = sys.modules[package], homes(package), _finder(package, former, 3)

    def load(name: str) -> Any:
        if name not in home:
            return find(name)
        value = getattr(importlib.import_module(home[name]), name)
        setattr(module, name, value)
        return value

    return sorted([*own, *home]), load, lambda: sorted({*vars(module), *home})


def homes(package: str) -> dict[str, str]:
    """Map each name imported under `if TYPE_CHECKING:` to the module that defines it."""
    body = ast.parse(inspect.getsource(sys.modules[package])).body
    inner = [node for part in body if isinstance(part, ast.If) for node in part.body]
    imports = [node for node in inner if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def deprecate(module: str, **former: str) -> None:
    """Keep the former names of a module, but warn if they are used.

    For example, `taken="select_values"` maps the name `taken` to its successor. The warning is a
    `DeprecationWarning` that states the new name and `REMOVAL`.
    """
    vars(sys.modules[module])["__getattr__"] = _finder(module, former, 2)


def _finder(module: str, former: Mapping[str, str], level: int) -> Callable[[str], Any]:
    """Return a `__getattr__` for the former names of a module.

    `level` is the number of calls between the warning and the line that uses a name.
    """

    def find(name: str) -> Any:
        if name not in former:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(
            f"`{module}.{name}` is deprecated and will be removed in version {REMOVAL}. Use "
            f"`{module}.{former[name]}`.",
            DeprecationWarning,
            stacklevel=level,
        )
        return getattr(sys.modules[module], former[name])

    return find


class OnDemand(Mapping[str, T]):
    """Mapping that calls `load` for a value on first access and caches the result."""

    def __init__(self, names: Iterable[str], load: Callable[[str], T]):
        self._names, self._load = tuple(names), functools.cache(load)

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._load(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
