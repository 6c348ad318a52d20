// The brackets of a scan: each level of each method.
import { choice, frame, html, picture, player, plural, range, series, slider, svg } from "./core.mjs";
import { MONOIDS, wide } from "./monoids.mjs";

export const METHODS = [
  ["sequential", "sequential"],
  ["hillis_steele", "Hillis–Steele"],
  ["blelloch", "Blelloch"],
  ["chunked", "chunked"],
];

/** Like mmrl.schedules.schedule: levels of pairs [left, right], which are combined in place at once. */
export function schedule(length, method, chunk = 4) {
  const steps = [];
  for (let step = 1; step < length; step *= 2) steps.push(step);
  const from = (start, step) => range(Math.max(0, Math.ceil((length - start) / step)), (i) => start + i * step);
  const back = (step) => (right) => [right - step, right];
  if (method === "sequential") return range(Math.max(0, length - 1), (i) => [[i, i + 1]]);
  if (method === "hillis_steele") return steps.map((step) => from(step, 1).map(back(step)));
  if (method === "blelloch") {
    const up = steps.map((step) => from(2 * step - 1, 2 * step).map(back(step)));
    const down = [...steps].reverse().map((step) => from(3 * step - 1, 2 * step).map(back(step)));
    return [...up, ...down].filter((level) => level.length);
  }
  const within = range(Math.max(0, Math.min(chunk, length) - 1), (i) => from(i + 1, chunk).map(back(1)));
  const last = from(chunk - 1, chunk);
  const across = range(Math.max(0, last.length - 1), (i) => [[last[i], last[i + 1]]]);
  const rest = range(Math.max(0, length - chunk), (i) => chunk + i).filter((t) => !last.includes(t));
  const spread = rest.map((t) => [Math.floor(t / chunk) * chunk - 1, t]);
  return [...within, ...across, ...(spread.length ? [spread] : [])];
}

/** [work, depth]: the numbers of combines and of levels. */
export function count(levels) {
  return [levels.reduce((sum, level) => sum + level.length, 0), levels.length];
}

/** The array before the first and after every level, as rows of {element, from, to}. */
export function run(monoid, elements, levels) {
  const rows = [elements.map((element, t) => ({ element, from: t, to: t }))];
  for (const level of levels) {
    const row = [...rows.at(-1)];
    for (const [left, right] of level) {
      const [a, b] = [rows.at(-1)[left], rows.at(-1)[right]];
      row[right] = { element: monoid.combine(a.element, b.element), from: a.from, to: b.to };
    }
    rows.push(row);
  }
  return rows;
}

const EXAMPLE = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3];
const MOST = 16;

const given = (ui) => series(ui.get("values"), { name: "values", most: MOST, fallback: EXAMPLE });

function state(ui) {
  const { values, notes } = given(ui);
  const length = Math.min(ui.get("length"), values.length);
  const xs = values.slice(0, length);
  const monoid = MONOIDS[ui.get("monoid")];
  const levels = schedule(length, ui.get("method"), ui.get("chunk"));
  const level = Math.min(ui.get("level"), levels.length);
  const rows = run(monoid, xs.map((x, t) => monoid.lift(x, t, ui.get("gain"))), levels);
  return { xs, monoid, levels, level, rows, notes };
}

function drawTree(ui, { xs, monoid, levels, level, rows }) {
  const width = Math.max(300, ui.width);
  const left = 58;
  const gap = levels.length > 8 ? 27 : 38;
  const pitch = (width - left - 8) / xs.length;
  const radius = Math.min(pitch / 2 - 1, gap / 2 - 2, 16);
  const x = (t) => left + (t + 0.5) * pitch;
  const y = (i) => 34 + i * gap;
  const wires = svg("g", { class: "s-line", "stroke-width": 1 });
  const links = svg("g", { class: "s-blue", "stroke-width": 1.8 });
  const nodes = svg("g", {});
  xs.forEach((_, t) => wires.append(svg("line", { x1: x(t), x2: x(t), y1: y(0), y2: y(levels.length) })));
  levels.slice(0, level).forEach((pairs, i) => {
    for (const [a, b] of pairs) links.append(svg("line", { x1: x(a), y1: y(i), x2: x(b), y2: y(i + 1) }));
  });
  const active = (i, t) => i === 0 || levels[i - 1].some(([, right]) => right === t);
  rows.forEach((row, i) => {
    row.forEach((cell, t) => {
      const shown = i <= level;
      const whole = cell.from === 0;
      if (!active(i, t)) {
        const idle = shown && whole ? "f-blue" : "f-line";
        nodes.append(svg("circle", { cx: x(t), cy: y(i), r: 3, class: idle }));
        return;
      }
      const fill = !shown ? "f-paper s-line" : whole ? "f-blue s-blue" : "f-paper s-blue";
      nodes.append(svg("circle", { cx: x(t), cy: y(i), r: radius, class: fill, "stroke-width": 1.5 }));
      const size = radius < 12 ? 9 : 11;
      // Omit text that does not fit with any number of digits; the results below contain it.
      const text = [3, 2].map((digits) => monoid.show(cell.element, digits)).find((s) => wide(s) * size <= 2 * radius);
      if (!shown || !text) return;
      const style = `font-size:${size}px;fill:${whole ? "var(--on-blue)" : "var(--ink)"}`;
      nodes.append(svg("text", { x: x(t), y: y(i) + 4, "text-anchor": "middle", style }, text));
    });
  });
  const label = (i, text) => svg("text", { x: 0, y: y(i) + 4, class: "dim" }, text);
  const labels = [label(0, "inputs"), ...levels.map((_, i) => label(i + 1, `level ${i + 1}`))];
  const steps = xs.map((_, t) => svg("text", { x: x(t), y: 11, class: "dim small", "text-anchor": "middle" }, `${t}`));
  labels.push(svg("text", { x: 0, y: 11, class: "dim small" }, "step t"));
  const [work] = count(levels.slice(0, level));
  const alt = `${levels.length} levels over ${xs.length} inputs; ${work} products drawn as lines that join two columns.`;
  return picture(width, y(levels.length) + radius + 4, alt, wires, links, nodes, labels, steps);
}

function drawTable(ui, length) {
  const head = html("tr", {}, html("td", {}), html("th", { scope: "col" }, "work (combines)"), html("th", { scope: "col" }, "depth (levels)"));
  const rows = METHODS.map(([method, name]) => {
    const [work, depth] = count(schedule(length, method, ui.get("chunk")));
    const current = method === ui.get("method") ? "true" : null;
    return html("tr", { "aria-current": current }, html("th", { scope: "row" }, name), html("td", {}, `${work}`), html("td", {}, `${depth}`));
  });
  return html("table", {}, html("thead", {}, head), html("tbody", {}, rows));
}

function draw(ui) {
  const now = state(ui);
  const { xs, monoid, levels, level, rows, notes } = now;
  const [work] = count(levels.slice(0, level));
  const done = rows[level].filter((cell) => cell.from === 0).length;
  const results = rows[level].map((cell) => (cell.from === 0 ? monoid.show(cell.element) : "·")).join(", ");
  const summary =
    `After ${plural(level, "level")} of ${levels.length} and ${plural(work, "combine")}: ` +
    `${done} of ${plural(xs.length, "prefix", "prefixes")} finished (filled). ` +
    `h = ${results}`;
  return { pictures: [drawTree(ui, now), drawTable(ui, xs.length)], summary, notes };
}

function controls(ui) {
  choice(ui, "method", { label: "method", options: METHODS });
  choice(ui, "monoid", { label: "monoid", options: Object.entries(MONOIDS).map(([k, m]) => [k, m.name]) });
  slider(ui, "length", { label: "tape length T", min: () => Math.min(2, given(ui).values.length), max: () => given(ui).values.length, step: 1 });
  slider(ui, "chunk", { label: "chunk", min: 2, max: 8, step: 1, when: () => ui.get("method") === "chunked" });
  const fades = () => ["affine", "max"].includes(ui.get("monoid"));
  slider(ui, "gain", { label: "gain a", min: 0.1, max: 1, step: 0.05, when: fades });
  player(ui, "level", { last: () => state(ui).levels.length, what: "level" });
}

const render = (context) =>
  frame(context, {
    title: "Scan player: the same prefixes, bracketed in four ways",
    names: ["values", "method", "monoid", "length", "chunk", "gain", "level"],
    controls,
    draw,
  });

export default { render };
