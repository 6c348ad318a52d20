"""Lazy imports for packages (PEP 562), and mappings with lazily loaded values."""

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def on_demand(
    package: str, *own: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` for a package with lazy imports.

    The package lists its public names as imports under `if TYPE_CHECKING:`, so that editors and
    type checkers can find them. A name is imported when it is first accessed:

        if TYPE_CHECKING:
            from mmrl.memory.lru import LRU as LRU

        __all__, __getattr__, __dir__ = on_demand(__name__)

    `own` lists the public names that the package itself defines.
    """
    module, home = sys.modules[package], homes(package)

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
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
