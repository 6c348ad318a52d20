"""Each widget in a headless Chromium, as on a page without a kernel: keys, themes, bad input."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmrl.course import widgets
from mmrl.course.widgets.base import Series
from mmrl.course.widgets.recall import AGENTS
from mmrl.course.widgets.training import LiveAgent, PolicyPlayer

sys.path.insert(0, str(Path(__file__).parents[2] / "browser"))
from page import Browser, page, visit

CLASSES = [*widgets.EXPLORERS.values(), PolicyPlayer, LiveAgent]


def examine(
    chromium: Browser, folder: Path, views: Sequence[Any], script: str, theme: str = "light"
) -> list[tuple[str, dict[str, Any]]]:
    """(name, report) of every widget shown."""
    reports = visit(chromium, page(views, theme, script), folder / "page.html")
    return [(type(w).__name__, report) for w, report in zip(views, reports, strict=True)]


DRIVE = """
const seen = () => root.querySelector(".mmrl-stage").innerHTML + root.textContent;
const press = (node, key) => {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
  node.focus();
  node.dispatchEvent(event);
  return event.defaultPrevented;
};
report.controls = [];
const kinds = '[type="range"], [type="radio"]:checked, [type="checkbox"]';
const find = () => root.querySelectorAll(kinds);
for (let i = 0; i < find().length; i++) {
  if (!find()[i].getClientRects().length) continue;
  const before = { ...traits };
  let [changed, taken] = [false, true];
  for (const key of ["ArrowLeft", "ArrowRight", "ArrowRight", "Home", "End"]) {
    const [node, now] = [find()[i], seen()];
    if (node.type === "checkbox") node.click();
    else taken &&= press(node, key);
    changed ||= seen() !== now;
  }
  const { id } = find()[i];
  const label = root.querySelector(`label[for="${id}"]`) ?? find()[i].closest("fieldset, label");
  report.controls.push({ name: label?.textContent ?? "", changed, taken });
  for (const [key, value] of Object.entries(before)) model.set(key, value);
}
report.typed = press(root.querySelector("input"), "a");
report.suppress = root.dataset.lmSuppressShortcuts;
report.saved = model.saved;
"""


@pytest.mark.full
@pytest.mark.slow
def test_every_control_answers_to_the_keyboard(chromium: Browser, tmp_path: Path):
    # Each choice in turn, since some controls only appear with one of them.
    views = [cls() for cls in CLASSES]
    views += [widgets.ScanPlayer(method="chunked"), widgets.ScanPlayer(monoid="affine")]
    views += [widgets.ReturnsExplorer(kind=kind) for kind in ("n_step", "vtrace")]
    views += [widgets.MemoryExplorer(family=family) for family in ("s5", "ffm")]
    views += [widgets.RubberBandExplorer(band="clip"), widgets.RubberBandExplorer(change="band")]
    views += [widgets.ClipExplorer(form="kl"), widgets.BatchCalculator(optimizer="sgd")]
    views += [widgets.VtraceExplorer(policy="own"), widgets.ReservoirExplorer(parts=3)]
    views += [widgets.ForgettingExplorer(ewc=1.0), widgets.ScheduleExplorer(n=None)]
    views += [widgets.AccessPatternExplorer(pattern="t%8"), widgets.TileExplorer(m=40, T=40)]
    views += [widgets.StepDebugger(program=name) for name in ("monte_carlo", "tiles")]
    views += [widgets.LiftInspector(recurrence=name, T=16) for name in ("tanh", "oscillator")]
    views += [widgets.GraphEvolution(route="vectorize", stage=k) for k in (0, 3)]
    views += [widgets.ShardedScanPlayer(monoid="affine", resets=True, reset=5)]
    for name, result in examine(chromium, tmp_path, views, DRIVE):
        assert result["controls"], f"{name} has nothing to press"
        for control in result["controls"]:
            assert control["name"].strip(), f"{name} has a control without a label"
            assert control["changed"], f"{name}: {control['name']!r} changes nothing"
            assert control["taken"], f"{name}: {control['name']!r} leaves its keys to the page"
        assert not result["typed"], f"{name}: other keys belong to the page"
        assert result["suppress"] == "true" and result["saved"] > 0


ASK = """
const [form, stage] = [".mmrl-ask", ".mmrl-stage"].map((name) => root.querySelector(name));
const shown = (node) => Boolean(node?.getClientRects().length);
const both = () => [shown(form), shown(stage), root.textContent.includes("Your answer: 7 steps")];
report.seen = [both()];
for (const answer of ["", "  ", "7 steps"]) {
  form.querySelector("input").value = answer;
  form.querySelector("button").click();
  report.seen.push(both());
}
await settle();
report.width = stage.querySelector("svg").getBoundingClientRect().width;
report.focus = root.querySelector(".mmrl-controls").contains(document.activeElement);
report.label = form.querySelector("label").textContent;
report.answer = traits.answer;
"""


@pytest.mark.slow
def test_a_widget_with_a_question_shows_nothing_until_it_is_answered(
    chromium: Browser, tmp_path: Path
):
    question = "After how many steps is half left?"
    views = [widgets.MemoryExplorer(question=question), widgets.ScanPlayer(question=question)]
    for _, result in examine(chromium, tmp_path, views, ASK):
        before, after = [True, False, False], [False, True, True]
        assert result["seen"] == [before, before, before, after]
        assert result["label"] == question and result["answer"] == "7 steps"
        assert result["width"] > 250 and result["focus"]
    with_answer = [widgets.ScanPlayer(question=question, answer="7 steps")]
    [(_, result)] = examine(chromium, tmp_path, with_answer, ASK)
    assert result["seen"][0] == [False, True, True]


PLAY = """
const button = (text) => [...root.querySelectorAll("button")].find((b) => b.textContent === text);
report.levels = ["First", "Back", "Next", "Next", "Back", "Last"].map((text) => {
  button(text).click();
  return traits.level;
});
report.still = traits.level;
button("Play").click();
await settle(1700);
report.playing = [traits.level, Boolean(button("Pause"))];
button("Pause").click();
await settle(1700);
report.paused = traits.level;
"""


@pytest.mark.slow
def test_the_player_steps_plays_and_never_starts_by_itself(chromium: Browser, tmp_path: Path):
    [(_, result)] = examine(chromium, tmp_path, [widgets.ScanPlayer(length=16)], PLAY)
    assert result["levels"] == [0, 0, 1, 2, 1, 9999] and result["still"] == 9999
    assert result["playing"] == [2, True] and result["paused"] == 2


DRAG = """
const box = root.querySelector("svg").getBoundingClientRect();
const grip = root.querySelectorAll(".grip")[0].getBoundingClientRect();
const stage = root.querySelector(".mmrl-stage");
stage.setPointerCapture = () => {};
const point = (type, x) => stage.dispatchEvent(
  new PointerEvent(type, { clientX: x, clientY: box.top + 60, bubbles: true, pointerId: 1 }));
const from = grip.left + grip.width / 2;
point("pointermove", from + 90);
report.hover = traits.first;
point("pointerdown", from);
point("pointermove", from - 60);
report.left = traits.first;
point("pointermove", from + 2000);
point("pointerup", from);
point("pointermove", from);
report.right = [traits.first, traits.second];
"""


@pytest.mark.slow
def test_a_boundary_can_be_dragged_but_not_past_the_next(chromium: Browser, tmp_path: Path):
    [(_, result)] = examine(chromium, tmp_path, [widgets.ResetExplorer()], DRAG)
    assert result["hover"] == 8 and 0 < result["left"] < 8 and result["right"] == [15, 16]


PULL = """
const stage = root.querySelector(".mmrl-stage");
stage.setPointerCapture = () => {};
const pull = (i, by) => {
  const [box, grip] = [root.querySelector("svg"), root.querySelectorAll(".grip")[i]]
    .map((node) => node.getBoundingClientRect());
  const x = grip.left + grip.width / 2;
  for (const [type, at] of [["down", x], ["move", x + by], ["up", x + by]]) {
    stage.dispatchEvent(new PointerEvent(`pointer${type}`, {
      clientX: at, clientY: box.top + 120, bubbles: true, pointerId: 1 }));
  }
  return [traits.log_proximal, traits.log_ratio];
};
report.pulls = [pull(0, -80), pull(1, 5000), pull(1, -40)];
"""


@pytest.mark.slow
def test_policies_can_be_dragged_each_by_its_own_line(chromium: Browser, tmp_path: Path):
    views = [widgets.ClipExplorer(log_ratio=1.0, log_proximal=0.0)]
    [(_, result)] = examine(chromium, tmp_path, views, PULL)
    (first, same), (middle, last), (_, back) = result["pulls"]
    assert same == 1.0 and -0.6 < first < -0.3
    assert middle == first and last == 1.5 and 1.2 < back < 1.4


HOVER = """
const box = () => root.querySelector("svg").getBoundingClientRect();
const stage = root.querySelector(".mmrl-stage");
stage.setPointerCapture = () => {};
const point = (type, x, y) => {
  stage.dispatchEvent(new PointerEvent(type, {
    clientX: box().left + x, clientY: box().top + y, bubbles: true, pointerId: 1 }));
  return [traits.t, traits.k];
};
const on = "pointermove";
// Cells are 24 pixels wide, and the first begins at (46, 64).
report.cells = [[46 + 24 * 5.5, 64 + 24 * 2.5], [20, 70], [47, 64 + 24 * 11.5]]
  .map(([x, y]) => point(on, x, y));
// Time begins 52 pixels from the left; beside and below the charts there is none.
report.moments = [["pointerdown", 53, 60], [on, 5000, 60], ["pointerup", 0, 0], [on, 53, 60],
  ["pointerdown", 53, 5000], ["pointerdown", 20, 60]]
  .map((where) => (point(...where), traits.moment));
"""


@pytest.mark.full
@pytest.mark.slow
def test_what_is_under_the_pointer_comes_into_view(chromium: Browser, tmp_path: Path):
    views = [widgets.AccessPatternExplorer(), widgets.ScheduleExplorer()]
    (_, access), (_, schedule) = examine(chromium, tmp_path, views, HOVER)
    assert access["cells"] == [[2, 5], [2, 5], [11, 0]]
    assert schedule["moments"] == [0, 117, 117, 117, 117, 117]


CLICK = """
const plain = (node) => node.textContent.replace("▶", "").trim();
const line = (text) => [...root.querySelectorAll("pre code")].find((node) => plain(node) === text);
const current = () => root.querySelector("[aria-current=step]");
const says = () => [traits.moment, plain(current())];
report.lines = ["grad(i, t - 2)", "grad(i, t - 2)", "last()", "for t in range(T):"]
  .map((text) => (line(text)?.click(), says()));
await settle();
const box = root.querySelector("pre").getBoundingClientRect();
const marked = current().getBoundingClientRect();
report.visible = marked.top >= box.top && marked.bottom <= box.bottom;
const picture = root.querySelector("svg").getBoundingClientRect();
const press = (x, y) => root.querySelector(".mmrl-stage").dispatchEvent(new PointerEvent(
  "pointerdown", { clientX: picture.left + x, clientY: picture.top + y, bubbles: true }));
// The second row is act, whose cells begin 108 pixels from the left; beside them there is none.
report.cells = [[120, 80], [20, 80]].map(([x, y]) => (press(x, y), says()));
"""


@pytest.mark.slow
def test_a_click_leads_to_the_event(chromium: Browser, tmp_path: Path):
    [(_, result)] = examine(chromium, tmp_path, [widgets.StepDebugger(moment=47)], CLICK)
    assert result["lines"][0] == [49, "grad(i, t - 2)"]
    assert result["lines"][1] == [64, "grad(i, t - 2)"]
    assert result["lines"][2:] == [[129, "last()"]] * 2 and result["visible"]
    assert result["cells"] == [[7, "act(i, t)"]] * 2


LABELS = """
const box = (node) => node.getBoundingClientRect();
const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
const within = (a, b) => a.left >= b.left && a.right <= b.right;
report.read = 0;
report.hidden = [];
for (const width of ["760px", "404px"]) {
  el.style.width = width;
  await settle();
  for (const returns of ["recursive", "window"]) for (const stage of [0, 1, 2, 3]) {
    model.set("returns", returns);
    model.set("stage", stage);
    const svg = root.querySelector("svg");
    const ops = [...svg.querySelectorAll("g")].filter((g) => g.querySelector("title"));
    const labels = [...svg.children].filter((node) => node.tagName === "text");
    const names = ops.flatMap((g) => [...g.querySelectorAll("text")]
      .map((text) => [text, box(g.querySelector("rect"))]));
    report.read += labels.length + names.length;
    const bad = [
      ...names.filter(([text, frame]) => !within(box(text), frame)).map(([text]) => text),
      ...names.map(([text]) => text).filter((text) => text.textContent.includes("…")),
      ...labels.filter((text) => !within(box(text), box(svg))
        || names.some(([, frame]) => over(box(text), frame))
        || labels.some((other) => other !== text && over(box(text), box(other)))),
    ];
    report.hidden.push(...bad.map((text) => [width, returns, stage, text.textContent].join(" ")));
  }
}
"""


@pytest.mark.full
@pytest.mark.slow
def test_no_name_in_a_graph_is_cut_or_covered(chromium: Browser, tmp_path: Path):
    views = [widgets.GraphEvolution(route=route) for route in ("tile", "vectorize")]
    for _, result in examine(chromium, tmp_path, views, LABELS):
        assert result["hidden"] == [] and result["read"] > 500


LOOK = """
const svgs = [...root.querySelectorAll("svg")];
report.labels = svgs.map((node) => [node.getAttribute("role"), node.getAttribute("aria-label")]);
report.live = root.querySelector(".mmrl-summary").getAttribute("aria-live");
report.summary = root.querySelector(".mmrl-summary").textContent;
report.notes = root.querySelector(".mmrl-notes").textContent;
report.paper = getComputedStyle(root).backgroundColor;
report.ink = getComputedStyle(root).color;
el.style.width = "404px";
await settle();
const right = (node) => node.getClientRects().length ? node.getBoundingClientRect().right : 0;
report.over = Math.max(...[...root.querySelectorAll("*")].map(right)) - right(root);
cleanup();
report.left = Object.values(listeners).flat().length;
"""


@pytest.mark.full
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_seen_is_said_and_fits(theme: str, chromium: Browser, tmp_path: Path):
    paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 25, 29)"}[theme]
    for name, result in examine(chromium, tmp_path, [cls() for cls in CLASSES], LOOK, theme):
        assert result["labels"] and all(role == "img" and text for role, text in result["labels"])
        assert result["live"] == "polite" and any(c.isdigit() for c in result["summary"])
        assert not re.search("NaN|undefined|Infinity", result["summary"]), name
        assert paper == result["paper"] != result["ink"], name
        assert result["over"] <= 0, f"{name} is wider than a narrow page"
        assert result["left"] == 0, f"{name}: listeners outlive the widget"
        assert result["notes"] == "", name


# Settings with which an array is drawn, if those of a new widget do not suffice.
DRAWN_WITH: dict[tuple[str, str], dict[str, Any]] = {
    ("ScanPlayer", "values"): {"monoid": "sum"},
    ("ReturnsExplorer", "log_ratios"): {"kind": "vtrace"},
    ("MemoryExplorer", "real"): {"family": "given"},
    ("MemoryExplorer", "frequencies"): {"family": "s5"},
    **{("RecallExplorer", name): {"agent": name} for name in AGENTS},
    ("SensitivityExplorer", "segments"): {"log": True},
    ("VtraceExplorer", "ratios"): {"policy": "own"},
    ("ShardedScanPlayer", "values"): {"monoid": "affine"},
}
ARRAYS = [
    (cls, trait)
    for cls in widgets.EXPLORERS.values()
    for trait, kind in cls.class_traits().items()
    if isinstance(kind, Series) and trait != "imag"  # which is as long as `real`
]
ENDS = """
const labels = [...root.querySelectorAll("label")];
const slider = (text) => labels.find((label) => label.textContent === text).control;
model.set("first", 20);
report.ends = [slider("2nd episode at").value, slider("3rd episode at").value];
"""


@pytest.mark.slow
def test_a_slider_shows_what_is_drawn(chromium: Browser, tmp_path: Path):
    [(_, result)] = examine(chromium, tmp_path, [widgets.ResetExplorer()], ENDS)
    assert result["ends"] == ["20", "21"]


BAD: dict[str, tuple[Any, str]] = {
    "nan": ([1.0, np.nan, 2.0], "not finite"),
    "empty": ([], "is empty"),
    "enormous": (np.arange(2_000_000), "has 2000000"),
    "one": ([1.0], ""),
    "huge": ([1e300, -1e300, 0.0], ""),
}


@pytest.mark.full
@pytest.mark.slow
def test_bad_arrays_are_met_with_a_calm_word(chromium: Browser, tmp_path: Path):
    views, words = [], []
    for values, word in BAD.values():
        for cls, trait in ARRAYS:
            settings = DRAWN_WITH.get((cls.__name__, trait), {})
            views.append(cls(**{trait: values}, **settings))
            words.append(word)
    for (name, result), word in zip(examine(chromium, tmp_path, views, LOOK), words, strict=True):
        assert word in result["notes"], (name, word)
        assert result["labels"] and "cannot be drawn" not in result["notes"], (name, word)
