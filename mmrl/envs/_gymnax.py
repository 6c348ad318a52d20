"""gymnax, imported without what only its drawings need.

Some of its environments draw themselves, so it imports matplotlib's pyplot, and seaborn, which
brings pandas and scipy.stats; for its states it imports flax, which brings its neural networks. To
import these takes longer than all else that mmrl does before it trains, so each waits until
something of it is asked for.
"""

import sys
from importlib import import_module
from types import ModuleType

from mmrl._dtypes import standard

_LATER = ("matplotlib.pyplot", "matplotlib.colors", "seaborn", "flax.linen")


def _stand_in(name: str) -> ModuleType:
    """A module in whose place another is imported as soon as anything of it is asked for."""
    module = ModuleType(name)
    vars(module)["__getattr__"] = lambda wanted: getattr(import_module(name), wanted)
    return module


_absent = {name: _stand_in(name) for name in _LATER} | {"matplotlib": ModuleType("matplotlib")}
_absent = {name: module for name, module in _absent.items() if name not in sys.modules}
sys.modules.update(_absent)
try:
    with standard():  # gymnax makes arrays
        import gymnax
        from gymnax.environments import environment, spaces
        from gymnax.environments.classic_control import cartpole
finally:
    for _name in _absent:
        del sys.modules[_name]

__all__ = ["cartpole", "environment", "gymnax", "spaces"]
