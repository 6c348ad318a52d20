"""The statement on access says what was found: no more, and no less."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.passages import lacking, normal

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "browser")]
import access  # noqa: E402
import pages  # noqa: E402

RESULTS = json.loads(access.OUT.read_text("utf-8"))
STATEMENT = " ".join((ROOT / "book" / "accessibility.md").read_text("utf-8").split())
FAILS = STATEMENT.partition("## What is known to fail")[2].partition("## ")[0]


def wrong(results: dict[str, Any], page: str, fails: str) -> list[str]:
    """What the statement should say and does not."""
    widgets, pages_tested = results["widgets"]["walked"], results["pages"]["asked"]
    numbers = len(widgets), sum(one["controls"] for one in widgets), len(pages_tested)
    facts = [results["pages"]["axe"].replace("@", " ")]
    for half in results.values():
        facts += [half["date"][:10], half["browser"]]
    failures = [one["name"] for one in widgets if one["problems"]]
    for row in pages_tested:
        failures += [name for one in row["violations"] for name in (f"`{row['page']}`", one[2])]
    failures += [] if failures else ["Nothing"]
    rules = {f"`{rule}`" for row in pages_tested for rule in row["left"]}
    missing = lacking([*map(str, numbers)], normal(page))
    missing += [text for text in (*facts, *rules) if text not in page]
    return missing + [text for text in failures if text not in fails]


def test_the_statement_agrees_with_what_was_found():
    assert wrong(RESULTS, STATEMENT, FAILS) == []
    assert ("Nothing" in FAILS) == (not any(row["violations"] for row in RESULTS["pages"]["asked"]))


@pytest.mark.parametrize("half", ["widgets", "pages"])
def test_what_fails_has_to_be_named(half: str):
    result = json.loads(json.dumps(RESULTS))
    for row in result["pages"]["asked"]:
        row["violations"] = []
    if half == "widgets":
        result["widgets"]["walked"][0]["problems"] = ["no focus is seen"]
        assert result["widgets"]["walked"][0]["name"] in wrong(result, STATEMENT, "Nothing.")
    else:
        row = result["pages"]["asked"][0]
        row["violations"] = [[320, "dark", "color-contrast", "serious", 1, "a"]]
        assert wrong(result, STATEMENT, "Nothing.") == [f"`{row['page']}`", "color-contrast"]
        result["pages"]["asked"].pop()
        assert str(len(result["pages"]["asked"])) in wrong(result, STATEMENT, "Nothing.")


def test_counts_of_widgets_are_written_into_the_statement():
    text = access.STATEMENT.read_text("utf-8")
    assert access.statement(text, RESULTS) == text
    more = {
        **RESULTS["widgets"],
        "walked": RESULTS["widgets"]["walked"][1:],
        "date": "2030-01-02T03:04",
    }
    message = access.statement(text, RESULTS | {"widgets": more})
    assert f"| {len(more['walked'])} widgets, " in message and "| 2030-01-02, Chromium" in message


def test_every_widget_was_walked_and_every_page_asked_or_named():
    names = {one["name"].partition(",")[0] for one in RESULTS["widgets"]["walked"]}
    assert names == {cls.__name__ for cls in access.CLASSES}
    entries = re.findall(r"file: (\S+)", (ROOT / "book" / "_toc.yml").read_text("utf-8"))
    never = {*entries, "intro"} - {row["page"] for row in RESULTS["pages"]["asked"]}
    rest = STATEMENT.partition("## What has not been tried")[2]
    assert not [page for page in never if f"`{page}`" not in rest]


def test_without_a_site_nothing_is_said_of_its_pages(tmp_path: Path):
    with pytest.raises(SystemExit, match=r"There is no site in .*: run `make book` first"):
        access.main(["--site", str(tmp_path)])


def test_entries_of_a_bibliography_are_items_of_its_list():
    entries = "".join(f'<div class="citation" id="id{i}" role="doc-biblioentry">' for i in (1, 2))
    text = f'<div role="list" class="citation-list">{entries}'
    for html, right in pages.FIXES:
        text = re.sub(html, right, text)
    assert re.findall('role="(.*?)"', text) == ["list", "listitem", "listitem"]
