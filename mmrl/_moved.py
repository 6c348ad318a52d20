"""Import hooks for modules that have been renamed or split.

A package lists the former names of its modules and installs a `Finder`:

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
    """Import hook that resolves the former names of a package's modules.

    `moved` maps a former name, relative to `package`, to the full name of the module. `split` maps
    a former name to the full names of the modules that replaced it. If several of these modules
    define the same public name, the first one takes precedence.
    """

    def __init__(
        self, package: str, moved: Mapping[str, str], split: Mapping[str, tuple[str, ...]]
    ):
        self.package, self.moved, self.split = package, moved, split

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a former name, and None for any other name."""
        name = fullname.removeprefix(f"{self.package}.")
        is_former = name != fullname and (name in self.moved or name in self.split)
        return ModuleSpec(fullname, self, is_package=name in self.split) if is_former else None

    def exec_module(self, module: ModuleType) -> None:
        """Replace `module`, which Python created for a former name, with the renamed module.

        If the former module was split, copy the public names of all modules that replaced it into
        `module` instead.
        """
        name = module.__name__.removeprefix(f"{self.package}.")
        if name in self.moved:
            sys.modules[module.__name__] = importlib.import_module(self.moved[name])
            return
        for successor in reversed(self.split[name]):
            names = vars(importlib.import_module(successor)).items()
            vars(module).update({name: x for name, x in names if not name.startswith("_")})


def install(
    package: str, moved: Mapping[str, str], split: Mapping[str, tuple[str, ...]] | None = None
) -> None:
    """Make the former names below `package` importable in this process.

    The finder is placed at the front of `sys.meta_path`. Otherwise Python would find the files of a
    moved package under its former name, and load them a second time.
    """
    packages = [finder.package for finder in sys.meta_path if isinstance(finder, Finder)]
    if package not in packages:
        sys.meta_path.insert(0, Finder(package, moved, split or {}))
