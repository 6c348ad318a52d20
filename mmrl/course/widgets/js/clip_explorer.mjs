// The decoupled objectives of one action and their gradients, as functions of its probability.
import { choice, clamp, drag, frame, html, num, picture, range, slider, svg, stripes } from "./core.mjs";
import { path, plot } from "./plot.mjs";
import { clipped, penalized } from "./proximal.mjs";

const [LOW, HIGH] = [-1.5, 1.5];
const GRID = range(601, (i) => LOW + ((HIGH - LOW) * i) / 600);
const KINDS = { behavior: "coupled: PPO", apart: "decoupled", policy: "θ_prox = θ" };

/** log π_p if log π is `log`; all logarithms are relative to log μ. */
export const proximal = (kind, log, apart) => ({ behavior: 0, apart, policy: log })[kind];

/** The objective and its gradient at `log`, for one of the three choices of the proximal policy. */
export function objective(kind, log, settings) {
  const one = { ...settings, behavior: 0, proximal: proximal(kind, log, settings.apart) };
  return (settings.form === "clip" ? clipped : penalized)(log, one);
}

/** The intervals [from, to] of the grid in which the clipped gradient is zero. */
export function stops(kind, settings, grid = GRID) {
  const out = [];
  grid.forEach((log, i) => {
    if (!objective(kind, log, settings).stopped) return;
    if (i && out.length && out.at(-1)[1] === grid[i - 1]) out.at(-1)[1] = log;
    else out.push([log, log]);
  });
  return out;
}

/** The point at which the gradient is 0, because the band pulls as hard as the advantage. */
export function rests(kind, settings, grid = GRID) {
  const slopes = grid.map((log) => objective(kind, log, settings).gradient);
  return grid.flatMap((log, i) => {
    const [a, b] = [slopes[i - 1], slopes[i]];
    if (!i || (a > 0) === (b > 0) || a === 0) return [];
    return [grid[i - 1] + ((log - grid[i - 1]) * a) / (a - b)];
  });
}

function state(ui) {
  const [form, kind, advantage, epsilon, weight] = ["form", "proximal", "advantage", "epsilon", "weight"].map(ui.get);
  const [at, apart] = ["log_ratio", "log_proximal"].map((name) => clamp(ui.get(name), LOW, HIGH));
  const settings = { form, advantage, epsilon, weight, apart, most: ui.get("importance_max") };
  const gone = form === "kl" ? rests(kind, settings) : stops(kind, settings);
  return { ...settings, kind, at, settings, gone, now: objective(kind, at, settings), where: proximal(kind, at, apart) };
}

const thin = { class: "f-none s-dim", "stroke-width": 2, "stroke-dasharray": "5 4" };
const thick = { class: "f-none s-blue", "stroke-width": 3 };
const hollow = { r: 5, class: "f-paper s-blue", "stroke-width": 2 };
const [LEFT, EDGE] = [46, 12];

function boxes(width) {
  const high = 138;
  return { objective: [LEFT, 72, width - EDGE, 72 + high], gradient: [LEFT, 250, width - EDGE, 250 + high] };
}

/** The ends of an axis that contains these numbers and 0, with a margin. */
function ends(values) {
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const room = 0.08 * (high - low || 1);
  return { low: low - room, high: high + room };
}

/** A curve with a gap at each jump. */
function jumps(points, jump) {
  return points.flatMap(([x, y], i) => (i && Math.abs(y - points[i - 1][1]) > jump ? [[NaN, NaN], [x, y]] : [[x, y]]));
}

function drawPanels(width, seen) {
  const { kind, at, now, where, settings, form, epsilon, gone } = seen;
  const cap = Math.log(settings.most);
  const box = boxes(width);
  const hatch = stripes("dim");
  const curve = (one, what) => GRID.map((log) => objective(one, log, settings)[what]);
  const other = kind === "behavior" ? "apart" : "behavior";
  const axes = {};
  const lines = ["value", "gradient"].map((what, k) => {
    const area = k ? box.gradient : box.objective;
    const [mine, theirs] = [curve(kind, what), curve(other, what)];
    const axis = plot(area, { x: { low: LOW, high: HIGH, label: k ? "log π − log μ of the action" : "" }, y: ends([...mine, ...theirs]) });
    axes[what] = axis;
    const draw = (values, style) => path(jumps(GRID.map((log, i) => [axis.x(log), axis.y(values[i])]), 12), style);
    const zero = svg("line", { x1: area[0], x2: area[2], y1: axis.y(0), y2: axis.y(0), class: "s-dim" });
    const dot = svg("circle", { cx: axis.x(at), cy: axis.y(now[what]), r: 6, class: "f-orange s-ink", "stroke-width": 1.5 });
    return [axis.axes, zero, draw(theirs, thin), draw(mine, thick), dot];
  });
  const { x } = axes.value;
  const [top, bottom] = [box.objective[1], box.gradient[3]];
  const inside = (log) => clamp(log, LOW, HIGH);
  const shade = form === "kl" ? [] : gone.map(([from, to]) => svg("rect", { x: x(from), y: top, width: Math.max(1, x(to) - x(from)), height: bottom - top, fill: hatch.fill, opacity: 0.45 }));
  const band = form === "clip" ? [inside(where + Math.log1p(-Math.min(epsilon, 1))), inside(where + Math.log1p(epsilon))] : null;
  const room = band ? svg("rect", { x: x(band[0]), y: top, width: Math.max(0, x(band[1]) - x(band[0])), height: bottom - top, class: "f-fill" }) : null;
  const mark = (log, name, row, style, grip = false) => {
    const anchor = log > 1.1 ? "end" : "start";
    const y = 30 + 15 * row;
    const line = svg("line", { x1: x(log), x2: x(log), y1: y - 9, y2: bottom, ...style });
    return [
      grip ? svg("g", { class: "grip" }, line) : line,
      svg("text", { x: x(log) + (anchor === "end" ? -5 : 5), y, "text-anchor": anchor }, name),
    ];
  };
  const marks = [
    mark(0, kind === "behavior" ? "μ = π_p" : "μ behavior", 0, { class: "s-ink", "stroke-width": 1.2 }),
    kind === "apart" ? mark(where, "π_p proximal", 1, { class: "s-green", "stroke-width": 2, "stroke-dasharray": "8 3" }, true) : null,
    mark(at, kind === "policy" ? "π = π_p" : "π current", 2, { class: "s-orange", "stroke-width": 1.6, "stroke-dasharray": "2 3" }, true),
    cap < HIGH ? mark(cap, "π / μ limited from here", 3, { class: "s-dim", "stroke-width": 1.2, "stroke-dasharray": "1 4" }) : null,
  ];
  const said = gone.map((one) => (form === "kl" ? `at ${num(one, 2)}` : `from ${num(one[0], 2)} to ${num(one[1], 2)}`)).join(" and ");
  const alt = `Objective and gradient against log π − log μ from −1.5 to 1.5. The gradient vanishes ${said || "nowhere"}.`;
  const points = form === "kl" ? gone.map((log) => svg("circle", { cx: x(log), cy: axes.gradient.y(0), ...hollow })) : null;
  const titles = [svg("text", { x: 0, y: 12 }, "objective of one action, and below it its gradient in log π"), svg("text", { x: 0, y: 242 }, "gradient")];
  const keys = legend(width, seen, hatch, other);
  return picture(width, keys.bottom, alt, hatch.defs, room, shade, lines, points, marks, titles, keys.nodes);
}

/** The legend of lines and areas, in as many rows as the width requires. */
function legend(width, { kind, form, gone }, hatch, other) {
  const box = { y: -10, width: 24, height: 12 };
  const entries = [
    [path([[0, -4], [24, -4]], thick), KINDS[kind]],
    [path([[0, -4], [24, -4]], thin), KINDS[other]],
    form === "clip" ? [svg("rect", { ...box, class: "f-fill s-dim" }), "1 ± ε"] : null,
    gone.length && form === "clip" ? [svg("rect", { ...box, fill: hatch.fill, opacity: 0.45, class: "s-dim" }), "gradient 0"] : null,
    gone.length && form === "kl" ? [svg("circle", { cx: 12, cy: -4, ...hollow }), "gradient 0"] : null,
  ].filter(Boolean);
  let [x, y] = [0, 434];
  const nodes = entries.map(([shape, text]) => {
    const long = 38 + 6.4 * text.length;
    if (x > 0 && x + long > width) [x, y] = [0, y + 18];
    const node = svg("g", { transform: `translate(${x} ${y})` }, shape, svg("text", { x: 30 }, text));
    x += long + 8;
    return node;
  });
  return { nodes, bottom: y + 8 };
}

function table({ kind, at, settings }) {
  const head = html("tr", {}, ["proximal policy", "objective", "gradient"].map((text) => html("th", { scope: "col" }, text)));
  const rows = Object.entries(KINDS).map(([one, text]) => {
    const { value, gradient } = objective(one, at, settings);
    return html("tr", { "aria-current": one === kind ? "true" : null }, html("th", { scope: "row" }, text), html("td", {}, num(value)), html("td", {}, num(gradient)));
  });
  return html("table", {}, html("thead", {}, head), html("tbody", {}, rows));
}

/** Describe the gradient at this point, and its cause. */
function verdict({ form, kind, at, now, where, advantage, epsilon, weight, settings }) {
  const off = at - where;
  const gradient = `the gradient in log π is ${num(now.gradient)}`;
  if (form === "kl") {
    const pull = weight * off;
    if (kind === "policy") return `${gradient}: with θ_prox = θ the band has length 0 and does not pull.`;
    return `${gradient}: ${num(now.gradient + pull)} from the advantage, ${num(-pull)} from the band to π_p.`;
  }
  if (kind === "policy") return `${gradient}: π / π_p is always 1, so the clip has no effect. β_prox = 0 is the importance-sampled policy gradient, not PPO.`;
  if (advantage === 0) return `${gradient}, since the advantage is 0.`;
  const ratio = `π / π_p = ${num(Math.exp(off))}`;
  const limit = advantage > 0 ? `1 + ε = ${num(1 + epsilon)}` : `1 − ε = ${num(1 - epsilon)}`;
  if (now.stopped) return `${ratio} is beyond ${limit}, so ${gradient}: the gradient no longer moves the action ${advantage > 0 ? "up" : "down"}.`;
  const wrong = Math.sign(off) !== Math.sign(advantage) && (off < Math.log1p(-epsilon) || off > Math.log1p(epsilon));
  const why = wrong ? `${ratio} has moved in the wrong direction, so the clip does not stop it` : `${ratio} has not passed ${limit}`;
  const ppo = objective("behavior", at, settings);
  if (kind === "apart" && ppo.stopped) return `${why}: ${gradient}. PPO, which measures from μ, would have stopped: π / μ = ${num(Math.exp(at))}.`;
  return `${why}: ${gradient}.`;
}

/** The table is next to the picture if there is room. */
const width = (ui) => (ui.width >= 720 ? ui.width - 300 : Math.max(300, ui.width));

function draw(ui) {
  const seen = state(ui);
  const { kind, at, apart, advantage, most, now, form } = seen;
  const lead =
    `The behavior policy acted; its action is now ${num(Math.exp(at))} times as likely${kind === "apart" ? `, under the proximal policy ${num(Math.exp(apart))} times` : ""}, ` +
    `with advantage ${num(advantage)}. The objective is ${num(now.value)}; `;
  const notes = [];
  if (form === "clip" && kind === "behavior") notes.push("With π_p = μ the decoupled objective is PPO's.");
  if (most > 0 && at > Math.log(most)) notes.push(`π / μ is limited to ${num(most)} by raising μ, without a gradient, so here the gradient is not the slope of the curve.`);
  return { pictures: [drawPanels(width(ui), seen), table(seen)], summary: lead + verdict(seen), notes };
}

function controls(ui) {
  choice(ui, "proximal", { label: "proximal policy", options: [["behavior", "behavior: PPO"], ["apart", "separate: decoupled"], ["policy", "θ itself: β_prox = 0"]] });
  choice(ui, "form", { label: "objective", options: [["clip", "clip"], ["kl", "KL penalty, sampled"]] });
  slider(ui, "log_ratio", { label: "log π − log μ", min: LOW, max: HIGH, step: 0.05 });
  slider(ui, "log_proximal", { label: "log π_p − log μ", min: LOW, max: HIGH, step: 0.05, when: () => ui.get("proximal") === "apart" });
  slider(ui, "advantage", { label: "advantage A", min: -2, max: 2, step: 0.1 });
  slider(ui, "epsilon", { label: "clip ε", min: 0, max: 1, step: 0.05, when: () => ui.get("form") === "clip" });
  slider(ui, "weight", { label: "KL weight β", min: 0, max: 4, step: 0.1, when: () => ui.get("form") === "kl" });
  slider(ui, "importance_max", { label: "largest π / μ", min: 1, max: 100, step: 0.1, log: true });
  const seen = () => boxes(ui.stage.querySelector("svg").viewBox.baseVal.width);
  drag(ui, {
    start(px, py) {
      const { at, apart, kind } = state(ui);
      const { objective: top, gradient: bottom } = seen();
      if (py < 20 || py > bottom[3]) return null;
      const near = (log) => Math.abs(px - top[0] - ((log - LOW) / (HIGH - LOW)) * (top[2] - top[0]));
      if (near(at) < 14) return "log_ratio";
      return kind === "apart" && near(apart) < 14 ? "log_proximal" : null;
    },
    move(name, px) {
      const [left, , right] = seen().objective;
      const log = LOW + ((px - left) / (right - left)) * (HIGH - LOW);
      ui.set(name, clamp(Number((Math.round(log / 0.05) * 0.05).toPrecision(12)), LOW, HIGH));
    },
  });
}

const render = (context) =>
  frame(context, {
    title: "Clip explorer: which policy limits the step",
    names: ["proximal", "form", "log_ratio", "log_proximal", "advantage", "epsilon", "weight", "importance_max"],
    controls,
    draw,
  });

export default { render };
