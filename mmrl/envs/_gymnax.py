"""gymnax, imported without seaborn: with it come pandas and scipy.stats.

gymnax's Pong alone needs it, to draw. It would take a third of the time in which mmrl is imported,
so what is drawn imports it then.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """Stands for a module until something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


_later = sys.modules.setdefault("seaborn", _Later("seaborn"))
import gymnax  # noqa: E402
from gymnax.environments import environment, spaces  # noqa: E402
from gymnax.environments.classic_control import cartpole  # noqa: E402

if isinstance(_later, _Later):
    del sys.modules["seaborn"]

__all__ = ["cartpole", "environment", "gymnax", "spaces"]
