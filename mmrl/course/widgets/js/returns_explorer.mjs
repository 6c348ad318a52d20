// The weights of future rewards and values in each target.
import { choice, frame, num, picture, range, series, slider, svg } from "./core.mjs";
import { path, plot } from "./plot.mjs";
import { TARGETS } from "./targets.mjs";

/**
 * The weights of the target at step 0, for an episode that is truncated after `ratio.length` steps:
 * Σ_k rewards[k] r_k + Σ_k values[k] V(s_k). Targets are linear, so unit vectors determine the weights.
 */
export function weights(kind, gamma, settings, ratio) {
  const steps = ratio.length;
  const zeros = () => new Array(steps).fill(0);
  const [discount, last] = [zeros().fill(gamma), zeros().fill(false)];
  last[steps - 1] = true;
  const target = (rewards, states) => {
    const tape = { rewards, discount, last, ratio, values: states.slice(0, steps), nextValues: states.slice(1) };
    return TARGETS[kind](tape, settings)[0];
  };
  const unit = (length, i) => range(length, (j) => (i === j ? 1 : 0));
  return {
    rewards: range(steps, (i) => target(unit(steps, i), unit(steps + 1, -1))),
    values: range(steps + 1, (i) => target(zeros(), unit(steps + 1, i))),
  };
}

/** exp(spread · z_k), the ratio of the probabilities under the current and the behavior policy. */
export function ratios(spread, logs) {
  return logs.map((z) => Math.exp(spread * z));
}

// Samples of a standard normal distribution, which are fixed so that the picture does not change.
const LOGS = [0.5, -0.9, 1.2, 0.1, -1.4, 0.8, -0.3, 1.7, -0.6, 0.2, -1.1, 0.9, 0.4, -0.2, 1.1, -1.8];

export const KINDS = [
  ["discounted", "discounted"],
  ["n_step", "n-step"],
  ["lambda_return", "λ-return"],
  ["gae", "GAE"],
  ["vtrace", "V-trace"],
];

function bars(ui, box, { title, data, start, reference, shape }) {
  const width = Math.max(300, ui.width);
  const high = Math.max(0.01, ...data, ...(reference ?? []));
  const low = Math.min(0, ...data);
  const area = [46, box.top + 24, width - 10, box.top + box.height - (box.label ? 34 : 18)];
  const axis = plot(area, {
    x: { low: -0.7, high: start + 0.5, ticks: range(Math.floor(start / 4) + 1, (i) => 4 * i), label: box.label },
    y: { low, high },
  });
  const wide = Math.max(2, ((area[2] - area[0]) / (start + 1.2)) * 0.62);
  const rects = data.map((w, k) => {
    const [a, b] = [axis.y(Math.max(w, 0)), axis.y(Math.min(w, 0))];
    const size = { x: axis.x(k) - wide / 2, y: a, width: wide, height: Math.max(b - a, w ? 1 : 0) };
    return svg("rect", { ...size, class: w < 0 ? "f-orange" : shape });
  });
  const zero = svg("line", { x1: area[0], x2: area[2], y1: axis.y(0), y2: axis.y(0), class: "s-dim" });
  const line = reference
    ? path(reference.map((w, k) => [axis.x(k), axis.y(w)]), { class: "f-none s-ink", "stroke-width": 1.5, "stroke-dasharray": "4 3" })
    : null;
  return [svg("text", { x: 0, y: box.top + 12 }, title), axis.axes, rects, zero, line];
}

function draw(ui) {
  const [kind, gamma] = [ui.get("kind"), ui.get("gamma")];
  const steps = ui.get("length");
  const settings = Object.fromEntries(["n", "lam", "rho_max", "c_max"].map((k) => [k, ui.get(k)]));
  const given = series(ui.get("log_ratios"), { name: "log_ratios", most: 24, fallback: LOGS });
  const logs = range(steps, (k) => given.values[k % given.values.length]);
  const ratio = ratios(kind === "vtrace" ? ui.get("spread") : 0, logs);
  const { rewards, values } = weights(kind, gamma, settings, ratio);
  const reference = range(steps, (k) => gamma ** k);
  const total = rewards.reduce((a, b) => a + b, 0);
  const booted = values.reduce((sum, w, k) => sum + (k ? w : 0), 0);
  let [half, sum] = [0, 0];
  while (half < steps - 1 && (sum += rewards[half]) < total / 2) half++;
  const peak = values.slice(1).reduce((best, w, k) => (Math.abs(w) > Math.abs(values[best]) ? k + 1 : best), 1);
  const name = KINDS.find(([key]) => key === kind)[1];
  const summary =
    `${name}, γ = ${num(gamma)}: the weights of rewards sum to ${num(total)}, half of which is within ${half + 1} ` +
    `steps of ${steps}; the weights of later values V(sₖ) sum to ${num(booted)}, with the largest at k = ${peak} (${num(values[peak])})` +
    (values[0] ? `; V(s₀) has weight ${num(values[0])}.` : ".");
  const width = Math.max(300, ui.width);
  const alt = `Two bar charts over steps ahead k. ${summary}`;
  const chart = picture(
    width, 330, alt,
    bars(ui, { top: 0, height: 150 }, { title: "weight of reward rₖ  (dashed: γᵏ)", data: rewards, start: steps, reference, shape: "f-blue" }),
    bars(ui, { top: 158, height: 170, label: "steps ahead k" }, { title: "weight of value V(sₖ)", data: values, start: steps, shape: "f-green" }),
  );
  return { pictures: [chart], summary, notes: given.notes };
}

function controls(ui) {
  const uses = (...kinds) => () => kinds.includes(ui.get("kind"));
  choice(ui, "kind", { label: "target", options: KINDS });
  slider(ui, "gamma", { label: "discount γ", min: 0, max: 1, step: 0.01 });
  slider(ui, "lam", { label: "trace λ", min: 0, max: 1, step: 0.01, when: uses("lambda_return", "gae", "vtrace") });
  slider(ui, "n", { label: "steps n", min: 1, max: () => ui.get("length"), step: 1, when: uses("n_step") });
  slider(ui, "spread", { label: "off-policy by", min: 0, max: 2, step: 0.1, when: uses("vtrace") });
  slider(ui, "rho_max", { label: "clip ρ̄", min: 0, max: 4, step: 0.1, when: uses("vtrace") });
  slider(ui, "c_max", { label: "clip c̄", min: 0, max: 4, step: 0.1, when: uses("vtrace") });
  slider(ui, "length", { label: "steps to truncation", min: 4, max: 24, step: 1 });
}

const render = (context) =>
  frame(context, {
    title: "Returns explorer: the weights of rewards and values in a target",
    names: ["kind", "gamma", "lam", "n", "spread", "rho_max", "c_max", "length", "log_ratios"],
    controls,
    draw,
  });

export default { render };
