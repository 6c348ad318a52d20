// A picture of an index expression φ: the reads of each y[t], and the readers of each x[k].
import { choice, clamp, frame, html, picture, plural, range, slider, stripes, svg } from "./core.mjs";
import { PATTERNS, lives } from "./patterns.mjs";

const TRAITS = ["pattern", "T", "n", "t", "k"];
const needsN = (name) => name.includes("n,") || name.includes("-n");

function state(ui) {
  const [pattern, T, n] = ["pattern", "T", "n"].map(ui.get);
  const [t, k] = ["t", "k"].map((name) => clamp(ui.get(name), 0, T - 1));
  return { pattern, T, n, t, k, ...lives(pattern, T, n) };
}

/** Elements as text: "x[5]", "x[5:9]", or "x[0], x[8], x[16]"; half-open, like the slices. */
export function elements(letter, found) {
  const whole = found.length > 1 && found.at(-1) - found[0] === found.length - 1;
  return (whole ? [`${found[0]}:${found.at(-1) + 1}`] : found).map((i) => `${letter}[${i}]`).join(", ");
}

function layout(width, T) {
  const [left, top] = [46, 64];
  const bars = width >= 600 ? 150 : 84;
  const cell = clamp((width - left - bars - 12) / T, 8, 24);
  return { left, top, cell, bars, right: left + cell * T, bottom: top + cell * T };
}

/** True if label i is shown: each needs `room` pixels, and the selected one has priority. */
function fits(i, chosen, cell, room) {
  const every = [1, 2, 4].find((n) => n * cell >= room);
  return i === chosen || (i % every === 0 && Math.abs(i - chosen) * cell >= room);
}

/** The row of y[t], a blue frame, and the column of x[k], orange stripes. */
function cursor({ T, t, k }, { left, top, cell }, hatch) {
  return [
    svg("rect", { x: left + k * cell, y: top, width: cell, height: T * cell, fill: hatch.fill, opacity: 0.45 }),
    svg("rect", { x: left + k * cell, y: top, width: cell, height: T * cell, class: "f-none s-orange", "stroke-width": 1.6, "stroke-dasharray": "5 3" }),
    svg("rect", { x: left, y: top + t * cell, width: T * cell, height: cell, class: "f-blue", opacity: 0.16 }),
    svg("rect", { x: left, y: top + t * cell, width: T * cell, height: cell, class: "f-none s-blue", "stroke-width": 2 }),
  ];
}

/** One read: a dot, which is blue in the selected row, and an orange square in the selected column. */
function mark(now, { left, top, cell }, t, k) {
  const [x, y, r] = [left + (k + 0.5) * cell, top + (t + 0.5) * cell, clamp(cell * 0.24, 2, 5)];
  const square = (color) => svg("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, class: `f-${color}` });
  const shape = k === now.k ? square(t === now.t ? "ink" : "orange") : svg("circle", { cx: x, cy: y, r, class: t === now.t ? "f-blue" : "f-dim" });
  const ring = now.last[k] === t ? svg("circle", { cx: x, cy: y, r: clamp(cell * 0.42, 3.4, 9), class: "f-none s-ink", "stroke-width": 1.5 }) : null;
  return [shape, ring];
}

function drawLabels(now, { left, top, right, bottom, cell, bars }) {
  const { T, t, k, last } = now;
  const [wide, high] = [T > 10 ? 20 : 12, 13];
  const style = (chosen) => ({ class: chosen ? "" : "dim", style: chosen ? "font-weight:700" : null });
  const numbers = range(T, (i) => {
    const [x, y, column, row] = [left + (i + 0.5) * cell, top + (i + 0.5) * cell + 4, style(i === k), style(i === t)];
    const shown = fits(i, k, cell, wide);
    return [
      shown ? svg("text", { x, y: top - 6, "text-anchor": "middle", ...column }, String(i)) : null,
      shown ? svg("text", { x, y: bottom + 15, "text-anchor": "middle", ...column }, last[i] === null ? "–" : String(last[i])) : null,
      fits(i, t, cell, high) ? svg("text", { x: left - 6, y, "text-anchor": "end", ...row }, String(i)) : null,
    ];
  });
  return [
    svg("text", { x: left, y: top - 24 }, "x[k]: element, k →"),
    svg("text", { x: 0, y: top - 6 }, "y[t] ↓"),
    svg("text", { x: right + 14, y: top - 24 }, bars > 100 ? "x alive while y[t] runs" : "x alive"),
    svg("text", { x: left, y: bottom + 31, class: "dim" }, "last reader of each x[k] (–: none)"),
    numbers,
  ];
}

/** The number of live elements of x while each y[t] runs, next to its row. */
function drawAlive({ alive, most, T, t }, { top, right, bottom, cell, bars }) {
  const [zero, unit] = [right + 14, (bars - 34) / T];
  const halo = "font-weight:700;paint-order:stroke;stroke:var(--paper);stroke-width:4px";
  const rows = alive.map((ks, i) => [
    svg("rect", { x: zero, y: top + i * cell + 1, width: ks.length * unit, height: Math.max(2, cell - 2), class: i === t ? "f-blue" : "f-line" }),
    i === t ? svg("text", { x: zero + ks.length * unit + 4, y: top + (i + 0.5) * cell + 4, style: halo }, String(ks.length)) : null,
  ]);
  const edge = zero + most * unit;
  return [
    svg("line", { x1: edge, x2: edge, y1: top, y2: bottom + 3, class: "s-ink", "stroke-width": 1.4, "stroke-dasharray": "4 3" }),
    rows,
    svg("text", { x: clamp(edge, zero + 18, zero + bars - 30), y: bottom + 15, "text-anchor": "middle" }, `W = ${most}`),
  ];
}

function drawMatrix(ui, now) {
  const { T, rows, pattern } = now;
  const place = layout(Math.max(300, ui.width), T);
  const { left, top, right, bottom, cell, bars } = place;
  const width = Math.max(300, right + bars + 12);
  const hatch = stripes("orange");
  const grid = range(T + 1, (i) => [
    svg("line", { x1: left, x2: right, y1: top + i * cell, y2: top + i * cell, class: "s-line", "stroke-width": 0.5 }),
    svg("line", { x1: left + i * cell, x2: left + i * cell, y1: top, y2: bottom, class: "s-line", "stroke-width": 0.5 }),
  ]);
  const dots = rows.map((row, t) => (row ?? []).map((k) => mark(now, place, t, k)));
  ui.hit = (x, y) => {
    const [k, t] = [x - left, y - top].map((d) => Math.floor(d / cell));
    return k >= 0 && k < T && t >= 0 && t < T ? { t, k } : null;
  };
  const heading = svg("text", { x: 0, y: 13, class: "dim" }, "dot: y[t] reads x[k]; ring: last reader of x[k]");
  const label = `A matrix of ${T} readers y[t] by ${T} elements x[k] with a dot where y[t] reads x[k], for φ(t) = ${pattern}.`;
  return picture(width, bottom + 38, label, hatch.defs, grid, cursor(now, place, hatch), dots, heading, drawLabels(now, place), drawAlive(now, place));
}

/** The text of an inverse, with its condition. */
export function inverseText(name) {
  const { inverse, when, every } = PATTERNS[name];
  const strided = every ? `, every ${every}th` : "";
  return `${inverse}${strided}${when ? `  if ${when}` : ""}`;
}

function table({ pattern, n, most, ring, T }) {
  const slots = ring === most ? `${ring} of ${T}` : `${ring} of ${T} (${most} alive)`;
  const lines = [
    ["φ(t): the part of x that y[t] reads", pattern, true],
    ["φ⁻¹(k): the part of y that reads x[k]", inverseText(pattern), true],
    ["is φ⁻¹ a point or a slice?", PATTERNS[pattern].every ? "no, it has gaps: a mask or a stride" : "yes", false],
    ["ring size W", slots, false],
  ];
  if (needsN(pattern)) lines[0][1] += `  (n = ${n})`;
  const cell = (text, code) => html("td", { style: `text-align:left;white-space:pre-wrap${code ? ";font-family:monospace" : ""}` }, text);
  return html("table", {}, html("tbody", {}, lines.map(([name, text, code]) => html("tr", {}, html("th", { scope: "row" }, name), cell(text, code)))));
}

const ending = (count) => (count === 1 ? "" : `, ${count} elements`);

function tell({ T, t, k, rows, columns, last, most, ring }) {
  const row = rows[t] ? `y[${t}] reads ${elements("x", rows[t])}${ending(rows[t].length)}.` : `y[${t}] does not exist, because it would read outside of x[0:${T}].`;
  const who = columns[k].length
    ? `x[${k}] is read by ${elements("y", columns[k])}, last by y[${last[k]}]. After that it can be freed. Its gradient is the sum over ${columns[k].length === 1 ? "this one reader" : `these ${columns[k].length} readers`}.`
    : `x[${k}] has no reader: its gradient is 0, and it need not be computed.`;
  const kept = `If the readers run in order, at most ${most} of ${plural(T, "element")} ${most === 1 ? "is" : "are"} alive at once, so x[k] can use slot k mod ${ring}.`;
  return `${row} ${who} ${kept}`;
}

function draw(ui) {
  const now = state(ui);
  return { pictures: [drawMatrix(ui, now), table(now)], summary: tell(now) };
}

/** The cell under the pointer becomes the cursor. */
function follow(ui) {
  const move = (event) => {
    const box = ui.stage.querySelector("svg").getBoundingClientRect();
    const found = ui.hit?.(event.clientX - box.left, event.clientY - box.top);
    for (const name of ["t", "k"]) if (found && found[name] !== ui.get(name)) ui.set(name, found[name]);
  };
  for (const kind of ["pointermove", "pointerdown"]) ui.stage.addEventListener(kind, move);
}

function controls(ui) {
  const last = () => ui.get("T") - 1;
  const cell = (name) => clamp(ui.get(name), 0, last());
  choice(ui, "pattern", { label: "y[t] reads x at φ =", options: Object.keys(PATTERNS).map((name) => [name, name]) });
  slider(ui, "T", { label: "length T", min: 4, max: 24, step: 1 });
  slider(ui, "n", { label: "window n", min: 1, max: 8, step: 1, when: () => needsN(ui.get("pattern")) });
  slider(ui, "t", { label: "row: reader t", min: 0, max: last, step: 1, format: () => `y[${cell("t")}]` });
  slider(ui, "k", { label: "column: element k", min: 0, max: last, step: 1, format: () => `x[${cell("k")}]` });
  follow(ui);
}

const render = (context) =>
  frame(context, {
    title: "Access pattern explorer: reads, readers and lifetimes",
    names: TRAITS,
    controls,
    draw,
  });

export default { render };
