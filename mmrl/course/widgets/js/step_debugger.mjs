// A compiled program step by step: the current line, its reads and writes, and the live values.
import { choice, clamp, frame, html, picture, player, plural, range, slider, svg } from "./core.mjs";
import { listing } from "./listing.mjs";

/** Events are [line, counters, operation, t, reads] for a run and [line, counters, tensor, t] for a deallocation. */
const isRun = (event) => typeof event[2] === "string";

/**
 * The status of every cell after event `at`, as a Map keyed by "tensor t": "alive", "freed", or, if this
 * event changed it, "new" or "going". Unwritten cells are not in the Map. Also returns the number of
 * live cells of each tensor, now and at most during the run.
 */
export function follow({ tensors, events }, at) {
  const cells = new Map();
  const now = tensors.map(() => 0);
  const most = tensors.map(() => 0);
  let alive = null;
  events.forEach((event, j) => {
    const written = isRun(event) ? tensors.flatMap(({ op }, k) => (op === event[2] ? [k] : [])) : [];
    for (const k of written) {
      now[k] += 1;
      most[k] = Math.max(most[k], now[k]);
      if (j <= at) cells.set(`${k} ${event[3]}`, j === at ? "new" : "alive");
    }
    if (!isRun(event)) {
      now[event[2]] -= 1;
      if (j <= at) cells.set(`${event[2]} ${event[3]}`, j === at ? "going" : "freed");
    }
    if (j === at) alive = [...now];
  });
  return { cells, alive, most };
}

/** The next event of a line after `at`, or its first event if there is none, or `at` if the line never runs. */
export function next(events, at, line) {
  const found = range(events.length, (k) => (at + 1 + k) % events.length).find((j) => events[j][0] === line);
  return found ?? at;
}

/** The last event before `at` that read a cell. */
export function lastReader(events, at, tensor, t) {
  return events.slice(0, at).findLast((event) => isRun(event) && event[4].some(([k, s]) => k === tensor && s === t));
}

function state(ui) {
  const { steps, [ui.get("program")]: program } = ui.get("programs");
  const at = clamp(ui.get("moment"), 0, program.events.length - 1);
  const event = program.events[at];
  return { ...program, steps, at, event, run: isRun(event), ...follow(program, at) };
}

const cellText = ({ name, steps }, t) => (steps[0] === null ? name : `${name.replace(/(\[\d\])?$/, `[${t}]$1`)}`);

/** The layout: a row of cells for each tensor with a t, and one cell for each other tensor. */
function layout(width, { tensors, steps }) {
  const [left, top, high] = [108, 46, 24];
  const cell = Math.min(46, (width - left - 52) / steps);
  const rows = tensors.map((each, k) => ({ ...each, k })).filter((each) => each.steps[0] !== null);
  const order = ["acting", "learning", "other"];
  rows.sort((a, b) => order.indexOf(a.side) - order.indexOf(b.side) || a.k - b.k);
  const single = tensors.map((each, k) => ({ ...each, k })).filter((each) => each.steps[0] === null);
  const boxes = new Map();
  rows.forEach((row, r) => {
    row.y = top + r * high + (row.side === "learning" ? 26 : 0);
    for (const t of row.steps) {
      const wide = Math.min(row.size, steps - t) * cell - 4;
      boxes.set(`${row.k} ${t}`, { x: left + t * cell, y: row.y, width: wide, height: high - 5, label: row.size > 1 ? `${t}:${Math.min(t + row.size, steps)}` : String(t) });
    }
  });
  const learning = rows.find((row) => row.side === "learning").y;
  const under = rows.at(-1).y + high + 26;
  const across = Math.max(2, Math.floor(width / 118));
  const room = width / across;
  single.forEach((each, j) => {
    each.x = (j % across) * room;
    each.y = under + Math.floor(j / across) * high;
    boxes.set(`${each.k} null`, { x: each.x, y: each.y, width: 26, height: high - 5, label: "" });
  });
  return { left, top, cell, rows, single, boxes, learning, under, bottom: single.at(-1).y + high, right: left + cell * steps };
}

const STYLES = {
  new: { class: "f-green s-ink", "stroke-width": 2.5 },
  alive: { class: "f-purple s-purple", "stroke-width": 1 },
  going: { class: "f-none s-ink", "stroke-width": 2 },
  freed: { class: "f-fill s-line", "stroke-width": 1 },
  none: { class: "f-none s-line", "stroke-width": 1, "stroke-dasharray": "2 2" },
};

/** A cell: a dashed frame before it is written, filled while it is alive, crossed out once it is freed. */
function drawCell({ x, y, width, height, label }, status = "none") {
  const gone = status === "freed" || status === "going";
  const cross = `M${x + 3} ${y + 3}L${x + width - 3} ${y + height - 3}M${x + 3} ${y + height - 3}L${x + width - 3} ${y + 3}`;
  const filled = status === "alive" || status === "new";
  return [
    svg("rect", { x, y, width, height, rx: 2, ...STYLES[status] }),
    gone ? svg("path", { d: cross, class: `f-none ${status === "going" ? "s-ink" : "s-dim"}`, "stroke-width": status === "going" ? 2 : 1 }) : null,
    gone ? null : svg("text", { x: x + width / 2, y: y + height / 2 + 4, "text-anchor": "middle", class: filled ? "" : "dim", style: filled ? "fill:var(--paper);font-weight:700" : null }, label),
  ];
}

/** An arrow between the edges of two cells. */
function arrow(from, to) {
  const down = from.y < to.y;
  const [ax, ay] = [from.x + from.width / 2, from.y + (down ? from.height + 1 : -1)];
  const [bx, by] = [to.x + to.width / 2, to.y + (down ? -2 : to.height + 2)];
  const my = by + (ay - by) * 0.3;
  const wing = (dx) => `${bx + dx} ${by - (down ? 7 : -7)}`;
  const d = `M${ax} ${ay}Q${bx} ${my} ${bx} ${by - (down ? 5 : -5)}`;
  return [
    svg("path", { d, class: "f-none s-paper", "stroke-width": 4 }),
    svg("path", { d, class: "f-none s-ink", "stroke-width": 1.6 }),
    svg("path", { d: `M${bx} ${by}L${wing(4)}L${wing(-4)}z`, class: "f-ink" }),
  ];
}

/** The mark before a name: solid blue for acting, dashed orange for learning. */
function side(kind, x, y) {
  if (kind === "acting") return svg("rect", { x, y, width: 5, height: 19, class: "f-blue" });
  if (kind === "learning") return [0, 11].map((d) => svg("rect", { x, y: y + d, width: 5, height: 8, class: "f-orange" }));
  return null;
}

function drawKey(width, y) {
  const items = [["new", "written now"], ["alive", "alive"], ["going", "freed now"], ["freed", "freed"], ["none", "not yet"]];
  let [x, top] = [0, y];
  const nodes = items.map(([status, words]) => {
    const room = 40 + 6.4 * words.length;
    if (x + room > width) [x, top] = [0, top + 22];
    x += room;
    return [drawCell({ x: x - room, y: top, width: 22, height: 16, label: "" }, status), svg("text", { x: x - room + 27, y: top + 12 }, words)];
  });
  return { nodes, bottom: top + 22 };
}

function drawStores(ui, width, now) {
  const { tensors, steps, event, run, cells, alive, most, at } = now;
  const place = layout(width, now);
  const { left, top, cell, rows, single, boxes, right } = place;
  const status = (key) => cells.get(key);
  const written = run ? [...boxes.keys()].filter((key) => status(key) === "new") : [];
  const read = new Set(run ? event[4].map(([k, t]) => `${k} ${t}`) : []);
  const target = written.map((key) => boxes.get(key))[0];
  const names = rows.map(({ k, y, name, side: kind }) => {
    const bold = written.some((key) => key.startsWith(`${k} `)) || (!run && event[2] === k);
    return [
      side(kind, 0, y),
      svg("text", { x: 11, y: y + 14, style: bold ? "font-weight:700" : null }, name),
      svg("text", { x: right + 6, y: y + 14, class: alive[k] ? "" : "dim" }, `${alive[k]} / ${most[k]}`),
    ];
  });
  const others = single.map(({ x, y, name, k }) => svg("text", { x: x + 32, y: y + 14, style: written.includes(`${k} null`) ? "font-weight:700" : null }, name));
  const heads = range(steps, (t) => svg("text", { x: left + (t + 0.5) * cell - 2, y: top - 6, "text-anchor": "middle", class: "dim" }, String(t)));
  const rings = [...read].map((key) => {
    const { x, y, width: wide, height } = boxes.get(key);
    return svg("rect", { x: x - 2, y: y - 2, width: wide + 4, height: height + 4, rx: 4, class: "f-none s-blue", "stroke-width": 2.5 });
  });
  const key = drawKey(width, place.bottom + 10);
  ui.hit = (x, y) => [...boxes].find(([, box]) => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height)?.[0];
  const count = [...cells.values()].filter((each) => each === "alive" || each === "new").length;
  const label = `The tensors of the program as rows of cells, one for each step t, after event ${at + 1}: ${plural(count, "cell")} alive.`;
  return picture(width, key.bottom, label,
    svg("text", { x: 0, y: 13 }, "live values; arrows: reads of the operation"),
    svg("text", { x: 0, y: top - 6, class: "dim" }, "acting"), svg("text", { x: 0, y: place.learning - 7, class: "dim" }, "learning"), svg("text", { x: left - 22, y: top - 6, class: "dim" }, "t ="), heads,
    svg("text", { x: right + 4, y: top - 20, class: "dim" }, "now /"), svg("text", { x: right + 4, y: top - 6, class: "dim" }, "most"),
    names, svg("text", { x: 0, y: place.under - 8, class: "dim" }, "without a t:"), others,
    [...boxes].map(([key, box]) => drawCell(box, status(key))),
    rings, target ? [...read].map((key) => arrow(boxes.get(key), target)) : null, key.nodes);
}

/** Format x[1], x[2] and x[3] as x[1:4]. */
function readsText({ tensors, event }) {
  const groups = new Map();
  for (const [k, t] of event[4]) groups.set(k, [...(groups.get(k) ?? []), t]);
  return [...groups].map(([k, ts]) => (ts.length > 1 ? cellText(tensors[k], `${ts[0]}:${ts.at(-1) + 1}`) : cellText(tensors[k], ts[0]))).join(", ");
}

function tell(now) {
  const { tensors, events, event, at, run, cells } = now;
  const [line, counters, what, t] = event;
  const where = Object.entries(counters).map(([name, count]) => `${name} = ${count}`).join(", ");
  const count = [...cells.values()].filter((each) => each === "alive" || each === "new").length;
  const head = `Event ${at + 1} of ${events.length}, line ${line + 1}${where ? ` with ${where}` : ""}:`;
  const tail = `${plural(count, "cell")} ${count === 1 ? "is" : "are"} alive.`;
  if (!run) {
    const reader = lastReader(events, at, what, t);
    const name = cellText(tensors[what], t);
    const by = reader && `${reader[2]}${reader[3] === null ? "" : `[${reader[3]}]`}`;
    return `${head} ${name} is freed, because ${by ? `${by} was the last to read it` : "it has no reader"}. ${tail}`;
  }
  const step = t === null ? "" : `[${t}]`;
  const behind = "t" in counters && t !== null && counters.t !== t ? ` It is ${counters.t - t} behind the counter of its loop.` : "";
  return `${head} ${what}${step} runs and reads ${event[4].length ? readsText(now) : "nothing"}.${behind} ${tail}`;
}

function draw(ui) {
  const now = state(ui);
  const sides = Object.fromEntries(now.tensors.map(({ op, side: kind }) => [op, kind]));
  const wide = Math.max(300, ui.width);
  const beside = wide >= 720 ? 320 : wide;
  const stores = drawStores(ui, wide >= 720 ? wide - beside - 14 : wide, now);
  const go = (line) => ui.set("moment", next(now.events, now.at, line));
  const height = wide >= 720 ? 400 : 200;
  const legend = html("div", { style: "color:var(--dim);font-size:12px;margin-top:4px" }, "edge solid: acting; double: learning; dotted: memory is freed");
  const code = html("div", { style: `width:${beside}px;min-width:0` },
    html("div", { style: "font-size:12px;margin-bottom:4px" }, "the program; click a line to jump to its next run"),
    listing(now.code, { at: now.event[0], height, sides, go }), legend);
  return { pictures: [stores, code], summary: tell(now) };
}

function controls(ui) {
  const last = () => state(ui).events.length - 1;
  choice(ui, "program", { label: "program", options: [["n_step", "3-step returns"], ["monte_carlo", "Monte-Carlo"], ["tiles", "3 steps, in tiles of 4"]] });
  player(ui, "moment", { last, what: "event", pause: 500 });
  slider(ui, "moment", { label: "event", min: 0, max: last, step: 1, format: (j) => String(j + 1) });
  ui.stage.addEventListener("pointerdown", (event) => {
    const box = ui.stage.querySelector("svg").getBoundingClientRect();
    const [k, t] = (ui.hit?.(event.clientX - box.left, event.clientY - box.top) ?? "").split(" ");
    if (!t) return;
    const { tensors, events } = state(ui);
    ui.set("moment", events.findIndex((each) => each[2] === tensors[k].op && String(each[3]) === t));
  });
}

const render = (context) =>
  frame(context, {
    title: "Step debugger: a program and its memory, event by event",
    names: ["program", "moment", "programs"],
    controls,
    draw,
  });

export default { render };
