// The estimated cost of a scan over devices: bytes, latency, and their fraction of the time.
import { choice, clamp, frame, html, num, percent, picture, range, slider, stripes, svg, toggle } from "./core.mjs";
import { path, plot } from "./plot.mjs";

/** The bytes of each leaf of an element; the last leaf is the reset flag. Complex numbers take 8. */
export const MODELS = {
  lru: { name: "LRU", leaves: (d) => [8 * d, 8 * d, 1], state: "d complex units" },
  s5: { name: "S5", leaves: (d) => [8 * d, 8 * d, 1], state: "d complex units" },
  ffm: { name: "FFM", leaves: (d) => [32 * d, 4, 1], state: "d traces by 4 contexts" },
  linear_attention: { name: "linear attention", leaves: (d) => [4 * d * d, 4 * d, 1], state: "keys and values of d numbers" },
};

export const MEMORY = 4.8e12; // bytes per second of an H200
export const NODE = 8;
export const LINKS = {
  within: { latency: 10e-6, bandwidth: 450e9 },
  across: { latency: 30e-6, bandwidth: 50e9 },
};

/** Like mmrl.course.ch18_many_devices.scaling.cost: bytes per device, and seconds. */
export function cost(leaves, steps, devices, { latency, bandwidth }, united = true) {
  const element = leaves.reduce((sum, size) => sum + size, 0);
  const several = devices > 1;
  const [held, received] = [(steps / devices) * element, (devices - 1) * element];
  const gathers = several ? (united ? 1 : leaves.length) : 0;
  const times = { memory: ((several ? 4 : 2) * held) / MEMORY, latency: gathers * latency, transfer: received / bandwidth };
  const seconds = times.memory + times.latency + times.transfer;
  return { received_bytes: received, prefixes: held, ...times, seconds, share: (times.latency + times.transfer) / seconds };
}

/** Format a number as 1 048 576, and as 2²⁰. */
export const whole = (x) => String(x).replace(/\B(?=(\d{3})+$)/g, "\u202f");
export const power = (k) => `2${String(k).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])}`;

const unit = (value, names, base) => {
  const k = clamp(Math.floor(Math.log10(value || 1) / 3 + 1e-9) - base, 0, names.length - 1);
  return `${num(value / 1000 ** (k + base))} ${names[k]}`;
};
export const size = (bytes) => unit(bytes, ["B", "kB", "MB", "GB", "TB", "PB"], 0);
export const time = (seconds) => unit(seconds, ["ns", "µs", "ms", "s"], -3);
const binary = (bytes) => (bytes < 2 ** 30 ? "" : ` (${num(bytes / 2 ** 30)} GiB)`);
const MOST = 8; // binary logarithm of the maximum number of devices

function state(ui) {
  const [model, steps, d, network] = [MODELS[ui.get("model")], 2 ** ui.get("log_steps"), ui.get("size"), ui.get("network")];
  const leaves = model.leaves(d);
  const within = (n) => (network === "eight" ? n <= NODE : network === "within");
  const link = (n) => LINKS[within(n) ? "within" : "across"];
  const at = (n) => cost(leaves, steps, n, link(n), ui.get("united"));
  const devices = 2 ** clamp(ui.get("log_devices"), 0, MOST);
  const found = at(devices);
  // Elements and prefixes are in memory at the same time.
  const [need, room] = [2 * found.prefixes, 1e9 * ui.get("capacity")];
  return { model, steps, d, leaves, devices, found, need, room, at, link: link(devices), within: within(devices) };
}

const TIMES = [
  ["memory", "reading and writing", "f-blue s-blue"],
  ["latency", "latency", "s-orange"],
  ["transfer", "transfer", "f-paper s-purple"],
];

/** The time for the selected number of devices in three parts, above both times by number of devices. */
function drawTimes(width, { at, devices, found, model }) {
  const [left, right, top, bottom] = [52, width - 12, 52, 232];
  const counts = range(MOST + 1, (k) => 2 ** k);
  const costs = counts.map(at);
  const lines = {
    memory: ["f-none s-blue", null, costs.map(({ memory }) => 1e6 * memory)],
    talk: ["f-none s-orange", "6 4", costs.map(({ latency, transfer }) => 1e6 * (latency + transfer) || NaN)],
  };
  const all = Object.values(lines).flatMap(([, , values]) => values).filter(Number.isFinite);
  const [low, high] = [Math.floor(Math.log10(Math.min(...all))), Math.ceil(Math.log10(Math.max(...all)) + 1e-9)];
  const gap = Math.ceil((high - low) / 5);
  const decades = range(Math.floor((high - low) / gap) + 1, (k) => 10 ** (low + k * gap));
  const x = { low: 1, high: 2 ** MOST, log: true, ticks: counts, label: "devices n" };
  const axis = plot([left, top, right, bottom], { x, y: { low: 10 ** low, high: 10 ** high, log: true, ticks: decades } });
  const marker = svg("line", { x1: axis.x(devices), x2: axis.x(devices), y1: top, y2: bottom, class: "s-ink", "stroke-width": 1.5, "stroke-dasharray": "2 3" });
  const dot = (key, cx, cy) => (key === "talk"
    ? svg("rect", { x: cx - 4, y: cy - 4, width: 8, height: 8, class: "f-paper s-orange", "stroke-width": 2 })
    : svg("circle", { cx, cy, r: 4, class: "f-blue" }));
  const drawn = Object.entries(lines).map(([key, [style, dash, values]]) => {
    const points = values.map((value, k) => [axis.x(counts[k]), axis.y(value)]);
    const seen = points.filter(([, y]) => Number.isFinite(y));
    return [path(points, { class: style, "stroke-width": 2.2, "stroke-dasharray": dash }), seen.map(([cx, cy]) => dot(key, cx, cy))];
  });
  const legend = [["memory", 0, "reading and writing"], ["talk", 168, "communication"]].map(([key, at, words]) => [
    path([[at, 9], [at + 30, 9]], { class: lines[key][0], "stroke-width": 2.2, "stroke-dasharray": lines[key][1] }),
    dot(key, at + 15, 9), svg("text", { x: at + 36, y: 13 }, words),
  ]);
  legend.push(svg("text", { x: 0, y: 40, class: "dim" }, "time in µs, computed"));

  const hatch = stripes("orange");
  let from = 0;
  const share = (key) => found[key] / found.seconds;
  const bar = TIMES.map(([key, , style]) => {
    const start = from;
    from += share(key) * (right - 1);
    const fill = key === "latency" ? hatch.fill : null;
    return svg("rect", { x: 1 + start, y: 292, width: from - start, height: 20, class: style, fill, "stroke-width": from > start ? 1.2 : 0 });
  });
  const title = svg("text", { x: 0, y: 284 }, `n = ${devices}: ${time(found.seconds)}`);
  const keys = TIMES.map(([key, words, style], k) => {
    const [at, y] = [[0, 0, 150][k], [332, 350, 350][k]];
    const fill = key === "latency" ? hatch.fill : null;
    return [svg("rect", { x: at + 1, y: y - 10, width: 12, height: 11, class: style, fill }), svg("text", { x: at + 19, y }, `${words} ${time(found[key])}`)];
  });
  const alt = `${model.name}: time by the number of devices, from 1 to ${2 ** MOST}; on ${devices}, ${percent(found.share)} of ${time(found.seconds)} is communication.`;
  return picture(width, 356, alt, hatch.defs, axis.axes, marker, drawn, legend, bar, title, keys);
}

function table({ at, model, leaves, found, need, room }) {
  const one = at(1);
  const rows = [
    ["one element", size(leaves.reduce((sum, leaf) => sum + leaf, 0))],
    ["prefixes, one device", `${size(one.prefixes)}${binary(one.prefixes)}`],
    ["prefixes, one of n devices", `${size(found.prefixes)}${binary(found.prefixes)}`],
    ["prefixes and elements", `${size(need)} of ${size(room)}`],
    ["received by each device", size(found.received_bytes)],
    ["communication", percent(found.share)],
    ["speed (one device: 1)", num(one.seconds / found.seconds)],
  ];
  const body = rows.map(([title, text]) => html("tr", {}, html("th", { scope: "row" }, title), html("td", {}, text)));
  return html("table", {}, html("caption", { style: "text-align:left;padding:0 0 4px" }, `${model.name}: ${model.state}`), html("tbody", {}, body));
}

/** Describe the limiting resource. */
function verdict({ need, room, devices, found }) {
  if (need > room) {
    const most = 2 ** Math.ceil(Math.log2((need * devices) / room));
    return `The memory is too small: elements and prefixes take ${size(need)} on ${devices > 1 ? "each device" : "the device"}, which has ${size(room)}. With ${most} devices they fit.`;
  }
  if (devices === 1) return "Limited by the bandwidth of memory: every element is read once, every prefix written once, and there is no communication.";
  return {
    memory: "Limited by the bandwidth of memory: reading and writing take longest, so more devices still help.",
    latency: "Limited by latency: waiting for the first byte takes longest, and more devices do not shorten it.",
    transfer: "Limited by the bandwidth of the network: each device receives a total from every other device, so more devices mean more data.",
  }[TIMES.map(([key]) => key).sort((a, b) => found[b] - found[a])[0]];
}

function draw(ui) {
  const now = state(ui);
  const { model, steps, d, devices, found, link, within } = now;
  const wide = Math.max(300, ui.width);
  const talk = devices > 1 ? `Each of ${devices} devices receives ${size(found.received_bytes)} and communicates for ${percent(found.share)} of ${time(found.seconds)}.` : `One device needs ${time(found.seconds)}.`;
  const taken = devices > 1 ? `, read and written twice, and ${time(link.latency)} and ${size(link.bandwidth)}/s ${within ? "within a node" : "between nodes"}` : ", read and written once";
  const summary = `${model.name}, d = ${d}, T = ${whole(steps)}. ${talk} ${verdict(now)} Computed, not measured: from ${size(MEMORY)}/s of memory${taken}.`;
  return { pictures: [drawTimes(wide >= 700 ? wide - 310 : wide, now), table(now)], summary, notes: [] };
}

function controls(ui) {
  choice(ui, "model", { label: "memory", options: Object.entries(MODELS).map(([key, { name }]) => [key, name]) });
  slider(ui, "log_steps", { label: "tape length T", min: 10, max: 26, step: 1, format: power });
  slider(ui, "size", { label: "size d", min: 8, max: 256, step: 8 });
  slider(ui, "log_devices", { label: "devices n", min: 0, max: 8, step: 1, format: (k) => num(2 ** k, 9) });
  choice(ui, "network", { label: "network", options: [["eight", "eight per node"], ["within", "all in one node"], ["across", "one per node"]] });
  slider(ui, "capacity", { label: "memory of a device", min: 8, max: 192, step: 1, format: (x) => `${x} GB` });
  toggle(ui, "united", { label: "one all-gather for all leaves" });
}

const render = (context) =>
  frame(context, {
    title: "Scaling calculator: the estimated cost of a scan over devices",
    names: ["model", "log_steps", "size", "log_devices", "network", "united", "capacity"],
    controls,
    draw,
  });

export default { render };
