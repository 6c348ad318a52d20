// Observations that determine the action of a zoo agent at a selected step.
import { choice, clamp, frame, percent, picture, plural, range, series, slider, stripes, svg } from "./core.mjs";
import { plot } from "./plot.mjs";
import { triangle } from "./triangles.mjs";

const MOST = 990; // 44 steps
const CLEAR = 0.1; // minimum fraction of changed actions for which an observation is decisive
const NAMES = {
  first: "RepeatFirst, LRU",
  previous: "RepeatPrevious, LRU",
  none: "RepeatFirst, no memory",
  s6: "RepeatFirst, S6",
  mlstm: "RepeatFirst, mLSTM",
  window: "RepeatPrevious, attention over a window",
  gtrxl: "RepeatPrevious, GTrXL",
  lmu: "RepeatPreviousPaper, LMU",
};
// The first card decides every answer.
const EXAMPLE = range(44, (t) => range(t + 1, (i) => (i ? 0 : 0.75))).flat();

/** Observations that change at least a tenth of the actions, in decreasing order of this fraction. */
export function decisive(row) {
  return range(row.length).filter((i) => row[i] >= CLEAR).sort((a, b) => row[b] - row[a] || a - b);
}

function state(ui) {
  const agent = ui.get("agent");
  const { values, notes } = series(ui.get(agent), { name: agent, most: MOST, fallback: EXAMPLE, unit: "number" });
  const rows = triangle(values.map((share) => clamp(share, 0, 1)));
  const step = clamp(ui.get("step"), 0, rows.length - 1);
  return { agent, rows, notes, step, row: rows[step], chosen: decisive(rows[step]) };
}

function drawBars(width, { rows, row, step, chosen }) {
  const box = [54, 40, width - 12, 196];
  const axis = plot(box, {
    x: { low: -0.5, high: rows.length - 0.5, ticks: range(Math.ceil(rows.length / 10), (k) => 10 * k), label: "replaced observation i" },
    y: { low: 0, high: 1, ticks: [0, 0.25, 0.5, 0.75, 1] },
  });
  const hatch = stripes("blue");
  const wide = Math.max(2, (axis.x(1) - axis.x(0)) * 0.78);
  const bars = row.map((share, i) => {
    const place = { x: axis.x(i) - wide / 2, y: axis.y(share), width: wide, height: box[3] - axis.y(share) };
    if (chosen.includes(i)) return svg("rect", { ...place, class: "f-blue" });
    return svg("rect", { ...place, class: "s-blue", fill: hatch.fill, "stroke-width": 0.8 });
  });
  const marks = chosen.slice(0, 3).map((i) =>
    svg("text", { x: clamp(axis.x(i), 74, width - 30), y: axis.y(row[i]) - 5, "text-anchor": "middle" }, percent(row[i])));
  const now = svg("line", { x1: axis.x(step), x2: axis.x(step), y1: box[1] - 6, y2: box[3], class: "s-orange", "stroke-dasharray": "3 3" });
  const words = svg("text", { x: 0, y: 12 }, `fraction of changed actions at step ${step} (dashed)`);
  const alt = `Bars for ${plural(row.length, "observation")}; ${chosen.length} of them decide the action.`;
  return picture(width, 232, alt, hatch.defs, axis.axes, bars, marks, now, words);
}

function drawAll(width, { rows, step }) {
  const side = clamp(width - 66, 200, 330);
  const size = side / rows.length;
  const squares = rows.flatMap((row, t) => row.map((share, i) => {
    const place = { x: 54 + size * i, y: 24 + side - size * (t + 1), width: size, height: size };
    return share < 0.005 ? null : svg("rect", { ...place, class: "f-blue", "fill-opacity": share });
  }));
  const edge = svg("path", { d: `M54 ${24 + side}V24H${54 + side}Z`, class: "f-none s-line" });
  const row = { x: 54, y: 24 + side - size * (step + 1), width: size * (step + 1), height: size };
  const now = svg("rect", { ...row, class: "f-none s-orange", "stroke-width": 1.5 });
  const labels = [
    svg("text", { x: 0, y: 12 }, "all steps: step of the action (upward), replaced observation (to the right)"),
    svg("text", { x: 48, y: 24 + side, "text-anchor": "end", class: "dim" }, "0"),
    svg("text", { x: 48, y: 34, "text-anchor": "end", class: "dim" }, String(rows.length - 1)),
  ];
  const alt = `A triangle of ${rows.length} steps; dark where a replaced observation changes the action.`;
  return picture(width, side + 34, alt, squares, edge, now, labels);
}

function draw(ui) {
  const now = state(ui);
  const { agent, notes, step, row, chosen } = now;
  const width = Math.max(300, ui.width);
  const listed = chosen.slice(0, 3).map((i) => `the one of step ${i} changes ${percent(row[i])} of the actions`);
  const rest = chosen.length > 3 ? `, and ${chosen.length - 3} more matter` : "";
  const earlier = chosen.some((i) => i < step);
  const verdict = earlier ? "The action depends on memory." : "No earlier observation decides the action.";
  const summary = `${NAMES[agent]}, step ${step}. Replacing an observation: ${listed.join("; ") || "none changes a tenth of the actions"}${rest}. ${verdict}`;
  return { pictures: [drawBars(width, now), drawAll(width, now)], summary, notes };
}

function controls(ui) {
  choice(ui, "agent", { label: "agent", options: Object.entries(NAMES) });
  slider(ui, "step", { label: "step t", min: 0, max: () => state(ui).rows.length - 1, step: 1 });
}

const render = (context) =>
  frame(context, {
    title: "Recall explorer: which observations determine an action",
    names: ["first", "previous", "none", "s6", "mlstm", "window", "gtrxl", "lmu", "agent", "step"],
    controls,
    draw,
  });

export default { render };
