// The effect of one index of a program on its schedule, its code and its memory.
import { choice, clamp, drag, frame, html, picture, player, range, slider, svg } from "./core.mjs";
import { path, plot } from "./plot.mjs";

const TRAITS = ["n", "proximity", "moment", "schedules"];
const ROWS = [
  ["obs", "acting"], ["act", "acting"], ["step", "acting"],
  ["ret", "learning"], ["grad", "learning"], ["total", "learning"], ["update", "learning"],
  ["other", "other"],
];
const ROW_OF = { so_far: "total" };
const row = (op) => Math.max(ROWS.findIndex(([name]) => name === (ROW_OF[op] ?? op)), -1);
const place = (op) => (row(op) < 0 ? ROWS.length - 1 : row(op));

/**
 * Parse the events that Python sends: "grad3" runs grad at t = 3, "-obs3" frees
 * obs[3]. Each run has `step` (null without a t) and `alive`, the observations alive while it runs,
 * including its result.
 */
export function follow(events) {
  const alive = new Set();
  const runs = [];
  for (const [, gone, op, t] of events.matchAll(/(-?)([a-z_]+)(\d*)/g)) {
    const step = t === "" ? null : Number(t);
    if (gone) alive.delete(step);
    else {
      if (op === "obs") alive.add(step);
      runs.push({ op, step, alive: [...alive] });
    }
  }
  return runs;
}

/** The number of environment steps before the first gradient. */
export function lead(runs) {
  const first = runs.findIndex(({ op }) => op === "grad");
  return runs.slice(0, first).filter(({ op }) => op === "step").length;
}

export const peak = (runs) => Math.max(...runs.map(({ alive }) => alive.length));

function state(ui) {
  const { steps, of, programs, waits } = ui.get("schedules");
  const [n, proximity] = ["n", "proximity"].map(ui.get);
  const name = n === null ? "None" : String(n);
  const { code, events } = programs[of[`${name} ${proximity}`]];
  const runs = follow(events);
  const at = clamp(ui.get("moment"), 0, runs.length - 1);
  return { steps, n, proximity, code, runs, at, waits: waits[name], most: peak(runs), lead: lead(runs) };
}

const LEFT = 52;

/** The mark of learning: orange, with a gap in the middle that is visible at any width. */
const twice = (box) => [0, 1].map((half) => svg("rect", { ...box, y: box.y + half * (box.height - 4.5), height: 4.5, class: "f-orange" }));

/** One mark per run of an operation. Acting is solid blue, and learning is dashed orange. */
function drawTimes({ runs, at }, width, x) {
  const [top, high] = [40, 16];
  const y = (k) => top + k * high + (k > 2 ? 6 : 0) + (k > 6 ? 6 : 0);
  const labels = ROWS.map(([name, kind], k) => [
    svg("text", { x: LEFT - 8, y: y(k) + 12, "text-anchor": "end", class: kind === "other" ? "dim" : "", style: place(runs[at].op) === k ? "font-weight:700" : null }, name),
    svg("line", { x1: LEFT, x2: width - 8, y1: y(k) + high, y2: y(k) + high, class: "s-line", "stroke-width": 0.5 }),
  ]);
  const wide = Math.max(1.6, x(1) - x(0) - (x(1) - x(0) > 4 ? 0.8 : 0));
  const marks = runs.map(({ op }, j) => {
    const k = place(op);
    const box = { x: x(j), y: y(k) + 2, width: wide, height: high - 4 };
    if (ROWS[k][1] === "acting") return svg("rect", { ...box, class: "f-blue" });
    return ROWS[k][1] === "other" ? svg("rect", { ...box, class: "f-dim" }) : twice(box);
  });
  const key = [
    svg("rect", { x: LEFT, y: 20, width: 12, height: 11, class: "f-blue" }),
    svg("text", { x: LEFT + 17, y: 30 }, "acting"),
    twice({ x: LEFT + 70, y: 19.5, width: 12, height: 12 }),
    svg("text", { x: LEFT + 87, y: 30 }, "learning"),
  ];
  return { nodes: [svg("text", { x: 0, y: 12 }, "order of operations (each takes one moment)"), key, labels, marks], bottom: y(7) + high };
}

function drawMemory({ runs, at, steps, most }, width, top, x, high) {
  const area = [LEFT, top + 24, width - 8, top + 24 + high];
  const axis = plot(area, { x: { low: 0, high: runs.length, label: "moment" }, y: { low: 0, high: steps, ticks: [0, steps / 4, steps / 2, steps] } });
  const points = runs.flatMap(({ alive }, j) => [[x(j), axis.y(alive.length)], [x(j + 1), axis.y(alive.length)]]);
  const under = [[x(0), axis.y(0)], ...points, [x(runs.length), axis.y(0)]];
  const first = runs.findIndex(({ alive }) => alive.length === most);
  // Above the first peak, or in a free corner if there is no room.
  const label = most > steps * 0.8 ? { x: LEFT + 6, y: axis.y(steps) + 18 } : { x: x(first), y: axis.y(most) - 7 };
  const rim = "font-weight:700;paint-order:stroke;stroke:var(--paper);stroke-width:4px";
  return {
    nodes: [
      svg("text", { x: 0, y: top + 13 }, "observations alive"),
      axis.axes,
      svg("line", { x1: area[0], x2: area[2], y1: axis.y(steps), y2: axis.y(steps), class: "s-ink", "stroke-width": 1.2, "stroke-dasharray": "5 3" }),
      svg("text", { x: area[2], y: area[1] - 6, "text-anchor": "end", class: "dim" }, `a whole episode: ${steps}`),
      path(under, { class: "f-purple", opacity: 0.25 }),
      path(points, { class: "f-none s-purple", "stroke-width": 2 }),
    ],
    above: [
      svg("text", { ...label, style: rim }, `peak: ${most} of ${steps}`),
      svg("circle", { cx: x(at + 0.5), cy: axis.y(runs[at].alive.length), r: 4, class: "f-purple s-paper", "stroke-width": 1.5 }),
    ],
    bottom: area[3],
  };
}

/** obs[0], obs[1], … at the selected moment: an empty frame (not yet computed), filled, or crossed out. */
function drawStore({ runs, at, steps }, width, top) {
  const cell = (width - LEFT - 8) / steps;
  const here = new Set(runs[at].alive);
  const made = runs.slice(0, at + 1).filter(({ op }) => op === "obs").length;
  const cells = range(steps, (t) => {
    const [x, y, size] = [LEFT + t * cell, top + 20, Math.min(cell - 2, 24)];
    const box = { x, y, width: cell - 2, height: size };
    const freed = t < made && !here.has(t);
    return [
      svg("rect", { ...box, class: here.has(t) ? "f-purple" : `f-none ${freed ? "s-line" : "s-dim"}`, "stroke-width": 1, "stroke-dasharray": t < made ? null : "2 2" }),
      freed ? svg("path", { d: `M${x + 3} ${y + 3}l${cell - 8} ${size - 6}m0 ${6 - size}l${8 - cell} ${size - 6}`, class: "f-none s-dim", "stroke-width": 1 }) : null,
      cell >= 20 && !freed ? svg("text", { x: x + cell / 2 - 1, y: y + size / 2 + 4, "text-anchor": "middle", class: here.has(t) ? "f-paper" : "dim", style: here.has(t) ? "fill:var(--paper);font-weight:700" : null }, String(t)) : null,
    ];
  });
  const words = `obs[0:${steps}] now (filled: alive; crossed out: freed)`;
  return { nodes: [svg("text", { x: 0, y: top + 13 }, words), cells], bottom: top + 48 };
}

function drawRun(ui, width, high, now) {
  const { runs, at, most, steps } = now;
  const x = (j) => LEFT + (j / runs.length) * (width - 8 - LEFT);
  const times = drawTimes(now, width, x);
  const memory = drawMemory(now, width, times.bottom + 12, x, high);
  const store = drawStore(now, width, memory.bottom + 38);
  const cursor = svg("line", { x1: x(at + 0.5), x2: x(at + 0.5), y1: 36, y2: memory.bottom, class: "s-ink", "stroke-width": 1.4 });
  ui.moment = (left) => clamp(Math.floor(((left - LEFT) / (width - 8 - LEFT)) * runs.length), 0, runs.length - 1);
  ui.inside = (left, top) => left >= LEFT && left <= width - 8 && top >= 36 && top <= memory.bottom;
  const label = `${runs.length} operations over time, by kind, and the number of observations alive, at most ${most} of ${steps}.`;
  return picture(width, store.bottom, label, times.nodes, memory.nodes, store.nodes, cursor, memory.above);
}

const BORDERS = { acting: "solid var(--blue)", learning: "double var(--orange)", memory: "dotted var(--purple)", other: "solid transparent" };

/** The kind of a line of code. */
export function kindOf(line) {
  if (/^\s*del /.test(line)) return "memory";
  const op = line.match(/^\s*(\w+)\(.*\)$/)?.[1];
  return op ? ROWS[place(op)][1] : "other";
}

/** Code whose left edge marks each line as acting or learning. */
function listing(text) {
  const box = "margin:2px 0 0;padding:4px 0;border:1px solid var(--line);border-radius:6px;background:var(--paper);color:var(--ink);font:12px/1.5 monospace;overflow-x:auto";
  const rows = text.split("\n").map((line) => {
    const style = `display:block;padding:0 8px;white-space:pre;border-left:5px ${BORDERS[kindOf(line)]}`;
    return html("code", { style: `${style};background:none;color:inherit;font:inherit` }, line);
  });
  return html("pre", { style: box, tabindex: "0", role: "group", "aria-label": "the program" }, rows);
}

function code(width, { n, code: text }) {
  const slice = n === null ? "t:T" : `t:min(t + ${n}, T)`;
  const mark = (text) => html("b", { style: "color:inherit;text-decoration:underline" }, text);
  const line = (...parts) => html("code", { style: "display:block;font:12px/1.5 monospace;background:none;color:inherit" }, parts);
  const words = (text) => html("div", { style: "margin:6px 0 2px;font-size:13px" }, text);
  return html("div", { style: `width:${width}px;min-width:0` },
    words("The index that changes in the program:"),
    line("window = reward[i, ", mark(slice), "]"),
    line("ret = window.discounted_sum(γ)"),
    words(`The compiled program${n > 1 ? `, for T ≥ ${n}` : ""}:`),
    listing(text),
    html("div", { style: "color:var(--dim);font-size:12px;margin-top:4px" }, "edge solid: acting; double: learning; dotted: memory is freed"));
}

/** Explain why acting and learning share a loop, or do not. */
export function reason({ n, proximity, steps, lead, waits }) {
  if (n === null) return `No order needs less memory: ${waits}, so every gradient waits for the last step.`;
  const window = `A gradient waits only for ${n === 1 ? "its own step" : `the step ${n - 1} ahead`}`;
  if (n >= steps) return `${window}, but that is the whole episode.`;
  if (lead < steps) return `${window}, and the objective places it close to that step.`;
  if (proximity === "none") return `${window}: it could run sooner, but no objective requires this.`;
  return `${window}, but the objective requires all ${n} steps of its window to be close, and the solver fails.`;
}

function tell(now) {
  const { n, proximity, steps, most, lead: done, runs, at } = now;
  const { op, step, alive } = runs[at];
  const returns = n === null ? "Monte-Carlo returns" : `${n}-step returns`;
  const how = { none: "no proximity", all: "proximity to all reads", upper: "proximity to the upper bound of slices" }[proximity];
  const order = done < steps ? `learning begins after ${done} of ${steps} steps and continues in step with acting` : `learning begins after all ${steps} steps`;
  const here = `Moment ${at + 1} of ${runs.length}: ${op}${step === null ? "" : `[${step}]`} runs; ${alive.length} of ${steps} observations are alive.`;
  return `${returns}, ${how}: ${order}, and at most ${most} of ${steps} observations are alive. ${reason(now)} ${here}`;
}

function draw(ui) {
  const now = state(ui);
  const wide = Math.max(300, ui.width);
  const side = wide >= 720 ? 270 : wide;
  const run = wide >= 720 ? drawRun(ui, wide - side - 14, 190, now) : drawRun(ui, wide, 100, now);
  return { pictures: [run, code(side, now)], summary: tell(now) };
}

function controls(ui) {
  const last = () => state(ui).runs.length - 1;
  const windows = [1, 2, 4, 8, 16].map((n) => [n, `n = ${n}`]);
  const near = [["none", "none"], ["all", "all reads"], ["upper", "upper bounds"]];
  choice(ui, "n", { label: "returns", options: [...windows, [null, "Monte-Carlo"]] });
  choice(ui, "proximity", { label: "proximity", options: near });
  player(ui, "moment", { last, what: "moment", pause: 120 });
  slider(ui, "moment", { label: "moment", min: 0, max: last, step: 1, format: (j) => String(j + 1) });
  const go = (x) => ui.set("moment", ui.moment(x));
  drag(ui, { start: (x, y) => (ui.inside(x, y) ? (go(x), true) : null), move: (held, x) => go(x) });
}

const render = (context) =>
  frame(context, {
    title: "Schedule explorer: the effect of changing one line",
    names: TRAITS,
    controls,
    draw,
  });

export default { render };
