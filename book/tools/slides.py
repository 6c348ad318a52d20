"""Slides of every chapter, from its notebook: `make slides` writes them into build/slides.

A cell is on a slide if its metadata say so in the way of nbconvert and JupyterLab: its
`slideshow.slide_type` is "slide" where one begins, "-" where it goes on, "fragment" where it waits
for a key, and "notes" for the speaker alone. A cell that says nothing is not shown. A slide shows
of a text what can be read from the last row (`brief`), and the speaker's notes have all of it.
`python tests/browser/frames.py` sees whether each slide fits its frame.
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
# What stands beside the slides of a chapter: for the reader of a page, not for a room.
ASIDE = re.compile(r"\*\*(Before|Time|Source|Used next):\*\*")
# Of a text: equations, code and answers are one block each, whatever lines they have.
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
<p>Space goes on, S opens the speaker's notes, D turns dark, O shows all, ? lists the keys.</p>
<ul>{rows}</ul></main></body></html>
"""


def build() -> Path:
    """The folder with the slides of all chapters and a page that lists them."""
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
    """The slides of a notebook with its outputs, in HTML."""
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
    """A notebook with the cells of its slides alone, and what was left out of them as notes."""
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
    return cell.metadata.get("slideshow", {}).get("slide_type", "")


def show(cell: "NotebookNode") -> None:
    """Leaves of a cell with a picture or a widget only that, and where its numbers come from."""
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
    """A text as a slide shows it: of each paragraph and each item of a list its first sentence.

    Headings, equations, pictures, tables, quotations and questions to the room stay whole.
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
        sys.exit(f"The slides could not be made.\n{error}")
