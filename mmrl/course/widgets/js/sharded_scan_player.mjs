// A scan of a tape that is split over devices: local scans, and totals that travel between them.
import { choice, clamp, frame, num, picture, player, plural, range, series, slider, svg, toggle } from "./core.mjs";
import { MONOIDS, resettable, wide } from "./monoids.mjs";

/** Every prefix of a list of elements. */
export const prefixes = ({ combine }, elements) =>
  elements.reduce((row, element) => [...row, row.length ? combine(row.at(-1), element) : element], []);

/**
 * A scan over `devices`, which divide the number of elements: {local, totals, before, states}, all in
 * the order of the tape. `before` is the exclusive prefix of the totals, one of them for each device.
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

/** The bytes of a total: four for each number, and one for the flag of a reset if there is one. */
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
  const monoid = MONOIDS[ui.get("monoid")];
  const op = resettable(monoid);
  const xs = given.values.slice(0, steps);
  const elements = xs.map((x, t) => [monoid.lift(x, t, ui.get("gain")), resets && t === reset]);
  const turn = (row) => (reverse ? [...row].reverse() : row);
  const one = turn(prefixes(op, turn(elements)));
  const size = steps / devices;
  const first = reverse ? devices - 1 : 0;
  const rows = sharded(op, elements, devices, reverse);
  // A prefix is finished once nothing that it depends on is missing.
  const done = rows.local.map(([, begin], t) => begin || Math.floor(t / size) === first);
  const sent = devices > 1 ? bytes(elements[0], resets) : 0;
  return { xs, monoid, elements, one, size, devices, first, ...rows, done, sent, resets, reverse, reset, notes, stage: clamp(ui.get("stage"), 0, STAGES) };
}

const value = (monoid) => ([element], digits) => monoid.show(element, digits);
/** An element in full: a map h ↦ a h + x has two numbers. */
const whole = (monoid, [element], digits = 3) => ([element].flat().length === 1 ? monoid.show(element, digits) : `(${[element].flat().map((x) => num(x, digits)).join(", ")})`);

function draw(ui) {
  const now = state(ui);
  const { monoid, xs, devices, states } = now;
  return { pictures: [picture(ui.width, 40, "states", svg("text", { x: 0, y: 12 }, states.map((h) => value(monoid)(h)).join(", ")))], summary: `${xs.length} steps on ${devices} devices`, notes: now.notes };
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
    title: "Sharded scan player: the tape stays, the totals travel",
    names: ["values", "monoid", "devices", "length", "gain", "reverse", "resets", "reset", "stage"],
    controls,
    draw,
  });

export default { render };
