// Parts that all widgets share: text, controls, and a frame that redraws. Pure functions come first.

/** Format a number with at most `digits` significant digits and a typographic minus sign. */
export function num(value, digits = 3) {
  if (typeof value !== "number" || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const plain = value === 0 || (size >= 1e-4 && size < 1e6);
  const text = plain ? String(Number(value.toPrecision(digits))) : value.toExponential(1).replace("e+", "e");
  return text.replace("-", "−");
}

export const percent = (share) => `${num(100 * share, share < 0.1 ? 2 : 3)} %`;
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
export const range = (length, f = (i) => i) => Array.from({ length }, (_, i) => f(i));

/**
 * The part of an array that can be drawn, and notes about the remaining part.
 * `raw` is {values, length} from `mmrl.course.widgets.base.Series`, where null marks infinity or NaN,
 * or a plain array. Returns {values, notes}; `values` is never empty.
 */
export function series(raw, { name, most, fallback, unit = "step" }) {
  const given = Array.isArray(raw) ? raw : (raw?.values ?? []);
  const length = Array.isArray(raw) ? raw.length : (raw?.length ?? given.length);
  if (!given.length) {
    return { values: fallback, notes: [`\`${name}\` is empty, so an example is shown instead.`] };
  }
  const notes = [];
  const values = given.slice(0, most).map((x) => (Number.isFinite(x) ? x : 0));
  const bad = given.slice(0, most).findIndex((x) => !Number.isFinite(x));
  if (length > most) {
    notes.push(`\`${name}\` has ${length} ${unit}s; the first ${most} are shown.`);
  }
  if (bad >= 0) {
    const count = given.slice(0, most).filter((x) => !Number.isFinite(x)).length;
    const what = count === 1 ? "entry that is" : "entries that are";
    const where = `${unit} ${bad}${count > 1 ? " first" : ""}`;
    notes.push(`\`${name}\` has ${count} ${what} not finite (${where}); drawn as 0.`);
  }
  return { values, notes };
}

/** The value that a key selects on a slider, or null for other keys. */
export function slide(key, value, { min, max, step }) {
  const page = Math.max(step, Math.round((max - min) / 10 / step) * step);
  const by = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step };
  Object.assign(by, { PageUp: page, PageDown: -page });
  if (key === "Home") return min;
  if (key === "End") return max;
  if (!(key in by)) return null;
  // Count steps from `min`, so that 0.1 + 0.2 gives 0.3.
  const count = Math.round((value + by[key] - min) / step);
  return clamp(Number((min + count * step).toPrecision(12)), min, max);
}

/** The button that a key selects in a group of radio buttons. Unlike on a slider, "down" means next. */
export function pick(key, at, count) {
  const turned = { ArrowDown: "ArrowRight", ArrowUp: "ArrowLeft" }[key] ?? key;
  return key.startsWith("Page") ? null : slide(turned, at, { min: 0, max: count - 1, step: 1 });
}

const make = (namespace) => (tag, attributes, ...children) => {
  const node = document.createElementNS(namespace, tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null));
  return node;
};
/** An HTML element: html("p", {class: "x"}, "text", child). */
export const html = make("http://www.w3.org/1999/xhtml");
/** An SVG element. */
export const svg = make("http://www.w3.org/2000/svg");

/** A picture, described by `label` for screen readers. */
export function picture(width, height, label, ...children) {
  const box = { class: "mmrl-chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img" };
  return svg("svg", { ...box, "aria-label": label }, ...children);
}

/** Diagonal stripes that fill shapes, as a cue in addition to color: {fill, defs}. */
export function stripes(color) {
  const id = unique();
  const box = { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
  const bar = svg("rect", { width: 2.4, height: 6, class: `f-${color}` });
  return { fill: `url(#${id})`, defs: svg("defs", {}, svg("pattern", box, bar)) };
}

let ids = 0;
// Each widget is a separate module with a separate counter, so counts repeat on a page.
export const unique = () => `mmrl-${Math.random().toString(36).slice(2, 9)}-${ids++}`;

/**
 * Put a widget into `el`: a title, controls, pictures and a sentence that describes them.
 *
 * `controls(ui)` adds the controls; `draw(ui)` returns {pictures, summary, notes} and runs again
 * whenever a trait in `names` or the width changes. Return the clean-up function for anywidget.
 */
export function frame({ model, el }, { title, names, controls, draw }) {
  const settings = html("div", { class: "mmrl-controls" });
  const stage = html("div", { class: "mmrl-stage" });
  const summary = html("p", { class: "mmrl-summary", "aria-live": "polite" });
  const notes = html("p", { class: "mmrl-notes", role: "status" });
  const head = html("div", { class: "mmrl-title" }, title);
  // The attribute disables JupyterLab's shortcuts for keys that are pressed in the widget.
  const shell = { class: "mmrl", role: "group", "aria-label": title };
  const root = html("div", { ...shell, "data-lm-suppress-shortcuts": "true" });
  root.append(head, settings, stage, summary, notes);
  el.replaceChildren(root);

  const cleanups = [];
  ask(model, root, head, cleanups);
  const ui = {
    root, settings, stage, cleanups, syncs: [],
    width: 640,
    get: (name) => model.get(name),
    set(name, value) {
      model.set(name, value);
      model.save_changes();
    },
  };
  const redraw = () => {
    for (const sync of ui.syncs) sync();
    try {
      const seen = draw(ui);
      stage.replaceChildren(...seen.pictures);
      summary.textContent = seen.summary;
      notes.textContent = (seen.notes ?? []).join(" ");
    } catch (error) {
      notes.textContent = `This cannot be drawn (${error.message}). Move a control to continue.`;
    }
  };
  controls(ui);
  for (const name of names) model.on(`change:${name}`, redraw);
  const watch = new ResizeObserver(() => {
    // Ignore smaller changes: a scroll bar that a redraw adds would cause endless redraws.
    const width = Math.round(stage.clientWidth);
    if (!width || Math.abs(width - ui.width) < 20) return;
    ui.width = width;
    requestAnimationFrame(redraw);
  });
  watch.observe(stage);
  redraw();
  return () => {
    watch.disconnect();
    for (const name of names) model.off(`change:${name}`, redraw);
    for (const cleanup of cleanups) cleanup();
  };
}

/** Cover a widget that has a `question` until the reader enters an answer. */
function ask(model, root, head, cleanups) {
  const question = model.get("question");
  if (!question) return;
  const covered = [...root.children].filter((node) => node !== head);
  const id = unique();
  const input = html("input", { type: "text", id, size: 16, autocomplete: "off", required: true });
  const reveal = html("button", { type: "submit" }, "Reveal");
  const form = html("form", { class: "mmrl-ask" }, html("label", { for: id }, question), input, reveal);
  const said = html("p", { class: "mmrl-said" });
  head.after(form, said);
  const sync = () => {
    const answer = model.get("answer");
    form.hidden = Boolean(answer);
    for (const node of covered) node.hidden = !answer;
    said.hidden = !answer;
    said.textContent = `Your answer: ${answer}`;
  };
  form.addEventListener("submit", (event) => {
    take(event);
    const answer = input.value.trim();
    // Reveal nothing without an answer; any guess is accepted.
    if (!answer) return input.focus();
    // The site submits the form of an earlier visit, which must not move the focus.
    const focused = form.contains(document.activeElement);
    model.set("answer", answer);
    model.save_changes();
    if (focused) root.querySelector(".mmrl-controls :is(input, button)")?.focus({ preventScroll: true });
  });
  model.on("change:answer", sync);
  cleanups.push(() => model.off("change:answer", sync));
  sync();
}

const plain = (event) => !(event.ctrlKey || event.metaKey || event.altKey);

function take(event) {
  event.preventDefault();
  event.stopPropagation();
}

/**
 * A slider for a trait. `min` and `max` may be functions if the ends depend on other traits.
 * `log` sliders move in powers of ten; `when` determines when the slider is shown.
 */
export function slider(ui, name, { label, min, max, step, log = false, format = num, when }) {
  const id = unique();
  const scale = log ? { to: Math.log10, from: (x) => 10 ** x } : { to: (x) => x, from: (x) => x };
  const end = (limit) => (typeof limit === "function" ? limit() : limit);
  const ends = () => ({ min: scale.to(end(min)), max: scale.to(end(max)), step });
  const input = html("input", { type: "range", id, ...ends() });
  const output = html("output", { for: id });
  const box = html("div", { class: "mmrl-slider" }, html("label", { for: id }, label), input, output);
  const set = (at) => ui.set(name, Number(scale.from(at).toPrecision(12)));
  input.addEventListener("input", () => set(Number(input.value)));
  // JupyterLab intercepts the arrow keys of a native slider; this handler receives them first.
  input.addEventListener("keydown", (event) => {
    const value = plain(event) ? slide(event.key, Number(input.value), ends()) : null;
    if (value === null) return;
    take(event);
    set(value);
  });
  ui.syncs.push(() => {
    const value = clamp(Number(ui.get(name)), end(min), end(max));
    Object.assign(input, ends());
    input.value = scale.to(value);
    output.textContent = format(value);
    input.setAttribute("aria-valuetext", format(value));
    box.hidden = when ? !when() : false;
  });
  ui.settings.append(box);
}

/** Radio buttons for a trait with a few options: [[value, text], …]. */
export function choice(ui, name, { label, options, when }) {
  const group = unique();
  const inputs = options.map(([value]) => html("input", { type: "radio", name: group, value }));
  const labels = options.map(([, text], i) => html("label", {}, inputs[i], html("span", {}, text)));
  const row = html("div", { class: "mmrl-options" }, labels);
  const box = html("fieldset", { class: "mmrl-choice" }, html("legend", {}, label), row);
  const set = (i) => ui.set(name, options[i][0]);
  inputs.forEach((input, i) => input.addEventListener("change", () => set(i)));
  box.addEventListener("keydown", (event) => {
    const now = Math.max(0, inputs.findIndex((input) => input.checked));
    const at = plain(event) ? pick(event.key, now, options.length) : null;
    if (at === null) return;
    take(event);
    set(at);
    inputs[at].focus();
  });
  ui.syncs.push(() => {
    inputs.forEach((input, i) => (input.checked = options[i][0] === ui.get(name)));
    box.hidden = when ? !when() : false;
  });
  ui.settings.append(box);
}

/** A check box for a boolean trait. */
export function toggle(ui, name, { label, when }) {
  const input = html("input", { type: "checkbox" });
  const box = html("label", { class: "mmrl-toggle" }, input, html("span", {}, label));
  input.addEventListener("change", () => ui.set(name, input.checked));
  ui.syncs.push(() => {
    input.checked = Boolean(ui.get(name));
    box.hidden = when ? !when() : false;
  });
  ui.settings.append(box);
}

/** The position that stands for the last one. */
export const END = 9999;

/** Buttons First, Back, Play, Next, Last for an integer trait from 0 to `last()`. */
export function player(ui, name, { last, what, pause = 700 }) {
  let timer = null;
  const go = (value) => ui.set(name, clamp(value, 0, last()));
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  };
  const button = (text, action, title) => {
    const node = html("button", { type: "button", title }, text);
    node.addEventListener("click", action);
    return node;
  };
  const halt = (f) => () => {
    stop();
    go(f());
  };
  const now = () => clamp(ui.get(name), 0, last());
  const play = button("Play", () => {
    if (timer) return stop();
    if (now() >= last()) go(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      go(now() + 1);
      if (now() >= last()) stop();
    }, pause);
  }, `Play every ${what}`);
  ui.cleanups.push(stop);
  const box = html("div", { class: "mmrl-player", role: "group", "aria-label": `${what} by ${what}` });
  box.append(
    button("First", halt(() => 0), `Before the first ${what}`),
    button("Back", halt(() => now() - 1), `One ${what} back`),
    play,
    button("Next", halt(() => now() + 1), `One ${what} forward`),
    button("Last", () => (stop(), ui.set(name, END)), `After the last ${what}`),
  );
  ui.settings.append(box);
}

/** Call `move(x, y)`, in pixels of the first picture, while a pointer is pressed on the stage. */
export function drag(ui, { start, move }) {
  let held = null;
  const at = (event) => {
    const box = ui.stage.querySelector("svg").getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  ui.stage.addEventListener("pointerdown", (event) => {
    held = start(...at(event));
    if (held === null) return;
    event.preventDefault();
    ui.stage.setPointerCapture(event.pointerId);
  });
  ui.stage.addEventListener("pointermove", (event) => held !== null && move(held, ...at(event)));
  for (const end of ["pointerup", "pointercancel"]) {
    ui.stage.addEventListener(end, () => (held = null));
  }
}
