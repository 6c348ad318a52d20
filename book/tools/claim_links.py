"""Sphinx extension that links chapters to the verdicts on the claims of their papers.

The notebooks themselves link only to other notebooks, because JupyterLab's folder does not contain
the other pages. This extension adds the links at the end of the section "What did not reproduce".
"""

import posixpath
from collections.abc import Iterator

import verdicts
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

SECTION, PAGE = "What did not reproduce", "claims"
logger = logging.getLogger(__name__)


def names(docname: str) -> list[str]:
    """Return the names of the papers that a chapter covers."""
    chapter = posixpath.basename(docname)
    return [about["name"] for about in verdicts.papers().values() if chapter in about["chapters"]]


def paragraph(name: str, place: str) -> nodes.paragraph:
    """Return a sentence with a link to the claims of a paper."""
    link = nodes.reference("", f"{name}: claims and verdicts", internal=True)
    link["refuri"] = f"{place}#{nodes.make_id(name)}"
    return nodes.paragraph("", "Each claim of the paper, with our rows: ", link, nodes.Text("."))


def sections(doctree: nodes.document) -> Iterator[nodes.section]:
    """Yield the sections of a page about results that could not be reproduced."""
    for section in doctree.findall(nodes.section):
        title = section.next_node(nodes.title)
        if title is not None and title.astext().startswith(SECTION):
            yield section


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Add a link for each paper of a chapter, and warn if the chapter lacks the section."""
    papers = names(docname)
    own = list(sections(doctree)) if papers else []
    if papers and not own:
        logger.warning("%s has no section “%s”", docname, SECTION)
    for section in own:
        place = app.builder.get_relative_uri(docname, PAGE)
        section += [paragraph(name, place) for name in papers]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the event handler."""
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
