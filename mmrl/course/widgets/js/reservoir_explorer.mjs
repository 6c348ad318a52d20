// The unrolls of a stream that a reservoir keeps, and a test for equal chances.
import { clamp, frame, num, percent, picture, player, plural, range, slider, stripes, svg, toggle } from "./core.mjs";
import { path, plot, ticks } from "./plot.mjs";
import { bins, held, inclusion, kept, pooled, streams, thresholds, turns, uniformity } from "./reservoirs.mjs";

const EACH = 40;
const COUNT = 3 * EACH;
const COLORS = ["blue", "orange", "green"];
const task = (i) => Math.floor(i / EACH);

/** The fraction of the positions that belong to each of the three tasks. */
export const shares = (places) => COLORS.map((_, k) => (places.length ? places.filter((i) => task(i) === k).length / places.length : 0));

let streamsOf = null;
/** The last streams that were used, because most changes do not affect them. */
function remembered(seed, runs) {
  const name = `${seed} ${runs}`;
  if (streamsOf?.name !== name) streamsOf = { name, streams: streams(seed, runs, COUNT) };
  return streamsOf.streams;
}

function state(ui) {
  const [capacity, runs, seed] = ["capacity", "runs", "seed"].map(ui.get);
  const parts = ui.get("parts");
  const merge = parts > 1 && ui.get("merge");
  const seen = clamp(ui.get("arrivals"), 0, COUNT);
  // Merged parts have the full capacity each; otherwise, parts share the capacity, without a remainder.
  const slots = merge ? capacity : Math.floor(capacity / parts);
  const room = merge ? capacity : slots * parts;
  const all = remembered(seed, Math.max(1, runs));
  const lots = [...all[0].slice(0, seen)];
  const mine = merge ? pooled(lots, parts, capacity) : kept(held(lots, parts, slots));
  const one = kept(held(lots, 1, room));
  const fifo = range(Math.min(seen, room), (i) => seen - Math.min(seen, room) + i);
  const [law, size] = merge ? [1, capacity] : [parts, slots];
  const edges = bins(seen, Math.max(5, parts));
  const counts = runs ? inclusion(all.slice(0, runs), seen, law, size) : new Array(seen).fill(0);
  const test = edges ? uniformity(counts, runs, edges, law, size) : null;
  return { capacity, runs, parts, merge, seen, slots, room, lots, mine, one, fifo, edges, test, compare: ui.get("compare") };
}

const LEFT = 46;
const across = { low: -1, high: COUNT, ticks: [0, 40, 80, 120] };

/** One unroll: a circle, a square or a triangle by task, which is small and hollow once it is dropped. */
function mark(x, y, i, here) {
  const [k, r] = [task(i), here ? 4.2 : 2.6];
  const style = here ? { class: `f-${COLORS[k]}` } : { class: "f-none s-dim", "stroke-width": 1 };
  if (k === 0) return svg("circle", { cx: x, cy: y, r, ...style });
  if (k === 1) return svg("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...style });
  return svg("path", { d: `M${x} ${y - 1.2 * r}l${1.2 * r} ${2 * r}h${-2.4 * r}z`, ...style });
}

/** The mean k-th largest of n uniform lots, 1 - k / (n + 1), for each part that is full. */
export const hurdle = (seen, { parts, merge, slots }) => 1 - slots / (seen / (merge ? 1 : parts) + 1);

/** The lots to beat, as one staircase per separate part. */
function stairs(axis, { lots, parts, merge, slots, seen }) {
  const steps = merge ? [range(seen)] : turns(seen, parts);
  return steps.map((places) => {
    const levels = thresholds(places.map((i) => lots[i]), slots);
    const points = places.flatMap((i, n) => {
      const before = n ? levels[n - 1] : 0;
      return [[axis.x(i), axis.y(before)], [axis.x(i), axis.y(levels[n])]];
    });
    if (seen) points.push([axis.x(seen - 1), axis.y(levels.at(-1) ?? 0)]);
    return path(points, { class: "f-none s-ink", "stroke-width": steps.length > 1 ? 1.1 : 1.8 });
  });
}

function drawLots(width, top, now) {
  const { lots, mine, one, fifo, compare, seen, parts, room, merge } = now;
  const area = [LEFT, top + 56, width - 8, top + 206];
  const axis = plot(area, { x: across, y: { low: 0, high: 1, ticks: [0, 0.5, 1] } });
  const here = new Set(mine);
  const other = one.filter((i) => !here.has(i));
  const expected = range(COUNT + 1 - room, (j) => [axis.x(room + j - 1), axis.y(hurdle(room + j, now))]);
  const recent = compare && fifo.length
    ? svg("rect", { x: axis.x(fifo[0] - 0.5), y: area[1], width: axis.x(fifo.at(-1) + 0.5) - axis.x(fifo[0] - 0.5), height: area[3] - area[1], class: "f-fill" })
    : null;
  return [
    svg("text", { x: 0, y: top + 13 }, `lot u of each unroll: ${merge || parts === 1 ? `the ${room} largest` : `of each part the ${now.slots} largest`} stay (filled)`),
    svg("text", { x: 0, y: top + 29, class: "dim" }, `line: lot to beat (dashed: 1 − k / (n + 1))${compare ? "; gray: FIFO" : ""}`),
    recent,
    range(3, (k) => svg("text", { x: axis.x(EACH * (k + 0.5) - 0.5), y: top + 50, "text-anchor": "middle", class: k === task(seen - 1) ? "" : "dim" }, `task ${k + 1}`)),
    range(2, (k) => svg("line", { x1: axis.x(EACH * (k + 1) - 0.5), x2: axis.x(EACH * (k + 1) - 0.5), y1: top + 40, y2: area[3], class: "s-line", "stroke-width": 1.4 })),
    axis.axes,
    path(expected, { class: "f-none s-purple", "stroke-width": 1.6, "stroke-dasharray": "6 3" }),
    stairs(axis, now),
    lots.map((u, i) => mark(axis.x(i), axis.y(u), i, here.has(i))),
    other.map((i) => svg("circle", { cx: axis.x(i), cy: axis.y(lots[i]), r: 6.5, class: "f-none s-purple", "stroke-width": 1.6 })),
  ];
}

function drawShares(width, top, { seen, mine, fifo, compare }, hatch) {
  const rows = [["stream", range(seen)], ["reservoir", mine], ...(compare ? [["FIFO", fifo]] : [])];
  const [left, right] = [72, width - 8];
  const bars = rows.map(([name, places], row) => {
    const y = top + 22 + 24 * row;
    let x = left;
    const pieces = shares(places).map((share, k) => {
      const wide = share * (right - left);
      const style = k === 1 ? { fill: hatch.fill, class: "s-orange" } : { class: `${k ? "f-none" : "f-fill"} s-${COLORS[k]}` };
      const box = svg("rect", { x, y, width: wide, height: 19, "stroke-width": 1.6, ...style });
      const words = wide > 70 ? `task ${k + 1}: ${num(100 * share, 2)} %` : wide > 34 ? `${num(100 * share, 2)} %` : "";
      const room = words.length * 6.4 + 6;
      const back = words ? svg("rect", { x: x + wide / 2 - room / 2, y: y + 3, width: room, height: 13, class: "f-paper" }) : null;
      const text = svg("text", { x: x + wide / 2, y: y + 14, "text-anchor": "middle" }, words);
      x += wide;
      return share ? [box, back, text] : null;
    });
    return [svg("text", { x: 0, y: y + 14 }, name), places.length ? pieces : svg("text", { x: left, y: y + 14, class: "dim" }, "empty")];
  });
  return { nodes: [svg("text", { x: 0, y: top + 13 }, "share of each task"), bars], bottom: top + 28 + 24 * rows.length };
}

/** Axis limits around the frequencies, their expected value and the band. */
function bounds(even, rates, half) {
  if (!rates.length || !(half[0] > 0)) return { low: 0, high: 1 };
  const [low, high] = [Math.min(even - 2 * Math.max(...half), ...rates), Math.max(even + 2 * Math.max(...half), ...rates)];
  const inside = { low: Math.max(0, low), high: Math.min(1, high) };
  return { ...inside, ticks: ticks(inside.low, inside.high, 5) };
}

/** Frequencies by position over `runs` reservoirs, with a band of two standard deviations. */
function drawInclusion(width, top, now) {
  const { edges, test, runs, seen, room, fifo, compare } = now;
  const area = [LEFT, top + 24, width - 8, top + 124];
  const even = seen ? Math.min(1, room / seen) : 1;
  const sizes = edges && runs ? range(edges.length - 1, (j) => edges[j + 1] - edges[j]) : [];
  const rates = sizes.map((n, j) => test.found[j] / runs / n);
  const half = sizes.map((n, j) => (2 * test.sigma[j]) / runs / n);
  const axis = plot(area, { x: { ...across, label: "position in the stream (oldest first)" }, y: bounds(even, rates, half) });
  const at = (i) => axis.x(i - 0.5);
  const last = seen - fifo.length;
  const words = (x, anchor, text) => svg("text", { x, y: area[3] - 5, "text-anchor": anchor, class: "dim" }, text);
  const roomy = at(last) - at(0) > 76;
  return [
    svg("text", { x: 0, y: top + 13 }, runs ? `frequency of being kept, in ${plural(runs, "run")} (dashed: k / n; band: ± 2σ)` : "frequency of being kept (dashed: k / n)"),
    compare && seen ? svg("rect", { x: at(last), y: area[1], width: at(seen) - at(last), height: area[3] - area[1], class: "f-fill" }) : null,
    axis.axes,
    rates.map((rate, j) => {
      const [mean, x] = [test.mean[j] / sizes[j], at((edges[j] + edges[j + 1]) / 2)];
      const [high, low] = [axis.y(Math.min(1, mean + half[j])), axis.y(Math.max(0, mean - half[j]))];
      const color = Math.abs(rate - mean) > half[j] ? "orange" : "blue";
      return [
        svg("rect", { x: at(edges[j]), y: high, width: at(edges[j + 1]) - at(edges[j]), height: low - high, class: "f-line", opacity: 0.55 }),
        svg("line", { x1: x, x2: x, y1: axis.y(mean), y2: axis.y(rate), class: `s-${color}`, "stroke-width": 2 }),
        color === "blue" ? svg("circle", { cx: x, cy: axis.y(rate), r: 4, class: "f-blue" }) : svg("rect", { x: x - 4, y: axis.y(rate) - 4, width: 8, height: 8, class: "f-orange" }),
      ];
    }),
    seen ? svg("line", { x1: at(0), x2: at(seen), y1: axis.y(even), y2: axis.y(even), class: "s-ink", "stroke-width": 1.4, "stroke-dasharray": "5 3" }) : null,
    compare && roomy ? words(at(0) + 4, "start", "FIFO: never") : null,
    compare && seen ? words(at(seen) - 4, "end", roomy ? "FIFO: always" : "") : null,
  ];
}

/** Describe the effect of parts on the sample, for the current lots. */
function aboutParts({ parts, merge, slots, room, mine, one, capacity, seen }) {
  if (parts === 1) return "";
  const here = new Set(mine);
  const missing = one.filter((i) => !here.has(i)).length;
  if (merge) return `${parts} parts with room for ${capacity} each, merged, contain ${missing ? "other unrolls than" : "exactly the unrolls of"} one reservoir over the whole stream. `;
  const rest = capacity - room ? ` (${capacity - room} of ${capacity} places stay unused)` : "";
  const apart = seen ? `; ${missing} of the ${one.length} unrolls that one reservoir would keep are missing (circled)` : "";
  return `${parts} parts of ${slots}${rest} take turns: each unroll has the same chance as in one reservoir${apart}. `;
}

function verdict({ test, runs, seen, room }) {
  if (seen <= room) return "Nothing has been dropped yet.";
  if (!runs) return "There are no runs, so there is no test.";
  if (!test || test.p === null) return "There are too few unrolls for a test of equal chances.";
  const p = test.p < 1e-4 ? "p < 0.0001" : `p = ${num(test.p, 2)}`;
  const outside = test.found.filter((x, j) => Math.abs(x - runs * test.mean[j]) > 2 * test.sigma[j]).length;
  const freedom = test.found.length - 1;
  return `In ${plural(runs, "run")} ${outside} of ${test.found.length} intervals are outside of ± 2σ; χ² = ${num(test.statistic)} on ${freedom} degrees of freedom, ${p}: ${test.p < 0.001 ? "not consistent with equal chances." : "consistent with equal chances."}`;
}

function draw(ui) {
  const now = state(ui);
  const { seen, mine, fifo, compare, room, lots } = now;
  const width = Math.max(300, ui.width);
  const hatch = stripes("orange");
  const bars = drawShares(width, 238, now, hatch);
  const parts = [drawLots(width, 0, now), bars.nodes, drawInclusion(width, bars.bottom + 8, now)];
  const said = (places) => shares(places).map((x) => percent(x)).join(", ");
  const least = mine.length ? Math.min(...mine.map((i) => lots[i])) : 0;
  const summary = seen
    ? `${seen} of ${COUNT} unrolls have arrived, and ${mine.length} are kept: tasks 1 to 3 make up ${said(range(seen))} of the stream and ${said(mine)} of the reservoir${compare ? `, and ${said(fifo)} of the last ${fifo.length}, which FIFO keeps` : ""}. ` +
      `${mine.length < room ? "There is still room." : `The least lot kept is ${num(least)}; the dashed line, the expected value of ${now.merge || now.parts === 1 ? "this lot" : "the smallest lot of each part"}, is at ${num(hurdle(seen, now), 2)}.`} ${aboutParts(now)}${verdict(now)}`
    : `0 of ${COUNT} unrolls have arrived. ${aboutParts(now)}${verdict(now)}`;
  const alt = `Three charts over a stream of ${COUNT} unrolls: the lots of unrolls and which are kept, the fraction of each task, and how often each position is kept.`;
  return { pictures: [picture(width, bars.bottom + 172, alt, hatch.defs, parts)], summary };
}

function controls(ui) {
  player(ui, "arrivals", { last: () => COUNT, what: "unroll", pause: 120 });
  slider(ui, "arrivals", { label: "unrolls so far", min: 0, max: COUNT, step: 1 });
  slider(ui, "capacity", { label: "capacity (unrolls)", min: 8, max: 60, step: 1 });
  slider(ui, "parts", { label: "parts (workers)", min: 1, max: 8, step: 1 });
  slider(ui, "runs", { label: "runs", min: 0, max: 1000, step: 50 });
  slider(ui, "seed", { label: "seed of the lots", min: 1, max: 50, step: 1 });
  toggle(ui, "compare", { label: "compare with FIFO: first in, first out" });
  toggle(ui, "merge", { label: "full capacity per part, merged", when: () => ui.get("parts") > 1 });
}

const render = (context) =>
  frame(context, {
    title: "Reservoir explorer: a uniform sample of everything so far",
    names: ["arrivals", "capacity", "parts", "merge", "runs", "seed", "compare"],
    controls,
    draw,
  });

export default { render };
