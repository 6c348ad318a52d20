"""Sphinx directive for book/status.md that shows when and where the notebooks were run.

`execute.py` records the time of each cell, and the device and the package versions of the kernel.
"""

import datetime
import html
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import execute
import pages
from docutils import nodes
from reading import load
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from nbformat import NotebookNode

HEADS = ("notebook", "run on (UTC)", "seconds", "device")
NO_RECORD = "not recorded"


class Run(NamedTuple):
    """The run of a notebook. Fields that were not recorded are `NO_RECORD`."""

    name: str
    title: str
    date: str
    seconds: str
    device: str
    versions: str


class Status(SphinxDirective):
    """Directive that shows a table of the notebooks and the versions of their packages."""

    def run(self) -> list[nodes.Node]:
        """Return the table and the versions."""
        self.env.note_reread()
        return [nodes.raw("", table(runs()), format="html")]


def runs() -> list[Run]:
    """Return the current run of each notebook, sorted by name."""
    rows = []
    for path in execute.notebooks():
        title = "".join(load(path)["cells"][0]["source"]).partition("\n")[0].lstrip("# ")
        rows.append(summary(path.stem, title, execute.run_of(execute.node(path))))
    return rows


def summary(name: str, title: str, run: "NotebookNode | None") -> Run:
    """Summarize a run by its date, its duration in seconds, its device and its versions."""
    cells = run.cells if run else []
    stamps = [t for c in cells for t in c.metadata.get("execution", {}).values()]
    times = sorted(map(datetime.datetime.fromisoformat, stamps))
    date = f"{times[0]:%Y-%m-%d %H:%M}" if times else NO_RECORD
    seconds = f"{(times[-1] - times[0]).total_seconds():.0f}" if times else NO_RECORD
    origin = run.metadata.get("provenance", {}) if run else {}
    versions = {"Python": origin["python"], **origin["versions"]} if origin else {}
    words = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Run(name, title, date, seconds, origin.get("device", NO_RECORD), words or NO_RECORD)


def table(entries: list[Run]) -> str:
    """Return a table of the runs, followed by the versions that each notebook ran with."""
    rows, names = [], defaultdict(list)
    for run in entries:
        link = f'<a href="notebooks/{run.name}.html">{html.escape(run.title)}</a>'
        rows.append([link, *map(html.escape, run[2:5])])
        names[run.versions].append(run.name)
    text = pages.scrolling("The runs of the notebooks", HEADS, rows, name=0)
    for versions, group in names.items():
        which = "All notebooks" if len(names) == 1 else ", ".join(group)
        text += f"<p>{html.escape(which)}: {html.escape(versions)}.</p>"
    return text


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("status", Status)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
