// A dependence graph after each pass of the compiler: operations, their reads, and the points.
import { choice, clamp, frame, html, picture, plural, range, slider, svg } from "./core.mjs";

const SPUR = 14;
const ROW = 54;
const HIGH = 32;

/**
 * The layer of each operation, from top to bottom: below all operations that it reads, except
 * through loop edges. An operation with at most as many inputs as readers is placed as low as possible.
 */
export function layers(ops, edges) {
  const layer = Object.fromEntries(ops.map(({ name }) => [name, 0]));
  const ahead = edges.filter(({ loop }) => !loop);
  for (let changed = true, k = 0; changed && k <= ops.length; k++) {
    changed = false;
    for (const { sink, source } of ahead) {
      if (layer[sink] > layer[source]) continue;
      layer[sink] = layer[source] + 1;
      changed = true;
    }
  }
  const low = [...ops].sort((a, b) => layer[b.name] - layer[a.name]);
  for (const { name } of low) {
    const out = ahead.filter(({ source }) => source === name).map(({ sink }) => layer[sink]);
    const reads = ahead.filter(({ sink }) => sink === name).length;
    if (out.length && reads <= out.length) layer[name] = Math.min(...out) - 1;
  }
  return layer;
}

/** Merge edges between the same two operations; each points from the upper to the lower one. */
function bundle(edges, layer) {
  const found = new Map();
  for (const edge of edges) {
    const { sink, source, loop } = edge;
    const key = `${sink} ${source} ${loop}`;
    const up = layer[sink] < layer[source];
    if (!found.has(key)) found.set(key, { sink, source, loop, upper: up ? sink : source, lower: up ? source : sink, labels: [] });
    if (!edge.same) found.get(key).labels.push(edge.phi);
  }
  return [...found.values()].filter(({ sink, source }) => sink !== source);
}

/** Rows of nodes, with unnamed nodes for edges that pass through, ordered to reduce crossings. */
function arrange(ops, edges, layer) {
  const rows = range(Math.max(...Object.values(layer)) + 1, () => []);
  const nodes = new Map();
  const add = (name, at, op) => {
    const node = { name, at, op, next: [], x: rows[at].length };
    nodes.set(name, node);
    rows[at].push(node);
    return node;
  };
  for (const op of ops) add(op.name, layer[op.name], op);
  edges.forEach((edge, k) => {
    const inner = range(Math.max(0, layer[edge.lower] - layer[edge.upper] - 1), (j) => add(`${k} ${j}`, layer[edge.upper] + 1 + j));
    edge.chain = [nodes.get(edge.upper), ...inner, nodes.get(edge.lower)];
    edge.chain.slice(1).forEach((node, j) => {
      node.next.push(edge.chain[j]);
      edge.chain[j].next.push(node);
    });
  });
  for (const sweep of range(12)) {
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      const middle = ({ next, x, at }) => {
        const near = next.filter((other) => (sweep % 2 ? other.at > at : other.at < at));
        return near.length ? near.reduce((sum, other) => sum + other.x, 0) / near.length : x;
      };
      const order = row.map((node) => [middle(node), node]).sort((a, b) => a[0] - b[0]).map(([, node]) => node);
      row.splice(0, row.length, ...order);
      row.forEach((node, j) => (node.x = j + (10 - row.length) / 2));
    }
  }
  return rows;
}

/** The positions in a picture that is `width` pixels wide: {rows, edges, wide, height}. */
export function layout({ ops, edges: all }, width) {
  const layer = layers(ops, all);
  const edges = bundle(all, layer);
  const rows = arrange(ops, edges, layer);
  const fits = rows.map((row) => {
    const named = row.filter(({ op }) => op).length;
    return (width - SPUR * (row.length - named)) / Math.max(1, named) - 8;
  });
  const wide = clamp(Math.min(...fits), 40, 112);
  const room = ({ op }) => (op ? wide + 8 : SPUR);
  const gap = (row, j) => (room(row[j - 1]) + room(row[j])) / 2;
  for (const row of rows) row.forEach((node) => (node.x = (node.x * width) / 10));
  for (const _ of range(24)) {
    for (const row of rows) {
      const aim = row.map((node) => (node.next.length ? node.next.reduce((sum, { x }) => sum + x, 0) / node.next.length : node.x));
      const [left, right] = [[...aim], [...aim]];
      for (let j = 1; j < row.length; j++) left[j] = Math.max(left[j], left[j - 1] + gap(row, j));
      for (let j = row.length - 2; j >= 0; j--) right[j] = Math.min(right[j], right[j + 1] - gap(row, j + 1));
      row.forEach((node, j) => (node.x = (left[j] + right[j]) / 2));
      let [low, total] = [0, row.reduce((sum, node) => sum + room(node), 0)];
      row.forEach((node, j) => {
        const [from, to] = [low + room(node) / 2, width - total + room(node) / 2];
        node.x = clamp(node.x, Math.max(from, j ? row[j - 1].x + gap(row, j) : 0), Math.max(from, to));
        [low, total] = [low + room(node), total - room(node)];
      });
    }
  }
  return { rows, edges, wide, height: rows.length * ROW };
}

/** The change of each operation since the previous stage: "new", "changed" or "". */
export function marks(now, before) {
  const sign = ({ ops, edges }, name) => {
    const { kind, domain } = ops.find((op) => op.name === name);
    return JSON.stringify([kind, domain, edges.filter(({ sink }) => sink === name).map(({ source, phi, psi }) => [source, phi, psi])]);
  };
  const known = new Set(before?.ops.map(({ name }) => name));
  return Object.fromEntries(now.ops.map(({ name }) => {
    if (!before) return [name, ""];
    if (!known.has(name)) return [name, "new"];
    return [name, sign(now, name) === sign(before, name) ? "" : "changed"];
  }));
}

/** Convert a stage, which is sent as arrays, to objects. */
export const unpack = ({ name, words, ops, edges }) => ({
  name, words,
  ops: ops.map(([op, kind, domain, side]) => ({ name: op, kind, domain, side })),
  edges: edges.map(([sink, source, output, phi, psi, same, loop]) => ({ sink, source, output, phi, psi, same, loop })),
});

function state(ui) {
  const { before, ...routes } = ui.get("graphs")[ui.get("returns")];
  const all = [...before, ...routes[ui.get("route")]].map(unpack);
  const at = clamp(ui.get("stage"), 0, all.length - 1);
  const [now, last] = [all[at], all[at - 1]];
  const layer = layers(now.ops, now.edges);
  const order = [...now.ops].sort((a, b) => layer[a.name] - layer[b.name]);
  const chosen = order[clamp(ui.get("op"), 0, order.length - 1)];
  return { ...now, at, last, order, chosen, marks: marks(now, last), sizes: all.map(({ ops }) => ops.length) };
}

/** The x coordinate at which each edge meets an operation. */
function ports(node, edges, wide) {
  const below = edges.filter((edge) => edge.chain[0] === node);
  const above = edges.filter((edge) => edge.chain.at(-1) === node);
  const place = (list, other) => {
    const sorted = [...list].sort((a, b) => other(a).x - other(b).x);
    const step = Math.min(20, (wide - 20) / Math.max(1, sorted.length));
    return new Map(sorted.map((edge, k) => [edge, node.x + (k - (sorted.length - 1) / 2) * step]));
  };
  return { below: place(below, (edge) => edge.chain[1]), above: place(above, (edge) => edge.chain.at(-2)) };
}

function drawEdge(edge, place, chosen, said, width) {
  const { chain, loop, sink, source, labels, upper } = edge;
  const top = ({ at }) => 24 + at * ROW;
  const on = sink === chosen || source === chosen;
  const start = [place.get(chain[0]).below.get(edge), top(chain[0]) + HIGH];
  const end = [place.get(chain.at(-1)).above.get(edge), top(chain.at(-1))];
  let d = `M${start[0].toFixed(1)} ${start[1]}`;
  let from = start;
  const curve = ([x, y]) => {
    const middle = (from[1] + y) / 2;
    d += `C${from[0].toFixed(1)} ${middle} ${x.toFixed(1)} ${middle} ${x.toFixed(1)} ${y}`;
    from = [x, y];
  };
  for (const node of chain.slice(1, -1)) {
    curve([node.x, top(node)]);
    d += `L${node.x.toFixed(1)} ${top(node) + HIGH}`;
    from = [node.x, top(node) + HIGH];
  }
  curve(end);
  // The arrowhead is at the reader: at the lower end, or at the upper end of a loop edge.
  const up = upper === sink;
  const [x, y] = up ? start : end;
  const wing = up ? `l-4 7h8z` : `l-4 -7h8z`;
  const color = on ? "ink" : "dim";
  const left = x < chain[up ? 0 : chain.length - 1].x - 1;
  const label = [...new Set(labels)].join("; ");
  // The second label at an operation is placed above the first.
  const higher = label && !up ? (said.set(sink, (said.get(sink) ?? -1) + 1), said.get(sink) % 2) : 0;
  const long = (on ? 6.2 : 5.6) * (label.length + 2);
  const begin = clamp(left ? x - 6 - long : x + 6, 0, width - long);
  const base = up ? y + 13 : y - 4 - 11 * higher;
  return {
    lines: [
      svg("path", { d, class: `f-none s-${color}`, "stroke-width": on ? 2.2 : 1.1, "stroke-dasharray": loop ? "5 3" : null }),
      svg("path", { d: `M${x} ${y}${wing}`, class: `f-${color}` }),
    ],
    // A background behind the words, so that edges do not cross them.
    back: label ? svg("rect", { x: begin, y: base - 9, width: long, height: 12, class: "f-paper" }) : null,
    text: label ? svg("text", { x: begin + long / 2, y: base, "text-anchor": "middle", class: "small", style: `font-weight:${on ? 700 : 400}` }, `[${label}]`) : null,
  };
}

/** An operation: square with a solid blue bar (acting), or round with a dashed orange bar (learning). */
function drawOp({ x, at, op }, wide, mark, chosen) {
  const [left, y] = [x - wide / 2, 24 + at * ROW];
  const round = op.side === "learning" ? 10 : op.side === "acting" ? 0 : 4;
  const edge = mark ? "s-green" : op.side === "acting" ? "s-blue" : op.side === "learning" ? "s-orange" : "s-dim";
  const bars = { acting: [[0, HIGH]], learning: [[3, 11], [18, 11]], other: [] }[op.side];
  const most = Math.floor((wide - 8) / 5.3);
  const points = op.domain.replace(/: t % (\d+) == 0.*\]/, " by $1]").replace(/: T >= t \+ (\d+)\]/, (_, far) => ` < T - ${far - 1}]`);
  const marked = mark ? `${mark} ${points}` : points; // if the text does not fit, only the green frame marks the operation
  const short = (text) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  return svg("g", {},
    svg("title", {}, `${op.name}${op.domain}: ${op.kind}`),
    svg("rect", { x: left, y, width: wide, height: HIGH, rx: round, class: `${chosen ? "f-fill" : "f-paper"} ${edge}`, "stroke-width": mark ? 2.6 : 1.4 }),
    chosen ? svg("rect", { x: left - 3, y: y - 3, width: wide + 6, height: HIGH + 6, rx: round + 2, class: "f-none s-ink", "stroke-width": 1.6 }) : null,
    bars.map(([d, height]) => svg("rect", { x: left, y: y + d, width: 5, height, class: op.side === "acting" ? "f-blue" : "f-orange" })),
    svg("text", { x: x + 2, y: y + 14, "text-anchor": "middle", style: `font-size:${7.2 * op.name.length < wide - 10 ? 11 : 10}px;font-weight:${chosen || mark ? 700 : 400}` }, short(op.name)),
    svg("text", { x: x + 2, y: y + 26, "text-anchor": "middle", class: mark ? "small" : "small dim" }, short(marked.length > most ? points : marked)));
}

function drawGraph(ui, width, now) {
  const { rows, edges, wide, height } = layout(now, width);
  const nodes = rows.flat().filter(({ op }) => op);
  const place = new Map(nodes.map((node) => [node, ports(node, edges, wide)]));
  const said = new Map();
  const drawn = edges.map((edge) => drawEdge(edge, place, now.chosen.name, said, width));
  ui.hit = (x, y) => nodes.find((node) => Math.abs(x - node.x) <= wide / 2 && y >= 24 + node.at * ROW && y <= 24 + node.at * ROW + HIGH)?.op;
  const label = `The dependence graph after ${now.name}: ${plural(now.ops.length, "operation")} and ${plural(now.edges.length, "edge")}.`;
  return picture(width, height + 24, label,
    svg("text", { x: 0, y: 12, class: "small dim" }, "arrows lead from an operation to its readers"),
    drawn.map(({ lines }) => lines), drawn.map(({ back }) => back), nodes.map((node) => drawOp(node, wide, now.marks[node.op.name], node.op === now.chosen)), drawn.map(({ text }) => text));
}

const TITLES = { program: "the program, with gradients", lift: "lift", tile: "tile", vectorize: "vectorize", fuse: "fuse" };

function drawKey(width) {
  const item = (y, shape, text) => [shape, svg("text", { x: 44, y: y + 12, class: "small" }, text)];
  const box = (y, side) => svg("g", { transform: `translate(18 ${y}) scale(0.53) translate(0 -24)` }, drawOp({ x: 0, at: 0, op: { name: "", domain: "", kind: side, side } }, 56, "", false));
  const line = (y, dash) => svg("path", { d: `M2 ${y + 9}h30`, class: "f-none s-ink", "stroke-width": 1.4, "stroke-dasharray": dash });
  const green = (y) => svg("rect", { x: 3, y: y + 2, width: 28, height: 14, rx: 3, class: "f-none s-green", "stroke-width": 2.6 });
  return picture(width, 124, "Key to the symbols.",
    item(0, box(0, "acting"), "acting: square, solid blue bar"), item(20, box(20, "learning"), "learning: round, dashed orange bar"),
    item(40, green(40), "new or changed by this pass"), item(60, line(60), "[φ] if a different point is read"),
    item(80, line(80, "5 3"), "another step of a loop"), item(100, box(100, "other"), "belongs to both"));
}

const indexed = ({ output, phi, psi }, name) => `${name}${phi ? `[${phi}]` : ""}${output ? ` (output ${output})` : ""}${psi ? ` if ${psi}` : ""}`;

function panel(width, now) {
  const { name, words, chosen, edges, last, ops, at } = now;
  const gone = last ? last.ops.map((op) => op.name).filter((op) => !ops.some((other) => other.name === op)) : [];
  const lines = at ? [...words, ...(gone.length ? [`gone: ${gone.join(", ")}`] : [])] : ["as written, with the operations that reverse-mode differentiation adds"];
  const reads = edges.filter(({ sink }) => sink === chosen.name).map((edge) => indexed(edge, edge.source));
  const readers = edges.filter(({ source }) => source === chosen.name).map((edge) => `${edge.sink} reads ${indexed(edge, edge.source)}`);
  const list = (title, rows) => [
    html("div", { style: "margin-top:6px;font-weight:700" }, title),
    html("ul", { style: "margin:2px 0 0;padding-left:18px" }, rows.map((text) => html("li", { style: "overflow-wrap:anywhere" }, text))),
  ];
  return html("div", { style: `width:${width}px;min-width:0;font-size:12.5px;line-height:1.4` },
    list(TITLES[name] ?? name, lines),
    list(`${chosen.name}${chosen.domain} reads`, reads.length ? reads : ["nothing"]),
    list("and is read by", readers.length ? readers : ["none: it is a result"]),
    html("div", { style: "margin-top:10px" }, drawKey(width)));
}

function tell(now) {
  const { name, at, ops, last, marks: found, sizes, chosen, edges } = now;
  const count = (kind) => Object.values(found).filter((mark) => mark === kind).length;
  const loops = edges.filter(({ loop }) => loop).length;
  const gone = last ? last.ops.filter((op) => !ops.some((other) => other.name === op.name)).length : 0;
  const change = at ? `${count("new")} new, ${count("changed")} changed, ${gone} gone. ` : "";
  return `After ${TITLES[name] ?? name}: ${plural(ops.length, "operation")}, ${plural(edges.length, "edge")}, of which ${loops} ${loops === 1 ? "leads" : "lead"} to another step of a loop. ${change}Operations by stage: ${sizes.join(", ")}. Chosen: ${chosen.name}, of kind ${chosen.kind}.`;
}

function draw(ui) {
  const now = state(ui);
  const wide = Math.max(300, ui.width);
  const side = wide >= 720 ? 280 : wide;
  return { pictures: [drawGraph(ui, wide >= 720 ? wide - side - 20 : wide, now), panel(side, now)], summary: tell(now) };
}

function controls(ui) {
  choice(ui, "returns", { label: "returns", options: [["recursive", "r[t] + γ G[t + 1]"], ["window", "3 steps, r[t:t + 3]"]] });
  choice(ui, "route", { label: "third pass", options: [["tile", "tile by 4"], ["vectorize", "vectorize"]] });
  choice(ui, "stage", { label: "stage", options: [[0, "program"], [1, "lift"], [2, "tile or vectorize"], [3, "fuse"]] });
  slider(ui, "op", { label: "operation", min: 0, max: () => state(ui).ops.length - 1, step: 1, format: (k) => `${k + 1} of ${state(ui).ops.length}` });
  ui.stage.addEventListener("pointerdown", (event) => {
    const box = ui.stage.querySelector("svg").getBoundingClientRect();
    const op = ui.hit?.(event.clientX - box.left, event.clientY - box.top);
    if (op) ui.set("op", state(ui).order.findIndex(({ name }) => name === op.name));
  });
}

const render = (context) =>
  frame(context, {
    title: "Graph evolution: the effect of each pass on a program",
    names: ["returns", "route", "stage", "op", "graphs"],
    controls,
    draw,
  });

export default { render };
