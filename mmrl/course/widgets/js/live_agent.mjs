// A trained agent plays cards. Its network runs in the browser, so its memory can be erased.
import { clamp, frame, html, picture, player, range, slider, svg } from "./core.mjs";
import { drawMemory, drawOutputs, largest } from "./playing.mjs";
import { uniforms } from "./random.mjs";

const NAMES = ["spades", "diamonds", "clubs", "hearts"];
const COLORS = ["ink", "blue", "green", "orange"];

/** The arrays of a policy, keyed by name, as rows of numbers, one row per output. */
export function unpack({ shapes, weights }) {
  const bytes = Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0));
  const numbers = new Float32Array(bytes.buffer);
  const arrays = {};
  let from = 0;
  for (const [name, [rows, columns]] of shapes) {
    arrays[name] = range(rows, (i) => numbers.subarray(from + i * columns, from + (i + 1) * columns));
    from += rows * columns;
  }
  return arrays;
}

const dot = (row, x) => row.reduce((sum, w, i) => sum + w * x[i], 0);

/** Linear layers. A dense layer is normalized, and its negative values are divided by 100. */
export function layers(arrays, part, kinds, x) {
  kinds.forEach((kind, k) => {
    const bias = arrays[`${part}.${k}.bias`][0];
    x = arrays[`${part}.${k}.weight`].map((row, i) => dot(row, x) + bias[i]);
    if (kind !== "dense") return;
    const mean = x.reduce((sum, v) => sum + v, 0) / x.length;
    const spread = x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / x.length;
    x = x.map((v) => (v - mean) / Math.sqrt(spread + 1e-5)).map((v) => Math.max(v, 0.01 * v));
  });
  return x;
}

/** One step of the network: h ← λ h + B x with complex numbers, then Q(s, ·) of each action. */
export function think(policy, arrays, [re, im], card, begin) {
  const seen = [...NAMES.map((_, suit) => Number(suit === card)), Number(begin)];
  const x = layers(arrays, "encoder", policy.encoder, seen);
  const [lr, li] = [arrays.eigenvalues_re[0], arrays.eigenvalues_im[0]];
  const real = arrays.read_in_re.map((row, i) => lr[i] * re[i] - li[i] * im[i] + dot(row, x));
  const imag = arrays.read_in_im.map((row, i) => lr[i] * im[i] + li[i] * re[i] + dot(row, x));
  const both = real.flatMap((v, i) => [v, imag[i]]);
  return { h: [real, imag], outputs: layers(arrays, "head", policy.head, [...both, ...x]) };
}

/** The suits of a shuffled deck, 0 to 3 for spades, diamonds, clubs and hearts. */
export function shuffled(seed) {
  const draw = uniforms(seed + 1);
  const deck = range(52, (i) => i % 4);
  for (let i = 51; i > 0; i--) {
    const j = Math.floor(draw() * (i + 1));
    [deck[i], deck[j]] = [deck[j], deck[i]];
  }
  return deck;
}

/**
 * An episode: at each of 51 steps the card, Q(s, ·), the answer, and |h| of each unit.
 * The memory is erased before the steps in `wipes`; the agent is not notified.
 */
export function episode(policy, arrays, deck, wipes) {
  const empty = () => [arrays.state_re[0], arrays.state_im[0]];
  let h = empty();
  return range(51, (t) => {
    if (wipes.includes(t)) h = empty();
    const now = think(policy, arrays, h, deck[t], t === 0);
    h = now.h;
    const sizes = h[0].map((v, i) => Math.hypot(v, h[1][i]));
    const said = largest(now.outputs);
    return { card: deck[t], outputs: now.outputs, said, sizes, right: said === deck[0] };
  });
}

/** A picture [unit, step] of |h|, where white is the maximum of a unit; the slowest unit is on top. */
function filled(steps, arrays) {
  const pace = arrays.eigenvalues_re[0].map((v, i) => Math.hypot(v, arrays.eigenvalues_im[0][i]));
  const order = [...pace.keys()].sort((a, b) => pace[b] - pace[a]);
  const canvas = html("canvas", { width: steps.length, height: order.length });
  const context = canvas.getContext("2d");
  const image = context.createImageData(steps.length, order.length);
  order.forEach((unit, row) => {
    const most = Math.max(1e-12, ...steps.map((step) => step.sizes[unit]));
    steps.forEach((step, t) => {
      const level = (255 * step.sizes[unit]) / most;
      image.data.set([level, level, level, 255], 4 * (row * steps.length + t));
    });
  });
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

function suit(ui, kind, x, y, size) {
  const place = `translate(${x} ${y}) scale(${size})`;
  return svg("path", { d: ui.get("suits")[kind], transform: place, class: `f-${COLORS[kind]}` });
}

function drawCards(ui, { steps, step, wipes }) {
  const width = Math.max(280, ui.width);
  const columns = Math.floor((width - 46) / 24);
  const rows = Math.ceil(steps.length / columns);
  const parts = steps.map(({ card, said, right }, t) => {
    const [x, y] = [46 + 24 * (t % columns), 22 + 78 * Math.floor(t / columns)];
    const shown = t <= step;
    const box = svg("rect", { x, y: y - 14, width: 21, height: 28, rx: 4, class: `f-paper s-${t === step ? "ink" : "line"}`, "stroke-width": t === step ? 2 : 1 });
    const mark = svg("text", { x: x + 10.5, y: y + 52, "text-anchor": "middle", class: right ? "" : "f-orange" }, right ? "✓" : "✗");
    const wiped = wipes.includes(t) && svg("line", { x1: x - 1.5, x2: x - 1.5, y1: y - 18, y2: y + 56, class: "s-orange", "stroke-width": 3 });
    return [box, wiped || null, shown ? [suit(ui, card, x + 10.5, y, 0.75), suit(ui, said, x + 10.5, y + 28, 0.6), mark] : null];
  });
  const labels = range(rows, (row) => [
    svg("text", { x: 0, y: 26 + 78 * row }, "sees"),
    svg("text", { x: 0, y: 54 + 78 * row }, "says"),
  ]);
  const alt = `Cards up to step ${step}; it should name ${NAMES[steps[0].card]}, the first, and names ${NAMES[steps[step].said]}.`;
  return picture(width, 78 * rows + 6, alt, labels, parts);
}

/** The visible episode, which is recomputed only if the deck or the wipes change. */
function state(ui) {
  const [policy, deck, wipes] = ["policy", "deck", "wipes"].map(ui.get);
  const key = JSON.stringify([policy.weights, deck, wipes]);
  if (ui.played?.key !== key) {
    const arrays = unpack(policy);
    ui.played = { key, arrays, steps: episode(policy, arrays, shuffled(deck), wipes) };
  }
  return { ...ui.played, wipes, step: clamp(ui.get("step"), 0, 50) };
}

function draw(ui) {
  const { arrays, wipes, steps, step } = state(ui);
  const outputs = steps.map((each) => each.outputs);
  const told = { actions: NAMES, outputs, says: "Q(s, ·)", units: arrays.read_in_re.length };
  const memory = { ...told, image: filled(steps, arrays), holds: "|h| of each unit, slowest on top" };
  const right = steps.slice(0, step + 1).filter((each) => each.right).length;
  const past = wipes.filter((t) => t <= step);
  const summary =
    `Step ${step}: it sees ${NAMES[steps[step].card]} and names ${NAMES[steps[step].said]}; the first card was ${NAMES[steps[0].card]}. ` +
    `${right} of ${step + 1} answers are right.` +
    (past.length ? ` Its memory was wiped before step ${past.join(" and ")}.` : "");
  const pictures = [drawCards(ui, { steps, step, wipes }), drawOutputs({ policy: told, step })];
  return { pictures: [...pictures, drawMemory(ui, { steps: steps.length, policy: memory, step })], summary };
}

function controls(ui) {
  slider(ui, "step", { label: "step t", min: 0, max: 50, step: 1 });
  slider(ui, "deck", { label: "shuffled deck", min: 0, max: 99, step: 1 });
  player(ui, "step", { last: () => 50, what: "step", pause: 300 });
  const wipe = html("button", { type: "button" }, "");
  const now = () => clamp(ui.get("step"), 0, 50);
  const here = () => ui.get("wipes").includes(now());
  wipe.addEventListener("click", () => {
    const step = now();
    const others = ui.get("wipes").filter((t) => t !== step);
    ui.set("wipes", here() ? others : [...others, step].sort((a, b) => a - b));
  });
  ui.syncs.push(() => (wipe.textContent = here() ? "Restore its memory" : "Wipe its memory now"));
  ui.settings.append(html("div", { class: "mmrl-player" }, wipe));
}

const render = (context) =>
  frame(context, {
    title: "Live agent: a trained memory that you can wipe",
    names: ["policy", "suits", "deck", "step", "wipes"],
    controls,
    draw,
  });

export default { render };
