"""Fast import of gymnax, without matplotlib, seaborn and flax.linen.

gymnax imports flax.linen, and it imports matplotlib and seaborn to render some environments. These
imports take longer than everything else that mmrl does before training. While gymnax is imported,
this module therefore replaces each of them with a stub, which imports the real module on first use.
"""

import sys
from importlib import import_module
from types import ModuleType

from mmrl._dtypes import standard

_LATER = ("matplotlib.pyplot", "matplotlib.colors", "seaborn", "flax.linen")


def _stand_in(name: str) -> ModuleType:
    """Return a stub that imports the module `name` when an attribute is accessed."""
    module = ModuleType(name)
    vars(module)["__getattr__"] = lambda attribute: getattr(import_module(name), attribute)
    return module


_absent = {name: _stand_in(name) for name in _LATER} | {"matplotlib": ModuleType("matplotlib")}
_absent = {name: module for name, module in _absent.items() if name not in sys.modules}
sys.modules.update(_absent)
try:
    with standard():  # gymnax creates arrays when it is imported
        import gymnax
        from gymnax.environments import environment, spaces
        from gymnax.environments.classic_control import cartpole
finally:
    for _name in _absent:
        del sys.modules[_name]

__all__ = ["cartpole", "environment", "gymnax", "spaces"]
