"""Slides and paper: what they take of a chapter, and what becomes of it.

How all of them look is seen by `make slides` and `make print`, which take minutes.
"""

import sys
from pathlib import Path

import nbformat
import nbformat.v4 as v4

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools"), str(ROOT / "tests" / "browser")]
import frames  # noqa: E402
import paper  # noqa: E402
import slides  # noqa: E402
from bs4 import BeautifulSoup  # noqa: E402

TEXT = """## Laws

A **monoid** obeys two laws (Morad et al. 2024, Eqs. 3-4). Brackets make no difference to it.

$$ a = b.

C = d. \\tag{2.1} $$

**By hand** (Eq. 2.1). Take 8, 3 and 2. The larger obeys.

- **One.** This is the first of all items. It goes on.
- Two is short.

**Time:** long.
"""
WIDGET = {
    "application/vnd.jupyter.widget-view+json": {"model_id": "m"},
    "text/plain": "ScanPlayer()",
}
STATE = "application/vnd.jupyter.widget-state+json"


def test_a_slide_has_equations_whole_and_of_paragraphs_and_items_the_first_sentence():
    assert slides.brief(TEXT).split("\n\n") == [
        "## Laws",
        "A **monoid** obeys two laws (Morad et al. 2024, Eqs. 3-4).",
        "$$ a = b.",
        "C = d. \\tag{2.1} $$",
        "**By hand** (Eq. 2.1). Take 8, 3 and 2. The larger obeys.",
        "- **One.** This is the first of all items.\n- Two is short.",
    ]


def test_no_sentence_on_a_slide_needs_one_that_is_left_out():
    # Reported: "It does not have to" stood after a statement instead of its question.
    question = "Actors compute one step after another. They must. Must learning wait too?"
    reply = "It does not have to, because brackets may be moved. Then it is fast."
    first = "It does not have to, because brackets may be moved."
    assert slides.brief(f"{question}\n\n{reply}") == f"{question}\n\n{first}"
    long = "Actors compute one step after another. They must." + " More." * slides.WHOLE
    assert slides.brief(f"{long}\n\n{reply}") == "Actors compute one step after another. They must."
    count = "Two things can go wrong with a network. Interference and forgetting."
    assert slides.brief(count) == count
    # What does not fit is in the notes.
    assert slides.brief("**By hand** (Eq. 1). Take 1." + " More." * slides.WHOLE) == ""


def test_of_a_notebook_the_chosen_cells_become_slides_with_notes_and_widgets():
    of = lambda kind: {"slideshow": {"slide_type": kind}}  # noqa: E731
    output = v4.new_output(
        "stream", text="many rows\nSeeds 0, 1.\nMeasured on cpu, with\n    mmrl x\n"
    )
    cells = [
        v4.new_markdown_cell("# 02 · Title\n\nSee [03](03_x.ipynb)", metadata=of("slide")),
        v4.new_markdown_cell(TEXT, metadata=of("slide")),
        v4.new_code_cell("never_shown()"),
        v4.new_code_cell(
            "Player()",
            metadata=of("slide"),
            outputs=[output, v4.new_output("display_data", WIDGET)],
        ),
    ]
    notebook = v4.new_notebook(cells=cells, metadata={"widgets": {STATE: {"state": {"m": {}}}}})
    html = slides.page(notebook, "02 · Title")
    soup = BeautifulSoup(html, "html.parser")
    assert len(soup.select("section section")) == 3
    assert "It goes on." in soup.select_one("aside.notes").text
    assert not soup.find(string=lambda text: "never_shown" in text or "Player()" in text)
    assert "many rows" not in html and "Measured on cpu" in html
    assert soup.select_one('script[type*="widget-view"]') and 'href="03_x.html"' in html
    links = [node.get("src") or node.get("href") for node in soup.select("script[src], link[href]")]
    assert links and all(path.startswith("static/") for path in links)


def test_parts_of_one_stream_are_one_output():
    parts = [v4.new_output("stream", text=f"score {n}\n") for n in (1, 2)]
    metadata = {"slideshow": {"slide_type": "slide"}}
    cell = v4.new_code_cell("train()", metadata=metadata, outputs=parts)
    soup = BeautifulSoup(slides.page(v4.new_notebook(cells=[cell]), "A"), "html.parser")
    (output,) = soup.select(".jp-OutputArea-output")
    assert output.text.split() == ["score", "1", "score", "2"]


def speech(cells: list[tuple[str, str]]) -> list[str]:
    """Return the notes of each slide of (type of slide, text) cells; a text "=" is code."""
    of = lambda kind: {"slideshow": {"slide_type": kind}} if kind else {}  # noqa: E731
    notebook = v4.new_notebook(
        cells=[
            v4.new_code_cell(text, metadata=of(kind))
            if text == "="
            else v4.new_markdown_cell(text, metadata=of(kind))
            for kind, text in cells
        ]
    )
    rows: list[str] = []
    for cell in slides.reduce_to_slides(notebook).cells:
        if slides.slide_type(cell) == "slide":
            rows.append("")
        elif slides.slide_type(cell) == "notes":
            rows[-1] += cell.source
    return rows


def test_a_text_that_is_not_shown_is_in_the_notes_of_its_section():
    a, b, c, d = (f"## {name}" for name in "ABCD")
    assert speech([("slide", a), ("", "=")]) == [""]
    assert speech([("slide", a), ("", "one"), ("", "="), ("slide", "="), ("", "two")]) == [
        "one",
        "two",
    ]
    # Before the first slide of a section, and in a section without slides.
    assert speech([("slide", a), ("", b), ("", "one"), ("slide", "="), ("", "two")]) == [
        "",
        f"{b}\n\none\n\ntwo",
    ]
    assert speech([("slide", a), ("", c), ("", "one"), ("slide", d), ("notes", "two")]) == [
        f"{c}\n\none",
        "two",
    ]
    # A continued slide, and a text before all slides.
    assert speech([("", "zero"), ("slide", a), ("", b), ("-", "="), ("", "one")]) == [
        f"zero\n\n{b}\n\none"
    ]


def test_each_slide_of_a_chapter_has_the_text_of_its_section_once():
    path = slides.execute.NOTEBOOKS / "02_monoids_and_scans.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    whole = [c.source.replace(".ipynb", ".html") for c in cells if c.cell_type == "markdown"]
    selection = slides.reduce_to_slides(nbformat.read(path, as_version=4)).cells
    notes = [cell.source for cell in selection if slides.slide_type(cell) == "notes"]
    texts = [c.source for c in selection if c.cell_type == "markdown" and c.source not in notes]
    # Notes follow the order of the chapter, so each text is in one place, and none is lost.
    rest = [text for text in whole if text not in texts]
    assert "\n\n".join(notes) == "\n\n".join(rest) and len(notes) > 10
    place = {text: n for n, text in enumerate(whole)}
    title = next(text for text in whole if text.startswith("## Explore"))
    (row,) = (text for text in notes if text.startswith(title))
    assert whole[place[title] + 1] in row  # a widget's slide has the text on both of its sides


def test_a_slide_that_does_not_fit_is_named():
    good = {"text": "Laws", "size": 0.8, "right": 1224.0, "bottom": 700.0}
    assert frames.troubles([good]) == []
    bad = [good | {"bottom": 733.2}, good | {"right": 1300.0}, good | {"size": 0.65}]
    low, far, small = frames.troubles([*bad, *[good] * 10])
    assert low == "slide 1, 'Laws': goes to 1224 × 733 pixels" and "1300 × 700" in far
    assert small == "slide 3, 'Laws': is 65% of its size: divide it"


def test_links_of_a_pdf_lead_to_files_beside_it_and_its_bytes_stay_where_they_were(tmp_path: Path):
    link = f"(file://{tmp_path.resolve()}/site/a.html#b)".encode()
    pdf = paper.relative(b"<</URI " + link + b">> end", tmp_path / "build")
    assert pdf.startswith(b"<</URI (../site/a.html#b) ") and len(pdf) == len(link) + 13
    assert paper.relative(link, tmp_path / "a/b/c/d") == b"(../../../../site/a.html#b)".ljust(
        len(link)
    )
    assert paper.relative(b"(file:///a)", Path("/b/c/d/e")) == b"(file:///a)"  # shorter than ../


def test_pages_are_joined_with_links_inside_and_without_solutions(tmp_path: Path):
    head = '<title>A — Book</title><link rel="stylesheet" href="x.css">'
    head += "<script>window.MathJax = {}</script>"
    state = '<script type="application/vnd.jupyter.widget-state+json">{"state": {"m": 1}}</script>'
    view = '<script type="application/vnd.jupyter.widget-view+json">{}</script>'
    one = '<h1 id="t">A</h1><a href="b.html#t">b</a><a href="c.html">c</a><img src="i.png" alt="i">'
    two = f'<h1 id="t">B</h1><div class="cell_output">{view}</div><div class="tag_solution">s</div>'
    for name, body in {"a": one, "b": two}.items():
        text = f'{head}{state}<article class="bd-article">{body}</article>'
        (tmp_path / f"{name}.html").write_text(text, "utf-8")
    soup = BeautifulSoup(paper.join(tmp_path, ["a", "b"]), "html.parser")
    assert [node["id"] for node in soup.find_all("h1")] == ["a-t", "b-t"]
    assert soup.find("a", string="b")["href"] == "#b-t"
    assert soup.find("a", string="c")["href"].startswith("file:")
    assert not soup.select(".tag_solution") and len(soup.select(".live a")) == 1
    assert soup.find("img")["src"] == f"{tmp_path.as_uri()}/i.png"


def test_every_chapter_is_printed():
    chapters = {f"notebooks/{path.stem}" for path in slides.execute.chapters()}
    assert chapters < set(paper.pages())
