// The influence that crosses the boundary between episodes, for three kinds of reset.
import { choice, clamp, drag, frame, num, percent, picture, range, series, slider, stripes, svg, toggle } from "./core.mjs";
import { plot } from "./plot.mjs";

export const MODES = [
  ["none", "no reset"],
  ["multiply", "multiply by 1 − begin"],
  ["select", "select the identity"],
];

/** h_t = a h_{t-1} + x_t with h reset before the steps where `begin` is true; starts at 0. */
export function states(xs, gain, begin, mode) {
  let h = 0;
  return xs.map((x, t) => {
    const past = { none: h, multiply: h * (begin[t] ? 0 : 1), select: begin[t] ? 0 : h }[mode];
    h = gain * past + x;
    return h;
  });
}

/** Row t, column s: ∂h_t / ∂x_s. */
export function influence(steps, gain, begin, mode) {
  const resets = mode !== "none";
  return range(steps, (t) => {
    let [weight, row] = [1, new Array(steps).fill(0)];
    for (let s = t; s >= 0; s--) {
      row[s] = weight;
      weight *= resets && begin[s] ? 0 : gain;
    }
    return row;
  });
}

/** The index of the episode of each step. */
export function episodes(begin) {
  let episode = -1;
  return begin.map((first, t) => (episode += first || t === 0 ? 1 : 0));
}

/** The fraction of all influence that comes from another episode. */
export function leak(matrix, episode) {
  let [all, other] = [0, 0];
  matrix.forEach((row, t) => row.forEach((w, s) => {
    all += Math.abs(w);
    if (episode[s] !== episode[t]) other += Math.abs(w);
  }));
  return all ? other / all : 0;
}

const MOST = 24;
const EXAMPLE = range(MOST, (t) => ({ 1: 1, 3: 0.6, 10: 0.8, 18: 0.5 })[t] ?? 0);
const POISON = 3;

function state(ui) {
  const { values, notes } = series(ui.get("values"), { name: "values", most: MOST, fallback: EXAMPLE });
  const steps = values.length;
  const first = clamp(ui.get("first"), 1, Math.max(1, steps - 2));
  const second = clamp(ui.get("second"), first + 1, Math.max(first + 1, steps - 1));
  const begin = range(steps, (t) => t === 0 || t === first || t === second);
  const xs = values.map((x, t) => (ui.get("poison") && t === Math.min(POISON, steps - 1) ? NaN : x));
  const [gain, mode] = [ui.get("gain"), ui.get("mode")];
  const hs = states(xs, gain, begin, mode);
  const alone = states(xs, gain, begin, "select");
  const matrix = influence(steps, gain, begin, mode);
  const episode = episodes(begin);
  return { xs, hs, alone, matrix, episode, first, second, notes, share: leak(matrix, episode) };
}

const columns = (ui) => (ui.width >= 720 ? [ui.width - 332, 320] : [ui.width, Math.min(ui.width, 340)]);
const LEFT = 34;

function drawTape(width, { xs, hs, alone, episode, first, second }) {
  const pitch = (width - LEFT - 6) / xs.length;
  const high = Math.max(1, ...hs.concat(alone).filter(Number.isFinite)) * 1.02;
  const low = Math.min(0, ...hs.concat(alone).filter(Number.isFinite));
  const box = [LEFT, 44, width - 6, 250];
  const x = { low: -0.5, high: xs.length - 0.5, ticks: range(Math.ceil(xs.length / 4), (i) => 4 * i), label: "step t" };
  const axis = plot(box, { x, y: { low, high } });
  const hatch = stripes("orange");
  const bands = svg("g", {});
  const bars = svg("g", {});
  const bar = (t, from, to, attributes) => {
    const [a, b] = [axis.y(Math.max(from, to)), axis.y(Math.min(from, to))];
    bars.append(svg("rect", { x: axis.x(t) - pitch * 0.36, y: a, width: pitch * 0.72, height: b - a, ...attributes }));
  };
  xs.forEach((value, t) => {
    if (episode[t] % 2) bands.append(svg("rect", { x: axis.x(t - 0.5), y: box[1], width: pitch, height: box[3] - box[1], class: "f-fill" }));
    if (Number.isNaN(hs[t])) {
      const wrong = !Number.isNaN(alone[t]);
      const at = { x: 0, y: 0, transform: `translate(${axis.x(t) + 4} ${axis.y(0) - 6}) rotate(-90)` };
      bars.append(svg("text", { ...at, style: wrong ? "fill:var(--orange);font-weight:700" : "" }, wrong ? "NaN leaked" : "NaN"));
      return;
    }
    bar(t, 0, alone[t], { class: "f-blue" });
    if (Math.abs(hs[t] - alone[t]) > 1e-9) {
      bar(t, alone[t], hs[t], { class: "s-orange", fill: hatch.fill, "stroke-width": 1 });
    }
    if (value) bars.append(svg("circle", { cx: axis.x(t), cy: axis.y(clamp(value, low, high)), r: 4, class: "f-paper s-ink", "stroke-width": 1.5 }));
  });
  const grips = [first, second].map((step) => svg("g", { class: "grip" },
    svg("line", { x1: axis.x(step - 0.5), x2: axis.x(step - 0.5), y1: 36, y2: box[3], class: "s-ink", "stroke-width": 2 }),
    svg("rect", { x: axis.x(step - 0.5) - 7, y: 26, width: 14, height: 16, rx: 4, class: "f-ink" })));
  const legend = [
    svg("circle", { cx: 8, cy: 8, r: 4, class: "f-paper s-ink", "stroke-width": 1.5 }), svg("text", { x: 18, y: 12 }, "input xₜ"),
    svg("rect", { x: 84, y: 2, width: 11, height: 11, class: "f-blue" }), svg("text", { x: 100, y: 12 }, "hₜ, this episode"),
    svg("rect", { x: 208, y: 2, width: 11, height: 11, class: "s-orange", fill: hatch.fill }), svg("text", { x: 224, y: 12 }, "hₜ, leaked"),
  ];
  const alt = `The state at each of ${xs.length} steps. Episodes begin at steps 0, ${first} and ${second}.`;
  return picture(width, 284, alt, hatch.defs, bands, axis.axes, bars, grips, legend);
}

function drawMatrix(width, { matrix, episode, share }) {
  const steps = matrix.length;
  const [left, top] = [LEFT, 44];
  const cell = (Math.min(width - left - 6, 240)) / steps;
  const cells = svg("g", {});
  const marks = svg("g", { class: "s-paper", "stroke-width": 1.2 });
  matrix.forEach((row, t) => row.forEach((w, s) => {
    if (s > t) return;
    const at = { x: left + s * cell, y: top + t * cell, width: cell - 0.7, height: cell - 0.7 };
    cells.append(svg("rect", { ...at, class: "f-fill" }));
    if (!w) return;
    const own = episode[s] === episode[t];
    cells.append(svg("rect", { ...at, class: own ? "f-blue" : "f-orange", "fill-opacity": (0.12 + 0.88 * Math.abs(w)).toFixed(3) }));
    if (!own && w > 0.15) marks.append(svg("line", { x1: at.x + 1, y1: at.y + cell - 1.7, x2: at.x + cell - 1.7, y2: at.y + 1 }));
  }));
  const end = steps * cell;
  const words = [
    svg("text", { x: 0, y: 12 }, "influence of xₛ on hₜ"),
    svg("text", { x: left, y: top - 7, class: "dim" }, "s →"),
    svg("text", { x: left - 8, y: top + 10, class: "dim", "text-anchor": "end" }, "t ↓"),
    svg("text", { x: left + end, y: top + 14, "text-anchor": "end" }, `leaked: ${percent(share)}`),
  ];
  return picture(width, top + end + 4, `Lower-triangular matrix; ${percent(share)} of it crosses a boundary.`, cells, marks, words);
}

function draw(ui) {
  const now = state(ui);
  const [wide, side] = columns(ui);
  const nans = now.hs.filter((h, t) => Number.isNaN(h) && !Number.isNaN(now.alone[t])).length;
  const verdict = now.share
    ? `${percent(now.share)} of all influence on the states comes from other episodes.`
    : "No finite input reaches a state of another episode.";
  const poisoned = ui.get("poison")
    ? ` The NaN at step ${POISON} reaches ${nans || "no"} states of later episodes${nans && ui.get("mode") === "multiply" ? ": 0 · NaN is NaN." : "."}`
    : "";
  const summary = `Episodes begin at steps 0, ${now.first} and ${now.second}; gain ${num(ui.get("gain"))}. ${verdict}${poisoned}`;
  return { pictures: [drawTape(wide, now), drawMatrix(side, now)], summary, notes: now.notes };
}

function controls(ui) {
  choice(ui, "mode", { label: "at a boundary", options: MODES });
  slider(ui, "first", { label: "2nd episode at", min: 1, max: () => Math.max(1, state(ui).xs.length - 2), step: 1 });
  slider(ui, "second", { label: "3rd episode at", min: () => state(ui).first + 1, max: () => Math.max(state(ui).first + 1, state(ui).xs.length - 1), step: 1 });
  slider(ui, "gain", { label: "gain a", min: 0, max: 1, step: 0.02 });
  toggle(ui, "poison", { label: `make the input at step ${POISON} NaN` });
  const stepAt = (x) => {
    const [wide] = columns(ui);
    return Math.round((x - LEFT) / ((wide - LEFT - 6) / state(ui).xs.length));
  };
  drag(ui, {
    start(x, y) {
      const [wide] = columns(ui);
      if (x > wide || y < 0 || y > 284) return null;
      const { first, second } = state(ui);
      const near = [["first", first], ["second", second]].map(([name, step]) => [Math.abs(stepAt(x) - step), name]);
      const [distance, name] = near.sort((a, b) => a[0] - b[0])[0];
      return distance <= 2 ? name : null;
    },
    move(name, x) {
      const step = stepAt(x);
      const { first, second, xs } = state(ui);
      ui.set(name, name === "first" ? clamp(step, 1, second - 1) : clamp(step, first + 1, xs.length - 1));
    },
  });
}

const render = (context) =>
  frame(context, {
    title: "Reset explorer: leaks from one episode into the next",
    names: ["values", "mode", "first", "second", "gain", "poison"],
    controls,
    draw,
  });

export default { render };
