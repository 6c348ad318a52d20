"""Read and repair notebooks that were saved by different programs."""

import json
import re
from pathlib import Path
from typing import Any

WIDGETS = "application/vnd.jupyter.widget-state+json"
# Required fields of each type of output, with values for fields that are null or missing.
OUTPUTS: dict[str, dict[str, Any]] = {
    "stream": {"name": "stdout", "text": ""},
    "error": {"ename": "", "evalue": "", "traceback": []},
    "display_data": {"data": {}, "metadata": {}},
    "execute_result": {"data": {}, "metadata": {}, "execution_count": None},
}
# Types of the metadata fields that tools read, and required keys of these fields.
KINDS = {"tags": list, "slideshow": dict, "kernelspec": dict, "language_info": dict}
KEYS = {"kernelspec": ("name", "display_name"), "language_info": ("name",)}


class NotRead(ValueError):
    """Exception for a file that is not a notebook, with the file and the reason as its message."""


def load(path: Path) -> dict[str, Any]:
    """Read a notebook from a file with `loads`. Raises `NotRead` if it is not a notebook."""
    return loads(path.read_bytes(), path.name)


def loads(data: bytes | str, name: str = "the notebook") -> dict[str, Any]:
    """Parse a notebook, and convert it to format 4.5 or later with all required fields.

    The function removes a byte order mark, CRLF line endings and invalid widget states, and it adds
    missing or null ids, metadata and outputs. Raises `NotRead`, whose message begins with `name`,
    if the data are not a notebook.
    """
    notebook = _parse(data, name)
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        old = isinstance(notebook, dict) and "worksheets" in notebook
        why = "in format 3: open and save it in JupyterLab" if old else "JSON without `cells`"
        raise NotRead(f"{name} must be a notebook in format 4; it is {why}.")
    for number, cell in enumerate(notebook["cells"], 1):
        if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
            raise NotRead(
                f"{name} must contain only code, Markdown and raw cells; cell {number} is not."
            )
        try:
            _complete(cell, number)
        except TypeError as error:
            raise NotRead(
                f"{name} must contain cells whose source is text; cell {number} does not: {error}."
            ) from None
    minor = notebook.get("nbformat_minor")
    notebook |= {"nbformat": 4, "nbformat_minor": max(minor if isinstance(minor, int) else 0, 5)}
    notebook["metadata"] = _metadata(notebook.get("metadata"))
    forget_widgets(notebook["metadata"])
    return notebook


def forget_widgets(metadata: dict[str, Any]) -> None:
    """Remove a widget state without the key `state`, with which nbconvert would fail."""
    if not isinstance(_mapping(_mapping(metadata.get("widgets")).get(WIDGETS)).get("state"), dict):
        metadata.pop("widgets", None)


def _mapping(value: Any) -> dict[str, Any]:
    """Return `value` without null fields, or an empty dictionary if it is not a dictionary."""
    return {k: x for k, x in value.items() if x is not None} if isinstance(value, dict) else {}


def _metadata(value: Any) -> dict[str, Any]:
    """Remove invalid fields from the metadata of a notebook or a cell."""
    fields = {k: x for k, x in _mapping(value).items() if isinstance(x, KINDS.get(k, object))}
    return {k: x for k, x in fields.items() if {*KEYS.get(k, ())} <= {*_mapping(x)}}


def _parse(data: bytes | str, name: str) -> Any:
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        text = text.removeprefix("\ufeff")
        if not text.strip():
            raise NotRead(f"{name} must be a notebook; it is empty.")
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise NotRead(
            f"{name} must be a notebook in UTF-8; byte {error.start} is not valid."
        ) from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise NotRead(f"{name} must be a notebook; it is not JSON: {error}.") from None


def _complete(cell: dict[str, Any], number: int) -> None:
    """Add the missing fields of a cell, and convert line endings to \\n."""
    own = ("execution_count",) if cell["cell_type"] == "code" else ()  # this field may be null
    for name in [name for name, x in cell.items() if x is None and name not in own]:
        del cell[name]
    source = cell.get("source") or ""
    lines = "".join(source).replace("\r\n", "\n").splitlines(keepends=True)
    cell["source"] = "".join(lines) if isinstance(source, str) else lines
    cell["metadata"] = _metadata(cell.get("metadata"))
    if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", str(cell.get("id", ""))):
        cell["id"] = f"cell-{number}"
    if cell["cell_type"] == "code":
        outputs = [out for out in cell.get("outputs") or [] if isinstance(out, dict)]
        pairs = [(OUTPUTS.get(out.get("output_type", "")), out) for out in outputs]
        outputs = [fields | _mapping(out) for fields, out in pairs if fields is not None]
        cell["outputs"] = [out for out in outputs if out.get("data") != {}]
        count = cell.get("execution_count")
        cell["execution_count"] = count if isinstance(count, int) else None
