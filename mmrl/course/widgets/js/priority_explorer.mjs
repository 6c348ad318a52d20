// Errors of sequences, the resulting sampling probabilities, and the importance weights.
import { clamp, frame, num, percent, picture, plural, range, series, slider, stripes, svg } from "./core.mjs";
import { plot } from "./plot.mjs";

const sum = (values) => values.reduce((a, b) => a + b, 0);
const mean = (values) => sum(values.map((x) => x / values.length));

/** Split concatenated errors into sequences of `steps`; the last one may be shorter. */
export const sequences = (errors, steps) =>
  range(Math.ceil(errors.length / steps), (i) => errors.slice(i * steps, (i + 1) * steps).map(Math.abs));

/** p = η max|δ| + (1 - η) mean|δ| of every sequence. */
export const priorities = (rows, eta) => rows.map((row) => eta * Math.max(...row) + (1 - eta) * mean(row));

// Clip as in mmrl.replay.sequences, so that no sequence has probability 0 or 1.
const [LEAST, LARGEST] = [1e-6, 1e6];

/** P = p^α / Σ p^α, with p clipped to [1e-6, 1e6]. */
export function chances(p, alpha) {
  const law = p.map((x) => clamp(x, LEAST, LARGEST) ** alpha);
  const total = sum(law);
  return law.map((x) => x / total);
}

/** w = (1 / (N P))^β, divided by the largest. */
export function importance(P, beta) {
  const raw = P.map((x) => (P.length * x) ** -beta);
  const most = Math.max(...raw);
  return raw.map((x) => x / most);
}

/** The fraction of the expected gradient from each sequence: P w / Σ P w. */
export function gradient(P, w) {
  const products = P.map((x, i) => x * w[i]);
  const total = sum(products);
  return products.map((x) => x / total);
}

/** 1 / Σ P²: the number of equally likely sequences with the same probability of a repeated draw. */
export const effective = (P) => 1 / sum(P.map((x) => x * x));

/** Numbers in (0, 1) by x ← 48271 x mod (2³¹ - 1) (Park, Miller and Stockmeyer 1993). */
export function uniforms(count, seed = 1) {
  let x = seed;
  return range(count, () => (x = (48271 * x) % 2147483647) / 2147483647);
}

/** The frequency of each sequence in `count` draws, which are the same every time. */
export function drawn(P, count) {
  const edges = P.map((_, i) => sum(P.slice(0, i + 1)));
  const hits = P.map(() => 0);
  for (const u of uniforms(count, 2019)) {
    const i = edges.findIndex((edge) => u < edge);
    hits[i < 0 ? P.length - 1 : i]++;
  }
  return hits;
}

const EXAMPLE = range(96, (i) => [0.2, 0.9, 0.4, 1.6][Math.floor(i / 8) % 4] * ((i * 5) % 8 ? 0.5 : 2));
const MOST = 16;
const LEFT = 46;

function state(ui) {
  const steps = ui.get("steps");
  const { values, notes } = series(ui.get("errors"), { name: "errors", most: MOST * steps, fallback: EXAMPLE, unit: "number" });
  const rows = sequences(values, steps);
  const [eta, alpha, beta] = ["eta", "alpha", "beta"].map((name) => ui.get(name));
  const p = priorities(rows, eta);
  const P = chances(p, alpha);
  const w = importance(P, beta);
  const hits = drawn(P, ui.get("draws"));
  const chosen = clamp(ui.get("sequence"), 0, rows.length - 1);
  return { rows, notes, eta, alpha, beta, p, P, w, hits, draws: ui.get("draws"), share: gradient(P, w), chosen };
}

/** Stacked panels that share the axis of sequences. */
function panels(width, now) {
  const { rows } = now;
  const pitch = (width - LEFT - 8) / rows.length;
  const wide = Math.min(pitch * 0.62, 34);
  const hatch = stripes("blue");
  let top = 0;
  const nodes = [];
  const panel = (title, high, height, shapes) => {
    const box = [LEFT, top + 22, width - 8, top + 22 + height];
    const axis = plot(box, { x: { low: -0.5, high: rows.length - 0.5, ticks: [] }, y: { low: 0, high, ticks: levels(high) } });
    const bar = (i, from, to, attributes) =>
      svg("rect", { x: axis.x(i) - wide / 2, y: axis.y(to), width: wide, height: Math.max(0, axis.y(from) - axis.y(to)), ...attributes });
    const level = (y) => svg("line", { x1: box[0], x2: box[2], y1: axis.y(y), y2: axis.y(y), class: "s-ink", "stroke-width": 1.2, "stroke-dasharray": "5 3" });
    nodes.push(svg("text", { x: 0, y: top + 12 }, title), axis.axes, shapes({ axis, bar, level }));
    top = box[3] + 8;
  };
  const finish = (alt) => {
    const names = rows.map((_, i) => svg("text", { x: LEFT + (i + 0.5) * pitch, y: top + 8, "text-anchor": "middle", class: i === now.chosen ? "" : "dim", style: i === now.chosen ? "font-weight:700" : "" }, `${i + 1}`));
    const label = svg("text", { x: width - 8, y: top + 24, "text-anchor": "end" }, "sequence");
    const band = svg("rect", { x: LEFT + now.chosen * pitch + 1, y: 18, width: pitch - 2, height: top - 6, rx: 4, class: "f-fill" });
    return picture(width, top + 28, alt, hatch.defs, band, nodes, names, label);
  };
  return { panel, finish, pitch, wide, hatch };
}

/** Two to four round numbers, starting at 0. */
function levels(high) {
  const power = 10 ** Math.floor(Math.log10(high));
  const step = [5, 2, 1, 0.5, 0.2].map((m) => m * power).find((m) => high / m > 1.4999);
  return range(Math.floor((high * 1.0001) / step) + 1, (i) => Number((i * step).toPrecision(6)));
}

function drawTraces({ panel, wide, pitch }, { rows }) {
  const most = Math.max(...rows.flat()) || 1;
  panel("|δ| of each trained step (dot: max, line: mean)", most, 70, ({ axis }) => rows.map((row, i) => {
    const room = Math.max(wide, pitch * 0.78);
    const one = room / row.length;
    const left = axis.x(i) - room / 2;
    const top = row.indexOf(Math.max(...row));
    const average = axis.y(mean(row));
    return [
      row.map((x, t) => svg("rect", { x: left + t * one, y: axis.y(x), width: Math.max(0.8, one - 0.6), height: Math.max(0, axis.y(0) - axis.y(x)), class: "f-dim" })),
      svg("line", { x1: left - 1, x2: left + room + 1, y1: average, y2: average, class: "s-green", "stroke-width": 2 }),
      svg("circle", { cx: left + (top + 0.5) * one, cy: axis.y(row[top]), r: 3.5, class: "f-blue s-paper" }),
    ];
  }));
}

function drawPriorities({ panel, hatch }, { rows, eta, p }) {
  panel("p = η max |δ| (solid) + (1 − η) mean |δ| (striped)", Math.max(...p) || 1, 62, ({ bar }) => p.map((x, i) => {
    const most = eta * Math.max(...rows[i]);
    return [bar(i, 0, most, { class: "f-blue" }), bar(i, most, x, { class: "s-blue", fill: hatch.fill, "stroke-width": 0.8 })];
  }));
}

function drawChances({ panel }, { P, hits, draws }) {
  const noise = (x) => (draws ? 2 * Math.sqrt((x * (1 - x)) / draws) : 0);
  const high = Math.max(...P.map((x) => Math.min(1, x + noise(x))), ...hits.map((k) => k / (draws || 1)));
  const title = `P = p^α / Σ p^α (dashed: 1/N${draws ? `; circles: ${plural(draws, "draw")} ± 2σ` : ""})`;
  panel(title, high, 84, ({ axis, bar, level }) => [
    P.map((x, i) => bar(i, 0, x, { class: "f-blue" })),
    level(1 / P.length),
    draws ? P.map((x, i) => [
      svg("line", { x1: axis.x(i), x2: axis.x(i), y1: axis.y(Math.max(0, x - noise(x))), y2: axis.y(Math.min(1, x + noise(x))), class: "s-ink", "stroke-width": 1.2 }),
      svg("circle", { cx: axis.x(i), cy: axis.y(hits[i] / draws), r: 4, class: "f-paper s-ink", "stroke-width": 1.6 }),
    ]) : [],
  ]);
}

function drawWeights({ panel }, { P, w, share }) {
  panel("w = (1 / (N P))^β / max w", 1, 50, ({ bar }) => w.map((x, i) => bar(i, 0, x, { class: "f-green" })));
  panel("share of the gradient P w / Σ P w (dotted: P; dashed: 1/N)", Math.max(...share, ...P), 70, ({ bar, level }) => [
    share.map((x, i) => [bar(i, 0, x, { class: "f-purple" }), bar(i, 0, P[i], { class: "f-none s-dim", "stroke-dasharray": "2 2" })]),
    level(1 / share.length),
  ]);
}

/** Describe whether all sequences contribute equally to the expected gradient. */
export const unbiased = (share) => share.every((x) => Math.abs(x * share.length - 1) < 1e-6);

function verdict({ P, share }) {
  const ratio = (xs) => Math.max(...xs) / Math.min(...xs);
  if (unbiased(P)) return "all are sampled equally often, so there is no bias to correct.";
  if (unbiased(share)) return "P w is equal for all: some sequences are drawn more often, but the expected gradient has no bias.";
  return (
    `the largest P is ${num(ratio(P), 2)} times the smallest, and the largest P w still ${num(ratio(share), 2)} times the smallest: ` +
    "the gradient is biased toward large errors, and only β = 1 would make P w equal for all."
  );
}

function draw(ui) {
  const now = state(ui);
  const { rows, eta, alpha, beta, p, P, w, share, hits, draws, chosen } = now;
  const view = panels(Math.max(300, ui.width), now);
  drawTraces(view, now);
  drawPriorities(view, now);
  drawChances(view, now);
  drawWeights(view, now);
  const one =
    `Sequence ${chosen + 1} (shaded): max |δ| ${num(Math.max(...rows[chosen]))}, mean ${num(mean(rows[chosen]))}, so p = ${num(p[chosen])}; ` +
    `drawn with P = ${percent(P[chosen])}, weighted by w = ${num(w[chosen], 2)}, it has ${percent(share[chosen])} of the expected gradient.`;
  const far = Math.max(...P.map((x, i) => Math.abs(x - hits[i] / draws) / (Math.sqrt((x * (1 - x)) / draws) || 1)));
  const seen = draws ? ` In ${plural(draws, "draw")} every frequency is within ${num(far, 2)} σ of its P.` : "";
  const summary =
    `${one} Effective number of sequences at η = ${num(eta)}, α = ${num(alpha)}: 1 / Σ P² = ${num(effective(P))} of ${rows.length}. ` +
    `With β = ${num(beta)}: ${verdict(now)}${seen}`;
  const alt = `Five panels over ${plural(rows.length, "sequence")}: errors, priority p, probability P, weight w, and share of the gradient.`;
  return { pictures: [view.finish(alt)], summary, notes: now.notes };
}

function controls(ui) {
  slider(ui, "eta", { label: "mixture η", min: 0, max: 1, step: 0.05 });
  slider(ui, "alpha", { label: "exponent α", min: 0, max: 1, step: 0.05 });
  slider(ui, "beta", { label: "correction β", min: 0, max: 1, step: 0.05 });
  slider(ui, "draws", { label: "draws", min: 0, max: 2000, step: 100 });
  slider(ui, "sequence", { label: "sequence", min: 0, max: () => state(ui).rows.length - 1, step: 1, format: (i) => `${i + 1} of ${state(ui).rows.length}` });
}

const render = (context) =>
  frame(context, {
    title: "Priority explorer: sampling probabilities and weights of sequences",
    names: ["errors", "steps", "eta", "alpha", "beta", "draws", "sequence"],
    controls,
    draw,
  });

export default { render };
