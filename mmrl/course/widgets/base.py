"""Base class of all widgets, a trait for arrays, and the loading of browser modules."""

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import numpy as np
import traitlets

FOLDER = Path(__file__).parent / "js"
IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[\w./]+\.mjs)";\n', flags=re.MULTILINE)
END = 9999  # position that stands for the last one
MOST = 1024  # maximum length of an array that is sent to the browser, which keeps pages small


@cache
def source(name: str) -> str:
    """Return js/<name>.mjs and all its imports, bundled into one ES module.

    A notebook loads each widget from a separate URL, so relative imports do not work. Each file is
    included once, before the files that import it, and all files share one scope.
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
    """Base class of widgets, with an optional question.

    If `question` is not empty, the widget is hidden until the reader enters an answer. The text is
    stored in `answer` and remains visible.
    """

    question = traitlets.Unicode("").tag(sync=True)
    answer = traitlets.Unicode("").tag(sync=True)


class Excerpt(NamedTuple):
    """The first values of an array, and the length of the array."""

    values: tuple[float, ...]
    length: int


class Series(traitlets.TraitType):
    """Trait for a one-dimensional array of real numbers.

    Only the first `MOST` entries are stored. NaN and infinite values are sent as null, because
    Python would write them as invalid JSON, which breaks every widget on the page. Raises
    `ValueError` for a value that is not a one-dimensional array of real numbers.
    """

    info_text = "one axis of numbers"

    def __init__(self, default: Any = (), **kwargs: Any):
        traitlets.TraitType.__init__(self, self.validate(None, default), **kwargs)
        self.tag(sync=True, to_json=_to_json, from_json=_from_json)

    def validate(self, obj: Any, value: Any) -> Excerpt:
        """Convert an array to `Excerpt`. Raises `ValueError` if it is not real or not 1-D."""
        if isinstance(value, Excerpt):
            return value
        try:
            array = np.asarray(value)
        except ValueError:  # rows of unequal length
            array = np.array(value, object)
        if array.ndim != 1 or array.dtype.kind not in "biuf":
            raise ValueError(
                f"`{self.name}` must be a 1-D array of real numbers, such as [1.0, 0.0]; got "
                f"{type(value).__name__} of {array.dtype}{list(array.shape)}."
            )
        first = array[:MOST].astype(float)
        return Excerpt(tuple(first.tolist()), len(array))


def _to_json(series: Excerpt, widget: Any) -> dict:
    values = [x if np.isfinite(x) else None for x in series.values]
    return {"values": values, "length": series.length}


def _from_json(json: dict, widget: Any) -> Excerpt:
    return Excerpt(tuple(np.nan if x is None else x for x in json["values"]), json["length"])
