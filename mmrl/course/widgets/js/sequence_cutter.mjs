// R2D2's overlapping sequences, and the number of times that each step is trained and stored.
import { clamp, frame, num, percent, picture, plural, range, series, slider, stripes, svg } from "./core.mjs";
import { plot } from "./plot.mjs";

/**
 * The sequences of all episodes, cut as in mmrl.replay.sequences. Each starts at step `s` of its
 * episode and trains `steps` steps; `tail` more are read for the n-step targets. The burn-in begins at
 * `prefix`, which is within the episode. `pad` places at the end are empty.
 */
export function cut(lengths, { length, overlap, burn_in: burnIn, n }) {
  const rows = [];
  lengths.forEach((total, episode) => {
    for (let s = 0; s === 0 || s + overlap < total; s += length - overlap) {
      const steps = Math.min(length, total - s);
      const tail = Math.min(n - 1, total - s - steps);
      const pad = length + n - 1 - steps - tail;
      rows.push({ episode, s, prefix: Math.max(0, s - burnIn), steps, tail, pad });
    }
  });
  return rows;
}

/** The first step of each episode on the tape. */
export const begins = (lengths) => lengths.map((_, i) => sum(lengths.slice(0, i)));

const sum = (values) => values.reduce((a, b) => a + b, 0);

/** For every step of the tape, the number of sequences that train it and of windows that contain it. */
export function uses(lengths, rows) {
  const starts = begins(lengths);
  const [trained, copies] = [0, 0].map(() => new Array(sum(lengths)).fill(0));
  for (const { episode, s, prefix, steps, tail } of rows) {
    for (let t = prefix; t < s + steps + tail; t++) {
      copies[starts[episode] + t]++;
      if (t >= s && t < s + steps) trained[starts[episode] + t]++;
    }
  }
  return { trained, copies };
}

const EXAMPLE = [23, 9, 14];
const MOST = 3;
const LONGEST = 30;
const COLORS = ["blue", "green", "purple"];
const LEFT = 30;

function state(ui) {
  const { values, notes } = series(ui.get("lengths"), { name: "lengths", most: MOST, fallback: EXAMPLE, unit: "episode" });
  const lengths = values.map((x) => clamp(Math.round(x), 1, LONGEST));
  if (lengths.some((x, i) => x !== values[i])) {
    notes.push(`\`lengths\` were rounded to whole steps between 1 and ${LONGEST}.`);
  }
  const [length, burnIn, n] = ["length", "burn_in", "n"].map((name) => ui.get(name));
  const overlap = Math.min(ui.get("overlap"), length - 1);
  const rows = cut(lengths, { length, overlap, burn_in: burnIn, n });
  const chosen = clamp(ui.get("sequence"), 0, rows.length - 1);
  const starts = begins(lengths);
  const columns = Math.max(...rows.map((row) => starts[row.episode] + row.s + length + n - 1), sum(lengths));
  const width = Math.max(300, ui.width);
  const cell = Math.min(18, (width - LEFT - 8) / columns);
  const settings = { lengths, starts, rows, chosen, columns, width, cell, length, overlap, burnIn, n };
  return { ...settings, ...uses(lengths, rows), notes, x: (t) => LEFT + t * cell };
}

/** The legend, in as many lines as the width requires. */
function legend(width, entries, top) {
  const out = [];
  let [x, y] = [0, top];
  for (const [shape, text] of entries) {
    const long = 22 + 6.3 * text.length;
    if (x > 0 && x + long > width) [x, y] = [0, y + 18];
    out.push(svg("g", { transform: `translate(${x} ${y})` }, shape, svg("text", { x: 20, y: 10 }, text)));
    x += long + 8;
  }
  return { nodes: out, bottom: y + 18 };
}

/** The style of each part of a window; every kind has a pattern in addition to its color. */
const part = {
  burn: (box, hatch) => svg("rect", { ...box, class: "s-dim", fill: hatch.fill, "stroke-width": 0.9 }),
  trained: (box, color) => svg("rect", { ...box, class: `f-${color}` }),
  tail: (box, color) => svg("rect", { ...box, class: `f-paper s-${color}`, "stroke-width": 1.6 }),
  pad: (box) => svg("rect", { ...box, class: "f-none s-dim", "stroke-dasharray": "1.5 3", "stroke-width": 1.2 }),
  state: (cx, cy, r, stored) => svg("circle", { cx, cy, r, class: `${stored ? "f-orange" : "f-paper"} s-ink`, "stroke-width": 1.3 }),
};

function drawWindow({ row, i, y, high, at, x, hatch, length, n, chosen }) {
  const color = COLORS[row.episode];
  const box = (from, to) => ({ x: x(at + from), y, width: x(to) - x(from), height: high });
  const [end, stop] = [row.s + row.steps, row.s + length + n - 1];
  const shapes = [];
  if (row.prefix < row.s) shapes.push(part.burn(box(row.prefix, row.s), hatch));
  shapes.push(part.trained(box(row.s, end), color));
  if (row.tail) shapes.push(part.tail(box(end, end + row.tail), color));
  if (row.pad) shapes.push(part.pad(box(end + row.tail, stop)));
  if (i === chosen) shapes.push(svg("rect", { ...box(row.s, end), class: "f-none s-ink", "stroke-width": 2 }));
  shapes.push(part.state(x(at + row.prefix), y + high / 2, Math.min(4.5, high / 2 + 0.5), row.prefix > 0));
  return shapes;
}

function drawRows(now) {
  const { lengths, starts, rows, chosen, width, cell, x } = now;
  const hatch = stripes("dim");
  const small = { y: 1, width: 14, height: 10, x: 1 };
  const keys = legend(width, [
    [part.burn(small, hatch), "burn-in"],
    [part.trained(small, "blue"), "trained"],
    [part.tail(small, "blue"), "tail for n-step targets"],
    [part.pad(small), "padding"],
    [part.state(8, 6, 4.5, true), "state stored here"],
    [part.state(8, 6, 4.5, false), "empty memory"],
  ], 0);
  const top = keys.bottom + 22;
  const pitch = clamp(Math.round(300 / rows.length), 7, 22);
  const high = Math.max(5, Math.round(pitch * 0.62));
  const first = top + 28;
  const bottom = first + rows.length * pitch;
  const tape = lengths.flatMap((steps, e) => {
    const [from, to] = [x(starts[e]), x(starts[e] + steps)];
    return [
      svg("rect", { x: from, y: top, width: to - from, height: 14, class: `f-${COLORS[e]}` }),
      range(steps - 1, (t) => svg("line", { x1: from + (t + 1) * cell, x2: from + (t + 1) * cell, y1: top, y2: top + 14, class: "s-paper", "stroke-width": 0.8 })),
      [from, to].map((at) => svg("line", { x1: at, x2: at, y1: top - 4, y2: bottom, class: "s-dim", "stroke-width": 1, "stroke-dasharray": "2 3" })),
      svg("text", { x: from + 3, y: top - 5 }, cell * steps > 60 ? `episode ${e + 1}` : `${e + 1}`),
    ];
  });
  const bars = rows.map((row, i) => {
    const y = first + i * pitch;
    const at = starts[row.episode];
    const middle = y + high / 2;
    const style = i === chosen ? "font-weight:700" : "";
    const name = pitch >= 12 || i === chosen ? svg("text", { x: LEFT - 9, y: middle + 4, "text-anchor": "end", class: i === chosen ? "" : "dim", style }, `${i + 1}`) : null;
    return svg("g", {}, name, drawWindow({ ...now, row, i, y, high, at, hatch }));
  });
  const band = svg("rect", { x: 0, y: first + chosen * pitch + (high - pitch) / 2, width: width - 1, height: pitch, rx: 3, class: "f-fill" });
  const alt = `${plural(lengths.length, "episode")} of ${lengths.join(", ")} steps on a tape; below it ${plural(rows.length, "sequence")}, one bar each.`;
  return picture(width, bottom + 4, alt, hatch.defs, keys.nodes, band, tape, bars);
}

function drawUses(now) {
  const { lengths, starts, width, cell, columns, trained, copies, x } = now;
  const total = sum(lengths);
  const most = Math.max(...copies);
  const outline = { class: "f-none s-dim", "stroke-width": 1 };
  const dashes = { class: "s-ink", "stroke-width": 1.5, "stroke-dasharray": "5 3" };
  const keys = legend(width, [
    [part.trained({ x: 3, y: 1, width: 9, height: 10 }, "blue"), "times trained"],
    [svg("rect", { x: 1, y: 1, width: 14, height: 10, ...outline }), "copies, if windows are copied"],
    [svg("line", { x1: 0, x2: 16, y1: 6, y2: 6, ...dashes }), "copies in the ring: 1"],
  ], 0);
  const area = [LEFT, keys.bottom + 8, x(columns), keys.bottom + 86];
  const axis = plot(area, {
    x: { low: -0.5, high: columns - 0.5, ticks: range(Math.ceil(total / 10), (i) => 10 * i) },
    y: { low: 0, high: most, ticks: [...new Set([0, 1, most])].filter((x) => x !== 1 || most < 8) },
  });
  const bars = lengths.flatMap((steps, e) => range(steps, (i) => {
    const t = starts[e] + i;
    const box = (count, inset) => ({ x: x(t) + inset, y: axis.y(count), width: Math.max(1, cell - 2 * inset), height: axis.y(0) - axis.y(count) });
    return [svg("rect", { ...box(copies[t], 0.8), ...outline }), svg("rect", { ...box(trained[t], cell * 0.24), class: `f-${COLORS[e]}` })];
  }));
  const ring = svg("line", { x1: x(0), x2: x(total), y1: axis.y(1), y2: axis.y(1), ...dashes });
  const label = svg("text", { x: Math.max(area[2], 130), y: area[3] + 31, "text-anchor": "end" }, "step of the tape");
  const alt = `Bars for ${plural(total, "step")}: trained ${times(spread(trained))}, copied ${times(spread(copies))}.`;
  return picture(width, area[3] + 36, alt, keys.nodes, axis.axes, bars, ring, label);
}

function spread(counts) {
  const [low, high] = [Math.min(...counts), Math.max(...counts)];
  return low === high ? `${low}` : `${low} to ${high}`;
}

const times = (count) => (count === "1" ? "once" : `${count} times`);
const span = (from, to) => (to - from === 1 ? `step ${from}` : `steps ${from} to ${to - 1}`);

/** Describe in one sentence how the learner uses a sequence. */
function tell({ rows, chosen, burnIn, n }) {
  const { episode, s, prefix, steps, tail, pad } = rows[chosen];
  const end = s + steps;
  const start = prefix
    ? `takes the state that the actor had before step ${prefix}`
    : "starts with an empty memory at the episode's first step";
  const short = s - prefix < burnIn ? " (shortened, because the episode begins there)" : "";
  const parts = [
    start,
    s > prefix ? `uses ${span(prefix, s)} as burn-in${short}` : burnIn && !s ? "has no burn-in" : "",
    `trains on ${span(s, end)}`,
    tail ? `reads ${span(end, end + tail)} only for ${n}-step targets` : "",
    pad ? `masks ${plural(pad, "place")} of padding` : "",
  ].filter(Boolean);
  const said = `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
  return `Sequence ${chosen + 1} of ${rows.length} (episode ${episode + 1}): the learner ${said}.`;
}

function draw(ui) {
  const now = state(ui);
  const { lengths, starts, rows, trained, copies, length, overlap, burnIn, n } = now;
  const lasts = starts.map((start, e) => trained[start + lengths[e] - 1]);
  const places = rows.length * (burnIn + length + n - 1);
  const twice = copies.filter((count) => count > 1).length;
  const total = trained.length;
  const untrained = trained.filter((count) => count === 0).length;
  const cover = untrained
    ? `${plural(untrained, "step")} of ${total} would never be trained.`
    : `A sequence starts every ${length - overlap === 1 ? "step" : `${length - overlap} steps`}, and each step of the tape is trained ` +
      `${times(spread(trained))}: none is left out, not even the terminal step of an episode (${times(spread(lasts))}).`;
  const store =
    `The ring stores each of the ${plural(total, "step")} once. A buffer that copied whole windows would store ${twice} of them more ` +
    `than once, and would need ${num(places / total)} times the space: ${places} places, of which ${percent(1 - sum(copies) / places)} are empty.`;
  return { pictures: [drawRows(now), drawUses(now)], summary: `${tell(now)} ${cover} ${store}`, notes: now.notes };
}

function controls(ui) {
  slider(ui, "length", { label: "length m", min: 2, max: 16, step: 1 });
  slider(ui, "overlap", { label: "overlap", min: 0, max: () => ui.get("length") - 1, step: 1 });
  slider(ui, "burn_in", { label: "burn-in", min: 0, max: 12, step: 1 });
  slider(ui, "n", { label: "n-step targets n", min: 1, max: 6, step: 1 });
  slider(ui, "sequence", { label: "sequence", min: 0, max: () => state(ui).rows.length - 1, step: 1, format: (i) => `${i + 1} of ${state(ui).rows.length}` });
}

const render = (context) =>
  frame(context, {
    title: "Sequence cutter: R2D2's sequences and their storage",
    names: ["lengths", "length", "overlap", "burn_in", "n", "sequence"],
    controls,
    draw,
  });

export default { render };
