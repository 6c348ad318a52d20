// θ, the rubber band that ties it to θ_prox, and the adjustments for a smaller batch.
import { choice, frame, html, num, percent, picture, plural, range, slider, svg, toggle } from "./core.mjs";
import { path, plot } from "./plot.mjs";
import { adjusted, decayOf } from "./proximal.mjs";
import { HILL, climb, distance, examples, gap } from "./rubber_band.mjs";

const BATCH = 16;
const Z = examples(4096);
const VIEW = { x: { low: -3.3, high: 0.6 }, y: { low: -0.75, high: 1.95 } };
const LINES = {
  base: { color: "blue", dash: "none", width: 3.4 },
  changed: { color: "green", dash: "7 4", width: 2.2 },
  left: { color: "purple", dash: "2 3", width: 2 },
};
const NAMES = { behavior: "the behavior policy", recent: "the policy at the iteration's start", ewma: "the moving average" };

/** The compared runs: unchanged, with c, and with c but an unchanged COM. */
export function runs(now) {
  const { c, change, adjust_center, adjust_learning_rate, proximal } = now;
  const base = { ...now, batch: BATCH };
  if (change === "band") {
    const weight = now.weight * c;
    return { base, changed: { ...base, center: now.center / c, weight }, left: { ...base, center: now.center / c } };
  }
  const on = { learning_rate: adjust_learning_rate, center: adjust_center };
  const { batch, learning_rate, center } = adjusted(base, c, { optimizer: now.optimizer, on });
  // An iteration has 8 batches, so data of the same age in examples is more iterations old.
  const changed = { ...base, batch, learning_rate, center, staleness: c * now.staleness };
  const left = adjust_center && proximal === "ewma" && c > 1 && now.center > 0;
  return { base, changed, left: left ? { ...changed, center: now.center } : null };
}

const memory = new Map();
/** A cached path, because most controls change only some of the three. */
function ride(settings) {
  const key = JSON.stringify(settings);
  if (!memory.has(key)) {
    if (memory.size > 30) memory.clear();
    memory.set(key, climb(Z, settings));
  }
  return memory.get(key);
}

const KEYS = ["batch", "proximal", "band", "optimizer", "center", "weight", "epsilon", "learning_rate", "staleness"];
const TRAITS = ["proximal", "band", "optimizer", "change", "center", "weight", "epsilon", "learning_rate", "staleness", "halvings", "adjust_learning_rate", "adjust_center"];

const banded = (ui) => ui.get("proximal") === "ewma" && ui.get("band") === "kl";

function state(ui) {
  const now = Object.fromEntries(TRAITS.map((name) => [name, ui.get(name)]));
  now.c = 2 ** now.halvings;
  if (!banded(ui)) now.change = "batch";
  const settings = runs(now);
  const rows = {};
  for (const [name, one] of Object.entries(settings)) {
    if (one) rows[name] = ride(Object.fromEntries(KEYS.map((key) => [key, one[key]])));
  }
  return { now, settings, rows };
}

const lost = (theta) => theta.reduce((sum, x, i) => sum + (HILL.curvature[i] * x * x) / 2, 0);
const line = (points, name) => path(points, {
  class: `f-none s-${LINES[name].color}`, "stroke-dasharray": LINES[name].dash, "stroke-width": LINES[name].width, "stroke-linejoin": "round",
});

const legends = ({ now, rows }) => {
  const [c, band] = [now.c, now.change === "band"];
  const texts = { base: "as set", changed: band ? `COM ÷ ${c}, β × ${c}` : `batch ÷ ${c}`, left: band ? `only COM ÷ ${c}` : `batch ÷ ${c}, COM unchanged` };
  return Object.keys(rows).map((name) => [name, texts[name]]);
};

/** Rows of a path with distances of at least `far`. */
export function spaced(rows, far) {
  const out = [];
  for (const row of rows.slice(1)) {
    if (distance(row.theta, (out.at(-1) ?? rows[0]).theta) >= far) out.push(row);
  }
  return out;
}

function drawMap(width, seen) {
  const { rows } = seen;
  const unit = (width - 12) / (VIEW.x.high - VIEW.x.low);
  const keys = legends(seen);
  const top = 26;
  const bottom = top + unit * (VIEW.y.high - VIEW.y.low);
  const axis = plot([6, top, width - 6, bottom], { x: { ...VIEW.x, ticks: [] }, y: { ...VIEW.y, ticks: [] } });
  const inside = ([x, y]) => x >= VIEW.x.low && x <= VIEW.x.high && y >= VIEW.y.low && y <= VIEW.y.high;
  const place = (theta) => (inside(theta) ? [axis.x(theta[0]), axis.y(theta[1])] : [NaN, NaN]);
  const rings = [0.1, 0.4, 0.9, 1.6, 2.5, 3.6].map((level) => path(range(97, (i) => {
    const turn = (2 * Math.PI * i) / 96;
    return place(HILL.curvature.map((h, k) => Math.sqrt((2 * level) / h) * (k ? Math.sin(turn) : Math.cos(turn))));
  }), { class: "f-none s-line", "stroke-width": 1 }));
  const base = rows.base;
  const bands = spaced(base, 0.45).filter(({ theta, prox }) => prox && inside(theta) && inside(prox)).map(({ theta, prox }) => {
    const [[x1, y1], [x2, y2]] = [place(theta), place(prox)];
    return [
      svg("line", { x1, y1, x2, y2, class: "s-orange", "stroke-width": 4.5 }),
      svg("circle", { cx: x1, cy: y1, r: 4, class: "f-paper s-blue", "stroke-width": 2 }),
      svg("circle", { cx: x2, cy: y2, r: 4, class: "f-orange" }),
    ];
  });
  const paths = ["left", "base", "changed"].filter((name) => rows[name]).map((name) => line(rows[name].map(({ theta }) => place(theta)), name));
  const ends = Object.keys(rows).map((name) => [name, place(rows[name].at(-1).theta)]).filter(([, [x]]) => Number.isFinite(x))
    .map(([name, [cx, cy]]) => svg("circle", { cx, cy, r: 4.5, class: `f-paper s-${LINES[name].color}`, "stroke-width": 2.2 }));
  const [best, start] = [[0, 0], HILL.start].map(place);
  const words = [
    svg("text", { x: 0, y: 12 }, `${rows.base[0].prox ? "θ (rings) on its band to θ_prox (dots), on the map of returns" : "θ on the map of returns"}`),
    svg("text", { x: best[0], y: best[1] + 5, "text-anchor": "middle", style: "font-size:16px" }, "✕"),
    svg("text", { x: best[0], y: best[1] + 21, "text-anchor": "middle", class: "dim" }, "best"),
    svg("text", { x: start[0] + 4, y: start[1] - 8, class: "dim" }, "start"),
  ];
  const alt = `A hill seen from above. ${keys.map(([name, text]) => `${text}: θ ends at ${rows[name].at(-1).theta.map((x) => num(x, 2)).join(", ")}`).join("; ")}. The best is 0, 0.`;
  const marks = keys.map(([name, text], i) => {
    const y = bottom + 20 + 17 * i;
    return [line([[8, y - 4], [40, y - 4]], name), svg("text", { x: 46, y }, text)];
  });
  return picture(width, bottom + 8 + 17 * keys.length, alt, rings, paths, bands, ends, words, marks);
}

function drawCurves(width, { rows }) {
  const names = ["left", "base", "changed"].filter((name) => rows[name]);
  const size = Z.length;
  const thin = (points) => points.filter((_, i) => i % Math.ceil(points.length / 300) === 0 || i === points.length - 1);
  const panel = (top, title, label, measure, cap) => {
    const values = names.map((name) => rows[name].map(measure));
    const most = Math.min(cap, Math.max(0.1, ...values.flat().filter(Number.isFinite)));
    const axis = plot([46, top + 12, width - 14, top + 142], { x: { low: 0, high: size, label }, y: { low: 0, high: most } });
    const cut = (v) => (v > most ? NaN : axis.y(v));
    const lines = names.map((name, k) => line(thin(rows[name].map(({ examples }, i) => [axis.x(examples), cut(values[k][i])])), name));
    return [axis.axes, lines, svg("text", { x: 0, y: top }, title)];
  };
  const lag = ({ theta, prox }) => (prox === null ? NaN : distance(theta, prox) / HILL.sigma);
  const some = rows.base[0].prox !== null;
  const alt = `Two plots against examples seen: the shortfall of the mean return, which ends at ${names.map((name) => num(lost(rows[name].at(-1).theta), 2)).join(", ")}, and the lag between θ and θ_prox.`;
  return picture(width, some ? 366 : 190, alt,
    panel(12, "shortfall of the mean return", some ? "" : "examples seen", ({ theta }) => lost(theta), 4),
    some ? panel(188, "lag |θ − θ_prox|, in σ of the policy", "examples seen", lag, 6) : null);
}

function table({ now, settings, rows }) {
  const names = Object.keys(rows);
  const titles = Object.fromEntries(legends({ now, rows }));
  const ewma = now.proximal === "ewma";
  const frozen = now.proximal === "behavior" || now.proximal === "recent";
  const lines = [
    ["batch, in examples", (s) => num(s.batch)],
    ["learning rate", (s) => num(s.learning_rate)],
    ...(ewma ? [["COM, in steps", (s) => num(s.center)], ["β_prox", (s) => num(decayOf(s.center), 4)], ["COM, in examples", (s) => num(s.center * s.batch)]] : []),
    ...(frozen ? [["new θ_prox, in examples", (s) => num(HILL.minibatches * s.batch)]] : []),
    ...(now.change === "band" ? [["KL weight β", (s) => num(s.weight)]] : []),
    ["rms gap to “as set”", (_, rows_) => (rows_ === rows.base ? "" : num(gap(rows.base, rows_), 2))],
  ];
  const head = html("tr", {}, html("td", {}, ""), names.map((name) => html("th", { scope: "col" }, titles[name])));
  const body = lines.map(([title, text]) => html("tr", {}, html("th", { scope: "row" }, title), names.map((name) => html("td", {}, text(settings[name], rows[name])))));
  return html("table", {}, html("thead", {}, head), html("tbody", {}, body));
}

function verdict({ now, rows }) {
  const { c, proximal, change } = now;
  if (c === 1) return "Raise c to see a second path.";
  const way = rows.base.slice(1).reduce((sum, row, i) => sum + distance(row.theta, rows.base[i].theta), 0);
  const far = gap(rows.base, rows.changed);
  const whole = rows.changed.at(-1).examples === Z.length && rows.base.at(-1).examples === Z.length;
  const said = !whole ? "diverges" : `is ${num(far, 2)} away from the first (root mean square over the examples seen, ${percent(far / way)} of its length)`;
  const other = rows.left ? gap(rows.base, rows.left) : null;
  if (change === "band") {
    return `A band that is ${c} times shorter and ${c} times as thick should pull equally hard: the path ${said}. With only COM ÷ ${c} it deviates by ${num(other, 2)}.`;
  }
  const rate = now.optimizer === "adam" ? `√${c}` : c;
  const done = [`batch ÷ ${c}`, now.adjust_learning_rate ? `learning rate ÷ ${rate}` : "", proximal === "ewma" && now.adjust_center ? `COM × ${c}` : ""].filter(Boolean);
  const what = done.length > 1 ? `${done.slice(0, -1).join(", ")} and ${done.at(-1)}` : `${done[0]} and nothing else`;
  const start = `With ${what} the path ${said}.`;
  if (other !== null) return `${start} With COM unchanged at ${num(now.center)} steps it deviates by ${num(other, 2)}: θ_prox is ${c} times closer, in examples, and the band goes slack.`;
  if (proximal === "ewma" || proximal === "none") return start;
  return `${start} An iteration is ${HILL.minibatches} batches, so θ_prox was refreshed ${c} times as often: no COM can compensate for it.`;
}

function draw(ui) {
  const seen = state(ui);
  const { now, rows } = seen;
  const wide = Math.max(300, ui.width);
  const side = wide >= 720 ? Math.round(wide * 0.44) : wide;
  const lags = rows.base.filter(({ prox }) => prox !== null).map(({ theta, prox }) => distance(theta, prox) / HILL.sigma);
  const mean = lags.reduce((a, b) => a + b, 0) / lags.length;
  const from = lost(HILL.start);
  const end = lost(rows.base.at(-1).theta);
  const climbed = end < from ? `it has closed ${percent(1 - end / from)} of the gap to the best return` : "its return is lower than at the start";
  const pull = lags.length ? `On average θ is ${num(mean, 2)} σ away from θ_prox, ${NAMES[now.proximal]}` : "Without θ_prox, θ is free";
  const summary = `${pull}; after ${plural(rows.base.at(-1).examples, "example")} ${climbed}. ${verdict(seen)}`;
  const notes = [];
  if (Object.values(rows).some((path) => path.at(-1).examples < Z.length)) {
    notes.push("A path diverges, and its remainder is not shown: the steps are too long for such a stiff band.");
  }
  return { pictures: [drawMap(wide >= 720 ? wide - side - 12 : wide, seen), drawCurves(side, seen), table(seen)], summary, notes };
}

function controls(ui) {
  const kl = () => ui.get("band") === "kl";
  const some = () => ui.get("proximal") !== "none";
  const average = () => ui.get("proximal") === "ewma";
  const batch = () => !banded(ui) || ui.get("change") === "batch";
  choice(ui, "proximal", { label: "proximal policy", options: [["behavior", "behavior"], ["recent", "iteration's start"], ["ewma", "moving average"], ["none", "none"]] });
  choice(ui, "band", { label: "rubber band", options: [["kl", "KL penalty"], ["clip", "clip"]], when: some });
  choice(ui, "optimizer", { label: "optimizer", options: [["adam", "Adam"], ["sgd", "SGD"]] });
  choice(ui, "change", { label: "change", options: [["batch", "batch ÷ c"], ["band", "COM ÷ c, β × c"]], when: () => banded(ui) });
  slider(ui, "halvings", { label: "c", min: 0, max: 4, step: 1, format: (k) => `${2 ** k}` });
  slider(ui, "center", { label: "COM of θ_prox", min: 0, max: 64, step: 1, format: (x) => plural(num(x), "step"), when: average });
  slider(ui, "weight", { label: "KL weight β", min: 0, max: 4, step: 0.1, when: () => some() && kl() });
  slider(ui, "epsilon", { label: "clip ε", min: 0.02, max: 1, step: 0.02, when: () => some() && !kl() });
  slider(ui, "learning_rate", { label: "learning rate", min: 0.001, max: 0.1, step: 0.1, log: true });
  slider(ui, "staleness", { label: "staleness of data", min: 0, max: 16, step: 1, format: (s) => `${s} iter.` });
  toggle(ui, "adjust_learning_rate", { label: "learning rate ÷ √c (Adam) or ÷ c (SGD)", when: batch });
  toggle(ui, "adjust_center", { label: "COM × c", when: () => average() && batch() });
}

const render = (context) =>
  frame(context, {
    title: "Rubber band explorer: the pull of the proximal policy on θ",
    names: TRAITS,
    controls,
    draw,
  });

export default { render };
