// A scan of a tape that is split over devices: local scans, and totals that devices send.
import { choice, clamp, frame, num, picture, player, plural, range, series, slider, svg, toggle } from "./core.mjs";
import { MONOIDS, resettable, wide } from "./monoids.mjs";

/** The products of all prefixes of a list of elements. */
export const prefixes = ({ combine }, elements) =>
  elements.reduce((row, element) => [...row, row.length ? combine(row.at(-1), element) : element], []);

/**
 * A scan over `devices`, a divisor of the number of elements: {local, totals, before, states}, all in
 * the order of the tape. `before` contains the exclusive prefix of the totals for each device.
 */
export function sharded(monoid, elements, devices, reverse = false) {
  const turn = (row) => (reverse ? [...row].reverse() : row);
  const size = elements.length / devices;
  const read = turn(elements);
  const local = range(devices, (i) => prefixes(monoid, read.slice(i * size, (i + 1) * size)));
  const totals = local.map((row) => row.at(-1));
  const before = [monoid.identity, ...prefixes(monoid, totals).slice(0, -1)];
  const states = local.map((row, i) => row.map((h) => monoid.combine(before[i], h)));
  return { local: turn(local.flat(1)), totals: turn(totals), before: turn(before), states: turn(states.flat(1)) };
}

/** The bytes of a total: four per number, and one for the reset flag, if any. */
export const bytes = ([element], resets) => 4 * [element].flat().length + (resets ? 1 : 0);

const EXAMPLE = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3];
const MOST = 32;
const STAGES = 5;

function state(ui) {
  const given = series(ui.get("values"), { name: "values", most: MOST, fallback: EXAMPLE });
  const asked = Math.min(ui.get("length"), given.values.length);
  let devices = ui.get("devices");
  while (devices > asked) devices /= 2;
  const steps = asked - (asked % devices);
  const notes = [...given.notes];
  if (devices < ui.get("devices")) notes.push(`${plural(asked, "step")} can be split over ${plural(devices, "device")} at most.`);
  if (steps < asked) notes.push(`${plural(asked, "step")} do not split evenly over ${devices} devices; the first ${steps} are shown.`);
  const [resets, reverse] = ["resets", "reverse"].map(ui.get);
  const reset = clamp(ui.get("reset"), 0, steps - 1);
  const name = ui.get("monoid");
  const monoid = MONOIDS[name];
  const op = resettable(monoid);
  const xs = given.values.slice(0, steps);
  const elements = xs.map((x, t) => [monoid.lift(x, t, ui.get("gain")), resets && t === reset]);
  const turn = (row) => (reverse ? [...row].reverse() : row);
  const one = turn(prefixes(op, turn(elements)));
  const size = steps / devices;
  const first = reverse ? devices - 1 : 0;
  const rows = sharded(op, elements, devices, reverse);
  // A prefix is finished when all its inputs have arrived.
  const done = rows.local.map(([, begin], t) => begin || Math.floor(t / size) === first);
  const sent = devices > 1 ? bytes(elements[0], resets) : 0;
  return { xs, name, monoid, elements, one, size, devices, first, ...rows, done, sent, resets, reverse, reset, notes, stage: clamp(ui.get("stage"), 0, STAGES) };
}

const text = (monoid, [element], digits = 3) => monoid.show(element, digits);

/** All numbers of an element; a map h ↦ a h + x has two. */
const whole = (monoid, [element]) =>
  Array.isArray(element) ? `(${element.map((x) => num(x, 2)).join(", ")})` : monoid.show(element);

const PAIRS = { affine: ", the map h ↦ a h + x: its x", max: ", the map h ↦ max(h + w, m): its m" };
// One row per stage, the inputs above, and the scan on one device below.
const ROWS = [
  { y: 62, says: ({ xs }) => `inputs of steps 0 to ${xs.length - 1}` },
  { y: 118, says: () => "1 · local scans, one per part" },
  { y: 174, says: ({ name }) => `2 · one total per device${PAIRS[name] ?? ""}` },
  { y: 250, says: ({ devices, sent }) => `3 · all-gather: ${(devices - 1) * sent} B to each device` },
  { y: 306, says: () => "4 · past: product of the earlier totals" },
  { y: 362, says: () => "5 · past • each prefix of row 1" },
  { y: 418, says: () => "the scan on one device" },
];
const HIGH = 26;
const KINDS = {
  input: { class: "f-paper s-line" },
  local: { class: "f-paper s-blue" },
  done: { class: "f-blue s-blue" },
  sent: { class: "f-paper s-orange", "stroke-width": 2 },
  kept: { class: "f-paper s-dim", "stroke-dasharray": "3 2" },
  past: { class: "f-paper s-ink" },
  empty: { class: "f-none s-line", "stroke-dasharray": "2 3" },
};

/** A row of boxes of equal width: {x, kind, write}. Texts have equal font size, and are omitted if they do not fit. */
function boxes(y, width, rounded, row) {
  const room = width - 3;
  const fits = ([digits, font]) => row.every(({ write }) => wide(write(digits)) * font <= room);
  const [digits, font] = [[3, 12], [2, 12], [3, 10], [2, 10], [2, 9]].find(fits) ?? [];
  return row.map(({ x, kind, write }) => {
    const size = { x: x + 0.75, y, width: Math.max(1, width - 1.5), height: HIGH, rx: Math.min(rounded, width / 2 - 1) };
    const shape = svg("rect", { ...size, "stroke-width": 1.2, ...KINDS[kind] });
    if (!digits || kind === "empty") return shape;
    const style = `font-size:${font}px;fill:var(--${kind === "done" ? "on-blue" : "ink"})`;
    return [shape, svg("text", { x: x + width / 2, y: y + HIGH / 2 + font / 3, "text-anchor": "middle", style }, write(digits))];
  });
}

/** The devices whose totals affect device `i`: none before a total that contains a reset. */
export function heard(totals, i, reverse = false) {
  const order = reverse ? range(totals.length - 1 - i, (k) => i + 1 + k) : range(i, (k) => i - 1 - k);
  const last = order.findIndex((j) => totals[j][1]);
  return last < 0 ? order : order.slice(0, last + 1);
}

function drawRows(width, now) {
  const { monoid, xs, devices, size, first, local, totals, before, states, one, done, resets, reset, reverse, stage } = now;
  // Gaps separate the devices; only totals cross them.
  const gap = devices > 1 ? Math.min(24, width / devices / 5) : 0;
  const block = (width - gap * (devices - 1)) / devices;
  const left = (i) => i * (block + gap);
  const middle = (i) => left(i) + block / 2;
  const [cell, slot, room] = [block / size, block / devices, Math.min(block, 72)];
  const xOf = (t) => left(Math.floor(t / size)) + (t % size) * cell;
  const [back, travel, marks] = range(3, () => svg("g", {}));
  const write = (element) => (digits) => text(monoid, element, digits);
  const line = (group, x1, y1, x2, y2, style) => group.append(svg("line", { x1, y1, x2, y2, "stroke-width": 1.2, ...style }));
  const join = { class: "s-dim" };

  const cells = (row, elements, kind) => boxes(ROWS[row].y, cell, 3, elements.map((element, t) => ({ x: xOf(t), kind: kind(t), write: write(element) })));
  const pills = (row, elements, kind) => boxes(ROWS[row].y, room, 12, elements.map((element, i) => ({ x: middle(i) - room / 2, kind, write: row === 4 && i === first ? () => "e" : write(element) })));
  const gathered = range(devices, (i) => totals.map((total, j) => ({ x: left(i) + j * slot, kind: stage < 3 ? "empty" : i === j ? "kept" : "sent", write: write(total) }))).flat();
  const nodes = [
    cells(0, now.elements, () => "input"),
    cells(1, local, (t) => (stage < 1 ? "empty" : done[t] ? "done" : "local")),
    pills(2, totals, stage < 2 ? "empty" : devices > 1 ? "sent" : "kept"),
    boxes(ROWS[3].y, slot, 12, gathered),
    pills(4, before, stage < 4 ? "empty" : "past"),
    cells(5, states, () => (stage < 5 ? "empty" : "done")),
    cells(6, one, () => "input"),
  ];
  const forgets = (x, y) => marks.append(svg("line", { x1: x, x2: x, y1: y - 4, y2: y + HIGH + 4, class: "s-ink", "stroke-width": 3.5 }));
  range(devices, (i) => {
    back.append(svg("rect", { x: left(i), y: 22, width: block, height: ROWS[5].y + HIGH - 16, rx: 5, class: "f-fill" }));
    back.append(svg("text", { x: middle(i), y: 37, "text-anchor": "middle", class: "dim" }, block >= 64 ? `device ${i}` : `${i}`));
    const end = xOf(i * size + (reverse ? 0 : size - 1)) + cell / 2;
    if (stage >= 2) line(travel, end, ROWS[1].y + HIGH, middle(i), ROWS[2].y, join);
    const slotOf = (j) => left(i) + (j + 0.5) * slot;
    const others = range(devices).filter((j) => j !== i);
    if (stage >= 3) for (const j of others) line(travel, middle(j), ROWS[2].y + HIGH, slotOf(j), ROWS[3].y, { class: "s-orange", "stroke-opacity": devices > 4 ? 0.5 : 1 });
    if (stage >= 4) for (const j of heard(totals, i, reverse)) line(travel, slotOf(j), ROWS[3].y + HIGH, middle(i), ROWS[4].y, join);
    if (stage >= 2 && totals[i][1]) forgets(middle(i) + (reverse ? room : -room) / 2, ROWS[2].y);
  });
  const edge = xOf(reset) + (reverse ? cell : 0);
  if (resets) for (const row of [0, 1, 5, 6]) if (stage >= row || row === 6) forgets(edge, ROWS[row].y);
  const halo = "paint-order:stroke;stroke:var(--fill);stroke-width:4px";
  const titles = ROWS.map(({ y, says }, i) => svg("text", { x: 4, y: y - 6, style: i < 6 ? halo : "" }, says(now)));
  const legend = [["done", 0, "finished"], ["local", 84, "lacks its past"], ["sent", 200, "travels"], resets ? ["", 282, "reset"] : null].filter(Boolean).map(([kind, x, words]) => [
    kind ? svg("rect", { x: x + 1, y: 1, width: 20, height: 14, rx: kind === "sent" ? 7 : 3, "stroke-width": 1.2, ...KINDS[kind] }) : svg("line", { x1: x + 14, x2: x + 14, y1: 0, y2: 16, class: "s-ink", "stroke-width": 3.5 }),
    svg("text", { x: x + 26, y: 13 }, words),
  ]);
  const alt = `${plural(xs.length, "step")} on ${plural(devices, "device")}, ${stage} of ${STAGES} stages done.`;
  return picture(width, ROWS[6].y + HIGH + 4, alt, back, travel, nodes, marks, titles, legend);
}

/** The largest difference between the states of the two scans. */
const apart = (rows, others) => Math.max(...rows.map(([h], t) => Math.abs([h].flat().at(-1) - [others[t][0]].flat().at(-1))));

/** Describe the effect of the reset at this stage. */
function resetting({ resets, reset, size, devices, reverse, stage }) {
  if (!resets || devices === 1) return "";
  const at = Math.floor(reset / size);
  const edge = reset % size === (reverse ? size - 1 : 0);
  const where = edge ? `The reset at step ${reset} is the first step that device ${at} reads` : `The reset at step ${reset} lies within device ${at}`;
  if (stage < 1) return ` ${where}.`;
  const later = ["from there on, the local scan is enough", "its total forgets all that came before, too", "its total forgets all that came before, too", "earlier totals have no effect", "no earlier element has crossed it"][stage - 1];
  return ` ${where}: ${later}.`;
}

function draw(ui) {
  const now = state(ui);
  const { monoid, xs, devices, size, totals, before, states, one, done, sent, first, stage, elements, resets } = now;
  const ready = done.filter(Boolean).length;
  const tape = xs.length * bytes(elements[0], resets);
  const received = (devices - 1) * sent;
  const list = (row) => row.map((element, i) => (row === before && i === first ? "e, the identity" : whole(monoid, element))).join("; ");
  const said = [
    `${plural(xs.length, "input")}, ${size} on each of ${plural(devices, "device")}. Nothing is combined yet.`,
    `Each device has scanned its own ${plural(size, "step")}: ${ready} of ${plural(xs.length, "prefix", "prefixes")} are finished, and the others lack the earlier parts.`,
    `The last prefix of each device is its total: ${list(totals)}.`,
    devices > 1
      ? `Each device has received ${plural(devices - 1, "total")} of ${sent} B: ${received} B, although the whole tape has ${tape} B. A longer tape does not increase this amount.`
      : "There is no other device to send the total to.",
    `The product before each device's first step: ${list(before)}.`,
    `All ${xs.length} prefixes equal the scan on one device (largest difference: ${num(apart(states, one), 2)}). ${devices > 1 ? `Each device received ${received} B of a tape of ${tape} B, and a longer tape does not increase this amount` : "No data had to be sent"}. h = ${states.map((h) => text(monoid, h)).join(", ")}.`,
  ][stage];
  return { pictures: [drawRows(Math.max(300, ui.width), now)], summary: said + resetting(now), notes: now.notes };
}

function controls(ui) {
  choice(ui, "devices", { label: "devices", options: [1, 2, 4, 8].map((n) => [n, `${n}`]) });
  const names = ["sum", "affine", "max"];
  choice(ui, "monoid", { label: "monoid", options: names.map((name) => [name, MONOIDS[name].name]) });
  slider(ui, "length", { label: "tape length T", min: 8, max: MOST, step: 8 });
  slider(ui, "gain", { label: "gain a", min: 0.1, max: 1, step: 0.05, when: () => ui.get("monoid") !== "sum" });
  toggle(ui, "reverse", { label: "from the end, as returns are" });
  toggle(ui, "resets", { label: "with a reset" });
  slider(ui, "reset", { label: "reset at step", min: 0, max: () => state(ui).xs.length - 1, step: 1, when: () => ui.get("resets") });
  player(ui, "stage", { last: () => STAGES, what: "stage" });
}

const render = (context) =>
  frame(context, {
    title: "Sharded scan player: a scan over several devices",
    names: ["values", "monoid", "devices", "length", "gain", "reverse", "resets", "reset", "stage"],
    controls,
    draw,
  });

export default { render };
