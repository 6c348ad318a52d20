// Eigenvalues of memory models: their positions, half-lives and impulse responses.
import { choice, clamp, frame, num, picture, plural, range, series, slider, svg } from "./core.mjs";
import { path, plot } from "./plot.mjs";

const UNITS = 16;
const CONTEXTS = 4;
const linear = (low, high, count) => range(count, (i) => low + ((high - low) * i) / Math.max(1, count - 1));
// The golden ratio spreads units evenly over a second range, in an unrelated order.
const spread = (i) => (0.5 + i * 0.6180339887498949) % 1;
const middle = (i, count) => (i + 0.5) / count;

/** Initial λ = exp(-rate + i turn) of each model; random draws are replaced by even spacing. */
export const FAMILIES = {
  // |λ|² uniform over [low², high²], the argument over (0, phase).
  lru({ low, high, phase }) {
    return range(UNITS, (i) => {
      const squared = low ** 2 + (high ** 2 - low ** 2) * middle(i, UNITS);
      return { rate: -0.5 * Math.log(squared), turn: phase * spread(i) };
    });
  },
  // exp(Λ Δ), Re Λ = -1/2, Im Λ from HiPPO, Δ log-uniform over [low, high].
  s5({ step_low: low, step_high: high, frequencies }) {
    return frequencies.map((omega, i) => {
      const step = low * (high / low) ** spread(i);
      return { rate: 0.5 * step, turn: omega * step };
    });
  },
  // exp(-α + iω) for all pairs of a trace and a context.
  ffm({ alpha_low: low, alpha_high: high, period }) {
    const alphas = linear(low, high, UNITS);
    const omegas = linear(2, period, CONTEXTS).map((steps) => (2 * Math.PI) / steps);
    return alphas.flatMap((rate) => omegas.map((turn) => ({ rate, turn })));
  },
  given({ real, imag }) {
    return real.map((re, i) => {
      const im = imag[i] ?? 0;
      return { rate: -Math.log(Math.hypot(re, im)), turn: Math.atan2(im, re) };
    });
  },
};

/** The half-life in steps: ∞ without decay, 0 if the state is lost immediately. */
export const halfLife = ({ rate }) => (rate > 0 ? Math.LN2 / rate : Infinity);

/** Re λ^t and |λ|^t for t = 0 … steps. */
export function impulse({ rate, turn }, steps) {
  const envelope = range(steps + 1, (t) => Math.exp(-rate * t));
  return { envelope, response: envelope.map((size, t) => size * Math.cos(turn * t)) };
}

const SLIDERS = {
  lru: ["low", "high", "phase"],
  s5: ["step_low", "step_high"],
  ffm: ["alpha_low", "alpha_high", "period"],
  given: [],
};
const HIPPO = range(UNITS, (i) => 2 * (i + 1));

function state(ui) {
  const family = ui.get("family");
  const notes = [];
  const read = (name, fallback) => {
    const got = series(ui.get(name), { name, most: 64, fallback, unit: "unit" });
    notes.push(...got.notes);
    return got.values;
  };
  const settings = Object.fromEntries(SLIDERS[family].map((name) => [name, ui.get(name)]));
  if (family === "s5") settings.frequencies = read("frequencies", HIPPO);
  if (family === "given") Object.assign(settings, { real: read("real", [0.9]), imag: read("imag", [0]) });
  const units = FAMILIES[family](settings).sort((a, b) => b.rate - a.rate);
  const growing = units.filter((unit) => unit.rate < 0).length;
  if (growing) notes.push(`${plural(growing, "eigenvalue")} outside the unit circle: their states grow without limit.`);
  const index = clamp(Math.round((ui.get("unit") / 100) * (units.length - 1)), 0, units.length - 1);
  return { units, index, unit: units[index], notes };
}

function drawPlane(size, { units, index }) {
  const [middleX, middleY] = [size / 2, size / 2 + 8];
  const r = size / 2 - 26;
  const at = ({ rate, turn }) => {
    const far = Math.min(Math.exp(-rate), 1.15);
    return { cx: middleX + r * far * Math.cos(turn), cy: middleY - r * far * Math.sin(turn) };
  };
  const ring = (radius, attributes) => svg("circle", { cx: middleX, cy: middleY, r: radius, class: "f-none s-line", ...attributes });
  const cross = svg("path", { d: `M${middleX - r} ${middleY}h${2 * r}M${middleX} ${middleY - r}v${2 * r}`, class: "s-line", "stroke-width": 0.7 });
  const dots = units.map((unit) => svg("circle", { ...at(unit), r: 4.5, class: "f-blue s-paper" }));
  const chosen = svg("circle", { ...at(units[index]), r: 8, class: "f-orange s-ink", "stroke-width": 2 });
  const words = [
    svg("text", { x: 0, y: 12 }, "eigenvalues λ"),
    svg("text", { x: middleX + r + 4, y: middleY + 4, class: "dim" }, "1"),
    svg("text", { x: middleX + 4, y: middleY - r - 4, class: "dim" }, "i"),
  ];
  const alt = `${units.length} eigenvalues in the complex plane, inside or on the unit circle.`;
  return picture(size, size + 8, alt, ring(r, { "stroke-width": 1.4 }), ring(r / 2, { "stroke-dasharray": "3 3" }), cross, dots, chosen, words);
}

function drawResponse(width, { unit }, horizon) {
  const { envelope, response } = impulse(unit, horizon);
  const high = clamp(Math.max(...envelope), 1, 3);
  const axis = plot([40, 24, width - 14, 178], { x: { low: 0, high: horizon, label: "steps since the impulse" }, y: { low: -high, high } });
  const points = (values) => values.map((v, t) => [axis.x(t), axis.y(Math.abs(v) > high ? NaN : v)]);
  const dashes = { class: "f-none s-ink", "stroke-dasharray": "5 3", "stroke-width": 1.3 };
  const half = halfLife(unit);
  const mark = half <= horizon
    ? [svg("circle", { cx: axis.x(half), cy: axis.y(0.5), r: 5, class: "f-orange s-ink" }),
       svg("text", { x: axis.x(half) + (half > horizon * 0.7 ? -9 : 9), y: axis.y(0.5) - 7, "text-anchor": half > horizon * 0.7 ? "end" : "start" }, `half left after ${num(half)}`)]
    : [];
  return picture(width, 212, `Response to an impulse over ${horizon} steps; half-life ${num(half)} steps.`,
    svg("text", { x: 0, y: 12 }, "response to one impulse: Re λᵗ  (dashed: |λ|ᵗ)"),
    axis.axes, path(points(response), { class: "f-none s-blue", "stroke-width": 1.5 }), path(points(envelope), dashes), mark);
}

function drawHalfLives(width, { units, index }) {
  const lives = units.map((unit) => clamp(halfLife(unit), 0.1, 1e6));
  const axis = plot([40, 20, width - 14, 50], {
    x: { low: 0.1, high: 1e6, log: true, ticks: [1, 10, 100, 1000, 1e4], label: "half-life in steps" },
    y: { low: 0, high: 1, ticks: [] },
  });
  const marks = lives.map((life) => svg("line", { x1: axis.x(life), x2: axis.x(life), y1: 22, y2: 48, class: "s-blue", "stroke-width": 2 }));
  const chosen = svg("line", { x1: axis.x(lives[index]), x2: axis.x(lives[index]), y1: 16, y2: 54, class: "s-orange", "stroke-width": 3 });
  const base = svg("line", { x1: 40, x2: width - 14, y1: 50, y2: 50, class: "s-dim" });
  return picture(width, 86, `Half-lives of all units, from ${num(Math.min(...lives))} to ${num(Math.max(...lives))} steps.`,
    svg("text", { x: 0, y: 10 }, "half-lives of all units"), axis.axes, base, marks, chosen);
}

function draw(ui) {
  const now = state(ui);
  const plane = 290;
  const rest = ui.width >= 640 ? ui.width - plane - 12 : Math.max(300, ui.width);
  const lives = now.units.map(halfLife);
  // At integer steps, a rotation by more than half a circle looks like a slower backward rotation.
  const turn = Math.abs(Math.atan2(Math.sin(now.unit.turn), Math.cos(now.unit.turn)));
  const period = turn > 1e-6 ? `one rotation in ${num((2 * Math.PI) / turn)} steps` : "no rotation";
  const half = halfLife(now.unit);
  const summary =
    `${now.units.length} units; half-lives from ${num(lives[0])} to ${num(lives.at(-1))} steps, median ` +
    `${num(lives[Math.floor((lives.length - 1) / 2)])}. The marked one: |λ| = ${num(Math.exp(-now.unit.rate), 4)}, ` +
    `${Number.isFinite(half) ? `half left after ${num(half)} steps` : "it never decays"}, ${period}.`;
  const charts = [drawResponse(rest, now, ui.get("horizon")), drawHalfLives(rest, now)];
  const column = document.createElement("div");
  column.append(...charts);
  return { pictures: [drawPlane(plane, now), column], summary, notes: now.notes };
}

function controls(ui) {
  const families = [["lru", "LRU"], ["s5", "S5"], ["ffm", "FFM"]];
  const given = ui.get("real");
  if ((given?.length ?? 0) > 0) families.push(["given", "given"]);
  const only = (family) => () => ui.get("family") === family;
  choice(ui, "family", { label: "memory", options: families });
  slider(ui, "low", { label: "smallest |λ|", min: 0, max: 0.998, step: 0.002, when: only("lru") });
  slider(ui, "high", { label: "largest |λ|", min: 0.002, max: 0.9998, step: 0.0002, format: (x) => num(x, 4), when: only("lru") });
  slider(ui, "phase", { label: "largest angle", min: 0.02, max: 6.28, step: 0.02, when: only("lru") });
  slider(ui, "step_low", { label: "smallest step Δ", min: 1e-4, max: 1, step: 0.05, log: true, when: only("s5") });
  slider(ui, "step_high", { label: "largest step Δ", min: 1e-4, max: 1, step: 0.05, log: true, when: only("s5") });
  slider(ui, "alpha_low", { label: "slowest decay α", min: 1e-6, max: 2, step: 0.05, log: true, when: only("ffm") });
  slider(ui, "alpha_high", { label: "fastest decay α", min: 1e-6, max: 2, step: 0.05, log: true, when: only("ffm") });
  slider(ui, "period", { label: "longest period", min: 2, max: 10000, step: 0.05, log: true, when: only("ffm") });
  slider(ui, "unit", { label: "marked unit", min: 0, max: 100, step: 1, format: (x) => (x < 1 ? "fastest" : x > 99 ? "slowest" : `${num(x)} %`) });
  slider(ui, "horizon", { label: "steps shown", min: 10, max: 400, step: 10 });
}

const render = (context) =>
  frame(context, {
    title: "Memory explorer: how long each unit of a memory remembers",
    names: ["family", ...Object.values(SLIDERS).flat(), "unit", "horizon", "real", "imag", "frequencies"],
    controls,
    draw,
  });

export default { render };
