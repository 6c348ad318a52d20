// The same episodes as padded segments of L steps, and as a tape.
import { clamp, frame, num, percent, picture, plural, series, slider, stripes, svg } from "./core.mjs";

/** The segments of all episodes (Eqs. 23-27): {episode, start, steps, pad}, each of length L. */
export function split(lengths, size) {
  const rows = [];
  lengths.forEach((length, episode) => {
    for (let start = 0; start < length; start += size) {
      const steps = Math.min(size, length - start);
      rows.push({ episode, start, steps, pad: size - steps });
    }
  });
  return rows;
}

const sum = (values) => values.reduce((a, b) => a + b, 0);
const pairs = (n) => (n * (n + 1)) / 2;

/**
 * The costs of segments: `padding`, the fraction of a batch without data; `late`, the fraction of steps
 * whose episode begins outside of their segment; `seen`, the fraction of pairs (step, earlier step of
 * its episode) that a gradient connects; `effective`, the number of real steps in a batch of `batch`.
 */
export function account(lengths, size, batch) {
  const rows = split(lengths, size);
  const steps = sum(lengths);
  const padding = sum(rows.map((row) => row.pad)) / (rows.length * size);
  const late = sum(rows.filter((row) => row.start > 0).map((row) => row.steps)) / steps;
  const seen = sum(rows.map((row) => pairs(row.steps))) / sum(lengths.map(pairs));
  const perBatch = Math.max(1, Math.floor(batch / size));
  return { rows: rows.length, steps, padding, late, seen, perBatch, effective: perBatch * size * (1 - padding) };
}

/** Arrange boxes in lines of `columns` cells: {row, column, size, ...box}. Boxes may wrap if `wrap`. */
export function flow(boxes, columns, { wrap, gap = 0 }) {
  const out = [];
  let [row, column] = [0, 0];
  for (const box of boxes) {
    let left = box.size;
    if (!wrap && column + left > columns && column > 0) [row, column] = [row + 1, 0];
    let part = 0;
    while (left > 0) {
      if (wrap && column >= columns) [row, column] = [row + 1, 0];
      const size = wrap ? Math.min(left, columns - column) : left;
      out.push({ ...box, row, column, size, part: part++ });
      [left, column] = [left - size, column + size];
    }
    column += gap;
  }
  return out;
}

const EXAMPLE = [37, 8, 52, 21, 5, 30, 14, 3];
const MOST = 24;
const LONGEST = 200;
const MOST_STEPS = 600;
const COLORS = ["blue", "green", "purple", "dim"];
const HEIGHT = 18;

function tidy(ui) {
  const { values, notes } = series(ui.get("lengths"), { name: "lengths", most: MOST, fallback: EXAMPLE, unit: "episode" });
  const whole = values.map((x) => clamp(Math.round(x), 1, LONGEST));
  // Limit the height of the widget.
  const kept = whole.filter((_, i) => sum(whole.slice(0, i + 1)) <= MOST_STEPS || i === 0);
  if (kept.length < whole.length) notes.push(`Episodes beyond a total of ${MOST_STEPS} steps are omitted.`);
  if (whole.some((x, i) => x !== values[i])) {
    notes.push(`\`lengths\` were rounded to whole steps between 1 and ${LONGEST}.`);
  }
  return { lengths: kept, notes };
}

function band(width, { title, alt, runs, cell, batch }) {
  const hatch = stripes("dim");
  const shapes = svg("g", {});
  const lines = Math.max(0, ...runs.map((run) => run.row)) + 1;
  for (const run of runs) {
    const [x, y] = [1 + run.column * cell, 24 + run.row * (HEIGHT + 7)];
    const box = { x, y, height: HEIGHT };
    const real = (run.real ?? run.size) * cell;
    shapes.append(svg("rect", { ...box, width: real, class: `f-${COLORS[run.episode % 4]}` }));
    if (run.real < run.size) {
      const rest = { ...box, x: x + real, width: run.size * cell - real };
      shapes.append(svg("rect", { ...rest, class: "s-dim", fill: hatch.fill, "stroke-width": 0.8 }));
    }
    if (run.cut) shapes.append(svg("path", { d: `M${x} ${y}l7 ${HEIGHT / 2}l-7 ${HEIGHT / 2}z`, class: "f-orange s-paper" }));
    if (run.index < batch) shapes.append(svg("rect", { ...box, y: y + HEIGHT + 1, height: 2.5, width: run.size * cell, class: "f-ink" }));
    if (real > 24) shapes.append(svg("text", { x: x + real / 2 + 2, y: y + 13, "text-anchor": "middle", style: "fill:var(--paper);font-size:11px" }, `${run.episode + 1}`));
    if (run.first) shapes.append(svg("line", { x1: x, x2: x, y1: y - 2, y2: y + HEIGHT + 2, class: "s-ink", "stroke-width": 2 }));
  }
  return picture(width, 26 + lines * (HEIGHT + 7), alt, hatch.defs, svg("text", { x: 0, y: 13 }, title), shapes);
}

function draw(ui) {
  const { lengths, notes } = tidy(ui);
  const [size, batch] = [ui.get("segment"), ui.get("batch")];
  const now = account(lengths, size, batch);
  const width = Math.max(300, ui.width);
  const cell = Math.min(7, (width - 4) / size, Math.max(2.5, (width * 6) / now.steps));
  const columns = Math.floor((width - 4) / cell);
  const gap = 6 / cell;
  const rows = split(lengths, size).map((row, index) => ({ ...row, size, real: row.steps, cut: row.start > 0, first: row.start === 0, index }));
  const segments = flow(rows, columns, { wrap: false, gap });
  let start = 0;
  const episodes = lengths.map((length, episode) => ({ episode, size: length, start: (start += length) - length }));
  // The tape is split at the end of the batch, so that the line below it ends there too.
  const parts = episodes.flatMap((box) => {
    const inside = clamp(batch - box.start, 0, box.size);
    const halves = [{ ...box, size: inside, index: 0 }, { ...box, size: box.size - inside, index: 1 }];
    halves[inside ? 0 : 1].head = true;
    return halves.filter((half) => half.size);
  });
  const tape = flow(parts, columns, { wrap: true }).map((run) => ({ ...run, first: run.head && run.part === 0 }));
  const full = Math.min(batch, now.steps);
  const never = batch < Math.max(...lengths) ? `, whose steps from ${batch} on are never in a batch` : "";
  const summary =
    `Segments of L = ${size}: ${now.rows} rows; ${percent(now.padding)} of them is padding (striped), and ` +
    `${percent(now.late)} of the steps lie in rows that start from an empty memory in mid-episode (arrows). Gradients connect ` +
    `${percent(now.seen)} of the pairs of steps in one episode. A batch of ${plural(now.perBatch, "row")} holds about ` +
    `${num(now.effective)} real steps; a tape of ${batch} holds ${full}, has no padding, and cuts only its last episode${never}.`;
  const pictures = [
    band(width, { title: `segments: ${now.rows} rows of ${size} steps`, alt: `${now.rows} padded segments. ${summary}`, runs: segments, cell, batch: now.perBatch }),
    band(width, { title: `tape: ${now.steps} steps of ${plural(lengths.length, "episode")}, end to end`, alt: `The same episodes on one tape of ${now.steps} steps.`, runs: tape, cell, batch: 1 }),
  ];
  return { pictures, summary: `${summary} Underlined: one batch.`, notes };
}

function controls(ui) {
  slider(ui, "segment", { label: "segment length L", min: 2, max: 60, step: 1 });
  slider(ui, "batch", { label: "batch, in steps", min: 20, max: 160, step: 5 });
}

const render = (context) =>
  frame(context, {
    title: "Segments and tapes: padding, and pairs that gradients connect",
    names: ["lengths", "segment", "batch"],
    controls,
    draw,
  });

export default { render };
