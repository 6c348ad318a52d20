"""Sphinx directive that shows the leaderboard of the capstone."""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from pages import RESULTS, scrolling
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mmrl.course.capstone import entries

FOLDER = "capstone"  # folder in book/results with a JSON file per entry
HEADS = (
    "place",
    "entry",
    "return (95 %)",
    "CPU-s",
    "state",
    "trainable",
    "recall lag",
    "measured",
)


class Leaderboard(SphinxDirective):
    """Directive that shows a figure, a table, and the provenance of each entry."""

    def run(self) -> list[nodes.Node]:
        """Return the figure, the table and the provenance, or a note if entries are missing."""
        self.env.note_reread()
        listing = ranking(Path(RESULTS) / FOLDER)
        if not listing:
            return [nodes.paragraph(text="There are no entries yet.")]
        return [nodes.raw("", picture(listing) + table(listing) + origins(listing), format="html")]


def ranking(folder: Path) -> list[dict[str, Any]]:
    """Return the entries in a folder, best first, without quick runs."""
    every = [entries.read(path) for path in sorted(folder.glob("*.json"))]
    full = [entry for entry in every if entry["protocol"]["name"] == "full"]
    return sorted(full, key=lambda entry: -entry["score"])


def picture(listing: Sequence[dict[str, Any]]) -> str:
    """Return the figure as an embedded image with an alternative text."""
    from matplotlib import rc_context

    from mmrl.course.ch19_design_your_own_monoid.figures import leaderboard
    from mmrl.show import figure

    fig, (ax,) = figure(width=7.0)
    leaderboard(listing, ax=ax)
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "leaderboard"}):  # makes the identifiers in the SVG stable
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    words = "; ".join(
        f"{entry['name']} {score(entry)}, {seconds(entry)} CPU-s" for entry in listing
    )
    picture = base64.b64encode(buffer.getvalue()).decode()
    alt = html.escape(f"Return against CPU-seconds: {words}")
    return f'<p><img src="data:image/svg+xml;base64,{picture}" alt="{alt}" width="700"/></p>'


def table(listing: Sequence[dict[str, Any]]) -> str:
    """Return a table with one row per entry. Controls are not ranked."""
    places, rows = iter(range(1, len(listing) + 1)), []
    for entry in listing:
        place = "control" if entries.control(entry) else f"{next(places)}"
        reach = f"{entry['remembers']} steps" if entry.get("remembers") else ""
        sizes = (f"{entry['state']}", f"{entry['parameters']:,}".replace(",", " "), reach)
        cells = (place, entry["name"], score(entry), seconds(entry), *sizes, entry["date"][:10])
        rows.append([*map(html.escape, cells)])
    return scrolling("Leaderboard of the capstone", HEADS, rows, name=1)


def origins(listing: Sequence[dict[str, Any]]) -> str:
    """Return a list with the provenance and the tuning seeds and tasks of each entry."""
    items = []
    for entry in listing:
        tuning = ", ".join([*entry["tuning"]["tasks"], *map(str, entry["tuning"]["seeds"])])
        words = (
            f"{entry['name']}: seeds {', '.join(map(str, entry['seeds']))}; tuned on "
            f"{tuning or 'nothing'}; {entry['date'][:10]}, {entry['device']}, mmrl "
            f"{entry['versions']['mmrl']}, jax {entry['versions']['jax']}, revision "
            f"{entry['revision']}; {entry['source']['file']}, sha256 "
            f"{entry['source']['sha256'][:12]}…:"
        )
        command = f"<code>{html.escape(entry['command'])}</code>"
        items.append(f"<li>{html.escape(words)}<br>{command}</li>")
    return f"<ul>{''.join(items)}</ul>"


def score(entry: dict[str, Any]) -> str:
    """Format the score of an entry with its interval."""
    low, high = entry["interval_95"]
    return f"{entry['score']:.2f} ({low:.2f} to {high:.2f})"


def seconds(entry: dict[str, Any]) -> str:
    """Format the CPU-seconds of an entry, rounded to an integer."""
    return f"{entry['cpu_seconds']:.0f}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("leaderboard", Leaderboard)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
