"""One chapter runs, becomes a page, and works in a browser; `test_site.py` covers all of them."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools"), str(ROOT / "tests" / "browser")]
import build  # noqa: E402
import reader  # noqa: E402
from chrome import Tab  # noqa: E402
from drive import drive  # noqa: E402

CHAPTER = "02_monoids_and_scans"  # formulas, tables, pictures, three widgets, and little to compute


@pytest.fixture(scope="module")
def page() -> Path:
    try:
        return build.page(CHAPTER) / "notebooks" / f"{CHAPTER}.html"
    except build.NotBuilt as error:
        pytest.fail(str(error), pytrace=False)


@pytest.mark.slow
def test_a_chapter_becomes_a_page_with_its_outputs(page: Path):
    text = page.read_text("utf-8")
    assert text.count("application/vnd.jupyter.widget-view+json") >= 2
    assert "✗" not in text and "Traceback" not in text
    assert "data:image" not in text and "<img" in text


@pytest.mark.slow
def test_a_chapter_works_in_a_browser(tab: Tab, page: Path, tmp_path: Path):
    rules = reader.axe(tmp_path)
    reader.visit(tab, page, 320, "dark")
    checks = page.read_text("utf-8").count("One-minute check.")
    assert tab.run('document.querySelectorAll("form.check").length') == checks >= 2
    result = reader.flaws(tab, page, 1280, "dark", rules, contrast=True)
    assert {kind: flaw for kind, flaw in result.items() if flaw} == {}
    tab.wait('document.querySelectorAll(".mmrl .mmrl-stage").length > 0')
    widgets = drive(tab, most=2)
    assert widgets and all(widget.controls and not widget.problems for widget in widgets)


TABLE = """<!doctype html><meta charset="utf-8"><title>x</title>
<link rel="stylesheet" href="{static}/site.css"><script src="{static}/site.js"></script>
<article class="bd-article"><div class="pst-scrollable-table-container" style="overflow: auto">
<table class="table"><thead><tr><th>first</th><th>{word}</th><th>last</th></tr></thead>
<tbody><tr><td>a</td><td>{word}</td><td></td></tr></tbody></table></div></article>"""
ROWS_ON_A_PHONE = """
((table) => [table.matches(".stacked"), table.tBodies[0].rows[0].cells[1].dataset.label ?? "",
             [...table.querySelectorAll("[role]")].length])(document.querySelector("table"))
"""


@pytest.mark.slow
def test_rows_of_a_wide_table_are_stacked_on_a_phone(tab: Tab, tmp_path: Path):
    path, static = tmp_path / "x.html", (ROOT / "book" / "static").as_uri()
    for word, is_stacked in (("short", False), (24 * "long", True)):
        path.write_text(TABLE.format(static=static, word=word), "utf-8")
        tab.window(360)
        tab.open(path.as_uri())
        assert tab.run(reader.SCROLLING) == []
        # The header, the body, two rows and six cells have roles.
        assert tab.run(ROWS_ON_A_PHONE) == ([True, word, 10] if is_stacked else [False, "", 0])
        tab.window(1280)
        assert tab.run(reader.SCROLLING) == [] and not tab.run(ROWS_ON_A_PHONE)[0]


def test_an_unknown_chapter_is_refused():
    with pytest.raises(build.NotBuilt, match=r"`chapter` must be one of 00_start_here, .*'04'"):
        build.page("04")
