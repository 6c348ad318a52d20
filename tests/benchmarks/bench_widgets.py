"""Time from a key to the new picture of each widget, against a key on an otherwise empty page.

    python tests/benchmarks/bench_widgets.py

A headless Chromium receives real keys. A time runs from the key event to the first moment after
the frame that shows the change. The empty page holds one slider, which changes one line of text.
A ratio of 1 means that the widget adds nothing to what Chromium itself needs.
"""

import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from mmrl.course import widgets
from mmrl.course.widgets.training import LiveAgent, PolicyPlayer

sys.path.append(str(pathlib.Path(__file__).parents[1] / "browser"))
from chrome import Tab, chromium
from drive import SCRIPT
from page import page

TARGET = 0.2  # at most five times the time of a key on an empty page
KINDS = [*widgets.EXPLORERS.values(), PolicyPlayer, LiveAgent]
READY = 'document.querySelectorAll(".mmrl .mmrl-stage").length > 0'
EMPTY = """<!doctype html><div class="mmrl" aria-label="empty page"><input type="range">
<p class="mmrl-stage"></p><p class="mmrl-summary"></p></div><script>
document.querySelector("input").oninput = (event) => {
  document.querySelector(".mmrl-stage").textContent = event.target.value;
};
</script>"""
WATCH = """
globalThis.keyTimes = [];
globalThis.watchKeys = (root) => {
  let pressed = null;
  root.addEventListener("keydown", (event) => { pressed = event.timeStamp; }, true);
  new MutationObserver(() => {
    if (pressed === null) return;
    const start = pressed;
    pressed = null;
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => keyTimes.push(performance.now() - start);
      port2.postMessage(null);
    });
  }).observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
};
for (const root of document.querySelectorAll(".mmrl")) watchKeys(root);
null
"""
NEXT_FRAME = (
    "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => go(null))))"
)


def key_times(tab: Tab, i: int, presses: int) -> list[float]:
    """Milliseconds of keys on the first slider or choice of widget `i` that changes its picture."""
    for j, (kind, _) in enumerate(tab.run(f"mm.list({i})")):
        if kind not in ("range", "radio"):
            continue
        tab.run("keyTimes.length = 0, null")
        for k in range(presses):
            tab.run(f"mm.place({i}, {j}), mm.focus({i}, {j})")
            tab.page.keyboard.press("ArrowLeft" if k % 2 else "ArrowRight")
            tab.run(NEXT_FRAME)
        if times := tab.run("keyTimes"):
            return times
    return []


def medians(tab: Tab, address: str, presses: int) -> dict[str, float]:
    """Median milliseconds of each widget of a page, by its title."""
    tab.window(1280)
    tab.open(address, READY)
    tab.run(SCRIPT + WATCH)
    results = {}
    for i in range(tab.run("mm.count()")):
        if times := key_times(tab, i, presses):
            results[tab.run(f"mm.title({i})")] = statistics.median(times)
    return results


def measure(pages: dict[str, str], presses: int, rounds: int) -> dict[str, float]:
    """The best median of each widget, in interleaved rounds over all pages."""
    with tempfile.TemporaryDirectory() as name:
        folder, best = pathlib.Path(name), {}
        for title, html in pages.items():
            (folder / f"{title}.html").write_text(html, "utf-8")
        with chromium() as browser:
            tab = Tab(browser)
            for _ in range(rounds):
                for title in pages:
                    address = (folder / f"{title}.html").as_uri()
                    for widget, time in medians(tab, address, presses).items():
                        best[widget] = min(time, best.get(widget, time))
    return best


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Milliseconds from a key to the picture of each widget, and their ratios to an empty page."""
    kinds: list[Callable[[], Any]] = KINDS[:2] if quick else KINDS
    pages = {"empty": EMPTY} | {kind.__name__: page([kind()]) for kind in kinds}
    best = measure(pages, *((2, 1) if quick else (20, 3)))
    base = best.pop("empty page")
    return [
        {
            "name": widget,
            "ours": time,
            "peer": base,
            "ratio": base / time,
            "peer_name": "a key on an empty page",
            "unit": "ms",
            "target": TARGET,
        }
        for widget, time in best.items()
    ]


if __name__ == "__main__":
    for row in run():
        print(
            f"{row['name'][:60]:60} {row['ours']:6.1f} / {row['peer']:.1f} ms: {row['ratio']:.2f}"
        )
