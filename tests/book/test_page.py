"""One chapter runs, becomes a page, and works in a browser; `test_site.py` covers all of them."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools"), str(ROOT / "tests" / "browser")]
import build  # noqa: E402
import reader  # noqa: E402
from chrome import browser  # noqa: E402
from drive import drive  # noqa: E402
from page import find_chromium  # noqa: E402

CHROMIUM = find_chromium()
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
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium (Debian: apt install chromium)")
def test_a_chapter_works_in_a_browser(page: Path, tmp_path: Path):
    rules = reader.axe(tmp_path)
    profile = tmp_path / "profile"
    profile.mkdir()
    with browser(str(CHROMIUM), profile) as tab:
        reader.visit(tab, page, 320, "dark")
        found = reader.flaws(tab, page, 1280, "dark", rules, contrast=True)
        assert {kind: flaw for kind, flaw in found.items() if flaw} == {}
        tab.wait('document.querySelectorAll(".mmrl .mmrl-stage").length > 0')
        driven = drive(tab, most=2)
        assert driven and all(widget.controls and not widget.unmoved for widget in driven)


def test_an_unknown_chapter_is_refused():
    with pytest.raises(build.NotBuilt, match=r"`chapter` must be one of 00_start_here, .*'04'"):
        build.page("04")
