// Two or three tasks that are learned in turn: forgetting and interference.
import { choice, clamp, frame, html, num, percent, picture, player, plural, range, slider, svg, toggle } from "./core.mjs";
import { path, plot } from "./plot.mjs";
import { START, best, clip, keeps, learn, loss, solved, valleys } from "./valleys.mjs";

const VIEW = { x: { low: -1.6, high: 3.2 }, y: { low: -1.2, high: 2.1 } };
const COLORS = ["blue", "orange", "green"];
const DASHES = ["none", "9 4", "2 4"];
const TRAITS = ["tasks", "protocol", "angle", "conflict", "steps", "cycles", "replay", "ewc", "diagonal", "step"];

function state(ui) {
  const now = Object.fromEntries(TRAITS.map((name) => [name, ui.get(name)]));
  const tasks = valleys(now.tasks, now.angle, now.conflict);
  const rows = learn(tasks, now);
  const at = clamp(now.step, 0, rows.length - 1);
  const theta = best(tasks);
  return { now, tasks, rows, at, joint: theta, could: tasks.map((task) => solved(task, theta)), told: keeps(tasks, rows, at) };
}

/** Ranges of steps in which the same task is trained: {task, from, to}. */
export function stages(rows, at) {
  const out = [];
  for (let i = 1; i <= at; i++) {
    if (out.length && out.at(-1).task === rows[i].task) out.at(-1).to = i;
    else out.push({ task: rows[i].task, from: i - 1, to: i });
  }
  return out;
}

const share = (x) => (x === null ? "–" : `${num(Math.round(100 * x), 6)} %`);
const color = (task) => (task === null ? "ink" : COLORS[task]);

function drawMap(width, { now, tasks, rows, at, joint }) {
  const unit = (width - 12) / (VIEW.x.high - VIEW.x.low);
  const top = 26;
  const bottom = top + unit * (VIEW.y.high - VIEW.y.low);
  const axis = plot([6, top, width - 6, bottom], { x: { ...VIEW.x, ticks: [] }, y: { ...VIEW.y, ticks: [] } });
  const inside = ([x, y]) => x >= VIEW.x.low && x <= VIEW.x.high && y >= VIEW.y.low && y <= VIEW.y.high;
  const place = (theta) => (inside(theta) ? [axis.x(theta[0]), axis.y(theta[1])] : [NaN, NaN]);
  const lines = tasks.map(({ u, y }, k) => [-0.8, -0.4, 0, 0.4, 0.8].map((off) => {
    const ends = clip({ u, y: y + off }, VIEW);
    if (!ends) return null;
    const style = off ? { class: "f-none s-line", "stroke-width": 0.8 } : { class: `f-none s-${COLORS[k]}`, "stroke-width": 5, opacity: 0.4, "stroke-dasharray": DASHES[k] };
    return path(ends.map(place), style);
  }));
  const labels = tasks.map((task, k) => {
    const ends = clip(task, VIEW);
    if (!ends) return null;
    // Near the upper end of the valley, with a rim that covers lines.
    const [a, b] = ends[0][1] > ends[1][1] ? ends : [ends[1], ends[0]];
    const [x, y] = [axis.x(a[0] + 0.07 * (b[0] - a[0])), axis.y(a[1] + 0.07 * (b[1] - a[1]))];
    const style = "font-weight:700;paint-order:stroke;stroke:var(--paper);stroke-width:4px";
    return svg("text", { x: clamp(x, 30, width - 30), y: clamp(y + 4, top + 12, bottom - 8), class: `f-${COLORS[k]}`, style, "text-anchor": "middle" }, `task ${k + 1}`);
  });
  const parts = stages(rows, at);
  const trail = parts.map(({ task, from, to }) => path(rows.slice(from, to + 1).map(({ theta }) => place(theta)), { class: `f-none s-${color(task)}`, "stroke-width": 2.6, "stroke-linejoin": "round" }));
  const rings = parts.map(({ task, to }, i) => {
    const [cx, cy] = place(rows[to].theta);
    return Number.isFinite(cx) ? svg("circle", { cx, cy, r: i === parts.length - 1 ? 6 : 4, class: `f-paper s-${color(task)}`, "stroke-width": 2.4 }) : null;
  });
  const [start, optimum] = [START, joint].map(place);
  const words = [
    svg("text", { x: 0, y: 12 }, "the path of θ, and the valley of each task"),
    svg("circle", { cx: start[0], cy: start[1], r: 4, class: "f-ink" }),
    svg("text", { x: start[0], y: start[1] - 10, class: "dim", "text-anchor": "middle" }, "start"),
    Number.isFinite(optimum[0]) ? svg("text", { x: optimum[0], y: optimum[1] + 5, "text-anchor": "middle", style: "font-size:16px" }, "✕") : null,
    svg("text", { x: 0, y: bottom + 17, class: "dim" }, `✕ best for ${now.tasks === 2 ? "both" : "all three"}; rings: ends of stages`),
  ];
  const end = rows[at].theta.map((x) => num(x, 2)).join(", ");
  const alt = `A plane with ${now.tasks} valleys, turned by ${now.angle} degrees each. θ is at ${end} after ${plural(at, "step")}; the best compromise is ${joint.map((x) => num(Math.abs(x) < 1e-9 ? 0 : x, 2)).join(", ")}.`;
  return picture(width, bottom + 24, alt, lines, trail, rings, words, labels);
}

function drawCurves(width, { tasks, rows, at, told }) {
  const values = tasks.map((task) => rows.map(({ theta }) => solved(task, theta)));
  const low = clamp(Math.min(-0.2, ...values.flat()), -1.5, -0.2);
  const area = [46, 48, width - 52, 250];
  const axis = plot(area, { x: { low: 0, high: rows.length - 1, label: "gradient steps" }, y: { low, high: 1.04, ticks: [-1.5, -1, -0.5, 0, 0.5, 1].filter((v) => v >= low) } });
  const point = (k) => (i) => [axis.x(i), values[k][i] < low ? NaN : axis.y(values[k][i])];
  const bands = stages(rows, rows.length - 1).filter(({ task }) => task !== null).map(({ task, from, to }) => [
    svg("rect", { x: axis.x(from), y: area[1], width: axis.x(to) - axis.x(from), height: area[3] - area[1], class: `f-${COLORS[task]}`, opacity: 0.13 }),
    axis.x(to) - axis.x(from) > 14 ? svg("text", { x: axis.x((from + to) / 2), y: area[1] - 6, "text-anchor": "middle", class: `f-${COLORS[task]}`, style: "font-weight:700" }, String(task + 1)) : null,
  ]);
  const thin = tasks.map((_, k) => path(range(at + 1, point(k)), { class: `f-none s-${COLORS[k]}`, "stroke-width": 1.6, "stroke-dasharray": DASHES[k] }));
  const thick = stages(rows, at).map(({ task, from, to }) => (task === null ? [...tasks.keys()] : [task]).map((k) => path(range(to - from + 1, (i) => point(k)(from + i)), { class: `f-none s-${COLORS[k]}`, "stroke-width": 4 })));
  const order = [...tasks.keys()].sort((a, b) => told[b].now - told[a].now);
  let floor = -Infinity;
  const names = order.map((k) => {
    const y = Math.max(floor, axis.y(clamp(told[k].now, low, 1)) + 4);
    floor = y + 15;
    return svg("text", { x: width - 48, y, class: `f-${COLORS[k]}`, style: "font-weight:700" }, `task ${k + 1}`);
  });
  const said = told.map(({ now }, k) => `task ${k + 1}: ${share(now)}`).join("; ");
  return picture(width, 284, `Fraction of each task that is solved, by gradient step; at the end, ${said}.`,
    svg("text", { x: 0, y: 12 }, "fraction solved of each task: 1 − L / L(start)"),
    svg("text", { x: 0, y: 27, class: "dim" }, "thick: in training; number: the task in training"),
    bands, axis.axes, thin, thick, names);
}

function table({ now, could, told }) {
  const turns = now.protocol === "sequential";
  const heads = ["", "alone", `best for ${now.tasks === 2 ? "both" : "all"}`, ...(turns ? ["end of its stage"] : []), "now", ...(turns ? ["kept"] : [])];
  const body = told.map(({ now: here, stage, kept }, k) => {
    const cells = [share(1), share(could[k]), ...(turns ? [share(stage)] : []), share(here), ...(turns ? [share(kept)] : [])];
    return html("tr", {}, html("th", { scope: "row", style: "white-space:nowrap" }, `task ${k + 1}`), cells.map((text) => html("td", { style: "white-space:nowrap" }, text)));
  });
  const row = html("tr", {}, heads.map((text) => (text ? html("th", { scope: "col" }, text) : html("td", {}, ""))));
  return html("table", {}, html("thead", {}, row), html("tbody", {}, body));
}

function verdict({ now, tasks, told, could, joint }) {
  const floor = tasks.reduce((sum, task) => sum + loss(task, joint), 0) / tasks.length;
  const clash = floor > 1e-6
    ? `Interference: no θ solves all tasks; the best one has a mean loss of ${num(floor, 2)} (solved: ${could.map(share).join(", ")}).`
    : "No interference: one θ solves all tasks.";
  if (now.protocol === "simultaneous") return `${clash} There is no forgetting, because all tasks are trained at every step.`;
  const worst = told.map((entry, k) => ({ ...entry, k })).filter(({ kept }) => kept !== null).sort((a, b) => a.kept - b.kept)[0];
  if (!worst) return clash;
  const lost = worst.kept > 0.995 ? "Nothing has been forgotten." : `Task ${worst.k + 1} has retained ${share(worst.kept)} of its gain.`;
  return `${lost} ${clash}`;
}

function draw(ui) {
  const seen = state(ui);
  const wide = Math.max(300, ui.width);
  const side = wide >= 720 ? Math.round(wide * 0.48) : wide;
  const { at, rows, told } = seen;
  const said = told.map(({ now }, k) => `task ${k + 1} ${share(now)}`).join(", ");
  const summary = `After ${at} of ${plural(rows.length - 1, "step")} these fractions are solved: ${said}. ${verdict(seen)}`;
  return { pictures: [drawMap(wide >= 720 ? wide - side - 12 : wide, seen), drawCurves(side, seen), table(seen)], summary };
}

function controls(ui) {
  const turns = () => ui.get("protocol") === "sequential";
  const total = () => ui.get("tasks") * ui.get("cycles") * ui.get("steps");
  choice(ui, "protocol", { label: "training", options: [["sequential", "one after another"], ["simultaneous", "all at once"]] });
  choice(ui, "tasks", { label: "tasks", options: [[2, "2"], [3, "3"]] });
  slider(ui, "angle", { label: "angle", min: 0, max: 90, step: 1, format: (x) => `${x}°` });
  slider(ui, "conflict", { label: "conflict", min: 0, max: 1.5, step: 0.1 });
  slider(ui, "steps", { label: "steps per stage", min: 1, max: 80, step: 1 });
  slider(ui, "cycles", { label: "cycles", min: 1, max: 8, step: 1 });
  slider(ui, "replay", { label: "share of replay", min: 0, max: 1, step: 0.05, format: percent, when: turns });
  slider(ui, "ewc", { label: "strength λ of EWC", min: 0, max: 10, step: 0.25, when: turns });
  toggle(ui, "diagonal", { label: "EWC uses only the diagonal of F", when: () => turns() && ui.get("ewc") > 0 });
  player(ui, "step", { last: total, what: "step", pause: 60 });
}

const render = (context) =>
  frame(context, {
    title: "Forgetting explorer: tasks learned one after another",
    names: TRAITS,
    controls,
    draw,
  });

export default { render };
