"""One-minute checks have one right answer and explain the others; the site remembers a reader."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "browser")]
from chrome import Tab  # noqa: E402
from page import traits  # noqa: E402

PATHS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
STATIC = ROOT / "book" / "static"

# The checks in the notebooks

MARK = "**One-minute check.**"
CHECK = re.compile(
    r"\*\*One-minute check\.\*\* .+\n\n(?P<choices>(?:- .+\n)+)\n"
    r"<details><summary>Answer</summary>\n\n(?P<right>\*\*(?:.+\n|\n(?!- \*\*))+)\n"
    r"(?P<wrong>(?:- \*\*.+\n)+)\n</details>"
)
BOLD = re.compile(r"\*\*(.+?)\*\*")


def flaws(text: str) -> Iterator[str]:
    """What is wrong with the checks in the Markdown of a chapter."""
    matches = list(CHECK.finditer(text))
    if len(matches) < text.count(MARK):
        yield f"{text.count(MARK) - len(matches)} checks lack choices, an answer or explanations"
    for check in matches:
        choices = re.findall(r"^- (.+)$", check["choices"], re.MULTILINE)
        right = BOLD.match(check["right"])
        items = re.findall(r"^- (.+)$", check["wrong"], re.MULTILINE)
        wrong = [BOLD.match(item) for item in items]
        explanations = [match[1] for match in (right, *wrong) if match]
        if sorted(choices) != sorted(explanations) or len({*choices}) < len(choices):
            yield f"the choices are {choices}, and the answers, the right one first, {explanations}"
        for item, match in zip(items, wrong, strict=True):
            if match and len(item[match.end() :].split()) < 3:
                yield f"no explanation of {item!r}"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_check_has_one_right_answer_and_explains_each_wrong_one(path: Path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    assert text.count(MARK) >= 2
    assert list(flaws(text)) == []


GOOD = f"""{MARK} How many?

- 1
- 2
- 3

<details><summary>Answer</summary>

**2**, because it is.

It is even.

- **1**: this is too few.
- **3**: this is too many.

</details>"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- 1\n- 2\n- 3\n\n", ""),
        ("- **3**: this is too many.\n", ""),
        ("- **1**: this is too few.", "- **1**: no."),
        ("**2**, because", "**4**, because"),
        ("- **1**: this", "- **2**: this"),
        ("- 3\n", "- 2\n"),
        ("**2**, because", "2, because"),
    ],
)
def test_a_flaw_of_a_check_is_seen(old: str, new: str):
    assert list(flaws(GOOD)) == []
    assert list(flaws(GOOD.replace(old, new)))


# The script in a browser

PAGE = """<!doctype html><html lang="en" data-content_root="{root}">
<meta charset="utf-8"><title>x</title>
<link rel="stylesheet" href="{static}/site.css"><script defer src="{static}/progress.js"></script>
<script defer src="{static}/mount.js"></script>
<nav class="bd-links"><p class="caption">I · One</p>
<ul><li><a href="{root}notebooks/01_a.html">01 · A</a></li>
<li><a href="{root}notebooks/02_b.html">02 · B</a></li></ul>
<p class="caption">II · Two</p><ul><li><a href="{root}notebooks/03_c.html">03 · C</a></li></ul>
<p class="caption">More</p><ul><li><a href="{root}own.html">Own</a></li></ul></nav>
<article class="bd-article">{body}</article>"""
CHAPTER = """<blockquote><div><p><strong>Predict.</strong> Which?</p></div></blockquote>
<details><summary>Seen</summary><p>This.</p></details>
<p><strong>One-minute check.</strong> How many?</p>
<ul class="simple"><li><p><span class="math">\\(\\sqrt x\\)</span></p></li><li><p>2</p></li></ul>
<details><summary>Answer</summary><p><strong>2</strong>, because.</p><p>It is even.</p>
<ul><li><p><strong><span class="math">\\(\\sqrt x\\)</span></strong>: too few.</p></li></ul>
</details>{widget}"""
VIEW = """(() => {
  const [form] = document.forms, details = [...document.querySelectorAll("details")];
  return {
    verdict: form.dataset.verdict ?? "", text: form.querySelector(".verdict").textContent,
    chosen: form.querySelector(":checked")?.value ?? "", open: details.map((one) => one.open),
    said: document.querySelector(".prediction input").value,
    read: document.querySelector(".read-tick input").checked,
    marks: document.querySelectorAll(".read-mark").length,
  };
})()"""
BARS = """[...document.querySelectorAll("#course-progress li")].map((line) =>
  [line.textContent, line.querySelector("progress").value, line.querySelector("progress").max])"""
STORAGE = "Object.keys(localStorage).map((key) => [key, JSON.parse(localStorage.getItem(key))])"


def write(folder: Path, widget: str = "") -> tuple[str, str]:
    """Write the first page and a chapter, and return their addresses."""
    (folder / "notebooks").mkdir()
    static = STATIC.as_uri()
    first, chapter = folder / "intro.html", folder / "notebooks" / "02_b.html"
    body = '<div id="course-progress"></div>'
    first.write_text(PAGE.format(root="./", static=static, body=body), "utf-8")
    body = CHAPTER.format(widget=widget)
    chapter.write_text(PAGE.format(root="../", static=static, body=body), "utf-8")
    return first.as_uri(), chapter.as_uri()


def press(tab: Tab, *keys: str) -> None:
    for key in keys:
        tab.page.keyboard.press(key)


@pytest.mark.full
def test_a_reader_without_a_mouse_is_remembered_until_the_progress_is_cleared(
    tab: Tab, tmp_path: Path
):
    first, chapter = write(tmp_path)
    tab.open(chapter)
    assert tab.run(VIEW)["marks"] == 0 and tab.run(STORAGE) == []
    assert tab.page.get_by_role("radio", name="sqrt x").count() == 1
    tab.page.locator(".prediction input").focus()
    tab.page.keyboard.type("about 7")
    press(tab, "Tab", "Enter")  # the first answer
    press(tab, "Tab", "Space", "Enter")
    view = tab.run(VIEW)
    assert (view["verdict"], view["open"]) == ("wrong", [True, False])
    assert "too few" in view["text"] and "because" not in view["text"]
    press(tab, "ArrowDown")
    assert tab.run(VIEW)["text"] == ""
    press(tab, "Tab", "Space")  # the button
    tab.page.locator(".read-tick input").focus()
    press(tab, "Space")
    view = tab.run(VIEW)
    assert view["verdict"] == "right" and "It is even." in view["text"]
    assert "too few" not in view["text"] and view["read"] and view["marks"] == 1
    tab.open(chapter)
    assert tab.run(VIEW) == view | {"said": "about 7"}
    ((key, record),) = tab.run(STORAGE)
    assert key == "mmrl-course" and record["version"] == 1
    assert {*record["pages"]} == {"notebooks/02_b"}

    tab.open(first)
    assert tab.run(BARS) == [
        ["Part I · One: 1 of 2 chapters", 1, 2],
        ["Part II · Two: 0 of 1 chapter", 0, 1],
    ]
    assert tab.run("document.querySelector('#course-progress a').textContent") == "03 · C"
    for answer, count in (("dismiss", 1), ("accept", 0)):
        tab.page.once("dialog", lambda dialog, answer=answer: getattr(dialog, answer)())
        tab.page.locator("#course-progress button").focus()
        press(tab, "Enter")
        assert sum(value for _, value, _ in tab.run(BARS)) == count == len(tab.run(STORAGE))
    assert tab.problems == [] and all(url.startswith("file:") for url in tab.requests)


THROW = "throw new DOMException('no')"
FAULTS = {
    "not JSON": "localStorage.setItem('mmrl-course', '{')",
    "an older version": """localStorage.setItem('mmrl-course', JSON.stringify({
        version: 0, pages: {"notebooks/02_b": {read: true}}}))""",
    "a newer version": """localStorage.setItem('mmrl-course', JSON.stringify({
        version: 2, pages: {"notebooks/02_b": {read: true}}}))""",
    "a page of other types": """localStorage.setItem('mmrl-course', JSON.stringify({
        version: 1, pages: {"notebooks/02_b": {read: 1, said: 3, open: [1], chosen: null}}}))""",
    "full": f"Storage.prototype.setItem = () => {{ {THROW}; }}",
    "forbidden": f"Object.defineProperty(window, 'localStorage', {{ get() {{ {THROW}; }} }})",
}


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_broken_storage_costs_only_the_memory(tab: Tab, tmp_path: Path, fault: str):
    first, chapter = write(tmp_path)
    tab.page.add_init_script(FAULTS[fault])
    tab.open(chapter)
    before = tab.run(VIEW)
    assert not (before["verdict"] or before["read"] or before["said"] or any(before["open"]))
    tab.page.locator(".check input").last.check()
    tab.page.locator(".check button").click()
    tab.page.locator(".read-tick input").click()
    tab.page.locator(".prediction input").fill("x")
    after = tab.run(VIEW)
    is_stored = fault not in ("full", "forbidden", "a newer version")
    assert after["verdict"] == "right" and after["read"] == after["marks"] == is_stored
    assert (
        tab.run("document.querySelector('.read-tick [role=status]').textContent === ''")
        == is_stored
    )
    assert tab.page.locator(".not-stored").count() == (not is_stored)
    tab.open(first)
    assert tab.page.get_by_text("cannot store").is_visible() == (not is_stored)
    if fault == "a newer version":
        ((_, record),) = tab.run(STORAGE)
        assert record == {"version": 2, "pages": {"notebooks/02_b": {"read": True}}}
    if not is_stored:
        tab.page.once("dialog", lambda dialog: dialog.accept())
        tab.page.locator("#course-progress button").click()
        assert [value for _, value, _ in tab.run(BARS)] == [0, 0]
    assert tab.problems == []


@pytest.mark.full
def test_a_record_that_stays_is_not_said_to_be_cleared(tab: Tab, tmp_path: Path):
    first, chapter = write(tmp_path)
    tab.page.add_init_script(f"Storage.prototype.removeItem = () => {{ {THROW}; }}")
    tab.open(chapter)
    tab.page.locator(".read-tick input").click()
    tab.open(first)
    tab.page.once("dialog", lambda dialog: dialog.accept())
    tab.page.locator("#course-progress button").click()
    assert [value for _, value, _ in tab.run(BARS)] == [1, 0]
    assert tab.page.get_by_text("did not clear").is_visible()


@pytest.mark.full
def test_other_tabs_follow_a_change_and_a_clear(chromium: Any, tmp_path: Path):
    first, chapter = write(tmp_path)
    context = chromium.new_context()
    one, two = context.new_page(), context.new_page()
    other = Path(tmp_path, "notebooks", "01_a.html")
    other.write_bytes(other.with_name("02_b.html").read_bytes())
    two.goto(chapter.replace("02_b", "01_a"))
    two.locator(".read-tick input").click()
    two.goto(chapter)
    two.locator(".read-tick input").click()
    two.locator(".check input").last.check()
    two.locator(".check button").click()
    one.goto(first)
    link = one.locator("#course-progress a")
    assert link.text_content() == "03 · C"
    two.locator(".read-tick input").click()
    link.get_by_text("02 · B", exact=True).wait_for()  # without its old tick
    one.once("dialog", lambda dialog: dialog.accept())
    with two.expect_navigation():
        one.locator("#course-progress button").click()
    two.locator(".check").wait_for()
    assert two.locator("[data-verdict], .verdict > *").count() == 0
    context.close()


FOCUS = "document.activeElement.tagName"


@pytest.mark.full
def test_a_prediction_in_a_widget_is_restored_without_moving_the_focus(tab: Tab, tmp_path: Path):
    from mmrl.course.widgets import ScanPlayer

    widget = ScanPlayer(question="How many?")
    data = json.dumps({"esm": widget._esm, "css": widget._css, "traits": traits(widget)})
    place = '<div></div><script type="application/json" class="mmrl-explorer">{}</script>'
    _, chapter = write(tmp_path, place.format(data.replace("</", "<\\/")))
    is_visible = "document.querySelector('.mmrl-ask')?.hidden === true"
    tab.open(chapter, "document.querySelector('.mmrl-ask')")
    tab.page.locator(".mmrl-ask input").focus()
    tab.page.keyboard.type("four")
    press(tab, "Enter")
    tab.wait(is_visible)
    assert tab.run(FOCUS) != "BODY"
    tab.open(chapter, is_visible)
    assert "four" in tab.run("document.querySelector('.mmrl-said').textContent")
    assert tab.run(FOCUS) == "BODY" and tab.problems == []
