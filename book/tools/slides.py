"""Convert every notebook to slides in build/slides; `make slides` runs this script.

As in nbconvert and JupyterLab, the metadata `slideshow.slide_type` of a cell determines where it is
shown: "slide" begins a slide, "-" continues it, "fragment" appears after a key press, and "notes"
is only for the speaker. A cell without a type is not shown.

The function `brief` shortens the texts on slides, so that they can be read from the last row of a
room. The speaker's notes contain the complete texts, and the texts of cells that are not on any
slide. `python tests/browser/frames.py` checks that each slide fits its frame.
"""

import re
import shutil
import sys
from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import execute
import readability
import vendor

if TYPE_CHECKING:
    from nbformat import NotebookNode

PARTS = Path(__file__).parents[1] / "static" / "slides"
SLIDES = execute.ROOT / "build" / "slides"
# Paragraphs that are shown on the page but not on slides.
ASIDE = re.compile(r"\*\*(Before|Time|Source|Used next):\*\*")
# Blocks of a text. An equation, a code block or an answer is one block, even with blank lines.
BLOCK = re.compile(
    r"(?:```.*?```|\$\$.*?\$\$|<details>.*?</details>|.+?)(?=\n\s*\n|\Z)", flags=re.DOTALL
)
STARTS = ("slide", "subslide")  # types of cells that begin a slide
OFF_SLIDES = ("", "skip", "notes")  # types of cells that are not shown on slides
# These patterns decide how a text is shortened. `IN_FULL` matches blocks that are never shortened.
# `ENTIRE` matches paragraphs that need all of their sentences. `HOLLOW` matches paragraphs whose
# first sentence makes no sense by itself. `BACK` matches paragraphs that refer to the one before.
IN_FULL = re.compile(r"#|!\[|>|\||\$\$|```|<details|\*\*One-minute")
ENTIRE = re.compile(r"\*\*By hand\*\*|(?:There are )?(?:[Tt]wo|[Tt]hree|[Ff]our)\b")
HOLLOW = re.compile(r"\*\*By hand\*\*|There are ")
BACK = re.compile(r"(?:It|They|This|These|That|Those|Such|Both|Neither)\b")
WHOLE = 80  # maximum number of words in a paragraph that is shown whole
ITEM = re.compile(r"\n(?=(?:[-*]|\d+\.)\s)")
WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURES = {"image/png", WIDGET}
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
    """Write the slides of all notebooks and an index page, and return their folder."""
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
    for path in execute.notebooks():
        notebook = execute.read(path.read_text("utf-8"), path.name)
        title = notebook.cells[0].source.partition("\n")[0].removeprefix("# ")
        (SLIDES / f"{path.stem}.html").write_text(page(notebook, title), "utf-8")
        rows.append(f'<li><a href="{path.stem}.html">{title}</a></li>')
    (SLIDES / "index.html").write_text(PAGE.format(rows="".join(rows)), "utf-8")
    return SLIDES


def page(notebook: "NotebookNode", name: str) -> str:
    """Convert a notebook with its outputs to slides in HTML."""
    from nbconvert.exporters import SlidesExporter

    exporter = SlidesExporter(
        template_file="slides.html.j2",
        extra_template_paths=[str(PARTS)],
        reveal_url_prefix="static",
        reveal_theme="slides",
        exclude_anchor_links=True,  # the speaker view would show them
        # Join the parts of an output, because a kernel sends the output of a loop in several parts.
        preprocessors=["nbconvert.preprocessors.CoalesceStreamsPreprocessor"],
    )
    about = {"metadata": {"name": name}}
    return exporter.from_notebook_node(reduce_to_slides(notebook), about)[0]


def reduce_to_slides(notebook: "NotebookNode") -> "NotebookNode":
    """Reduce a notebook to the cells on slides, and append the speaker's notes to each slide."""
    from nbformat.v4 import new_markdown_cell

    slides: dict[int, list[NotebookNode]] = defaultdict(list)
    notes: dict[int, list[str]] = defaultdict(list)
    for cell, slide in zip(notebook.cells, homes(notebook.cells), strict=True):
        visible = slide_type(cell) not in OFF_SLIDES
        if cell.cell_type == "markdown":
            cell.source = text = re.sub(r"\((\w+)\.ipynb", r"(\1.html", cell.source)
            if visible:
                cell.source = brief(text)
            if not visible or cell.source != text:
                notes[slide].append(text)
        elif visible:
            show(cell)
        if visible:
            slides[slide].append(cell)
    kind = {"slideshow": {"slide_type": "notes"}}
    for slide in slides.keys() & notes.keys():
        slides[slide].append(new_markdown_cell("\n\n".join(notes[slide]), metadata=kind))
    notebook.cells = [cell for slide in sorted(slides) for cell in slides[slide]]
    return notebook


def homes(cells: list["NotebookNode"]) -> list[int]:
    """Return the index of the slide to which each cell is assigned.

    A cell that is not shown is assigned to the slide before it. If it precedes the first slide of
    its section, it is assigned to that slide.
    """
    headings = (cell.cell_type == "markdown" and cell.source.startswith("#") for cell in cells)
    sections = list(accumulate(headings, initial=0))[1:]
    numbers = list(accumulate((slide_type(cell) in STARTS for cell in cells), initial=-1))[1:]
    first: dict[int, int] = {}
    for cell, section, slide in zip(cells, sections, numbers, strict=True):
        if slide_type(cell) not in OFF_SLIDES:
            first.setdefault(section, slide)
    pairs = zip(sections, numbers, strict=True)
    return [max(0, slide, first.get(section, 0)) for section, slide in pairs]


def slide_type(cell: "NotebookNode") -> str:
    """Return the `slide_type` of a cell, or "" if it has none."""
    return cell.metadata.get("slideshow", {}).get("slide_type", "")


def show(cell: "NotebookNode") -> None:
    """Reduce a cell with an image or a widget to this output and its provenance."""
    kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
    if not kinds & PICTURES:
        return
    cell.metadata["transient"] = {"remove_source": True}
    for output in cell.outputs:
        if output.output_type == "stream":
            output.text = "".join(ORIGIN.findall(output.text))
    outputs = (output for output in cell.outputs if output.get("text") != "")
    cell.outputs = sorted(outputs, key=lambda output: output.output_type == "stream")


def brief(text: str) -> str:
    """Shorten each paragraph and list item of a text to its first sentence.

    Headings, equations, code, images, tables, quotations and questions to the class are not
    shortened. A calculation, a count ("Two laws ...") and a paragraph to which the next one refers
    ("It ...") are shown whole if they have at most `WHOLE` words. A longer calculation is omitted,
    and so is a paragraph that refers to a shortened one.
    """
    blocks = [block.strip() for block in BLOCK.findall(text)]
    blocks = [block for block in blocks if not ASIDE.match(block)]
    parts, complete = [], True
    for block, after in zip(blocks, [*blocks[1:], ""], strict=True):
        short = "\n".join(map(readability.first, ITEM.split(block)))
        if BACK.match(block) and not complete:
            short = ""
        elif IN_FULL.match(block):
            short = block
        elif ENTIRE.match(block) or BACK.match(after):
            fits = len(block.split()) <= WHOLE
            short = block if fits else "" if HOLLOW.match(block) else short
        complete = short == block
        parts += [short] if short else []
    return "\n\n".join(parts)


if __name__ == "__main__":
    try:
        print(f"The slides are finished. Open {build() / 'index.html'} in a browser.")
    except (vendor.Unreachable, execute.ExecutionError) as error:
        sys.exit(f"The slides could not be written.\n{error}")
