"""Notebooks that other programs saved are read; what is not a notebook is named in one sentence."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / "book" / "tools")]
import execute  # noqa: E402
import readability  # noqa: E402
import slides  # noqa: E402
import student  # noqa: E402
from reading import WIDGETS, NotRead, load  # noqa: E402

IMAGE = {
    "output_type": "display_data",
    "metadata": {},
    "data": {"application/x-odd": {"a": 1}, "text/plain": "x"} | {slides.WIDGET: {"model_id": "m"}},
}
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Title\n\nTwo words."},
        {
            "cell_type": "code",
            "id": "b",
            "metadata": {"slideshow": {"slide_type": "slide"}},
            "source": "print(1)",
            "outputs": [IMAGE],
            "execution_count": 1,
        },
        {
            "cell_type": "code",
            "id": "c",
            "metadata": {"tags": ["exercise"]},
            "source": "x = ...\ncheck.guess(x)",
            "outputs": [],
            "execution_count": None,
        },
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def changed_notebook(change: Callable[[Any], Any]) -> bytes:
    notebook = json.loads(json.dumps(NOTEBOOK))
    change(notebook)
    return json.dumps(notebook).encode()


def bare(notebook: Any) -> None:
    notebook["cells"][0].pop("metadata")
    for cell in notebook["cells"]:
        for name in ("id", "outputs", "execution_count"):
            cell.pop(name, None)
    for name in ("metadata", "nbformat_minor"):
        notebook.pop(name)


def nulls(notebook: Any) -> None:
    notebook["metadata"] = dict.fromkeys(("kernelspec", "language_info", "title"))
    for cell in notebook["cells"]:
        cell |= dict.fromkeys(("id", "attachments", "execution_count"))
    notebook["cells"][0]["metadata"] = {"tags": None, "slideshow": None, "collapsed": None}
    for name in ("data", "metadata"):
        notebook["cells"][1]["outputs"].append(IMAGE | {name: None})
    notebook["cells"][1]["outputs"].append({"output_type": "stream", "text": None})


BARE = [{"output_type": x} for x in ("stream", "error", "execute_result", "display_data", "odd")]
READ = {
    "as it is": changed_notebook(lambda notebook: None),
    "a widget state without `state`": changed_notebook(
        lambda n: n["metadata"].update(widgets={WIDGETS: {}})
    ),
    "no widget state": changed_notebook(lambda n: n["metadata"].update(widgets={})),
    "widgets that are null": changed_notebook(lambda n: n["metadata"].update(widgets=None)),
    "a widget state that is a list": changed_notebook(
        lambda n: n["metadata"].update(widgets={WIDGETS: [1]})
    ),
    "widgets that are a list": changed_notebook(lambda n: n["metadata"].update(widgets=[1])),
    "metadata that are a list": changed_notebook(lambda n: n.update(metadata=[1])),
    "a format that is a text": changed_notebook(lambda n: n.update(nbformat_minor="5")),
    "no ids, no metadata, no outputs": changed_notebook(bare),
    "format 4.4": changed_notebook(lambda n: n.update(nbformat_minor=4)),
    "fields that are null": changed_notebook(nulls),
    "outputs that lack fields": changed_notebook(lambda n: n["cells"][1].update(outputs=BARE)),
    "tags that are a text": changed_notebook(
        lambda n: n["cells"][0]["metadata"].update(tags="exercise")
    ),
    "an id of other letters": changed_notebook(lambda n: n["cells"][0].update(id="a b")),
    "a number that is a text": changed_notebook(
        lambda n: n["cells"][1].update(execution_count="1")
    ),
    "a widget state that is null": changed_notebook(
        lambda n: n["metadata"].update(widgets={WIDGETS: {"state": None}})
    ),
    "a kernel without a name": changed_notebook(lambda n: n["metadata"].update(kernelspec={})),
    "an output without a type": changed_notebook(
        lambda n: n["cells"][1]["outputs"].append({"data": {}})
    ),
    "a byte order mark": b"\xef\xbb\xbf" + changed_notebook(lambda notebook: None),
    "CRLF": json.dumps(NOTEBOOK, indent=1).replace("\n", "\r\n").encode(),
    "CRLF in sources": changed_notebook(
        lambda n: n["cells"][2].update(source="x = ...\r\ncheck.guess(x)")
    ),
    "lists of lines": changed_notebook(
        lambda n: n["cells"][2].update(source=["x = ...\n", "check.guess(x)"])
    ),
}


@pytest.mark.parametrize("data", READ.values(), ids=READ)
def test_notebooks_of_other_programs_are_read(data: bytes, tmp_path: Path):
    path = tmp_path / "00_one.ipynb"
    path.write_bytes(data)
    assert "widgets" not in load(path)["metadata"]
    assignment = student.for_students(load(path), path.stem)
    assert [cell["cell_type"] for cell in assignment["cells"]] == [
        "markdown",
        "code",
        "code",
        "code",
    ]
    assert assignment["cells"][3]["id"].endswith("-check")
    assert readability.minutes(load(path))[1] == readability.EXERCISE
    if "application/x-odd" not in str(load(path)):
        nbformat.validate(execute.node(path))
    node = execute.read(path.read_text("utf-8"), path.name)
    assert [cell.source for cell in node.cells] == [c["source"] for c in NOTEBOOK["cells"]]  # type: ignore[index]
    assert "<section" in slides.page(node, "one")


def test_a_widget_state_is_kept(tmp_path: Path):
    state = {WIDGETS: {"state": {"m": {}}, "version_major": 2}}
    path = tmp_path / "one.ipynb"
    path.write_bytes(changed_notebook(lambda n: n["metadata"].update(widgets=state)))
    assert load(path)["metadata"]["widgets"] == state


MISTAKES = {
    "nothing": b"",
    "spaces": b" \n",
    "no JSON": b"no notebook",
    "half a file": changed_notebook(lambda notebook: None)[:200],
    "a list": b"[]",
    "null": b"null",
    "JSON of another kind": b'{"a": 1}',
    "cells that are a number": b'{"cells": 3}',
    "a cell that is a text": b'{"cells": ["x"]}',
    "a cell without a type": b'{"cells": [{"source": "x"}]}',
    "a source that is a number": b'{"cells": [{"cell_type": "code", "source": 3}]}',
    "outputs that are a number": b'{"cells": [{"cell_type": "code", "outputs": 3}]}',
    "format 3": b'{"worksheets": [], "nbformat": 3}',
    "Latin-1": "{'café'}".encode("latin-1"),
    "UTF-16": changed_notebook(lambda notebook: None).decode().encode("utf-16"),
    "a picture": b"\x89PNG\r\n\x1a\n",
}


@pytest.mark.parametrize("data", MISTAKES.values(), ids=MISTAKES)
def test_what_is_not_a_notebook_is_named_in_one_sentence(data: bytes, tmp_path: Path):
    path = tmp_path / "00_one.ipynb"
    path.write_bytes(data)
    with pytest.raises(NotRead, match=r"^00_one\.ipynb must .*\.$") as error:
        load(path)
    assert "\n" not in str(error.value)
    with pytest.raises(execute.ExecutionError, match=r"^00_one\.ipynb must "):
        execute.execute(path)
