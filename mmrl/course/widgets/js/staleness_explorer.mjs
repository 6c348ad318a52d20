// The error of Q after a start from zero or from a stale stored state, with and without burn-in.
import { choice, clamp, frame, html, num, percent, picture, range, slider, svg } from "./core.mjs";
import { path, plot } from "./plot.mjs";
import { averaged, crossing, gateBias, kept } from "./recurrence.mjs";

const TRAINED = 40;
export const STARTS = [
  ["zero", "zero", "orange", "2 4"],
  ["burn_in", "burn-in", "purple", "8 4"],
  ["stored", "stored", "green", "10 3 2 3"],
  ["stored_burn_in", "stored + burn-in", "blue", "none"],
];
const LIVES = range(6, (i) => 10 ** (0.4 * i));
const Y = { low: 1e-4, high: 10, log: true, ticks: [1e-4, 1e-3, 0.01, 0.1, 1, 10] };
const [LEFT, TOP, BOTTOM, HEIGHT] = [50, 44, 284, 322];

function state(ui) {
  const [name, life, drift] = ["memory", "half_life", "drift"].map(ui.get);
  const start = ui.get("start");
  const burnIn = Math.min(ui.get("burn_in"), start);
  const curves = averaged(name, life, drift, { start, burnIn, steps: TRAINED });
  const first = Object.fromEntries(STARTS.map(([key]) => [key, curves[key].at(-TRAINED)]));
  const byLife = LIVES.map((other) => averaged(name, other, drift, { start, burnIn, steps: 1, since: start }));
  const firsts = Object.fromEntries(STARTS.map(([key]) => [key, byLife.map((one) => one[key].at(-1))]));
  const flip = crossing(LIVES, firsts.burn_in, firsts.stored);
  return { name, life, drift, start, burnIn, curves, first, firsts, flip, shown: ui.get("highlight") };
}

// A positive minimum, because 0 has no logarithm.
const held = (value) => clamp(value, 1e-30, Y.high);

/** A line through the points that ends at the bottom of the plot. */
export function above(points, bottom = BOTTOM) {
  return points.flatMap(([x, y], i) => {
    const own = [x, y > bottom ? NaN : y];
    const [toX, toY] = points[i + 1] ?? [x, y];
    if (y > bottom === toY > bottom) return [own];
    return [own, [x + ((toX - x) * (bottom - y)) / (toY - y), bottom]];
  });
}

const line = (points, [key, , color, dash], shown) => path(points, {
  class: `f-none s-${color}`, "stroke-dasharray": dash, "stroke-linejoin": "round",
  "stroke-width": key === shown ? 3.2 : 2, opacity: shown === "all" || key === shown ? 1 : 0.3,
});

/** Heights close to the wanted ones, in the same order and at least `gap` apart. */
export function apart(wanted, gap, low, high) {
  const order = range(wanted.length).sort((a, b) => wanted[a] - wanted[b]);
  const at = order.map((i) => clamp(wanted[i], low, high));
  for (let k = 1; k < at.length; k++) at[k] = Math.max(at[k], at[k - 1] + gap);
  for (let k = at.length - 1; k >= 0; k--) at[k] = Math.min(at[k], k === at.length - 1 ? high : at[k + 1] - gap);
  return wanted.map((_, i) => at[order.indexOf(i)]);
}

function drawSequence(width, { start, burnIn, curves, shown }) {
  const right = width - 142;
  const low = Math.max(0, start - Math.max(burnIn, 15));
  const axis = plot([LEFT, TOP, right, BOTTOM], { x: { low, high: start + TRAINED - 1, label: "step t of the episode" }, y: Y });
  const lines = STARTS.map((one) => {
    const values = curves[one[0]];
    const from = start + TRAINED - values.length;
    return line(above(values.map((value, k) => [axis.x(from + k), axis.y(held(value))])), one, shown);
  });
  const ends = STARTS.map(([key]) => axis.y(held(curves[key].at(-1))));
  const labels = apart(ends, 16, TOP, BOTTOM).map((y, i) => {
    const one = STARTS[i];
    return [line([[right + 4, y], [right + 34, y]], one, shown), svg("text", { x: right + 39, y: y + 4 }, one[1])];
  });
  const [x, left] = [axis.x(start), axis.x(start - burnIn)];
  const marks = [
    svg("rect", { x: left, y: TOP, width: x - left, height: BOTTOM - TOP, class: "f-fill" }),
    svg("line", { x1: x, x2: x, y1: TOP - 8, y2: BOTTOM, class: "s-ink", "stroke-width": 1.4 }),
    svg("text", { x: x + 5, y: TOP - 4 }, "trained from here"),
    svg("text", { x: x - 5, y: TOP - 4, "text-anchor": "end" }, x - left > 48 ? "burn-in" : ""),
  ];
  const alt = `ΔQ at steps ${start - burnIn} to ${start + TRAINED - 1}, one line per start, logarithmic; the table contains the first and the last value.`;
  return picture(width, HEIGHT, alt, marks, axis.axes, lines, labels, svg("text", { x: 0, y: 12 }, "error ΔQ along the sequence"));
}

function drawFlip(width, { life, firsts, flip, shown }) {
  const axis = plot([LEFT, TOP, width - 10, BOTTOM], {
    x: { low: 1, high: 100, log: true, ticks: [1, 3, 10, 30, 100], label: "half-life of the memory, in steps" }, y: Y,
  });
  const points = (values) => above(values.map((value, i) => [axis.x(LIVES[i]), axis.y(held(value))]));
  const lines = STARTS.map((one) => line(points(firsts[one[0]]), one, shown));
  const now = axis.x(clamp(life, 1, 100));
  const marks = [svg("line", { x1: now, x2: now, y1: TOP, y2: BOTTOM, class: "s-ink", "stroke-width": 1.4 })];
  if (flip) {
    const at = Math.log(flip / LIVES[0]) / Math.log(LIVES[1] / LIVES[0]);
    const i = Math.min(Math.floor(at), LIVES.length - 2);
    const share = at - i;
    const y = axis.y(firsts.stored[i] ** (1 - share) * firsts.stored[i + 1] ** share);
    marks.push(svg("circle", { cx: axis.x(flip), cy: y, r: 6, class: "f-none s-ink", "stroke-width": 2 }));
    const x = axis.x(flip);
    const words = { x: clamp(x, LEFT + 66, width - 76), y: TOP - 4, "text-anchor": "middle" };
    marks.push(svg("text", words, `equal near ${num(flip, 1)} steps`));
    marks.push(svg("line", { x1: x, x2: x, y1: TOP, y2: y - 6, class: "s-ink", "stroke-dasharray": "2 3" }));
  }
  const alt = `ΔQ at the first trained step over the half-life of the memory, one line per start. ${flip ? `The lines of burn-in and stored cross near ${num(flip, 1)} steps.` : ""}`;
  return picture(width, HEIGHT, alt, axis.axes, marks, lines, svg("text", { x: 0, y: 12 }, "ΔQ at the first trained step, by memory"));
}

function table({ curves, first, shown }) {
  const head = html("tr", {}, html("th", { scope: "col" }, "start"), html("th", { scope: "col" }, "ΔQ, first trained"), html("th", { scope: "col" }, "ΔQ, last trained"));
  const rows = STARTS.map(([key, text]) => html("tr", { "aria-current": key === shown ? "true" : null },
    html("th", { scope: "row" }, text), html("td", {}, num(first[key], 2)), html("td", {}, num(curves[key].at(-1), 2))));
  return html("table", {}, html("thead", {}, head), html("tbody", {}, rows));
}

function verdict({ first, flip, life }) {
  if (first.stored === first.burn_in) return "Stored and burn-in are equal here.";
  const better = first.stored < first.burn_in ? "stored beats burn-in" : "burn-in beats stored";
  if (!flip) return `With this memory ${better}, as with every half-life from 1 to 100 steps.`;
  const other = life > flip ? "below" : "above";
  return `With this memory ${better}; ${other} a half-life of about ${num(flip, 1)} steps the order is reversed. The sooner a memory forgets, the less of the wrong initial state is left after a burn-in.`;
}

function draw(ui) {
  const now = state(ui);
  const wide = Math.max(300, ui.width);
  const side = wide >= 720 ? 286 : wide;
  const strength = now.name === "lstm" ? `forget-gate bias ${num(gateBias(now.life), 2)}` : `|λ| = ${num(kept(now.life))}`;
  const said = STARTS.map(([key, text]) => `${text} ${num(now.first[key], 2)}`).join(", ");
  const summary =
    `${now.name === "lstm" ? "LSTMs" : "LRUs"} with a half-life of ${num(now.life, 2)} steps (${strength}); the actor's parameters differed by ` +
    `${percent(now.drift)} from the learner's. ΔQ at the first trained step: ${said}. ${verdict(now)}`;
  const notes = [];
  if (now.burnIn === now.start) notes.push("The burn-in reaches the beginning of the episode, so its states are exact and ΔQ is 0.");
  if (!now.drift) notes.push("The actor has the learner's parameters, so its stored states are exact.");
  if (!now.burnIn && now.start) notes.push("With a burn-in of 0 steps, burn-in equals zero, and stored + burn-in equals stored.");
  const main = drawSequence(wide >= 720 ? wide - side - 12 : wide, now);
  return { pictures: [main, drawFlip(side, now), table(now)], summary, notes };
}

function controls(ui) {
  choice(ui, "memory", { label: "memory", options: [["lstm", "LSTM"], ["lru", "LRU"]] });
  slider(ui, "half_life", { label: "memory's half-life", min: 1, max: 100, step: 0.05, log: true, format: (x) => `${num(x, 2)} steps` });
  slider(ui, "drift", { label: "parameter drift", min: 0, max: 0.5, step: 0.01, format: percent });
  slider(ui, "burn_in", { label: "burn-in, in steps", min: 0, max: () => Math.min(40, ui.get("start")), step: 1 });
  slider(ui, "start", { label: "sequence starts at", min: 0, max: 100, step: 5 });
  choice(ui, "highlight", { label: "highlight", options: [["all", "all"], ...STARTS.map(([key, text]) => [key, text])] });
}

const render = (context) =>
  frame(context, {
    title: "Staleness explorer: the error of stored states after the parameters change",
    names: ["memory", "half_life", "drift", "burn_in", "start", "highlight"],
    controls,
    draw,
  });

export default { render };
