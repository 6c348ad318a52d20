"""Earlier names of modules, which still lead to the current modules.

A package whose modules have moved lists them, and installs a `Finder` for them:

    moved.install("mmrl.course", {"pair": "mmrl.course.ch18_many_devices.pair"})
"""

import importlib
import sys
from collections.abc import Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Finder(MetaPathFinder, Loader):
    """Importer of the modules of one package by their earlier names.

    `moved` maps an earlier name below `package` to the full name of the module, and `split` to the
    full names of all modules that now hold its contents. If two of them define a name, the first
    one counts.
    """

    def __init__(
        self, package: str, moved: Mapping[str, str], split: Mapping[str, tuple[str, ...]]
    ):
        self.package, self.moved, self.split = package, moved, split

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an earlier name, and None for any other."""
        name = fullname.removeprefix(f"{self.package}.")
        earlier = name != fullname and (name in self.moved or name in self.split)
        return ModuleSpec(fullname, self, is_package=name in self.split) if earlier else None

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty module by the one that has moved, which Python then returns.

        A module that was split is filled with the public names of its successors.
        """
        name = module.__name__.removeprefix(f"{self.package}.")
        if name in self.moved:
            sys.modules[module.__name__] = importlib.import_module(self.moved[name])
            return
        for heir in reversed(self.split[name]):
            names = vars(importlib.import_module(heir)).items()
            vars(module).update({name: x for name, x in names if not name.startswith("_")})


def install(
    package: str, moved: Mapping[str, str], split: Mapping[str, tuple[str, ...]] | None = None
) -> None:
    """Make the earlier names below `package` importable in this process.

    The finder comes first in the search. Otherwise a package that has moved would find its files
    under the earlier name and load them a second time.
    """
    known = [finder.package for finder in sys.meta_path if isinstance(finder, Finder)]
    if package not in known:
        sys.meta_path.insert(0, Finder(package, moved, split or {}))
