"""Write slides for every chapter from its notebook; `make slides` puts them into build/slides.

The metadata of a cell determine whether it is on a slide, as in nbconvert and JupyterLab: its
`slideshow.slide_type` is "slide" to begin a slide, "-" to continue it, "fragment" to appear at the
next key, and "notes" for the speaker only. A cell without a type is not shown. A slide shows only
as much of a text as the last row can read (`brief`); the speaker's notes contain all of it.
`python tests/browser/frames.py` checks that each slide fits its frame.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import execute
import readability
import vendor

if TYPE_CHECKING:
    from nbformat import NotebookNode

PARTS = Path(__file__).parents[1] / "static" / "slides"
SLIDES = execute.ROOT / "build" / "slides"
# Parts of a chapter that are meant for the reader of a page and are not shown on slides.
ASIDE = re.compile(r"\*\*(Before|Time|Source|Used next):\*\*")
# Blocks of a text: an equation, a piece of code or an answer is one block of any length.
BLOCK = re.compile(
    r"(?:```.*?```|\$\$.*?\$\$|<details>.*?</details>|.+?)(?=\n\s*\n|\Z)", flags=re.DOTALL
)
ITEM = re.compile(r"\n(?=(?:[-*]|\d+\.)\s)")
WIDGET = "application/vnd.jupyter.widget-view+json"
DRAWN = {"image/png", WIDGET}
ORIGIN = re.compile(r"^Seeds? .*\n(?:Measured on .*\n(?: {4}.*\n)*)?", flags=re.MULTILINE)
PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Slides of the course</title>
<link rel="stylesheet" href="static/dist/theme/slides.css"></head>
<body class="reveal"><main style="padding: 2rem"><h1>Slides of the course</h1>
<p>Space: next · S: speaker's notes · D: dark colors · O: overview · ?: list of keys.</p>
<ul>{rows}</ul></main></body></html>
"""


def build() -> Path:
    """Write the slides of all chapters and a page that lists them, and return their folder."""
    vendor.vendor()
    print("Running the notebooks", flush=True)
    execute.execute_all()
    shutil.rmtree(SLIDES, ignore_errors=True)
    static, site = SLIDES / "static", vendor.VENDOR.parent
    shutil.copytree(vendor.VENDOR, static / "vendor")
    shutil.copytree(execute.NOTEBOOKS / "figures", SLIDES / "figures")
    for package, (digest, parts) in vendor.REVEAL.items():
        vendor.unpack(package, digest, parts, static)
    (static / "dist" / "theme").mkdir()
    shutil.copy(PARTS / "slides.css", static / "dist" / "theme")
    for path in (site / "site.js", site / "widgets.js", PARTS / "slides.js"):
        shutil.copy(path, static)
    rows = []
    for path in execute.chapters():
        notebook = execute.read(path.read_text("utf-8"), path.name)
        title = notebook.cells[0].source.partition("\n")[0].removeprefix("# ")
        (SLIDES / f"{path.stem}.html").write_text(page(notebook, title), "utf-8")
        rows.append(f'<li><a href="{path.stem}.html">{title}</a></li>')
    (SLIDES / "index.html").write_text(PAGE.format(rows="".join(rows)), "utf-8")
    return SLIDES


def page(notebook: "NotebookNode", name: str) -> str:
    """Return the slides of a notebook with its outputs, in HTML."""
    from nbconvert.exporters import SlidesExporter

    exporter = SlidesExporter(
        template_file="slides.html.j2",
        extra_template_paths=[str(PARTS)],
        reveal_url_prefix="static",
        reveal_theme="slides",
    )
    about = {"metadata": {"name": name}}
    return exporter.from_notebook_node(chosen(notebook), about)[0]


def chosen(notebook: "NotebookNode") -> "NotebookNode":
    """Return a notebook with only the cells of its slides, and the rest of their text as notes."""
    from nbformat.v4 import new_markdown_cell

    cells = []
    for cell in notebook.cells:
        if (kind := slide_type(cell)) in ("", "skip"):
            continue
        cells.append(cell)
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\((\w+)\.ipynb", r"(\1.html", cell.source)
        if cell.cell_type == "code":
            show(cell)
        elif kind != "notes" and (short := brief(cell.source)) != cell.source:
            notes = new_markdown_cell(cell.source, metadata={"slideshow": {"slide_type": "notes"}})
            cell.source = short
            cells.append(notes)
    notebook.cells = cells
    return notebook


def slide_type(cell: "NotebookNode") -> str:
    """Return the type of slide in the metadata of a cell, or ""."""
    return cell.metadata.get("slideshow", {}).get("slide_type", "")


def show(cell: "NotebookNode") -> None:
    """Reduce a cell with a picture or a widget to that and the provenance of its numbers."""
    kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
    if not kinds & DRAWN:
        return
    cell.metadata["transient"] = {"remove_source": True}
    for output in cell.outputs:
        if output.output_type == "stream":
            output.text = "".join(ORIGIN.findall(output.text))
    kept = (output for output in cell.outputs if output.get("text") != "")
    cell.outputs = sorted(kept, key=lambda output: output.output_type == "stream")


def brief(text: str) -> str:
    """Shorten a text for a slide: keep the first sentence of each paragraph and list item.

    Headings, equations, pictures, tables, quotations and questions to the room are kept whole.
    """
    kept = []
    for block in BLOCK.findall(text):
        if re.match(r"\s*(?:#|!\[|>|\||\$\$|```|<details|\*\*One-minute)", block):
            kept.append(block.strip())
        elif not ASIDE.match(block.strip()):
            kept.append("\n".join(map(readability.first, ITEM.split(block.strip()))))
    return "\n\n".join(kept)


if __name__ == "__main__":
    try:
        print(f"The slides are finished. Open {build() / 'index.html'} in a browser.")
    except (vendor.Unreachable, execute.Failed) as error:
        sys.exit(f"The slides could not be written.\n{error}")
