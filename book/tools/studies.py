"""Sphinx directive for book/results.md that displays a results file.

    ```{study} forgetting
    :figure: notebooks/14_clear
    ```

shows the figure that a chapter draws from the rows of this file, links to the pages that use the
rows, and a table of the rows.
"""

import base64
import os
from pathlib import Path
from typing import NamedTuple

import execute
import pages
from docutils import nodes
from docutils.parsers.rst import directives
from reading import load
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)


class Picture(NamedTuple):
    """A figure in a chapter, and its alternative text."""

    png: bytes
    alt: str


class Study(SphinxDirective):
    """Directive that shows the rows of a results file, a figure, and links to related pages.

    The option `figure` names the chapter that draws the rows, or is `none`; the default is the
    first chapter that reads them. The option `page` names a page that describes the rows, although
    it has no code that reads them.
    """

    required_arguments = 1
    option_spec = {"figure": directives.unchanged, "page": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Return the figure, the links and the table of rows."""
        self.env.note_reread()
        name = self.arguments[0]
        rows, places = pages.read(f"{name}.jsonl"), readers(name)
        figure = self.options.get("figure", places[0] if places else "none")
        if page := self.options.get("page"):
            places = [page, *places]
        text = pages.table(f"{name}.jsonl", rows)
        head = f"<summary>{len(rows)} rows, and where they come from</summary>"
        details = nodes.raw("", f'<details class="rows">{head}{text}</details>', format="html")
        return [*self._figure(name, figure), self._links(name, places), details]

    def _figure(self, name: str, chapter: str) -> list[nodes.Node]:
        """Write the figure to a file, and return an image node that refers to this file."""
        figure = None if chapter == "none" else picture(name, chapter)
        if figure is None:
            if chapter != "none":
                logger.warning("%s shows no picture of the rows of %s", chapter, name)
            return []
        path = Path(self.env.app.doctreedir) / "studies" / f"study_{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(figure.png)
        return [nodes.paragraph("", "", nodes.image(uri=self._source(path), alt=figure.alt))]

    def _links(self, name: str, places: list[str]) -> nodes.paragraph:
        """Return links to the pages that use the rows, and to the results file."""
        path, links = pages.RESULTS / f"{name}.jsonl", nodes.paragraph()
        for place in places:
            links += nodes.Text(" and in " if len(links) else "Used in ")
            links += self._link(place)
        links += nodes.Text(". " * bool(places))
        size = f"{path.stat().st_size / 1000:,.0f}".replace(",", " ")
        file = addnodes.download_reference("", "", reftarget=self._source(path))
        file += [nodes.Text("Download "), nodes.literal(text=path.name), nodes.Text(f", {size} kB")]
        links += [file, nodes.Text(".")]
        return links

    def _link(self, page: str) -> addnodes.pending_xref:
        """Return a link to a page; Sphinx sets its text to the title of the page."""
        about = {"refdomain": "std", "reftype": "doc", "reftarget": f"/{page}", "refwarn": True}
        link = addnodes.pending_xref(refdoc=self.env.docname, refexplicit=False, **about)
        link += nodes.inline(text=page)
        return link

    def _source(self, path: Path) -> str:
        """Convert a path to Sphinx's format, in which / is the folder of the sources."""
        return f"/{os.path.relpath(path, self.env.srcdir)}"


def readers(name: str) -> list[str]:
    """Return the chapters whose code reads a results file."""
    chapters = []
    for path in execute.chapters():
        cells = load(path)["cells"]
        if any(_reads(name, "".join(c["source"])) for c in cells if c["cell_type"] == "code"):
            chapters.append(f"{execute.NOTEBOOKS.name}/{path.stem}")
    return chapters


def picture(name: str, chapter: str) -> Picture | None:
    """Return the first figure in a chapter after a cell has read the results, or None."""
    text = (execute.NOTEBOOKS.parent / f"{chapter}.ipynb").read_text("utf-8")
    reading = False
    for cell in execute.read(text).cells:
        reading = reading or (cell.cell_type == "code" and _reads(name, cell.source))
        for output in cell.outputs if reading and cell.cell_type == "code" else ():
            if png := output.get("data", {}).get("image/png"):
                return Picture(base64.b64decode(png), cell.metadata["mystnb"]["image"]["alt"])
    return None


def _reads(name: str, code: str) -> bool:
    return f'published_rows("{name}")' in code


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("study", Study)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
