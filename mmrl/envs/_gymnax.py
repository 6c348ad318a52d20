"""gymnax, imported without seaborn, which would bring pandas and scipy.stats.

Only drawings of Pong and MinAtar ask seaborn for something, a palette. To import it takes a third
of the time in which mmrl is imported, so it waits until a palette is asked for.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def _color_palette(*args: Any, **kwargs: Any) -> Any:
    return import_module("seaborn").color_palette(*args, **kwargs)


_stand_in = ModuleType("seaborn")
vars(_stand_in)["color_palette"] = _color_palette
_absent = sys.modules.setdefault("seaborn", _stand_in) is _stand_in
try:
    import gymnax
    from gymnax.environments import environment, spaces
    from gymnax.environments.classic_control import cartpole
finally:
    if _absent:
        del sys.modules["seaborn"]

__all__ = ["cartpole", "environment", "gymnax", "spaces"]
