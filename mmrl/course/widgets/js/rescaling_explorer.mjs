// R2D2's target with rescaled returns, step by step, and the errors of the inverse of h in float32.
import { choice, clamp, frame, html, num, picture, range, slider, svg } from "./core.mjs";
import { path, plot } from "./plot.mjs";

const exact = (x) => x;
const float32 = Math.fround;

/**
 * h(x) = sign(x) (√(|x| + 1) - 1) + εx, computed as in `mmrl.returns.rescale`. Every operation is
 * rounded by `f`. With Math.fround this is float32, because float32 hardware also rounds each
 * operation correctly.
 */
export function rescale(x, eps, f = exact) {
  const [v, e] = [f(x), f(eps)];
  return f(f(v / f(f(Math.sqrt(f(Math.abs(v) + 1))) + 1)) + f(e * v));
}

/** Two formulas for h⁻¹; `f` rounds the result of every operation. */
export const INVERSES = {
  // sign(y) (((√(1 + 4ε(|y| + 1 + ε)) - 1) / 2ε)² - 1)
  textbook(y, eps, f = exact) {
    const [v, e] = [f(y), f(eps)];
    const inner = f(1 + f(f(4 * e) * f(f(Math.abs(v) + 1) + e)));
    const root = f(f(f(Math.sqrt(inner)) - 1) / f(2 * e));
    return f(Math.sign(v) * f(f(root * root) - 1));
  },
  // q (|q| + 2), q = 2y / (1 + 2ε + √((1 + 2ε)² + 4ε|y|)), as `mmrl.returns.unrescale` does.
  stable(y, eps, f = exact) {
    const [v, e] = [f(y), f(eps)];
    const b = f(1 + f(2 * e));
    const root = f(Math.sqrt(f(f(b * b) + f(f(4 * e) * Math.abs(v)))));
    const q = f(f(2 * v) / f(b + root));
    return f(q * f(Math.abs(q) + 2));
  },
};

/** All intermediate values from the network's q = h(x) to its target h(Σ_{k<n} γ^k r + γ^n h⁻¹(q)). */
export function target({ x, eps, n, gamma, reward }, inverse = "stable", f = exact) {
  const q = rescale(x, eps, f);
  const back = INVERSES[inverse](q, eps, f);
  let [rewards, gain] = [0, 1];
  for (let k = 0; k < n; k++) {
    rewards = f(rewards + f(gain * f(reward)));
    gain = f(gain * f(gamma));
  }
  const sum = f(rewards + f(gain * back));
  return { q, back, rewards, gain, sum, y: rescale(sum, eps, f) };
}

/** |got - wanted| / |wanted|, or |got| if `wanted` is 0. */
export const relative = (got, wanted) => Math.abs(got - wanted) / (Math.abs(wanted) || 1);

/** The relative error of h⁻¹(h(x)) in float32. Only the inverse differs between the two formulas. */
export function roundTrip(x, eps, inverse) {
  const v = float32(x);
  return relative(INVERSES[inverse](rescale(v, eps, float32), eps, float32), v);
}

/** The largest round-trip errors between adjacent points of a logarithmic grid of |x|. */
export function largest(eps, inverse, powers, draws = 12) {
  return powers.slice(1).map((power, i) => Math.max(...range(draws, (k) => {
    const x = 10 ** (powers[i] + ((power - powers[i]) * (k + 0.5)) / draws);
    return roundTrip(x, eps, inverse);
  })));
}

const POWERS = range(73, (i) => -4 + i / 8);
const SMALL = range(17, (i) => -3 + i / 8);
const NAMES = { textbook: "textbook", stable: "stable" };
const LEFT = 52;
// A slider for returns of both signs, with 0 in the middle and ten steps per power of ten.
const FIRST = -4;
export const place = (x) => (Math.abs(x) < 10 ** FIRST ? 0 : Math.sign(x) * (Math.log10(Math.abs(x)) - FIRST + 0.1));
export const value = (at) => (Math.abs(at) < 0.05 ? 0 : Number((Math.sign(at) * 10 ** (Math.abs(at) + FIRST - 0.1)).toPrecision(3)));

function state(ui) {
  const [x, eps, n, gamma, reward, inverse] = ["x", "epsilon", "n", "gamma", "reward", "inverse"].map(ui.get);
  const settings = { x, eps, n, gamma, reward };
  const trips = { textbook: roundTrip(x, eps, "textbook"), stable: roundTrip(x, eps, "stable") };
  return { ...settings, inverse, trips, ideal: target(settings), now: target(settings, inverse, float32) };
}

/** The smallest of 0.02, 0.05, 0.1, …, 1, 2, 5, 10, … that is at least `x`. */
export function roundUp(x) {
  const least = Math.max(x, 0.02) * (1 - 1e-9);
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((m) => Number((m * power).toPrecision(1))).find((m) => m >= least);
}

function drawCurve(width, { eps, ideal }) {
  const far = roundUp(1.1 * Math.max(Math.abs(ideal.back), Math.abs(ideal.sum)));
  const low = Math.min(ideal.back, ideal.sum) < 0 ? -far : 0;
  const h = (x) => rescale(x, eps);
  const axis = plot([LEFT, 40, width - 12, 250], {
    x: { low, high: far, label: "return x" },
    y: { low: 1.15 * h(low), high: 1.04 * h(far) },
  });
  const curve = range(241, (i) => low + ((far - low) * i) / 240).map((x) => [axis.x(x), axis.y(h(x))]);
  const same = [Math.max(low, h(low)), Math.min(far, h(far))].map((x) => [axis.x(x), axis.y(x)]);
  const [from, to, q, y] = [axis.x(ideal.back), axis.x(ideal.sum), axis.y(ideal.q), axis.y(ideal.y)];
  const [edge, base] = [axis.x(0), axis.y(0)];
  const way = { class: "f-none s-orange", "stroke-width": 1.8 };
  const steps = [
    path([[edge, q], [from, q], [from, base]], { ...way, "stroke-dasharray": "2 3" }),
    path([[from, base], [to, base]], { ...way, "stroke-width": 4 }),
    path([[to, base], [to, y], [edge, y]], { ...way, "stroke-dasharray": "7 3" }),
    svg("circle", { cx: from, cy: q, r: 5.5, class: "f-paper s-orange", "stroke-width": 2.2 }),
    svg("circle", { cx: to, cy: y, r: 5.5, class: "f-orange s-ink" }),
  ];
  // Place words on the left above a rising curve, and on the right below it.
  const halo = "paint-order:stroke;stroke:var(--paper);stroke-width:4px";
  const label = (x, y, above, text) => {
    const spot = above ? { x: Math.max(x - 9, LEFT + 84), y: y - 9, "text-anchor": "end" } : { x: Math.min(x + 9, width - 84), y: y + 18 };
    return svg("text", { ...spot, style: halo }, text);
  };
  const up = ideal.sum > 0 || (ideal.sum === 0 && ideal.back < 0);
  const words = [
    svg("text", { x: 0, y: 12 }, "h(x), from the network's q (open) to its target (filled)"),
    svg("text", { x: same[1][0] + 6, y: same[1][1] + 12, class: "dim" }, "y = x"),
    label(from, q, ideal.back < 0, `q = ${num(ideal.q)}`),
    label(to, y, up, `target ${num(ideal.y)}`),
  ];
  const alt = `The curve h from ${num(low)} to ${num(far)}, which rises like a square root. It maps a return of ${num(ideal.back)} to ${num(ideal.q)}, and the target's return of ${num(ideal.sum)} to ${num(ideal.y)}.`;
  return picture(width, 286, alt, axis.axes,
    path(same, { class: "f-none s-dim", "stroke-dasharray": "4 4", "stroke-width": 1.2 }),
    path(curve, { class: "f-none s-blue", "stroke-width": 2.4 }), steps, words);
}

function drawErrors(width, { x, eps, inverse, trips }) {
  const right = width - 12;
  const axis = plot([LEFT, 40, right, 250], {
    x: { low: 1e-4, high: 1e5, log: true, ticks: [1e-4, 0.01, 1, 100, 1e4], label: "size of the return |x|" },
    y: { low: 1e-8, high: 10, log: true, ticks: [1e-8, 1e-6, 1e-4, 0.01, 1] },
  });
  const lines = { textbook: ["orange", "7 3"], stable: ["blue", "none"] };
  const shapes = Object.entries(lines).map(([kind, [color, dash]]) => {
    const points = largest(eps, kind, POWERS).map((worst, i) => {
      return [axis.x(10 ** ((POWERS[i] + POWERS[i + 1]) / 2)), axis.y(clamp(worst, 1e-8, 10))];
    });
    const here = points[Math.round(points.length * 0.28)];
    const name = svg("text", { x: here[0] + 4, y: here[1] + (kind === "stable" ? 20 : -10) }, NAMES[kind]);
    const weight = kind === inverse ? 3 : 1.6;
    return [path(points, { class: `f-none s-${color}`, "stroke-width": weight, "stroke-dasharray": dash }), name];
  });
  const at = axis.x(clamp(Math.abs(x), 1e-4, 1e5));
  const marks = [svg("line", { x1: at, x2: at, y1: 40, y2: 250, class: "s-ink", "stroke-width": 1.2 })];
  for (const [kind, [color]] of Object.entries(lines)) {
    const y = axis.y(clamp(trips[kind], 1e-8, 10));
    marks.push(svg("circle", { cx: at, cy: y, r: 5, class: `f-${color} s-ink` }));
  }
  const alt = `Relative error of h⁻¹(h(x)) in float32 over |x|, logarithmic. Textbook: ${num(trips.textbook, 2)} at this x; stable: ${num(trips.stable, 2)}.`;
  return picture(width, 286, alt, axis.axes, shapes, marks, svg("text", { x: 0, y: 12 }, "relative error of h⁻¹(h(x)) in float32 (lines: largest nearby)"));
}

function table({ n, ideal, now, inverse }) {
  const rows = [
    ["the network predicts q", "q"],
    ["h⁻¹(q)", "back"],
    [`Σ γᵏ r, k < ${n}`, "rewards"],
    [`G = Σ γᵏ r + γⁿ h⁻¹(q)`, "sum"],
    ["target h(G)", "y"],
  ].map(([text, key]) => html("tr", {},
    html("th", { scope: "row" }, text), html("td", {}, num(ideal[key], 8)), html("td", {}, num(now[key], 8)),
    html("td", {}, num(relative(now[key], ideal[key]), 2))));
  const head = ["step", "exact", `float32, ${NAMES[inverse]}`, "relative error"].map((text) => html("th", { scope: "col" }, text));
  return html("table", {}, html("thead", {}, html("tr", {}, head)), html("tbody", {}, rows));
}

function draw(ui) {
  const now = state(ui);
  const { x, eps, n, ideal, trips } = now;
  const width = Math.max(300, ui.width);
  const half = width >= 720 ? Math.floor((width - 12) / 2) : width;
  const worst = (kind) => num(Math.max(...largest(eps, kind, SMALL)), 2);
  const summary =
    `The network represents a return of ${num(x)} as ${num(ideal.q)}. Its ${n}-step target: h⁻¹(${num(ideal.q)}) = ${num(ideal.back)}; ` +
    `${num(ideal.rewards)} + ${num(ideal.gain)} · ${num(ideal.back)} = ${num(ideal.sum)}; h(${num(ideal.sum)}) = ${num(ideal.y)}. ` +
    `After a round trip in float32, h⁻¹(h(x)), the relative error of x is ${num(trips.textbook, 2)} with the textbook inverse and ${num(trips.stable, 2)} ` +
    `with the stable one; for returns from 0.001 to 0.1 it is up to ${worst("textbook")} and ${worst("stable")}.`;
  return { pictures: [drawCurve(half, now), drawErrors(half, now), table(now)], summary };
}

function controls(ui) {
  // `place` converts the value of the trait to a position of the slider.
  const seen = { ...ui, get: () => place(ui.get("x")), set: (_, at) => ui.set("x", value(at)) };
  slider(seen, "x", { label: "return x", min: -10.1, max: 10.1, step: 0.1, format: (at) => num(value(at)) });
  slider(ui, "epsilon", { label: "ε", min: 1e-4, max: 0.1, step: 0.1, log: true });
  slider(ui, "n", { label: "steps n", min: 1, max: 20, step: 1 });
  slider(ui, "gamma", { label: "discount γ", min: 0, max: 1, step: 0.001 });
  slider(ui, "reward", { label: "reward each step", min: -100, max: 100, step: 1 });
  choice(ui, "inverse", { label: "float32 inverse", options: Object.entries(NAMES) });
}

const render = (context) =>
  frame(context, {
    title: "Rescaling explorer: compressed returns and their inverse",
    names: ["x", "epsilon", "n", "gamma", "reward", "inverse"],
    controls,
    draw,
  });

export default { render };
