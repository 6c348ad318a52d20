"""The animation of the first page: its file, its motion, and the numbers that it states."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools"), str(ROOT / "tests" / "browser")]
import animation  # noqa: E402
from chrome import Tab  # noqa: E402

TEXT = animation.PICTURE.read_text("utf-8")
SVG = ElementTree.fromstring(TEXT)
NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_the_file_is_what_the_script_draws():
    assert animation.draw() == TEXT and len(TEXT.encode()) < 60_000


def test_it_has_no_script_and_no_address_of_another_host():
    assert not re.search(r"<script|\bon\w+=|@import|@font-face|<image|<foreignObject", TEXT)
    assert re.findall(r"\w+://[^\"' )]+", TEXT) == [NAMESPACE.strip("{}")]
    assert set(re.findall(r"url\(([^)]*)\)", TEXT)) == {"#stripes"}


def test_it_moves_for_a_minute_only_if_readers_choose_it_and_do_not_reduce_motion():
    style = SVG.findtext(f"{NAMESPACE}style") or ""
    before, _, moving = style.partition("@media (prefers-reduced-motion:no-preference){")
    assert "{animation:" not in before and ".pause:checked" in moving
    assert moving.index(":has(.play:checked,.pause:checked)") < moving.index("{animation:")
    ends = [
        float(node.get("style", "").split("--at:")[1].split("s")[0])
        + float((re.findall(r"--for:([\d.]+)s", node.get("style", "")) or [1])[0])
        for node in SVG.iterfind(".//*[@class]")
        if "--at" in node.get("style", "")
    ]
    assert len(ends) > 50 and max(ends) == 60


def test_its_numbers_are_those_of_segments_cut_step_by_step():
    rows: list[list[int]] = []
    for length in animation.LENGTHS:
        for step in range(length):
            if step % animation.SIZE == 0:
                rows.append([step])
            else:
                rows[-1].append(step)
    late = sum(row[0] > 0 for row in rows)
    places = len(rows) * animation.SIZE
    empty = places - sum(map(len, rows))
    assert (len(rows), late, empty, places) == (9, 4, 10, 36)
    text = " ".join(SVG.itertext())
    assert f"{late} of {len(rows)}" in text and f"{empty} of {places}" in text
    assert TEXT.count("fill:var(--orange)") == late + 1  # and one in the legend
    assert TEXT.count("url(#stripes)") == sum(len(row) < animation.SIZE for row in rows) + 1


def test_the_page_has_its_three_controls():
    page = (ROOT / "book" / "intro.md").read_text("utf-8")
    assert re.findall(r'type="radio" name="animation" class="(\w+)"', page) == [
        "still",
        "play",
        "pause",
    ]
    assert 'class="still" checked' in page and ":file: static/animation.svg" in page


CHOICE = "document.querySelector('input:checked').className"
MOTIONS = "document.querySelector('svg').getAnimations({ subtree: true }).length"


@pytest.mark.full
def test_pause_cannot_be_chosen_before_play(tab: Tab, tmp_path: Path):
    page = (ROOT / "book" / "intro.md").read_text("utf-8")
    start = page.index('<div class="animation">')
    controls = page[start : page.index("</fieldset>", start)] + "</fieldset>"
    style = f'<link rel="stylesheet" href="{(animation.PICTURE.parent / "site.css").as_uri()}">'
    body = f'{style}<article class="bd-article">{controls}{TEXT}</div></article>'
    (tmp_path / "page.html").write_text(body, "utf-8")
    tab.open((tmp_path / "page.html").as_uri())
    pause = tab.page.locator("label:has(.pause)")
    assert not pause.is_visible()
    tab.page.locator(".still").focus()
    tab.page.keyboard.press("ArrowLeft")
    assert tab.run(CHOICE) == "play" and tab.run(MOTIONS) > 50
    pause.click()
    assert tab.run(CHOICE) == "pause"
    tab.page.locator(".still").click()
    assert not pause.is_visible() and tab.run(MOTIONS) == 0
