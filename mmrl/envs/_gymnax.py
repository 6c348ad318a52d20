"""gymnax, imported without the packages that only its drawings need.

gymnax imports matplotlib's pyplot and seaborn, with pandas and scipy.stats, to draw some
environments, and flax, with its neural networks, for its states. These imports take longer than all
of mmrl's work before training, so each waits until it is first used.
"""

import sys
from importlib import import_module
from types import ModuleType

from mmrl._dtypes import standard

_LATER = ("matplotlib.pyplot", "matplotlib.colors", "seaborn", "flax.linen")


def _stand_in(name: str) -> ModuleType:
    """Return a module that imports another one when an attribute is first used."""
    module = ModuleType(name)
    vars(module)["__getattr__"] = lambda wanted: getattr(import_module(name), wanted)
    return module


_absent = {name: _stand_in(name) for name in _LATER} | {"matplotlib": ModuleType("matplotlib")}
_absent = {name: module for name, module in _absent.items() if name not in sys.modules}
sys.modules.update(_absent)
try:
    with standard():  # gymnax creates arrays on import
        import gymnax
        from gymnax.environments import environment, spaces
        from gymnax.environments.classic_control import cartpole
finally:
    for _name in _absent:
        del sys.modules[_name]

__all__ = ["cartpole", "environment", "gymnax", "spaces"]
