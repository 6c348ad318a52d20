"""Explorers that compute in the browser and therefore also work on a page without a kernel.

    from mmrl.course.widgets import ScanPlayer
    ScanPlayer(method="blelloch")

The traits of an explorer are the settings of its controls and the initial arrays. In a notebook,
traits such as `player.method` follow the controls and can be set from Python. Every `Explorer` that
a module in this folder defines is exported by this package and listed in `EXPLORERS`.
"""

import importlib
import pkgutil

try:
    from mmrl.course.widgets import base
    from mmrl.course.widgets.episodes import episode_player
except ModuleNotFoundError as error:
    if error.name not in ("anywidget", "traitlets"):
        raise
    text = "Widgets need anywidget: pip install anywidget."
    raise ModuleNotFoundError(text, name=error.name) from error

END = base.END


def _explorers() -> dict[str, type[base.Explorer]]:
    """Import each module in this folder and return its explorers, keyed by class name."""
    files = [file.name for file in pkgutil.iter_modules(__path__) if not file.ispkg]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in files]
    classes = [value for module in modules for value in vars(module).values()]
    explorers = [c for c in classes if isinstance(c, type) and issubclass(c, base.Explorer)]
    return {cls.__name__: cls for cls in explorers if cls is not base.Explorer}


EXPLORERS = _explorers()
globals().update(EXPLORERS)
__all__ = ["END", "EXPLORERS", "episode_player", *EXPLORERS]  # pyright: ignore
