"""The base of all widgets: a self-contained browser module, a question, and arrays it receives."""

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import numpy as np
import traitlets

FOLDER = Path(__file__).parent / "js"
IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[\w./]+\.mjs)";\n', flags=re.MULTILINE)
END = 9999  # a position that means the end, at any distance
# More numbers than any picture can show; later ones are not sent, which keeps pages small.
MOST = 1024


@cache
def source(name: str) -> str:
    """Return js/<name>.mjs after all its imports, as one ES module without imports.

    A notebook loads each widget from a separate address, where relative imports do not work. Each
    file occurs once, before the files that import it, so that all share one scope.
    """
    parts: dict[Path, str] = {}

    def add(path: Path) -> None:
        if path not in parts:
            text = path.read_text("utf-8")
            for other in IMPORT.findall(text):
                add((path.parent / other).resolve())
            parts[path] = IMPORT.sub("", text)

    add((FOLDER / f"{name}.mjs").resolve())
    return "\n".join(parts.values())


def style() -> str:
    """Return the style sheet that all widgets share."""
    return (FOLDER / "style.css").read_text("utf-8")


class Explorer(anywidget.AnyWidget):
    """A widget that may ask a `question` first, and is shown after an answer.

    The answer is stored in `answer`, and stays visible.
    """

    question = traitlets.Unicode("").tag(sync=True)
    answer = traitlets.Unicode("").tag(sync=True)


class Shown(NamedTuple):
    """The first numbers of an array, and their total number."""

    values: tuple[float, ...]
    length: int


class Series(traitlets.TraitType):
    """A trait for one array of numbers: anything that NumPy reads as one axis, also NaN or empty.

    Only the first `MOST` entries are kept. Values that are not finite are sent as null, because the
    NaN that Python writes is not JSON and would break every widget on the page. Raises `ValueError`
    for anything else than one axis of real numbers.
    """

    info_text = "one axis of numbers"

    def __init__(self, default: Any = (), **kwargs: Any):
        traitlets.TraitType.__init__(self, self.validate(None, default), **kwargs)
        self.tag(sync=True, to_json=_to_json, from_json=_from_json)

    def validate(self, obj: Any, value: Any) -> Shown:
        """Return the array as `Shown`. Raises `ValueError` for anything but one axis of numbers."""
        if isinstance(value, Shown):
            return value
        try:
            array = np.asarray(value)
        except ValueError:  # rows of unequal length
            array = np.array(value, object)
        if array.ndim != 1 or array.dtype.kind not in "biuf":
            raise ValueError(
                f"`{self.name}` must be one axis of real numbers, like [1.0, 0.0, 2.0]; got "
                f"{type(value).__name__} of {array.dtype}{list(array.shape)}."
            )
        first = array[:MOST].astype(float)
        return Shown(tuple(first.tolist()), len(array))


def _to_json(shown: Shown, widget: Any) -> dict:
    values = [x if np.isfinite(x) else None for x in shown.values]
    return {"values": values, "length": shown.length}


def _from_json(json: dict, widget: Any) -> Shown:
    return Shown(tuple(np.nan if x is None else x for x in json["values"]), json["length"])
