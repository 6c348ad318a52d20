// What a scan over devices costs on paper: bytes, latency, and their share of the time.
import { choice, frame, num, percent, picture, range, slider, svg, toggle } from "./core.mjs";

/** The bytes of each leaf of an element, the flag of a reset the last: complex numbers take 8. */
export const MODELS = {
  lru: { name: "LRU", leaves: (d) => [8 * d, 8 * d, 1], state: "d complex units" },
  s5: { name: "S5", leaves: (d) => [8 * d, 8 * d, 1], state: "d complex units" },
  ffm: { name: "FFM", leaves: (d) => [32 * d, 4, 1], state: "d traces by 4 contexts" },
  linear_attention: { name: "linear attention", leaves: (d) => [4 * d * d, 4 * d, 1], state: "keys and values of d numbers" },
};

export const MEMORY = 4.8e12; // bytes per second, of an H200
export const NODE = 8;
export const LINKS = {
  within: { latency: 10e-6, bandwidth: 450e9 },
  across: { latency: 30e-6, bandwidth: 50e9 },
};

/** As mmrl.course.scaling.cost: bytes on each device, and seconds. */
export function cost(leaves, steps, devices, { latency, bandwidth }, united = true) {
  const element = leaves.reduce((sum, size) => sum + size, 0);
  const several = devices > 1;
  const [held, received] = [(steps / devices) * element, (devices - 1) * element];
  const gathers = several ? (united ? 1 : leaves.length) : 0;
  const times = { memory: ((several ? 4 : 2) * held) / MEMORY, latency: gathers * latency, transfer: received / bandwidth };
  const seconds = times.memory + times.latency + times.transfer;
  return { received, prefixes: held, ...times, seconds, share: (times.latency + times.transfer) / seconds };
}

function draw(ui) {
  const { leaves } = MODELS[ui.get("model")];
  const found = cost(leaves(ui.get("size")), 2 ** ui.get("log_steps"), 2 ** ui.get("log_devices"), LINKS.within, ui.get("united"));
  return { pictures: [picture(ui.width, 40, "share", svg("text", { x: 0, y: 12 }, percent(found.share)))], summary: `${num(found.received)} B`, notes: [] };
}

function controls(ui) {
  choice(ui, "model", { label: "memory", options: Object.entries(MODELS).map(([key, { name }]) => [key, name]) });
  slider(ui, "log_steps", { label: "tape length T", min: 10, max: 26, step: 1, format: (k) => num(2 ** k) });
  slider(ui, "size", { label: "size d", min: 8, max: 256, step: 8 });
  slider(ui, "log_devices", { label: "devices n", min: 0, max: 8, step: 1, format: (k) => num(2 ** k) });
  choice(ui, "network", { label: "network", options: [["eight", "eight a node"], ["within", "all in one node"], ["across", "each in its own"]] });
  slider(ui, "capacity", { label: "memory of each", min: 8, max: 192, step: 1, format: (x) => `${x} GB` });
  toggle(ui, "united", { label: "one all-gather for all leaves" });
}

const render = (context) =>
  frame(context, {
    title: "Scaling calculator: a scan over devices, computed, not measured",
    names: ["model", "log_steps", "size", "log_devices", "network", "united", "capacity"],
    controls,
    draw,
  });

export default { render };
