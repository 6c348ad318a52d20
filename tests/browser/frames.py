"""Measure every slide in a browser: is all of it on its frame, in letters for the last row?

`make access` runs this where `make slides` has written slides; each deck takes a second or two.
A slide makes its content smaller until it fits (`book/static/slides/slides.js`). What would have to
be smaller than `SMALLEST` has too much on it: divide it, by the metadata of its cells.
"""

import sys
from pathlib import Path
from typing import Any

from chrome import Tab, chromium

SLIDES = Path(__file__).parents[2] / "build" / "slides"
WIDTH, HEIGHT, MARGIN = 1280, 720, 56  # a smaller slide has a smaller margin
SMALLEST = 0.7  # of 27 pixels: 19, on a frame of 720
READY = """
!document.querySelector('script[type*="widget-view"]') || document.querySelector(".mmrl-stage")
"""
# Of every slide: its heading or first words, how small it is, and how far right and down it goes.
MEASURE = """
(async () => {
  await Promise.all([document.fonts.ready, globalThis.MathJax?.startup?.promise]);
  const wait = (ms) => new Promise((go) => setTimeout(go, ms));
  const unseen = "aside, mjx-container *, svg *, details:not([open]) > :not(summary)";
  const scrolls = (n) => getComputedStyle(n).overflowY !== "visible";
  const seen = (n) => n.getClientRects().length && !n.closest(unseen);
  const box = (n) => n.getBoundingClientRect();
  const found = [];
  for (const slide of document.querySelectorAll(".slides section section")) {
    const { h, v } = Reveal.getIndices(slide);
    Reveal.slide(h, v, 99);
    let size = 0;
    do { size = slide.style.zoom; await wait(150); } while (size !== slide.style.zoom);
    const all = [...slide.querySelectorAll("*")].filter(seen), inside = new Set();
    for (const list of all.filter(scrolls)) {
      for (const n of list.querySelectorAll("*")) inside.add(n);
    }
    const boxes = all.filter((n) => !inside.has(n)).map(box);
    found.push({
      text: slide.innerText.trim().split("\\n")[0].slice(0, 60),
      size: +slide.style.zoom,
      right: Math.max(...boxes.map(({ right }) => right)),
      bottom: Math.max(...boxes.map(({ bottom }) => bottom)),
    });
  }
  return found;
})()
"""


def measure(tab: Tab, path: Path) -> list[str]:
    """Return the problems of the slides of one notebook, in sentences."""
    tab.window(WIDTH, HEIGHT)
    tab.open(path.as_uri(), "globalThis.Reveal?.isReady()")
    tab.wait(READY)
    result = tab.run(MEASURE)
    print(
        f"  {path.stem:40}{len(result):3} slides, {min(x['size'] for x in result):.0%}", flush=True
    )
    return [*troubles(result), *tab.problems]


def troubles(results: list[dict[str, Any]]) -> list[str]:
    """What is wrong with slides that were measured, in sentences."""
    lines = []
    for number, slide in enumerate(results, 1):
        where = f"slide {number}, {slide['text']!r}:"
        edge = WIDTH - MARGIN * slide["size"] + 1
        if slide["right"] > edge or slide["bottom"] > HEIGHT:
            lines.append(f"{where} goes to {slide['right']:.0f} × {slide['bottom']:.0f} pixels")
        if slide["size"] < SMALLEST:
            lines.append(f"{where} is {slide['size']:.0%} of its size: divide it")
    return lines


def decks() -> list[Path]:
    """Return the slides of each notebook, without the page that lists them."""
    return sorted(path for path in SLIDES.glob("*.html") if path.stem != "index")


def main(names: list[str]) -> int:
    paths = [SLIDES / f"{name}.html" for name in names] or decks()
    if not paths:
        print("No slides to measure: make slides writes them.")
    bad = 0
    with chromium() as browser:
        tab = Tab(browser)
        for path in paths:
            lines = measure(tab, path)
            print(*(f"    {one}" for one in lines), sep="\n", end="\n" if lines else "")
            bad += len(lines)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
