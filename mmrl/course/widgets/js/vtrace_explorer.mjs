// V-trace step by step: the clipped ratios, and the contribution of each later TD error.
import { choice, clamp, frame, num, picture, plural, range, series, slider, stripes, svg, toggle } from "./core.mjs";
import { path, plot, ticks } from "./plot.mjs";
import { TARGETS } from "./targets.mjs";

const sum = (values) => values.reduce((a, b) => a + b, 0);

/** ρ, c, δ, the maps y ↦ a + b y, the targets and the advantages of mmrl.returns.vtrace. */
export function trace(tape, settings) {
  const { rewards, discount, values, nextValues, last, ratio } = tape;
  const ends = (t) => last[t] || t === rewards.length - 1;
  const rho = ratio.map((x) => Math.min(settings.rho_max, x));
  const c = ratio.map((x) => settings.lam * Math.min(settings.c_max, x));
  const delta = rewards.map((r, t) => r + discount[t] * nextValues[t] - values[t]);
  const a = delta.map((x, t) => rho[t] * x);
  const b = c.map((x, t) => (ends(t) ? 0 : discount[t] * x));
  const targets = TARGETS.vtrace(tape, settings);
  const ahead = (t) => (ends(t) ? nextValues[t] : targets[t + 1]);
  const advantages = rewards.map((r, t) => rho[t] * (r + discount[t] * ahead(t) - values[t]));
  return { rho, c, delta, a, b, targets, advantages };
}

/** b_s ⋯ b_{k-1} a_k for every step k; their sum is v̂_s - V_s. */
export function contributions({ a, b }, s) {
  let gain = 1;
  return a.map((x, k) => {
    if (k < s) return 0;
    if (k > s) gain *= b[k - 1];
    return gain * x;
  });
}

/** π_ρ̄ ∝ min(ρ̄ μ, π), the policy whose values V-trace learns; μ itself as ρ̄ → 0. */
export function fixedPoint(pi, mu, rhoMax) {
  const parts = pi.map((p, i) => (mu[i] ? Math.min(rhoMax * mu[i], p) : 0));
  const total = sum(parts);
  return total ? parts.map((x) => x / total) : mu;
}

/** μ of four actions, and a π with the given ratio for the first action and equal ratios for the others. */
export function policies(ratio) {
  const taken = Math.min(0.1, 1 / ratio);
  const mu = [taken, ...[0.5, 0.3, 0.2].map((x) => x * (1 - taken))];
  const first = ratio * taken;
  return { mu, pi: mu.map((x, i) => (i ? (x * (1 - first)) / (1 - taken) : first)) };
}

// The last position of the slider.
export const UNCLIPPED = 4;
const LARGEST = { rewards: 1e6, values: 1e6, ratios: 1e3 };
const MOST = 16;
const REWARDS = [0, 0, 1, 0, 0, -0.5, 0, 0, 1, 0, 0.5, 1];
const VALUES = [1.2, 1.3, 1.2, 0.8, 0.9, 0.6, 1.1, 1.3, 1.5, 0.7, 0.9, 1, 0.6];
const LOGS = [0.3, -0.4, 0.8, -0.1, 0.5, 1.1, -1.2, 0.2, 0.9, -0.6, 0.4, 0.7];
const SPREAD = { on: 0, near: 0.3, far: 1.4 };
export const ratios = (policy, own) => (policy === "own" ? own : LOGS.map((z) => Math.exp(SPREAD[policy] * z)));

function read(ui, name, most, fallback, notes) {
  const given = series(ui.get(name), { name, most, fallback, unit: "number" });
  const [low, high] = [name === "ratios" ? 0 : -LARGEST[name], LARGEST[name]];
  const values = given.values.map((x) => clamp(x, low, high));
  const own = name !== "ratios" || ui.get("policy") === "own";
  if (own) notes.push(...given.notes);
  if (own && values.some((x, i) => x !== given.values[i])) notes.push(`\`${name}\` is clipped to the range from ${num(low)} to ${num(high)}.`);
  return values;
}

function state(ui) {
  const notes = [];
  const rewards = read(ui, "rewards", MOST, REWARDS, notes);
  const states = read(ui, "values", MOST + 1, VALUES, notes);
  const own = ratios(ui.get("policy"), read(ui, "ratios", MOST, LOGS.map(Math.exp), notes));
  const steps = rewards.length;
  const V = range(steps + 1, (t) => states[t % states.length]);
  const ratio = range(steps, (t) => own[t % own.length]);
  const end = ui.get("terminates") ? Math.ceil((2 * steps) / 3) - 1 : -1;
  const discount = range(steps, (t) => (t === end ? 0 : ui.get("gamma")));
  const tape = { rewards, discount, ratio, values: V.slice(0, -1), nextValues: V.slice(1), last: range(steps, (t) => t === end) };
  const clip = (name) => (ui.get(name) >= UNCLIPPED ? Infinity : ui.get(name));
  const settings = { lam: ui.get("lam"), rho_max: clip("rho_max"), c_max: clip("c_max") };
  const s = clamp(ui.get("step"), 0, steps - 1);
  const seen = trace(tape, settings);
  const full = trace({ ...tape, ratio: ratio.map(() => 1) }, { lam: 1, rho_max: 1, c_max: 1 });
  return { ...tape, ...settings, ...seen, V, s, steps, end, notes, gamma: ui.get("gamma"), adds: contributions(seen, s), whole: contributions(full, s), nStep: TARGETS.n_step(tape, { n: steps }) };
}

const LEFT = 46;
const ends = (values) => {
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const room = 0.06 * (high - low || 1);
  return { low: low && low - room, high: (high && high + room) || (low ? 0 : 1) };
};

/** Stacked panels that share the axis of steps. */
function panels(width, now) {
  const right = width - 8;
  const pitch = (right - LEFT) / (now.steps + 1);
  const wide = Math.min(pitch * 0.62, 30);
  const hatch = { blue: stripes("blue"), green: stripes("green") };
  let top = 0;
  const nodes = [];
  const panel = (title, values, height, shapes) => {
    const box = [LEFT, top + 22, right, top + 22 + height];
    const y = ends(values);
    const axis = plot(box, { x: { low: -0.5, high: now.steps + 0.5, ticks: [] }, y: { ...y, ticks: ticks(y.low, y.high, height > 60 ? 3 : 2) } });
    const rect = (x, from, to, size, attributes) =>
      svg("rect", { x, y: axis.y(Math.max(from, to)), width: size, height: Math.abs(axis.y(from) - axis.y(to)), ...attributes });
    const bar = (t, from, to, attributes) => rect(axis.x(t) - wide / 2, from, to, wide, attributes);
    const level = (at, style) => svg("line", { x1: box[0], x2: right, y1: axis.y(at), y2: axis.y(at), ...style });
    const zero = level(0, { class: "s-dim" });
    nodes.push(svg("text", { x: 0, y: top + 13 }, title), axis.axes, shapes({ axis, bar, rect, level }), zero);
    top = box[3] + 8;
  };
  const finish = (alt) => {
    const { s, steps, end } = now;
    const name = (t) => svg("text", { x: LEFT + (t + 0.5) * pitch, y: top + 8, "text-anchor": "middle", class: t === s ? "" : "dim", style: t === s ? "font-weight:700" : "" }, `${t}`);
    const band = svg("rect", { x: LEFT + s * pitch + 1, y: 18, width: pitch - 2, height: top - 6, rx: 4, class: "f-fill" });
    const x = LEFT + (end + 1) * pitch;
    const wall = end < 0 ? null : [
      svg("line", { x1: x, x2: x, y1: 20, y2: top - 6, class: "s-ink", "stroke-width": 2 }),
      svg("text", { x: right, y: top + 24, "text-anchor": "end" }, `the episode terminates after step ${end}`),
    ];
    const label = svg("text", { x: 0, y: top + 24 }, "step t");
    return picture(width, top + 28, alt, hatch.blue.defs, hatch.green.defs, band, nodes, range(steps + 1, name), label, wall);
  };
  return { panel, finish, wide, hatch };
}

const signed = (x, name) => ({ class: x < 0 ? "f-orange" : `f-${name}` });
const dashed = { class: "f-none s-ink", "stroke-width": 1.4, "stroke-dasharray": "5 3" };

function drawTargets({ panel }, { V, targets, nStep, end }) {
  panel("values V (hollow), targets v̂ (filled), n-step returns (dashed)", [...V, ...targets, ...nStep], 100, ({ axis }) => {
    const points = nStep.map((y, t) => [axis.x(t), axis.y(y)]);
    if (end >= 0) points.splice(end + 1, 0, [NaN, NaN]);
    return [
      path(points, dashed),
      targets.map((y, t) => svg("line", { x1: axis.x(t), x2: axis.x(t), y1: axis.y(V[t]), y2: axis.y(y), class: "s-blue", "stroke-width": 2 })),
      V.map((y, t) => svg("circle", { cx: axis.x(t), cy: axis.y(y), r: 4, class: "f-paper s-ink", "stroke-width": 1.5 })),
      targets.map((y, t) => svg("rect", { x: axis.x(t) - 4, y: axis.y(y) - 4, width: 8, height: 8, class: "f-blue s-paper" })),
    ];
  });
}

function drawRatios({ panel, wide, hatch }, { ratio, rho_max: rhoMax, c_max: cMax }) {
  const limits = [[rhoMax, "blue", 0, "8 3"], [cMax, "green", 1, "2 3"]];
  panel("π / μ under ρ̄ (left) and c̄ (right); cut off: striped", [...ratio, ...[rhoMax, cMax].filter(Number.isFinite)], 84, ({ axis, rect, level }) =>
    limits.map(([most, color, side, dash]) => [
      ratio.map((x, t) => {
        const left = axis.x(t) - (wide / 2) * (1 - side);
        const under = Math.min(x, most);
        return [rect(left, 0, under, wide / 2 - 1, { class: `f-${color}` }), rect(left, under, x, wide / 2 - 1, { class: `s-${color}`, fill: hatch[color].fill, "stroke-width": 0.8 })];
      }),
      Number.isFinite(most) ? level(most, { class: `s-${color}`, "stroke-width": 1.8, "stroke-dasharray": dash }) : null,
    ]));
}

function drawScan({ panel }, { a, b, s, steps, adds, whole, advantages }) {
  const bars = (values, name) => ({ bar }) => values.map((x, t) => bar(t, 0, x, signed(x, name)));
  panel("a = ρ δ: contribution of a step (negative: orange)", a, 52, bars(a, "blue"));
  panel("b = γ λ c: weight of all later steps", [...b, 1], 40, bars(b, "green"));
  const outline = { class: "f-none s-ink", "stroke-dasharray": "2 2" };
  const later = range(steps - s, (k) => s + k);
  panel(`contributions b ⋯ b a to v̂ − V of step ${s} (dotted: n-step return)`, [...adds, ...whole], 72, ({ bar }) =>
    later.map((t) => [bar(t, 0, adds[t], signed(adds[t], "purple")), bar(t, 0, whole[t], outline)]));
  panel("advantage ρ (r + γ v̂′ − V), where v̂′ is of the next step", advantages, 52, bars(advantages, "blue"));
}

function drawPolicies(width, { ratio, s, rho_max: rhoMax }) {
  const { mu, pi } = policies(ratio[s]);
  const learned = fixedPoint(pi, mu, rhoMax);
  const high = Math.max(...mu, ...pi, ...learned);
  const axis = plot([LEFT, 40, width - 8, 120], { x: { low: -0.5, high: 3.5, ticks: [] }, y: { low: 0, high, ticks: ticks(0, high, 2) } });
  const wide = Math.min(26, (width - LEFT) / 18);
  const kinds = [[mu, "f-dim", "μ"], [pi, "f-none s-ink", "π"], [learned, "f-blue", "π_ρ̄"]];
  const bars = kinds.map(([law, style, name], k) => law.map((p, i) => {
    const x = axis.x(i) + (k - 1.5) * (wide + 2);
    const size = { x: x + 1, y: axis.y(p), width: wide, height: axis.y(0) - axis.y(p), class: style, "stroke-width": 1.5 };
    return [svg("rect", size), svg("text", { x: x + wide / 2 + 1, y: 134, "text-anchor": "middle", class: "small" }, name)];
  }));
  const names = mu.map((_, i) => svg("text", { x: axis.x(i), y: 150, "text-anchor": "middle" }, i ? `action ${i + 1}` : "taken"));
  const title = [svg("text", { x: 0, y: 13 }, "V converges to the values of π_ρ̄ ∝ min(ρ̄ μ, π)"), svg("text", { x: 0, y: 29, class: "dim" }, `(an example of four actions, with the ratio of step ${s})`)];
  const alt = `Probabilities of the taken action: ${num(mu[0], 2)} under μ, ${num(pi[0], 2)} under π, ${num(learned[0], 2)} under the policy π_ρ̄ whose values are learned.`;
  return { node: picture(width, 156, alt, title, axis.axes, bars, names), mu, pi, learned };
}

function draw(ui) {
  const now = state(ui);
  const { s, steps, ratio, rho, c, delta, V, targets, adds, advantages, nStep, rho_max: rhoMax, c_max: cMax, lam } = now;
  const width = Math.max(300, ui.width);
  const view = panels(width, now);
  drawTargets(view, now);
  drawRatios(view, now);
  drawScan(view, now);
  const { node, mu, pi, learned } = drawPolicies(Math.min(width, 460), now);
  const rest = sum(adds) - adds[s];
  const above = (most) => ratio.filter((x) => x > most).length;
  const one =
    `Step ${s} (shaded): π / μ = ${num(ratio[s])}, so ρ = ${num(rho[s])} and λ c = ${num(c[s])}. Its target is ${num(targets[s])}, and v̂ − V = ${num(targets[s] - V[s])}: ` +
    `${num(adds[s])} from its δ of ${num(delta[s])}, and ${num(rest)} from later ones. Its advantage is ${num(advantages[s])}. `;
  const cuts = `ρ̄ = ${num(rhoMax)} clips ${above(rhoMax)} and c̄ = ${num(cMax)} clips ${above(cMax)} of ${plural(steps, "ratio")}. `;
  const far = Math.max(...targets.map((v, t) => Math.abs(v - nStep[t])));
  const same = far <= 1e-9 * Math.max(1, ...nStep.map(Math.abs));
  const settled = `In the example of four actions, V learns the values of a policy that takes this action with probability ${num(learned[0])}; under μ it is ${num(mu[0])}, under π ${num(pi[0])}.`;
  const compared = same ? "Every v̂ is the n-step return. " : `v̂ differs from the n-step return by up to ${num(far)}. `;
  const notes = [...now.notes];
  if (cMax > rhoMax) notes.push("c̄ > ρ̄: Espeholt et al. 2018 assume ρ̄ ≥ c̄.");
  if (lam < 1 && ratio.every((x) => x === 1) && Math.min(rhoMax, cMax) >= 1) notes.push("On-policy with λ < 1, v̂ is the λ-return.");
  const alt = `Six panels over ${plural(steps, "step")}: values and targets, ratios and their clips, a, b, the contribution of each step to the target of step ${s}, and advantages.`;
  return { pictures: [view.finish(alt), node], summary: one + cuts + compared + settled, notes };
}

/** A slider for the ratio of the selected step; a change selects the policy "own". */
function ratioSlider(ui) {
  const now = () => state(ui);
  const set = (_, value) => {
    const { ratio, s } = now();
    const values = ratio.map((x, t) => (t === s ? value : x));
    ui.set("ratios", { values, length: values.length });
    ui.set("policy", "own");
  };
  const one = { ...ui, set, get: () => now().ratio[now().s] };
  slider(one, "ratio", { label: "its π / μ", min: 0, max: () => Math.max(6, now().ratio[now().s]), step: 0.05 });
}

function controls(ui) {
  choice(ui, "policy", { label: "π and μ", options: [["on", "on-policy"], ["near", "slightly off"], ["far", "far off"], ["own", "your own"]] });
  slider(ui, "step", { label: "step", min: 0, max: () => state(ui).steps - 1, step: 1 });
  ratioSlider(ui);
  const format = (x) => (x >= UNCLIPPED ? "∞" : num(x));
  slider(ui, "rho_max", { label: "clip ρ̄", min: 0, max: UNCLIPPED, step: 0.1, format });
  slider(ui, "c_max", { label: "clip c̄", min: 0, max: UNCLIPPED, step: 0.1, format });
  slider(ui, "gamma", { label: "discount γ", min: 0, max: 1, step: 0.01 });
  slider(ui, "lam", { label: "trace λ", min: 0, max: 1, step: 0.05 });
  toggle(ui, "terminates", { label: "the episode terminates early" });
}

const render = (context) =>
  frame(context, {
    title: "V-trace explorer: clipped ratios and contributions of later errors",
    names: ["rewards", "values", "ratios", "policy", "step", "rho_max", "c_max", "gamma", "lam", "terminates"],
    controls,
    draw,
  });

export default { render };
