"""Sphinx directive that shows a single-file edition with its comments next to the code.

    ```{edition} ppo_lru
    ```

shows the file book/editions/ppo_lru.py. Each block of unindented comments begins a passage. The
first sentence of the block is the heading of the passage, and the other sentences are its text.
"""

import re
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from hyperparameters import words
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

EDITIONS = Path(__file__).parent.parent / "editions"
NAMES = tuple(sorted(path.stem for path in EDITIONS.glob("*.py")))
BLOCK = re.compile(r"^(?:# .+\n)+", flags=re.MULTILINE)
START = re.compile(r'"""(.+?)"""\n', flags=re.DOTALL)


class Passage(NamedTuple):
    """Heading, text, and the code that the text describes."""

    title: str
    text: str
    code: str


def passages(source: str) -> list[Passage]:
    """Split a file into passages. The docstring is the text of the first passage.

    Raises `ValueError` if the file does not begin with a docstring.
    """
    docstring = START.match(source)
    if docstring is None:
        raise ValueError("`source` must begin with a docstring; got a file without one.")
    blocks = [*BLOCK.finditer(source)]
    ends = [block.start() for block in blocks[1:]] + [len(source)]
    title, _, text = docstring[1].partition("\n\n")
    first = Passage(_one_line(title), _one_line(text), source[docstring.end() : blocks[0].start()])
    return [first] + [
        _passage(block.group(), source[block.end() : end])
        for block, end in zip(blocks, ends, strict=True)
    ]


def _passage(comment: str, code: str) -> Passage:
    title, _, text = _one_line(comment.replace("# ", "")).partition(". ")
    return Passage(title, text, code)


def _one_line(text: str) -> str:
    return " ".join(text.split())


class Edition(SphinxDirective):
    """Directive that shows a section for each passage of an edition."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the sections. The first passage is under the heading of the page."""
        path = EDITIONS / f"{self.arguments[0]}.py"
        self.env.note_dependency(str(path))
        first, *rest = passages(path.read_text("utf-8"))
        return [_row(first), *map(_section, rest)]


def _section(passage: Passage) -> nodes.section:
    name = nodes.make_id(passage.title)
    section = nodes.section(ids=[name], names=[name])
    section += nodes.title(text=passage.title)
    section += _row(passage)
    return section


def _row(passage: Passage) -> nodes.container:
    code = passage.code.strip("\n")
    listing = nodes.literal_block(code, code, language="python")
    return nodes.container("", words(passage.text), listing, classes=["edition"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("edition", Edition)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
