"""The browser modules of the explorers, which lie in the folder `js` beside this file."""

from pathlib import Path

from mmrl.show.widgets import base

FOLDER = Path(__file__).parent / "js"


def source(name: str) -> str:
    """js/<name>.mjs after all that it imports: one ES module that imports nothing."""
    return base.source(name, FOLDER)
