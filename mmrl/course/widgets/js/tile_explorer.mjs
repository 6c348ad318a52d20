// A learner that processes tiles of m steps, with fewer launches and more memory.
import { choice, clamp, frame, num, picture, plural, range, slider, svg } from "./core.mjs";
import { path, plot } from "./plot.mjs";

/**
 * One episode of T steps. Tile s learns from x[s:s + m] and from windows of n rewards, which are
 * infinite for Monte-Carlo returns. It is launched at step `at`, when the last of these rewards
 * arrives, and then frees its observations. `alive[t]` is the number of observations alive at step t.
 */
export function tiles(T, n, m) {
  const found = range(Math.ceil(T / m), (i) => ({ from: i * m, to: Math.min((i + 1) * m, T), at: Math.min(i * m + m + n - 1, T) - 1 }));
  const alive = range(T, (t) => t + 1 - found.filter(({ at }) => at < t).reduce((sum, { from, to }) => sum + to - from, 0));
  return { tiles: found, alive, launches: found.length, peak: Math.max(...alive) };
}

/** The costs of useful tile sizes: for each number of launches, the size with the least memory. */
export function frontier(T, n) {
  const all = range(T, (i) => ({ m: i + 1, ...tiles(T, n, i + 1) }));
  return all.filter(({ launches }, i) => !i || all[i - 1].launches !== launches);
}

function state(ui) {
  const [returns, T] = ["returns", "T"].map(ui.get);
  const mc = returns === "monte_carlo";
  const n = clamp(ui.get("n"), 1, T);
  const m = clamp(ui.get("m"), 1, T);
  return { mc, n, m, T, ...tiles(T, mc ? Infinity : n, m) };
}

const LEFT = 46;
const RIM = "font-weight:700;paint-order:stroke;stroke:var(--paper);stroke-width:4px";

function drawFrontier(width, { mc, n, m, T, launches, peak }) {
  const area = [LEFT, 48, width - 14, 270];
  const powers = range(7, (i) => 2 ** i).filter((x) => x <= T);
  const axis = plot(area, {
    x: { low: 0.85, high: T * 1.15, log: true, ticks: powers, label: "learner launches per episode, T / m" },
    y: { low: 0, high: T * 1.08, ticks: [0, T / 4, T / 2, (3 * T) / 4, T].map(Math.round) },
  });
  const place = (each) => [axis.x(each.launches), axis.y(each.peak)];
  const line = (window) => frontier(T, window).map(place);
  const dots = frontier(T, n);
  const [cx, cy] = [axis.x(launches), axis.y(peak)];
  const corner = [axis.x(1), axis.y(T)];
  const label = `m = ${m}: ${peak} alive`;
  const left = cx > width - 14 - 7.4 * label.length;
  return picture(width, 306, `Peak of observations alive over learner launches, for all tile sizes; chosen: ${launches} launches, peak ${peak}.`,
    svg("text", { x: 0, y: 12 }, "peak of observations alive, for every useful tile size m"),
    svg("text", { x: 0, y: 28, class: "dim" }, "left: few launches; bottom: little memory"),
    axis.axes,
    !mc && n === 1 ? null : path(line(1), { class: "f-none s-dim", "stroke-width": 1.2, "stroke-dasharray": "3 3" }),
    !mc && n === 1 ? null : svg("text", { x: axis.x(T), y: axis.y(1) - 6, class: "dim", "text-anchor": "end" }, "n = 1"),
    path(line(Infinity), { class: "f-none s-orange", "stroke-width": 2, "stroke-dasharray": "8 4" }),
    svg("text", { x: axis.x(T), y: axis.y(T) - 6, "text-anchor": "end" }, "Monte-Carlo: all, for every m"),
    svg("rect", { x: corner[0] - 6, y: corner[1] - 6, width: 12, height: 12, class: "f-orange" }),
    mc ? null : path(line(n), { class: "f-none s-blue", "stroke-width": 2 }),
    mc ? null : dots.map((each) => svg("circle", { cx: place(each)[0], cy: place(each)[1], r: 3, class: "f-blue" })),
    svg("circle", { cx, cy, r: 7.5, class: "f-paper s-ink", "stroke-width": 3 }),
    svg("text", { x: left ? cx - 12 : cx + 12, y: cy + (peak > 0.85 * T ? 22 : -10), "text-anchor": left ? "end" : "start", style: RIM }, label));
}

function drawRun(width, { T, tiles: found, alive, peak }) {
  const stacks = found.map(({ at }, i) => found.slice(0, i).filter((other) => other.at === at).length);
  const rows = Math.min(Math.max(...stacks) + 1, 6);
  const top = 48 + 11 * rows;
  const area = [LEFT, top, width - 14, 238];
  const axis = plot(area, { x: { low: 0, high: T }, y: { low: 0, high: T * 1.08, ticks: [0, T / 2, T].map(Math.round) } });
  const points = alive.flatMap((count, t) => [[axis.x(t), axis.y(count)], [axis.x(t + 1), axis.y(count)]]);
  const under = [[axis.x(0), axis.y(0)], ...points, [axis.x(T), axis.y(0)]];
  const bands = found.map(({ from, to }, i) => svg("rect", { x: axis.x(from), y: area[3] + 22, width: axis.x(to) - axis.x(from), height: 10, class: i % 2 ? "f-none s-orange" : "f-orange s-orange", "stroke-width": 1 }));
  const size = clamp((area[2] - area[0]) / T / 2, 2.5, 5);
  const launches = found.map(({ at }, i) => {
    const [x, y] = [axis.x(at + 1), top - 6 - 11 * Math.min(stacks[i], rows - 1)];
    return svg("path", { d: `M${x} ${y}l${-size} ${-9}h${2 * size}z`, class: "f-orange" });
  });
  const most = alive.indexOf(peak);
  return picture(width, 306, `Observations alive at each of ${T} steps, at most ${peak}, and ${plural(found.length, "launch", "launches")} of the learner.`,
    svg("text", { x: 0, y: 12 }, "observations alive during an episode"),
    svg("text", { x: 0, y: 28, class: "dim" }, "triangles: launches of the learner; below: steps of the tile"),
    axis.axes,
    svg("text", { x: LEFT - 6, y: area[3] + 31, "text-anchor": "end", class: "dim" }, "tiles"),
    path(under, { class: "f-purple", opacity: 0.25 }),
    path(points, { class: "f-none s-purple", "stroke-width": 2 }),
    bands, launches,
    svg("text", { x: area[2], y: area[3] + 50, "text-anchor": "end" }, "step t of the episode"),
    svg("text", { x: Math.min(axis.x(most), width - 80), y: axis.y(peak) - 6, style: RIM }, `peak ${peak}`));
}

function tell({ mc, n, m, T, launches, peak }) {
  const cost = `Tiles of ${plural(m, "step")}: ${plural(launches, "learner launch", "learner launches")} for ${T} steps, and at most ${plural(peak, "observation")} alive`;
  if (mc) return `${cost}. Monte-Carlo returns need the last reward, so every tile waits for the end of the episode: no m saves memory, and one launch for all steps, m = T, is best.`;
  const formula = m + n - 1 > T ? `min(T, m + n − 1) = min(${T}, ${m + n - 1})` : `m + n − 1 = ${m} + ${n} − 1`;
  const spare = Math.ceil(T / launches);
  const waste = spare < m ? ` Tiles of ${spare} would need equally few launches and less memory.` : "";
  const twice = launches > 1 ? `Tiles twice as long need ${plural(Math.ceil(T / (2 * m)), "launch", "launches")} and ${Math.min(T, 2 * m + n - 1)} observations.` : "This is the whole episode in one launch.";
  return `${cost}: ${formula}, ${num((100 * peak) / T)} % of an episode. ${twice}${waste}`;
}

function draw(ui) {
  const now = state(ui);
  const wide = Math.max(300, ui.width);
  const half = wide >= 720 ? Math.floor((wide - 12) / 2) : wide;
  return { pictures: [drawFrontier(half, now), drawRun(half, now)], summary: tell(now) };
}

function controls(ui) {
  const steps = () => ui.get("T");
  choice(ui, "returns", { label: "returns", options: [["n_step", "n steps"], ["monte_carlo", "Monte-Carlo"]] });
  slider(ui, "m", { label: "tile m (steps)", min: 1, max: steps, step: 1 });
  slider(ui, "n", { label: "window n (steps)", min: 1, max: steps, step: 1, when: () => ui.get("returns") === "n_step" });
  slider(ui, "T", { label: "episode T (steps)", min: 8, max: 64, step: 1 });
}

const render = (context) =>
  frame(context, {
    title: "Tile explorer: launches versus memory",
    names: ["returns", "n", "m", "T"],
    controls,
    draw,
  });

export default { render };
