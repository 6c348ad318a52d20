// The sensitivity of Q(s_n, a_n) to the observations of an episode, and the part outside of a segment.
import { END, choice, clamp, frame, num, percent, picture, plural, range, series, slider, stripes, svg, toggle } from "./core.mjs";
import { path, plot } from "./plot.mjs";
import { triangle } from "./triangles.mjs";

/** The first step of the segment of L steps that contains step n. */
export const first = (n, size) => n - (n % size);

/** A row of |∂Q/∂o_i| divided by its sum, or zeros if the sum is zero. */
export function shares(row) {
  const sizes = row.map(Math.abs);
  const most = Math.max(...sizes);
  if (!most) return sizes;
  // Divide before adding, so that sums of numbers such as 1e300 are finite.
  const sum = sizes.reduce((total, x) => total + x / most, 0);
  return sizes.map((x) => x / most / sum);
}

const sum = (values) => values.reduce((a, b) => a + b, 0);

/** The fraction of the sensitivity of Q(s_n, a_n) before step `from`. */
export const before = (row, from) => sum(shares(row).slice(0, from));

/** The mean over all steps of the fraction outside of the segment of the step. */
export const average = (rows, size) => sum(rows.map((row, n) => before(row, first(n, size)))) / rows.length;

/** The fraction of the sensitivity to observations of the ages 0 … a, for every age a. */
export function cumulative(row) {
  let total = 0;
  return shares(row).reverse().map((share) => (total += share));
}

const MOST = 990; // 44 steps
// The initial decay of an LRU: half-lives from 7 to 693 steps.
const EXAMPLE = range(44, (n) => range(n + 1, (i) => {
  const units = range(16, (j) => 0.81 + (0.188 * (j + 0.5)) / 16);
  return Math.sqrt(sum(units.map((square) => (1 - square) * square ** (n - i))) / 16);
})).flat();
const WORDS = { tape: "trained on a tape", segments: "trained on segments" };

function state(ui) {
  const agent = ui.get("agent");
  const { values, notes } = series(ui.get(agent), { name: agent, most: MOST, fallback: EXAMPLE, unit: "number" });
  const rows = triangle(values);
  const left = values.length - (rows.length * (rows.length + 1)) / 2;
  if (left) notes.push(`The last ${plural(left, "number")} of \`${agent}\` do not fill a row and are omitted.`);
  const n = clamp(ui.get("n"), 0, rows.length - 1);
  const [size, lag] = [ui.get("segment"), ui.get("lag")];
  const needed = lag < 0 || (lag > n && lag < END) ? -1 : Math.max(0, n - lag);
  return { agent, rows, notes, n, size, needed, row: rows[n].map(Math.abs), from: first(n, size) };
}

function drawBars(width, { rows, row, n, size, from, needed }, log) {
  const steps = rows.length;
  const most = Math.max(...row) || 1;
  const low = log ? most / 1e4 : 0;
  const box = [54, 40, width - 12, 196];
  const axis = plot(box, {
    x: { low: -0.5, high: steps - 0.5, ticks: range(Math.ceil(steps / 10), (k) => 10 * k), label: "observation of step i" },
    y: { low, high: log ? most * 1.5 : most * 1.08, log, ticks: log ? [1, 0.1, 0.01, 0.001].map((x) => x * most) : undefined },
  });
  const hatch = stripes("orange");
  const wide = Math.max(1.5, (axis.x(1) - axis.x(0)) * 0.78);
  const bars = row.map((value, i) => {
    const top = axis.y(clamp(value, low, most));
    const place = { x: axis.x(i) - wide / 2, y: top, width: wide, height: Math.max(0, box[3] - top) };
    if (i >= from) return svg("rect", { ...place, class: "f-blue" });
    return svg("rect", { ...place, class: "s-orange", fill: hatch.fill, "stroke-width": 0.8 });
  });
  const shapes = [];
  for (let i = 0; i < steps; i += size) {
    const x = axis.x(i - 0.5);
    shapes.push(svg("line", { x1: x, x2: x, y1: box[1] - 6, y2: box[3], class: "s-dim", "stroke-width": i === from ? 1.6 : 0.6, "stroke-dasharray": i === from ? "none" : "2 3" }));
  }
  if (needed >= 0) {
    const x = axis.x(needed);
    shapes.push(svg("path", { d: `M${x - 5} ${box[1] - 10}h10l-5 8z`, class: "f-green s-ink" }));
    shapes.push(svg("text", { x: clamp(x, 80, width - 40), y: box[1] - 15, "text-anchor": "middle" }, "needed"));
  }
  const words = svg("text", { x: 0, y: 12 }, `|∂Q(s_n, a_n) / ∂o_i| at n = ${n}${log ? ", logarithmic" : ""}`);
  const later = svg("text", { x: axis.x((n + steps) / 2), y: box[3] - 8, "text-anchor": "middle", class: "dim" }, steps - n > 9 ? "not seen yet" : "");
  const alt = `Bars for ${plural(n + 1, "observation")}: ${n + 1 - from} solid inside the segment, ${from} striped outside.`;
  return picture(width, 230, alt, hatch.defs, axis.axes, bars, shapes, later, words);
}

function drawCumulative(width, { row, n, from, needed }) {
  const axis = plot([54, 26, width - 12, 122], {
    x: { low: 0, high: Math.max(n, 1), label: "age n − i of an observation, in steps" },
    y: { low: 0, high: 1, ticks: [0, 0.5, 1] },
  });
  const total = cumulative(row);
  const edge = n - from;
  const points = total.map((share, age) => [axis.x(age), axis.y(share)]);
  const [x, y] = points[edge];
  const mark = [
    svg("line", { x1: x, x2: x, y1: axis.y(0), y2: axis.y(1), class: "s-dim", "stroke-width": 1.6 }),
    svg("circle", { cx: x, cy: y, r: 5, class: "f-orange s-ink" }),
  ];
  const side = edge > n * 0.6 ? { x: x - 10, "text-anchor": "end" } : { x: x + 10 };
  mark.push(svg("text", { ...side, y: clamp(y + 20, 44, 112) }, `inside: ${percent(total[edge])}`));
  if (needed >= 0) mark.push(svg("path", { d: `M${axis.x(n - needed) - 5} ${axis.y(0) + 2}h10l-5 -8z`, class: "f-green s-ink" }));
  const words = svg("text", { x: 0, y: 12 }, "fraction of the sum, up to an age");
  const alt = `Cumulative fraction by age: ${percent(total[edge])} at age ${edge}, where the segment begins.`;
  return picture(width, 156, alt, axis.axes, path(points, { class: "f-none s-blue", "stroke-width": 2 }), mark, words);
}

function draw(ui) {
  const now = state(ui);
  const { agent, rows, notes, n, size, row, from, needed } = now;
  const width = Math.max(300, ui.width);
  const outside = before(row, from);
  const where = needed < from ? "outside" : "inside";
  const need = needed < 0 ? "" : ` The required observation, of step ${needed}, has ${percent(shares(row)[needed])} and is ${where}.`;
  const summary =
    `Agent ${WORDS[agent]}, step ${n}. Its segment of ${size} steps begins at step ${from}: ${percent(outside)} of the sum of the` +
    ` bars is outside (striped), where no gradient arrives.${need} Mean over all ${plural(rows.length, "step")}: ${percent(average(rows, size))} outside.`;
  return { pictures: [drawBars(width, now, ui.get("log")), drawCumulative(width, now)], summary, notes };
}

function controls(ui) {
  const length = () => state(ui).rows.length;
  const given = ui.get("segments");
  const both = () => (given?.length ?? 0) > 0;
  choice(ui, "agent", { label: "agent", options: Object.entries(WORDS), when: both });
  slider(ui, "n", { label: "step n", min: 0, max: () => length() - 1, step: 1 });
  slider(ui, "segment", { label: "segment length L", min: 1, max: 44, step: 1 });
  toggle(ui, "log", { label: "logarithmic heights" });
}

const render = (context) =>
  frame(context, {
    title: "Sensitivity explorer: the dependence of Q on past observations",
    names: ["tape", "segments", "agent", "n", "segment", "lag", "log"],
    controls,
    draw,
  });

export default { render };
