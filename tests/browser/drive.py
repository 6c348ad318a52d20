"""Move controls of the widgets on a page, by keys and by mouse, and see whether they change it.

The page may be one of the site, or JupyterLab: both show the same roots, `.mmrl`.
"""

from dataclasses import dataclass, field
from typing import Any

from chrome import Tab

SCRIPT = """
globalThis.mm = (() => {
  const kinds = 'input[type="range"], input[type="radio"], input[type="checkbox"], button, .grip';
  const roots = () => [...document.querySelectorAll(".mmrl")]
    .filter((n) => n.querySelector(".mmrl-stage"));
  const shown = (node) => node.getClientRects().length > 0;
  const controls = (i) => [...roots()[i].querySelectorAll(kinds)].filter(
    (n) => shown(n) && (n.type !== "radio" || n.checked) && n.textContent !== "Play");
  const name = (n) => n.getAttribute("aria-label")
    ?? n.closest("fieldset")?.querySelector("legend")?.textContent
    ?? n.labels?.[0]?.textContent ?? n.textContent.trim();
  const box = (node) => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return { left, top, width, height };
  };
  let before = "";
  return {
    count: () => roots().length,
    title: (i) => roots()[i].getAttribute("aria-label"),
    // The pictures and what is said of them, without names that are new in every picture.
    seen: (i) => (roots()[i].querySelector(".mmrl-stage").innerHTML
      + roots()[i].querySelector(".mmrl-summary").textContent).replace(/mmrl-[a-z0-9]+-\\d+/g, ""),
    mark(i) { before = this.seen(i); },
    changed(i) { return this.seen(i) !== before; },
    list: (i) => controls(i).map(
      (n) => [n.tagName === "INPUT" ? n.type : n.tagName, name(n) || "grip"]),
    place(i, j) {
      const node = controls(i)[j];
      if (!node) return null;
      node.scrollIntoView({ block: "center" });
      return box(node);
    },
    focus(i, j) {
      controls(i)[j]?.focus({ preventScroll: true });
      return document.activeElement === controls(i)[j];
    },
    // The other options of the choice that control j belongs to.
    options: (i, j) => [...controls(i)[j].closest("fieldset").querySelectorAll("label")].map(box),
    // The box for an answer, if the widget asks for one before it shows anything.
    asks(i) {
      const input = roots()[i].querySelector(".mmrl-ask input");
      if (!input || !shown(input)) return false;
      input.scrollIntoView({ block: "center" });
      input.focus();
      return !shown(roots()[i].querySelector(".mmrl-stage"));
    },
    uncovered: (i) => shown(roots()[i].querySelector(".mmrl-stage")),
  };
})();
"""
KEYS = ("ArrowLeft", "ArrowRight", "ArrowRight", "Home", "End")


@dataclass
class Report:
    """What one widget did."""

    title: str
    controls: int = 0
    question: bool = False  # was it covered until an answer was given?
    problems: list[str] = field(default_factory=list)  # what changed nothing, and how it was tried

    def __str__(self) -> str:
        return f"{self.title[:48]:50}{self.controls:3} controls"


def drive(tab: Tab, most: int = 99) -> list[Report]:
    """Every widget of the page that is open, with its first controls, `most` at most."""
    tab.run(SCRIPT + "null")
    return [_widget(tab, i, most) for i in range(tab.run("mm.count()"))]


def _widget(tab: Tab, i: int, most: int) -> Report:
    report = Report(tab.run(f"mm.title({i})"))
    if tab.run(f"mm.asks({i})"):
        report.question = True
        tab.page.keyboard.insert_text("7")
        tab.page.keyboard.press("Enter")
        if not tab.run(f"mm.uncovered({i})"):
            report.problems.append("the answer uncovers nothing")
            return report
    # What is shown depends on choices made on the way, so the list is asked for again.
    j = 0
    while j < min(most, len(result := tab.run(f"mm.list({i})"))):
        kind, name = result[j]
        attempts = (_by_keys, _by_mouse) if kind != "g" and kind != "rect" else (_by_mouse,)
        for attempt in attempts:
            if not attempt(tab, i, j, kind):
                report.problems.append(f"{name} ({kind}) {attempt.__name__.removeprefix('_')}")
        report.controls += 1
        j += 1
    return report


def _by_keys(tab: Tab, i: int, j: int, kind: str) -> bool:
    keys = {"BUTTON": ("Enter", " "), "checkbox": (" ",)}.get(kind, KEYS)
    change = False
    for key in keys:
        if not tab.run(f"mm.mark({i}), mm.place({i}, {j}), mm.focus({i}, {j})"):
            break
        tab.page.keyboard.press(key)
        change |= _has_changed(tab, i)
    return change or _is_at_end(tab, i, j, kind)


def _by_mouse(tab: Tab, i: int, j: int, kind: str) -> bool:
    box = tab.run(f"mm.place({i}, {j})")
    change = False
    for number in range(3 if kind != "radio" else len(tab.run(f"mm.options({i}, {j})"))):
        box = tab.run(f"mm.mark({i}), mm.place({i}, {j})")
        if box is None:
            break
        _point(tab, i, j, kind, box, number)
        change |= _has_changed(tab, i)
    return change or _is_at_end(tab, i, j, kind)


def _point(tab: Tab, i: int, j: int, kind: str, box: dict[str, float], number: int) -> None:
    middle = (box["left"] + box["width"] / 2, box["top"] + box["height"] / 2)
    if kind == "range":
        tab.page.mouse.click(box["left"] + box["width"] * (0.25, 0.75, 0.5)[number], middle[1])
    elif kind == "radio":
        option = tab.run(f"mm.options({i}, {j})")[number]
        tab.page.mouse.click(
            option["left"] + option["width"] / 2, option["top"] + option["height"] / 2
        )
    elif kind in ("checkbox", "BUTTON"):
        tab.page.mouse.click(*middle)
    else:
        tab.drag(middle, (middle[0] + (60, -120, 60)[number], middle[1]))


def _has_changed(tab: Tab, i: int) -> bool:
    """Whether the widget shows something else than when it was marked, or does in two pictures."""
    twice = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
    return tab.run(f"mm.changed({i}) || {twice}.then(() => mm.changed({i}))")


def _is_at_end(tab: Tab, i: int, j: int, kind: str) -> bool:
    """A button at the end of its way: *Next* after the last step. Its opposite has to work."""
    if kind != "BUTTON":
        return False
    names: list[Any] = [name for kind, name in tab.run(f"mm.list({i})")]
    opposite = {"Next": "First", "Last": "First", "Back": "Last", "First": "Last"}
    name = names[j] if j < len(names) else None
    if name not in opposite:
        return False
    tab.run(f"mm.place({i}, {names.index(opposite[name])})")
    tab.run(f"mm.focus({i}, {names.index(opposite[name])})")
    tab.page.keyboard.press("Enter")
    tab.run(f"mm.mark({i}), mm.place({i}, {j}), mm.focus({i}, {j})")
    tab.page.keyboard.press("Enter")
    return _has_changed(tab, i)
