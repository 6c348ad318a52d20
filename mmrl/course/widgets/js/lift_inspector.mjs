// A recurrence and its (a, b), or the operation that prevents a scan; the loop and the tree.
import { choice, clamp, frame, html, num, picture, player, plural, range, slider, svg } from "./core.mjs";
import { path, plot } from "./plot.mjs";

/** Forms of the compiler: one step, and the composition of two steps, which has the same form. */
const FORMS = {
  sum: ["x + b", "b₁ + b₂"],
  affine: ["a·x + b", "a₂·a₁ and a₂·b₁ + b₂"],
  matrix: ["A·x + b", "A₂·A₁ and A₂·b₁ + b₂"],
  max: ["max(x + a, b)", "a₁ + a₂ and max(b₁ + a₂, b₂)"],
};

/** The levels of the tree; at each level, the node `to` is combined with the node `from`. */
export function levels(T) {
  const found = [];
  for (let far = 1; far < T; far *= 2) found.push(range(T - far, (t) => [t, t + far]));
  return found;
}

/** [name, title] of the examples, in order of position. */
export const inOrder = (examples) => Object.entries(examples)
  .sort(([, one], [, other]) => one.place - other.place).map(([name, { title }]) => [name, title]);

/** The largest difference between two results in float32. */
export function difference(loop, tree) {
  return Math.max(...loop.map((x, t) => Math.abs(Math.fround(x) - Math.fround(tree[t]))));
}

/** The first T steps that the loop runs; if it runs backward, these are the last ones. */
export function first({ loop, tree, inputs, reverse }, T) {
  const cut = (xs) => xs && (reverse ? xs.slice(-T) : xs.slice(0, T));
  return { loop: cut(loop), tree: cut(tree), inputs: inputs.map(cut) };
}

function state(ui) {
  const [name, T] = ["recurrence", "T"].map(ui.get);
  const example = ui.get("examples")[name];
  const found = levels(T);
  return { ...example, ...first(example, T), T, levels: found, depth: found.length, work: found.flat().length, moment: clamp(ui.get("moment"), 0, T) };
}

const mono = "font-family:monospace;font-size:13px";

function verdict(width, { code, form, a, b, primitive, reason, why, reverse }) {
  const words = (...parts) => html("div", { style: "margin:2px 0" }, parts);
  const term = (text) => html("code", { style: `${mono};background:none;color:inherit;white-space:pre-wrap` }, text);
  const bold = (text) => html("b", { style: "color:inherit" }, text);
  const lines = form
    ? [
        words(bold(`✓ ${form === "max" ? "max-plus" : form}: `), "x becomes ", term(FORMS[form][0])),
        words(form === "matrix" ? "A = " : "a = ", term(a)),
        words("b = ", term(b)),
        words("two consecutive steps are one step with ", term(FORMS[form][1])),
      ]
    : [words(bold(`✗ rejected at ${primitive}: `), term(reason)), words(why)];
  const box = `flex:1 1 240px;min-width:0;padding:6px 10px;border:1px ${form ? "solid var(--green)" : "dashed var(--orange)"};border-width:1px 1px 1px 5px;border-radius:6px;font-size:13px`;
  const left = html("div", { style: "flex:1 1 240px;min-width:0" },
    html("div", { style: "font-size:12px" }, `one step of the loop, ${reverse ? "from the last t to the first" : "from the first t to the last"}:`),
    html("pre", { style: `margin:4px 0 0;padding:0;border:0;background:none;color:inherit;white-space:pre-wrap;${mono}` }, code));
  return html("div", { style: `display:flex;flex-wrap:wrap;gap:8px 14px;width:${width}px` }, left, html("div", { style: box }, lines));
}

/** A node for a state or a part of it, which is filled once it is known. */
function place(x, y, r, done, final) {
  const fill = !done ? "f-paper s-dim" : final ? "f-blue s-blue" : "f-paper s-blue";
  return svg("circle", { cx: x, cy: y, r, class: fill, "stroke-width": done ? 2 : 1, "stroke-dasharray": done ? null : "2 2" });
}

function drawLoop({ T, moment, reverse }, [left, top, right], row) {
  const cell = (right - left) / T;
  const x = (k) => (reverse ? right - (k + 0.5) * cell : left + (k + 0.5) * cell);
  const r = clamp(cell * 0.3, 2.5, 6);
  const links = range(T - 1, (k) => svg("line", { x1: x(k), y1: top + (k + 1) * row, x2: x(k + 1), y2: top + (k + 2) * row, class: k + 1 < moment ? "s-blue" : "s-line", "stroke-width": 1.4 }));
  return [links, range(T, (k) => place(x(k), top + (k + 1) * row, r, k < moment, true))];
}

function drawTree({ T, levels: found, depth, moment, reverse, form }, [left, top, right], row) {
  const cell = (right - left) / T;
  const x = (k) => (reverse ? right - (k + 0.5) * cell : left + (k + 0.5) * cell);
  const r = clamp(cell * 0.3, 2.5, 6);
  const done = form ? moment : 0;
  const links = found.map((pairs, j) => {
    const color = j < done ? "s-blue" : "s-line";
    const line = (from, to, dash) => svg("line", { x1: x(from), y1: top + j * row, x2: x(to), y2: top + (j + 1) * row, class: color, "stroke-width": dash ? 1 : 1.4, "stroke-dasharray": dash });
    return [range(T, (k) => line(k, k, "2 3")), pairs.map(([from, to]) => line(from, to))];
  });
  // After j levels a node covers up to 2^j steps; it is a state once it covers the first step.
  const nodes = range(depth + 1, (j) => range(T, (k) => place(x(k), top + j * row, r, form && j <= done, k < 2 ** j)));
  return [links, nodes];
}

function drawDepth(width, now) {
  const { T, moment, depth, form, reverse } = now;
  const row = T === 8 ? 26 : 17;
  const [left, gap] = [30, 24];
  const half = (width - left - gap) / 2;
  const top = 46;
  const bottom = top + T * row + 12;
  const panels = [[left, top, left + half], [left + half + gap, top, width]];
  const clock = top + Math.min(moment, T) * row;
  const mark = (j, text) => svg("text", { x: 0, y: top + j * row + 4, class: j === moment ? "" : "dim", style: j === moment ? "font-weight:700" : null }, text);
  const cell = half / T;
  const every = cell < 15 ? 3 : 1;
  const steps = panels.map(([from]) => range(T, (t) => (t % every ? null : svg("text", { x: from + (t + 0.5) * cell, y: bottom + 8, "text-anchor": "middle", class: "dim" }, String(t)))));
  const [, , end] = panels[0];
  const tree = (panels[1][0] + panels[1][2]) / 2;
  const y = top + depth * row;
  const key = [[true, "a state x[t]"], [false, "a partial result"]].map(([whole, words], j) => [
    place(panels[1][0] + 8, y + 26 + 20 * j, 5, true, whole), svg("text", { x: panels[1][0] + 20, y: y + 30 + 20 * j }, words),
  ]);
  const none = form ? key : [
    svg("line", { x1: panels[1][0], x2: width, y1: top, y2: y, class: "s-orange", "stroke-width": 2.5 }),
    svg("line", { x1: panels[1][0], x2: width, y1: y, y2: top, class: "s-orange", "stroke-width": 2.5 }),
    svg("text", { x: tree, y: y + 24, "text-anchor": "middle", style: "font-weight:700" }, "no tree: two steps do"),
    svg("text", { x: tree, y: y + 40, "text-anchor": "middle", style: "font-weight:700" }, "not combine into one"),
  ];
  const label = `The loop as a chain of ${T} steps${form ? `, and the same computation as a tree of ${depth} levels` : "; no tree"}; after ${plural(moment, "moment")}.`;
  return picture(width, bottom + 26, label,
    svg("text", { x: panels[0][0], y: 13 }, width < 420 ? `loop: depth ${T}` : `the loop: depth T = ${T}`),
    svg("text", { x: panels[1][0], y: 13 }, form ? (width < 420 ? `tree: depth ${depth}` : `the tree: depth log₂ T = ${depth}`) : width < 420 ? "tree" : "the tree that it would need"),
    svg("text", { x: 0, y: 30, class: "dim" }, "moment"),
    range(T + 1, (j) => (T > 8 && j % 2 && j !== moment ? null : mark(j, String(j)))),
    svg("line", { x1: 20, x2: width, y1: clock, y2: clock, class: "s-ink", "stroke-width": 1.2, "stroke-dasharray": "6 4" }),
    drawLoop(now, panels[0], row), drawTree(now, panels[1], row), none, steps,
    svg("text", { x: end, y: bottom + 23, "text-anchor": "end", class: "dim" }, reverse ? "← step t" : "step t →"));
}

function drawValues(width, { T, loop, tree }) {
  const area = [44, 34, width - 10, 210];
  const all = [...loop, 0];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const room = 0.08 * (high - low || 1);
  const axis = plot(area, { x: { low: -0.5, high: T - 0.5, ticks: range(T).filter((t) => T === 8 || t % 2 === 0) }, y: { low: low - room, high: high + room } });
  const points = loop.map((x, t) => [axis.x(t), axis.y(x)]);
  const cross = ([x, y]) => svg("path", { d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`, class: "f-none s-orange", "stroke-width": 2 });
  return picture(width, 240, `x after each of ${T} steps, by the loop${tree ? " and by the tree" : ""}.`,
    svg("circle", { cx: 6, cy: 9, r: 5, class: "f-none s-blue", "stroke-width": 2 }), svg("text", { x: 16, y: 13 }, "x by the loop"),
    tree ? [cross([116, 9]), svg("text", { x: 125, y: 13 }, "x by the tree")] : null,
    axis.axes, path(points, { class: "f-none s-line", "stroke-width": 1 }),
    points.map(([cx, cy]) => svg("circle", { cx, cy, r: 5.5, class: "f-none s-blue", "stroke-width": 2 })),
    tree ? tree.map((x, t) => cross([axis.x(t), axis.y(x)])) : null,
    svg("text", { x: area[2], y: 240, "text-anchor": "end" }, "step t"));
}

function table({ T, inputs, names, loop, tree }) {
  const heads = ["t", ...names, "loop", ...(tree ? ["tree", "difference · 10⁷"] : [])];
  const row = (t) => {
    const both = tree ? [num(tree[t], 4), num((Math.fround(tree[t]) - Math.fround(loop[t])) * 1e7, 2)] : [];
    return html("tr", {}, [t, ...inputs.map((xs) => num(xs[t])), num(loop[t], 4), ...both].map((text) => html("td", { style: "padding-right:12px" }, String(text))));
  };
  const head = html("thead", {}, html("tr", {}, heads.map((text) => html("th", { scope: "col", style: "text-align:right;padding-right:12px" }, text))));
  return html("table", { style: `font-size:${T === 8 ? 13 : 12}px;line-height:${T === 8 ? 1.4 : 1.15}` }, head, html("tbody", {}, range(T, row)));
}

function tell(now) {
  const { title, form, T, depth, work, loop, tree, primitive, reason, moment } = now;
  if (!form) {
    return `${title}: rejected at ${primitive}, because ${reason} does not have any of the forms that are closed under composition. It remains a loop of ${T} sequential steps; ${moment} of ${T} are done.`;
  }
  const gap = difference(loop, tree);
  const same = gap ? `They differ by at most ${num(gap, 2)}, because of rounding` : "They are identical";
  const now_ = `At moment ${moment} the loop has ${moment} of ${T} states, the tree ${Math.min(T, 2 ** moment)}.`;
  return `${title}: ${form === "max" ? "max-plus" : form}, so it is a scan. The loop needs ${T} sequential steps. The tree needs ${plural(depth, "level")}, but ${work} combinations instead of ${T}, so it is faster only if many run at once. ${now_} ${same}.`;
}

function draw(ui) {
  const now = state(ui);
  const wide = Math.max(300, ui.width);
  const half = wide >= 720 ? Math.floor((wide - 14) / 2) : wide;
  const values = html("div", { style: `width:${half}px;min-width:0;overflow-x:auto` }, drawValues(half, now), table(now));
  return { pictures: [verdict(wide, now), drawDepth(half, now), values], summary: tell(now) };
}

function controls(ui) {
  const last = () => ui.get("T");
  const cases = inOrder(ui.get("examples"));
  choice(ui, "recurrence", { label: "recurrence", options: cases });
  choice(ui, "T", { label: "steps T", options: [[8, "8"], [16, "16"]] });
  player(ui, "moment", { last, what: "moment", pause: 600 });
  slider(ui, "moment", { label: "moment", min: 0, max: last, step: 1 });
}

const render = (context) =>
  frame(context, {
    title: "Lift inspector: is this loop a scan?",
    names: ["recurrence", "T", "moment", "examples"],
    controls,
    draw,
  });

export default { render };
