"""A page of the site in a browser: what a reader would see go wrong."""

from pathlib import Path

import vendor
from chrome import Tab

READY = """
Promise.all([document.fonts.ready, globalThis.MathJax?.startup?.promise]).then(() => true)
"""
# The rule `region` visits every node, and its findings are moderate, so they are dropped below.
# The rule `color-contrast` takes most of the time.
VIOLATIONS = """
axe.run(document, {
  resultTypes: ["violations"], preload: false,
  rules: {region: {enabled: false}, "color-contrast": {enabled: CONTRAST}},
}).then((found) => found.violations
  .filter((v) => v.impact === "serious" || v.impact === "critical")
  .flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target.join(" ")}: ${n.failureSummary}`)))
"""
# Elements that reach beyond the window, outside of any box that scrolls.
WIDE = """
(() => {
  const edge = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= edge) return [];
  const hidden = (n) => n && n !== document.body
    && (getComputedStyle(n).overflowX !== "visible" || hidden(n.parentElement));
  return [...document.querySelectorAll("body *")]
    .filter((n) => n.getBoundingClientRect().right > edge + 1 && !hidden(n.parentElement))
    .slice(0, 5).map((n) => n.outerHTML.slice(0, 120))
    .concat(`the page is ${document.documentElement.scrollWidth} wide in a window of ${edge}`);
})()
"""
# Formulas within a line that scroll, and tables or formulas that end where no box scrolls.
CUT = """
(() => {
  const overflow = (n) => getComputedStyle(n).overflowX;
  const scrolls = (n) => ["auto", "scroll"].includes(overflow(n));
  const edge = document.documentElement.clientWidth;
  const cut = (part, box = part.parentElement) => {
    const right = part.getBoundingClientRect().right - 1;
    if (!box || box.matches(".bd-article")) return right > edge;
    const end = overflow(box) === "visible" ? Infinity : box.getBoundingClientRect().right;
    return !scrolls(box) && (right > end || cut(part, box.parentElement));
  };
  const formulas = [...document.querySelectorAll(".bd-article span.math")];
  const bars = formulas.flatMap((n) => [n, ...n.querySelectorAll("*")])
    .filter((n) => scrolls(n) && n.scrollWidth > n.clientWidth);
  const parts = [...document.querySelectorAll(".bd-article :is(table, span.math mjx-math)")];
  return [...bars, ...parts.filter((n) => cut(n))]
    .slice(0, 5).map((n) => `${n.tagName}: ${n.textContent.trim().slice(0, 80)}`);
})()
"""
PHONES = (360, 390)
# Tables wider than their boxes, two frames after a change of width: site.js stacks their rows.
SCROLLING = """
new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() =>
  [...document.querySelectorAll(".bd-article table.table")].filter((table) => {
    const box = table.parentElement;
    return box.scrollWidth > box.clientWidth;
  }).map((table) => table.textContent.trim().slice(0, 80)))
"""
WRONG_ASPECT = """
[...document.querySelectorAll("main img")].filter((n) => {
  const [style, px] = [getComputedStyle(n), Number.parseFloat];
  const width = n.clientWidth - px(style.paddingLeft) - px(style.paddingRight);
  const height = n.clientHeight - px(style.paddingTop) - px(style.paddingBottom);
  const stretched = (width / height) * (n.naturalHeight / n.naturalWidth);
  return n.complete && height > 20 && Math.abs(stretched - 1) > 0.03;
}).map((n) => n.outerHTML.slice(0, 120))
"""


def axe(folder: Path) -> str:
    """Return the source of axe-core, unpacked into `folder`."""
    for package, (digest, parts) in vendor.AXE.items():
        vendor.unpack(package, digest, parts, folder)
    return (folder / "axe.min.js").read_text("utf-8")


def visit(tab: Tab, path: Path, width: int, theme: str) -> None:
    """Open a page, and wait until its formulas and widgets are drawn."""
    tab.window(width, 900, theme)
    tab.open(path.as_uri())
    tab.run(READY)
    if "application/vnd.jupyter.widget-view+json" in path.read_text("utf-8"):
        tab.wait('document.querySelectorAll(".widget-subarea > *").length > 0')


def flaws(tab: Tab, path: Path, other_width: int, theme: str, rules: str, contrast: bool) -> dict:
    """Return the flaws of the page that is open, by kind; `rules` is the source of axe-core.

    The page is measured in its present width, in `other_width` and in the widths of phones. Each
    value is empty, False or zero on a flawless page.
    """
    source = path.read_text("utf-8")
    local = ("file:", "data:", "blob:")
    formulas = 'document.querySelectorAll("mjx-container").length'
    script = """[...document.querySelectorAll("div.math")]
        .filter((box) => getComputedStyle(box).overflowX !== "auto").length"""
    results = {
        "errors": tab.problems,
        "requests": [url for url in tab.requests if not url.startswith(local)],
        "theme": tab.run("document.documentElement.dataset.theme") != theme,
        "missing formulas": tab.run(formulas) < source.count('class="math notranslate'),
        "broken formulas": tab.run(
            'document.querySelectorAll("mjx-merror, [data-mjx-error]").length'
        ),
        "formulas that are cut off": tab.run(script),
        "too wide": tab.run(WIDE),
        "distorted pictures": tab.run(WRONG_ASPECT),
    }
    tab.run(rules + "; null")
    results["axe"] = tab.run(VIOLATIONS.replace("CONTRAST", str(contrast).lower()))
    tab.window(other_width, 900, theme)
    results["too wide in the other width"] = tab.run(WIDE)
    for width in PHONES:
        tab.window(width, 800, theme)
        results[f"tables that scroll in {width} pixels"] = tab.run(SCROLLING)
        results[f"too wide or cut off in {width} pixels"] = tab.run(WIDE) + tab.run(CUT)
    tab.window(other_width, 900, theme)
    return results
