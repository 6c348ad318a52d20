"""Sphinx extension that links the titles of pages.

The notebooks link only to other notebooks, because JupyterLab's folder does not contain the other
pages. They name a page by its title, as in: the page *Baselines*. On the site, this extension turns
such a title into a link.
"""

from docutils import nodes
from sphinx.application import Sphinx

BEFORE = ("page ", "pages ")


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link each emphasized title of another page that follows the word "page"."""
    places = {title.astext(): name for name, title in app.env.titles.items() if name != docname}
    for title in list(doctree.findall(nodes.emphasis)):
        index = title.parent.index(title)
        before = title.parent[index - 1].astext() if index else ""
        if title.astext() in places and before.endswith(BEFORE):
            reference = nodes.reference("", "", title.deepcopy(), internal=True)
            reference["refuri"] = app.builder.get_relative_uri(docname, places[title.astext()])
            title.parent[index] = reference


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the event handler."""
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
