"""Walk over widgets with the keyboard alone: is every control reached, seen and operated by keys?

A person without a mouse presses Tab until a control has the focus, sees which one it is, and
presses its keys. So does this: nothing is focused by a script but a button in front of the widget,
and the walk goes there and back, from the button behind it.
"""

from dataclasses import dataclass, field
from typing import Any

from chrome import Tab

SCRIPT = """
globalThis.walk = (() => {
  const kinds = "input, button, select, textarea, summary, a[href], "
    + "[tabindex]:not([tabindex='-1'])";
  const root = () => document.querySelector(WHERE);
  const shown = (n) => n.getClientRects().length > 0 && !n.disabled;
  const edge = (id) => Object.assign(document.createElement("button"), { id, textContent: id });
  // What is said and shown, without names that are new in every picture.
  const seen = () => root().innerHTML.replace(/mmrl-[a-z0-9]+-\\d+/g, "")
    + [...root().querySelectorAll("input, select")].map((n) => [n.value, n.checked]).join();
  const name = (n) => n.getAttribute("aria-label")
    ?? n.closest("fieldset")?.querySelector("legend")?.textContent
    ?? (n.labels?.[0]?.textContent || n.textContent.trim() || n.title);
  const kind = (n) => n.tagName === "INPUT" ? n.type : n.tagName;
  // Of radio buttons the one that is chosen takes the focus for all of them.
  const controls = () => [...root().querySelectorAll(kinds)].filter(
    (n) => shown(n) && (n.type !== "radio" || n.checked));
  const known = (n) => n.type === "radio" ? n.name : n;
  let before = "", ids = new Map();
  const number = (n) => {
    const key = known(n);
    if (!ids.has(key)) ids.set(key, ids.size);
    return ids.get(key);
  };
  const about = (n) => ({ id: number(n), name: name(n), kind: kind(n),
    text: n.tagName === "BUTTON" ? n.textContent.trim() : "" });
  return {
    begin() {
      ids = new Map();
      root().before(edge("front"));
      root().after(edge("behind"));
    },
    end: () => ["front", "behind"].forEach((id) => document.getElementById(id).remove()),
    from: (id) => document.getElementById(id).focus(),
    all: () => controls().map(about),
    // The control that has the focus, or the end that was reached, or null: it went elsewhere.
    at() {
      const n = document.activeElement;
      if (n.id === "front" || n.id === "behind") return { edge: n.id };
      return root().contains(n) ? about(n) : null;
    },
    box() {
      const n = document.activeElement;
      const part = n.type === "radio" || n.type === "checkbox" ? n.closest("label") ?? n : n;
      part.scrollIntoView({ block: "center" });
      const { left, top, width, height } = part.getBoundingClientRect();
      const [x, y] = [Math.max(left - 5, 0), Math.max(top - 5, 0)];
      return { x, y, width: width + 10, height: height + 10 };
    },
    // A copy of the focus without its look: what a picture of the control is compared with.
    plain(on) {
      let style = document.getElementById("plain");
      if (on && !style) {
        style = Object.assign(document.createElement("style"), { id: "plain" });
        const it = ":is(:focus, #none#none)";  // stronger than what a page says of its controls
        style.textContent = `${it}, ${it} + * { outline: none !important; `
          + "box-shadow: none !important; }";
        document.head.append(style);
      } else if (!on) style?.remove();
    },
    mark() { before = seen(); },
    changed: () => seen() !== before,
    // What scrolls is operated if it moves, or if all of it can be seen.
    scrolls() {
      const n = document.activeElement;
      return n.scrollWidth <= n.clientWidth && n.scrollHeight <= n.clientHeight
        || n.scrollTop + n.scrollLeft > 0;
    },
  };
})();
null
"""
KEYS = {
    "range": ("ArrowLeft", "ArrowRight", "ArrowRight", "Home", "End", "ArrowLeft"),
    "radio": ("ArrowRight", "ArrowLeft", "ArrowDown"),
    "checkbox": (" ",),
    "BUTTON": ("Enter", " "),
    "SELECT": ("ArrowDown", "ArrowUp", "ArrowDown"),
    "number": ("ArrowUp", "ArrowDown", "ArrowUp"),
}
TWICE = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
MOST = 200  # stops of Tab: a walk that is longer does not come to an end


@dataclass
class Walk:
    """How a walk went. `problems` are sentences: empty means that keys are enough."""

    name: str
    stops: int = 0  # of Tab, from the button in front of the widget to the one behind it
    controls: int = 0  # which the walks met, also those that appear on the way
    problems: list[str] = field(default_factory=list)


def walk(tab: Tab, name: str, where: str, pressing: bool = True) -> Walk:
    """Tab there and back over the element at `where`, a selector, which is on the open page.

    Without `pressing`, buttons are reached and seen but not pressed.
    """
    tab.run(SCRIPT.replace("WHERE", repr(where)))
    tab.run("walk.begin()")
    result, used_keys, labels = Walk(name), set(), {}
    for start, end, key in (("front", "behind", "Tab"), ("behind", "front", "Shift+Tab")):
        tab.run(f"walk.from('{start}')")
        expected = {one["id"]: one for one in tab.run("walk.all()")}
        visits, stops = set(), 0
        for stops in range(MOST):  # noqa: B007
            tab.page.keyboard.press(key)
            at = tab.run("walk.at()")
            if at is None or "edge" in at:
                break
            visits.add(at["id"])
            labels[at["id"]] = at
            if not _is_seen(tab):
                result.problems.append(f"{_label(at)}: the focus cannot be seen")
            # On the way back only what had nothing to do before, as *Back* at the first step.
            if at["id"] not in used_keys and _operate(tab, at, pressing):
                used_keys.add(at["id"])
        else:
            result.problems.append(f"{key} does not leave it after {MOST} stops")
            break
        if at is None or at["edge"] != end:
            result.problems.append(f"{key} leaves it for another place of the page")
        result.stops = result.stops or stops
        controls = {one["id"]: one for one in tab.run("walk.all()")}  # keys may have hidden some
        rest = [one for i, one in expected.items() if i in controls and i not in visits]
        result.problems += [f"{_label(one)}: {key} does not reach it" for one in rest]
    result.controls = len(labels)
    nameless = [one for one in labels.values() if not one["name"].strip()]
    result.problems += [f"{_label(one)}: it has no name" for one in nameless]
    idle = [one for i, one in labels.items() if i not in used_keys]
    result.problems += [f"{_label(one)}: its keys change nothing" for one in idle]
    tab.run("walk.end()")
    result.problems = sorted(set(result.problems))
    return result


def _label(control: dict[str, Any]) -> str:
    return f"{control['text'] or control['name'] or 'a control'} ({control['kind']})"


def _is_seen(tab: Tab) -> bool:
    """Whether a picture of the control differs from one without the mark of its focus."""
    clip = tab.run("walk.box()")
    pictures = []
    for plain in ("false", "true"):
        tab.run(f"walk.plain({plain}), {TWICE}.then(() => null)")
        pictures.append(tab.page.screenshot(clip=clip, caret="initial"))
    tab.run("walk.plain(false)")
    return pictures[0] != pictures[1]


def _operate(tab: Tab, control: dict[str, Any], pressing: bool) -> bool:
    """Whether the keys of a control do what they are for."""
    kind = control["kind"]
    if kind in ("text", "textarea"):
        tab.run("walk.mark()")
        tab.page.keyboard.insert_text("7")
        return tab.run("document.activeElement.value.includes('7')")
    if kind == "BUTTON" and not pressing:
        return True
    if kind not in KEYS:
        tab.page.keyboard.press("ArrowRight")
        tab.page.keyboard.press("ArrowDown")
        tab.run("new Promise((go) => setTimeout(go, 300)).then(() => null)")
        return tab.run("walk.scrolls()")
    tab.run("walk.mark()")
    change = False
    for key in KEYS[kind]:
        tab.page.keyboard.press(key)
        change |= tab.run(f"{TWICE}.then(() => walk.changed())")
    return change
