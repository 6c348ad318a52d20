// Hyperparameters that preserve the learning curve if the batch size changes.
import { choice, frame, html, num, percent, picture, range, slider, svg, toggle } from "./core.mjs";
import { path, plot } from "./plot.mjs";
import { adjusted, centerOf, decayOf, spanOf } from "./proximal.mjs";

const SWITCHES = ["learning_rate", "center", "advantages", "phases", "betas"];
const AVERAGES = { proximal: "proximal policy", advantages: "advantage moments", beta1: "Adam's β₁", beta2: "Adam's β₂" };

/** Format a whole number as 1 234 567, and other numbers with a few digits. */
export function count(value) {
  const x = Number(value.toPrecision(9)); // format a span of 256.00000000001 as 256
  return Number.isInteger(x) ? String(x).replace(/\B(?=(\d{3})+$)/g, "\u202f") : num(x);
}

/** Format a small number with three digits, for example 3.13e−5. */
export function rate(x) {
  const text = x < 1e-3 ? x.toExponential(2).replace(/\.?0+e/, "e") : String(Number(x.toPrecision(3)));
  return text.replace("-", "−");
}

/** Format a decay with three digits of its distance to 1: 0.889, 0.99951, 0.99999609. */
export function fade(b) {
  const digits = b < 1 ? Math.max(3, Math.ceil(-Math.log10(1 - b)) + 2) : 3;
  return String(Number(b.toFixed(digits)));
}

/** A moving average: its decay per step, and the number of examples in a step. */
export function averaging(name, { center, advantage_decay, beta1, beta2, batch }, minibatches) {
  if (name === "advantages") return { decay: advantage_decay, size: batch * minibatches };
  return { decay: { proximal: decayOf(center), beta1, beta2 }[name], size: batch };
}

/** The weight of each example of this age, as a density. */
export const weightAt = ({ decay, size }, age) => ((1 - decay) * decay ** Math.floor(age / size)) / size;

/** The mean age of the averaged values, in examples. */
export const meanAge = ({ decay, size }) => centerOf(decay) * size;

/** The overlap ∫ min(one, other) of two averages: 1 for equal weights, 0 if no age has weight in both. */
export function overlap(one, other) {
  const far = 14 * Math.max(...[one, other].map((a) => meanAge(a) + a.size));
  const fine = Math.min(one.size, other.size);
  const pieces = Math.min(20000, Math.ceil(far / fine));
  const width = Math.max(fine, far / pieces);
  return range(pieces, (i) => (i + 0.5) * width).reduce((sum, age) => sum + Math.min(weightAt(one, age), weightAt(other, age)) * width, 0);
}

function state(ui) {
  const names = ["learning_rate", "center", "advantage_decay", "phases", "beta1", "beta2", "batch"];
  const base = Object.fromEntries(names.map((name) => [name, ui.get(name)]));
  const [optimizer, minibatches] = ["optimizer", "minibatches"].map(ui.get);
  const c = 2 ** ui.get("power");
  const on = Object.fromEntries(SWITCHES.map((name) => [name, ui.get(`adjust_${name}`)]));
  const asked = ui.get("average");
  const average = optimizer === "sgd" && asked.startsWith("beta") ? "proximal" : asked;
  const now = adjusted(base, c, { optimizer, on });
  const none = adjusted(base, c, { optimizer, on: {} });
  const shown = { before: base, after: now, left: none };
  const curves = Object.fromEntries(Object.entries(shown).map(([key, one]) => [key, averaging(average, one, minibatches)]));
  return { base, now, c, on, optimizer, minibatches, average, asked, curves };
}

const by = (c) => (c >= 1 ? `÷ ${num(c)}` : `× ${num(1 / c)}`);
const times = (c) => (c >= 1 ? `× ${num(c)}` : `÷ ${num(1 / c)}`);

function table({ base, now, c, on, optimizer, minibatches }) {
  const adam = optimizer === "adam";
  const rows = [
    ["optimization batch", "batch", count, by(c), true],
    ["iteration batch", (s) => s.batch * minibatches, count, by(c), true],
    [adam ? "Adam's step size" : "learning rate of SGD", "learning_rate", rate, by(adam ? Math.sqrt(c) : c), on.learning_rate],
    ["COM of θ_prox, in steps", "center", count, times(c), on.center],
    ["β_prox = 1 − 1/(1 + COM)", (s) => decayOf(s.center), fade, "from COM", on.center],
    ["advantages: span 2/(1 − b) − 1", (s) => spanOf(s.advantage_decay), count, times(c), on.advantages],
    ["advantages: decay b", "advantage_decay", fade, "from span", on.advantages],
    ["PPG: iterations per phase N_π", "phases", count, times(c), on.phases],
    ["PPG: phase batch", (s) => s.batch * minibatches * s.phases, count, "the product", true],
    adam ? ["Adam's β₁", "beta1", fade, `power ${c >= 1 ? `1/${num(c)}` : num(1 / c)}`, on.betas] : null,
    adam ? ["Adam's β₂", "beta2", fade, `power ${c >= 1 ? `1/${num(c)}` : num(1 / c)}`, on.betas] : null,
  ].filter(Boolean);
  const head = html("tr", {}, ["", "before", "after", "rule"].map((text) => html(text ? "th" : "td", text ? { scope: "col" } : {}, text)));
  const body = rows.map(([title, what, format, rule, used]) => {
    const [from, to] = [base, now].map((s) => format(typeof what === "string" ? s[what] : what(s)));
    const style = from === to ? null : "font-weight:700";
    return html("tr", {}, html("th", { scope: "row" }, title), html("td", {}, from), html("td", { style }, to), html("td", { style: "text-align:left" }, used ? rule : "unchanged"));
  });
  return html("table", {}, html("thead", {}, head), html("tbody", {}, body));
}

const LINES = {
  left: ["f-none s-purple", 1.8, "2 3"],
  before: ["f-none s-blue", 3.4, "none"],
  after: ["f-none s-green", 2.2, "7 4"],
};

function drawWeights(width, { curves, average, c, base, minibatches }) {
  const size = averaging(average, base, minibatches).size;
  const far = 3.2 * (meanAge(curves.before) + size);
  const [left, top, right, bottom] = [46, 92, width - 14, 292];
  const points = Math.round(2 * (right - left));
  const ages = range(points, (i) => ((i + 0.5) * far) / points);
  const values = Object.fromEntries(Object.entries(curves).map(([key, one]) => [key, ages.map((age) => size * weightAt(one, age))]));
  const most = Math.max(...values.before, ...values.after);
  const high = Math.min(Math.max(most, ...values.left), 3 * most) * 1.05;
  const unit = 10 ** Math.floor(Math.log10(far));
  const axis = plot([left, top, right, bottom], { x: { low: 0, high: far / unit, label: `age, in ${count(unit)} examples` }, y: { low: 0, high, label: `weight per ${count(size)} examples` } });
  const lines = Object.entries(LINES).map(([key, [style, thick, dash]]) => path(
    ages.map((age, i) => [axis.x(age / unit), values[key][i] > high ? NaN : axis.y(values[key][i])]),
    { class: style, "stroke-width": thick, "stroke-dasharray": dash, "stroke-linejoin": "round" },
  ));
  const texts = { before: "before", after: `batch ${by(c)}, adjusted`, left: `batch ${by(c)}, average unchanged` };
  const marks = ["before", "after", "left"].map((key, i) => {
    const [style, thick, dash] = LINES[key];
    const y = 34 + 17 * i;
    return [path([[8, y - 4], [40, y - 4]], { class: style, "stroke-width": thick, "stroke-dasharray": dash }), svg("text", { x: 46, y }, texts[key])];
  });
  const title = svg("text", { x: 0, y: 12 }, `weights in the average: ${AVERAGES[average]}`);
  const alt = `Weights of the ${AVERAGES[average]} by age in examples. The mean age is ${count(Math.round(meanAge(curves.before)))} examples before, ${count(Math.round(meanAge(curves.after)))} after, ${count(Math.round(meanAge(curves.left)))} if unchanged.`;
  return picture(width, 328, alt, axis.axes, lines, marks, title);
}

/** Describe the plot. */
function verdict({ curves, average, c }) {
  const { before, after, left } = curves;
  if (c === 1) return "The batch is unchanged. Move the first slider.";
  const share = (one) => percent(overlap(before, one));
  const [what, number] = average === "advantages"
    ? ["an effective sample", (one) => count(Math.round(spanOf(one.decay) * one.size))]
    : ["a mean age", (one) => count(Math.round(meanAge(one)))];
  const said = `The average (${AVERAGES[average]}) has ${what} of ${number(before)} examples before and ${number(after)} after; ${share(after)} of its weight is on the same examples as before.`;
  return after.decay === left.decay ? `${said} It does not change.` : `${said} Unchanged: ${number(left)} examples, ${share(left)}.`;
}

function warnings({ base, now, c, on, optimizer, average, asked }) {
  const notes = [];
  if (now.batch < 1 || !Number.isInteger(now.batch)) notes.push(`A batch cannot have ${num(now.batch)} examples.`);
  if (c < 1) notes.push("A larger batch keeps the curve only if it is below the critical batch size.");
  if (on.advantages && c * spanOf(base.advantage_decay) < 1) notes.push("The span of the advantages' moments cannot be shorter than one iteration.");
  if (on.phases && Math.abs(now.phases - base.phases * c) > 1e-9) notes.push(`N_π × c = ${num(base.phases * c)} is not a whole number of iterations: ${num(now.phases)} is used.`);
  if (asked !== average) notes.push("SGD has no β₁ and β₂, so the proximal policy is shown.");
  return notes;
}

function draw(ui) {
  const seen = state(ui);
  const { base, now, c, on, optimizer } = seen;
  const wide = Math.max(300, ui.width);
  const done = [
    on.learning_rate && c !== 1 ? `learning rate ${rate(base.learning_rate)} → ${rate(now.learning_rate)} (${optimizer === "adam" ? "√c, because Adam divides by noise that grows by √c" : "c, the rule for SGD"})` : "",
    on.center && c !== 1 ? `β_prox ${fade(decayOf(base.center))} → ${fade(decayOf(now.center))}` : "",
  ].filter(Boolean);
  const lead = c === 1 ? "" : `Batch ${by(c)}: ${done.length ? done.join(", ") : "learning rate and β_prox unchanged"}. `;
  const summary = `${lead}${verdict(seen)} These rules assume one policy epoch (E = 1).`;
  return { pictures: [table(seen), drawWeights(wide >= 800 ? wide - 505 : Math.min(wide, 560), seen)], summary, notes: warnings(seen) };
}

function controls(ui) {
  const adam = () => ui.get("optimizer") === "adam";
  slider(ui, "power", { label: "batch", min: -6, max: 8, step: 1, format: (p) => (p ? by(2 ** p) : "unchanged") });
  choice(ui, "optimizer", { label: "optimizer", options: [["adam", "Adam"], ["sgd", "SGD"]] });
  slider(ui, "learning_rate", { label: "learning rate", min: 1e-5, max: 0.1, step: 0.1, log: true, format: rate });
  slider(ui, "center", { label: "COM of θ_prox", min: 0, max: 64, step: 1 });
  slider(ui, "advantage_decay", { label: "advantages' decay", min: 0, max: 0.99, step: 0.01 });
  slider(ui, "phases", { label: "PPG: N_π", min: 1, max: 64, step: 1 });
  slider(ui, "beta1", { label: "Adam's β₁", min: 0, max: 0.99, step: 0.01, when: adam });
  slider(ui, "beta2", { label: "Adam's β₂", min: 0.9, max: 0.999, step: 0.001, when: adam });
  toggle(ui, "adjust_learning_rate", { label: "learning rate ÷ √c (Adam) or ÷ c (SGD)" });
  toggle(ui, "adjust_center", { label: "COM × c" });
  toggle(ui, "adjust_advantages", { label: "span of the advantages' moments × c" });
  toggle(ui, "adjust_phases", { label: "PPG: N_π × c" });
  toggle(ui, "adjust_betas", { label: "β₁ and β₂ to the power 1/c", when: adam });
  choice(ui, "average", { label: "weights of", options: Object.entries(AVERAGES) });
}

const render = (context) =>
  frame(context, {
    title: "Batch calculator: settings that preserve the learning curve",
    names: ["power", "optimizer", "learning_rate", "center", "advantage_decay", "phases", "beta1", "beta2", "batch", "minibatches", "average", ...SWITCHES.map((name) => `adjust_${name}`)],
    controls,
    draw,
  });

export default { render };
