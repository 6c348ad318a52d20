"""Ask about access: every widget by keyboard alone, and axe about every page of the site.

`make access` runs this, and writes book/accessibility.json, and the counts of widgets into the page
next to it. A page has to follow all rules of axe for WCAG 2.1, levels A and AA: on a wide window
with the light theme, and on one of 320 pixels with the dark one. The walk over the widgets takes
about two minutes, a page some seconds.
"""

import argparse
import datetime
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools"), str(ROOT)]
import vendor  # noqa: E402
from chrome import Tab, chromium  # noqa: E402
from page import page  # noqa: E402
from walk import Walk, walk  # noqa: E402

from mmrl.course import widgets  # noqa: E402
from mmrl.course.widgets.training import LiveAgent, PolicyPlayer  # noqa: E402
from mmrl.runs.results import revision  # noqa: E402

OUT = ROOT / "book" / "accessibility.json"
STATEMENT = OUT.with_suffix(".md")
SITE = ROOT / "book" / "_build" / "html"
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
LOOKS = ((1280, "light"), (320, "dark"))
CLASSES = [*widgets.EXPLORERS.values(), PolicyPlayer, LiveAgent]
AXE = f"""
axe.run(document, {{
  runOnly: {list(TAGS)}, resultTypes: ["violations", "incomplete"], preload: false,
}})
  .then((found) => ["violations", "incomplete"].map((kind) => found[kind].map((rule) =>
    [rule.id, rule.impact, rule.nodes.length, rule.nodes[0].target.join(" ")])))
"""
READY = "Promise.all([document.fonts.ready, globalThis.MathJax?.startup?.promise]).then(() => true)"
# What sticks out of the window, where nobody could scroll to see it.
WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


def walk_widgets(tab: Tab, folder: Path) -> list[Walk]:
    """Every widget of the course as it starts, and one that asks before it shows."""
    instances = [cls() for cls in CLASSES]
    instances.append(widgets.ScanPlayer(question="How many steps of waiting?"))
    results = []
    for widget in instances:
        path = folder / "widget.html"
        path.write_text(page([widget]), "utf-8")
        tab.window(1280, 1000)
        tab.open(path.as_uri(), 'document.querySelector(".mmrl-stage")')
        name = type(widget).__name__ + (", with a question" if widget.question else "")
        results.append(walk(tab, name, ".mmrl"))
        print(
            f"  {name:36}{results[-1].stops:4} stops",
            *results[-1].problems,
            sep="\n    ",
            flush=True,
        )
    return results


def ask_axe(tab: Tab, site: Path, only: str = "") -> Iterator[dict[str, Any]]:
    """What axe finds on each page of the site: sentences, and what it leaves to a person."""
    with tempfile.TemporaryDirectory() as folder:
        for package, (digest, parts) in vendor.AXE.items():
            vendor.unpack(package, digest, parts, Path(folder))
        axe = (Path(folder) / "axe.min.js").read_text("utf-8")
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).with_suffix("").as_posix()
        if name.startswith(("_modules", "_static")) or only not in name:
            continue
        row: dict[str, Any] = {"page": name, "date": now()[:10], "violations": [], "left": []}
        for width, theme in LOOKS:
            tab.window(width, 900, theme)
            tab.open(path.as_uri())
            tab.run(READY)
            tab.run(axe + "; null")
            violations, incomplete = tab.run(AXE)
            row["violations"] += [[width, theme, *one] for one in violations]
            row["left"] = sorted({*row["left"], *(rule for rule, *_ in incomplete)})
            if tab.run(WIDE):
                row["violations"].append([width, theme, "reflow", "serious", 1, "the page"])
        print(f"  {name:48}{len(row['violations']):3} violations", flush=True)
        for one in row["violations"]:
            print("    ", *one, flush=True)
        yield row


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write(about: dict[str, Any]) -> None:
    """Write what was found, and its counts into the statement."""
    OUT.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")
    STATEMENT.write_text(statement(STATEMENT.read_text("utf-8"), about), "utf-8")


def statement(text: str, about: dict[str, Any]) -> str:
    """Return the statement with the number of widgets and controls, the date and the browser."""
    half = about["widgets"]
    numbers = len(half["walked"]), sum(one["controls"] for one in half["walked"])
    line = "| {} widgets, {} controls in all |".format(*numbers)
    row = r"^\| \d+ widgets, \d+ controls in all \|(.*\|) [^|]*, Chromium [\d.]+ \|"
    when = f"{half['date'][:10]}, {half['browser']}"
    return re.sub(row, lambda match: f"{line}{match[1]} {when} |", text, flags=re.M)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=SITE, help="the folder of the built site")
    parser.add_argument("--only", choices=("widgets", "pages"), help="one half alone")
    parser.add_argument("--page", default="", help="of the pages, those with this in their name")
    options = parser.parse_args(arguments)
    if options.only != "widgets" and not (options.site / "intro.html").exists():
        sys.exit(f"There is no site in {options.site}: run `make book` first.")
    about: dict[str, Any] = json.loads(OUT.read_text("utf-8")) if OUT.exists() else {}
    bad = 0
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        tab = Tab(browser)
        by = {"date": now(), "revision": revision(), "browser": f"Chromium {browser.version}"}
        if options.only != "pages":
            results = [vars(one) for one in walk_widgets(tab, Path(folder))]
            about["widgets"] = by | {"walked": results}
            write(about)
            bad += sum(len(one["problems"]) for one in results)
        if options.only != "widgets":
            pages = {row["page"]: row for row in about.get("pages", {}).get("asked", [])}
            by |= {"axe": next(iter(vendor.AXE)), "rules": list(TAGS), "looks": LOOKS}
            for row in ask_axe(tab, options.site, options.page):  # each is kept, whatever follows
                pages[row["page"]] = row
                about["pages"] = by | {"asked": sorted(pages.values(), key=lambda one: one["page"])}
                write(about)
                bad += len(row["violations"])
    print(f"{bad} problems; all of it is in {OUT.relative_to(ROOT)}.")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
