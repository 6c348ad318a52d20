// Linear attention as a matrix: the weight of each earlier step at each step.
import { choice, clamp, frame, num, percent, picture, range, series, slider, svg } from "./core.mjs";

const elu = (x) => (x > 0 ? x + 1 : Math.exp(x));

/** φ for one entry. Softmax, which has no finite φ, is included for comparison. */
export const FEATURES = {
  elu: { name: "elu(x) + 1", map: elu },
  relu: { name: "relu(x)", map: (x) => Math.max(0, x) },
  softmax: { name: "softmax (no monoid)", map: null },
};

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

/** Row t: the weights of steps s ≤ t, φ(q_t)·φ(k_s) over their sum plus 1e-6, as LinearAttention reads. */
export function weights(queries, keys, feature) {
  const { map } = FEATURES[feature];
  const phi = (vectors) => (map ? vectors.map((v) => v.map(map)) : vectors);
  const [q, k] = [phi(queries), phi(keys)];
  return q.map((query, t) => {
    const row = k.slice(0, t + 1).map((key) => dot(query, key));
    const top = Math.max(...row);
    const raw = map ? row : row.map((x) => Math.exp(x - top));
    const total = raw.reduce((a, b) => a + b, 0) + (map ? 1e-6 : 0);
    return raw.map((x) => x / total);
  });
}

/** One fixed pseudorandom unit vector per symbol. */
export function embed(symbols, size) {
  return symbols.map((symbol) => {
    const raw = range(size, (j) => Math.sin(12.9898 * (symbol + 1) + 78.233 * (j + 1) * (symbol + 2)));
    const norm = Math.sqrt(dot(raw, raw)) || 1;
    return raw.map((x) => x / norm);
  });
}

const EXAMPLE = [0, 1, 2, 0, 3, 1, 1, 4, 2, 0, 3, 5, 1, 2, 0, 4];
const MOST = 24;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

function state(ui) {
  const { values, notes } = series(ui.get("symbols"), { name: "symbols", most: MOST, fallback: EXAMPLE });
  const symbols = values.map((x) => clamp(Math.round(x), 0, 25));
  if (symbols.some((x, i) => x !== values[i])) notes.push("`symbols` were rounded to whole numbers between 0 and 25.");
  const keys = embed(symbols, ui.get("key_size")).map((v) => v.map((x) => x * ui.get("scale")));
  const step = clamp(ui.get("step"), 0, symbols.length - 1);
  return { symbols, matrix: weights(keys, keys, ui.get("feature")), step, notes };
}

function drawMatrix(ui, { symbols, matrix, step }) {
  const [left, top] = [24, 40];
  const size = Math.min(Math.max(280, ui.width) - left - 8, 330);
  const cell = size / symbols.length;
  const cells = svg("g", {});
  matrix.forEach((row, t) => row.forEach((w, s) => {
    const at = { x: left + s * cell, y: top + t * cell, width: cell - 1, height: cell - 1 };
    cells.append(svg("rect", { ...at, class: "f-fill" }));
    cells.append(svg("rect", { ...at, class: "f-blue", "fill-opacity": Math.sqrt(clamp(w, 0, 1)).toFixed(3) }));
    if (symbols[s] === symbols[t]) cells.append(svg("circle", { cx: at.x + cell / 2 - 0.5, cy: at.y + cell / 2 - 0.5, r: 1.8, class: "f-orange s-paper", "stroke-width": 0.5 }));
  }));
  const letters = symbols.flatMap((symbol, t) => [
    svg("text", { x: left + (t + 0.5) * cell, y: top - 5, "text-anchor": "middle", class: "small" }, LETTERS[symbol]),
    svg("text", { x: left - 6, y: top + (t + 0.5) * cell + 4, "text-anchor": "end", class: "small" }, LETTERS[symbol]),
  ]);
  const box = svg("rect", { x: left - 1, y: top + step * cell - 1, width: (step + 1) * cell + 1, height: cell + 1, class: "f-none s-ink", "stroke-width": 1.6 });
  const words = svg("text", { x: 0, y: 12 }, "weight of step s (column) in the output at t (row)");
  const alt = `Lower-triangular matrix of ${symbols.length} steps; dots mark pairs of equal symbols.`;
  return picture(left + size + 4, top + size + 4, alt, cells, letters, box, words);
}

function drawRow(ui, { symbols, matrix, step }) {
  const width = ui.width >= 720 ? ui.width - 376 : Math.max(280, ui.width);
  const row = matrix[step];
  const pitch = Math.min(22, 370 / symbols.length);
  const most = Math.max(...row) || 1; // all weights can be 0
  const bars = row.flatMap((w, s) => {
    const long = Math.max(1, (w / most) * (width - 90));
    const y = 26 + s * pitch;
    const same = symbols[s] === symbols[step];
    return [
      svg("text", { x: 0, y: y + pitch * 0.7, style: same ? "font-weight:700" : "" }, `${LETTERS[symbols[s]]}${same ? " =" : ""}`),
      svg("rect", { x: 28, y: y + 1, width: long, height: pitch - 3, class: same ? "f-orange" : "f-blue" }),
      svg("text", { x: 34 + long, y: y + pitch * 0.7, class: "dim" }, num(w, 2)),
    ];
  });
  const title = svg("text", { x: 0, y: 12 }, `what step ${step} (${LETTERS[symbols[step]]}) reads`);
  return picture(width, 30 + row.length * pitch, `Bars: the weights of steps 0 to ${step}.`, title, bars);
}

function draw(ui) {
  const now = state(ui);
  const row = now.matrix[now.step];
  const own = row.reduce((sum, w, s) => sum + (now.symbols[s] === now.symbols[now.step] ? w : 0), 0);
  const same = row.filter((_, s) => now.symbols[s] === now.symbols[now.step]).length;
  const summary =
    `Step ${now.step} queries ${LETTERS[now.symbols[now.step]]}: ${percent(own)} of its weight falls on the ` +
    `${same} of ${row.length} steps with this symbol; equal weights would give ${percent(same / row.length)}. ` +
    (FEATURES[ui.get("feature")].map
      ? `The memory holds ${ui.get("key_size")} numbers per value, for a tape of any length.`
      : `Softmax must store all ${row.length} keys.`);
  return { pictures: [drawMatrix(ui, now), drawRow(ui, now)], summary, notes: now.notes };
}

function controls(ui) {
  choice(ui, "feature", { label: "feature map φ", options: Object.entries(FEATURES).map(([k, f]) => [k, f.name]) });
  slider(ui, "scale", { label: "size of q and k", min: 0.5, max: 8, step: 0.5 });
  slider(ui, "key_size", { label: "key size", min: 1, max: 32, step: 1 });
  slider(ui, "step", { label: "step t", min: 0, max: () => state(ui).symbols.length - 1, step: 1 });
}

const render = (context) =>
  frame(context, {
    title: "Linear attention: a sum of outer products, and the matrix that it represents",
    names: ["symbols", "feature", "scale", "key_size", "step"],
    controls,
    draw,
  });

export default { render };
