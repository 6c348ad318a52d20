// One episode, step by step: the pictures come from mmrl.course.drawings. Of a policy at play also
// what it reckons of each action, and what its memory holds.
import { clamp, frame, num, picture, player, range, series, slider, svg, unique } from "./core.mjs";
import { plot } from "./plot.mjs";

/** The sum of the rewards up to and including `step`. */
export function total(rewards, step) {
  return rewards.slice(0, step + 1).reduce((sum, r) => sum + r, 0);
}

/** The place of the largest number, the first of equals. */
export function largest(values) {
  return values.indexOf(Math.max(...values));
}

function state(ui) {
  const given = ui.get("frames");
  const frames = Array.isArray(given) ? given : [];
  const notes = frames.length ? [] : ["`frames` is empty: record an episode and use `episode_player`."];
  const fallback = range(Math.max(1, frames.length), () => 0);
  const rewards = series(ui.get("rewards"), { name: "rewards", most: 1024, fallback });
  const last = Math.max(0, frames.length - 1);
  const step = clamp(ui.get("step"), 0, last);
  return { frames, last, step, rewards: rewards.values, policy: ui.get("policy"), notes: [...notes, ...rewards.notes] };
}

/** An SVG text as a node that fits its place; null if it is none. */
function image(text) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (root.tagName !== "svg") return null;
  for (const node of root.querySelectorAll("script, style")) node.remove();
  root.setAttribute("role", "img");
  if (!root.getAttribute("aria-label")) root.setAttribute("aria-label", "one step of the episode");
  return document.importNode(root, true);
}

/** The axes of a picture over the steps of the episode, the same for all. */
function overTime(ui, steps, bottom, y) {
  const width = Math.max(280, ui.width);
  const box = [60, 24, width - 8, bottom];
  return { width, box, axis: plot(box, { x: { low: -0.6, high: steps - 0.4, label: "step t" }, y }) };
}

const dashes = { class: "s-ink", "stroke-width": 1.5, "stroke-dasharray": "3 3" };

function drawRewards(ui, { rewards, step }) {
  const [low, high] = [Math.min(0, ...rewards), Math.max(0, ...rewards)];
  const y = { low, high: high > low ? high : 1, ticks: [...new Set([low, 0, high])] };
  const { width, box, axis } = overTime(ui, rewards.length, 92, y);
  const thick = clamp((0.7 * (box[2] - box[0])) / rewards.length, 1, 18);
  const bars = rewards.map((r, t) => {
    const [a, b] = [axis.y(Math.max(r, 0)), axis.y(Math.min(r, 0))];
    const kind = r < 0 ? "f-orange" : "f-blue";
    return svg("rect", { x: axis.x(t) - thick / 2, y: a, width: thick, height: b - a, class: kind, "fill-opacity": t <= step ? 1 : 0.25 });
  });
  const now = svg("line", { x1: axis.x(step), x2: axis.x(step), y1: 18, y2: box[3], ...dashes });
  const alt = `Rewards of ${rewards.length} steps; ${num(total(rewards, step))} in all up to step ${step}.`;
  return picture(width, 126, alt, svg("text", { x: 0, y: 12 }, "rewards"), axis.axes, bars, now);
}

/** A bar for each action's output, on a scale that all steps share. */
function drawOutputs({ policy, step }) {
  const [names, values, all] = [policy.actions, policy.outputs[step], policy.outputs.flat()];
  const [low, high] = [Math.min(0, ...all), Math.max(0, ...all)];
  const x = (v) => 84 + (130 * (v - low)) / (high - low || 1);
  const chosen = largest(values);
  const rows = values.map((v, a) => {
    const [top, on] = [30 + 30 * a, a === chosen];
    return [
      svg("text", { x: 76, y: top + 14, "text-anchor": "end", "font-weight": on ? 700 : 400 }, names[a]),
      svg("rect", { x: Math.min(x(0), x(v)), y: top, width: Math.max(1, Math.abs(x(v) - x(0))), height: 20, class: on ? "f-blue" : "f-dim", "fill-opacity": on ? 1 : 0.5 }),
      svg("text", { x: 222, y: top + 14, "font-weight": on ? 700 : 400 }, `${v.toFixed(2).replace("-", "−")}${on ? " ◄" : ""}`),
    ];
  });
  const zero = svg("line", { x1: x(0), x2: x(0), y1: 26, y2: 30 + 30 * values.length, class: "s-ink" });
  const told = values.map((v, a) => `${names[a]} ${v.toFixed(2)}`).join(", ");
  const alt = `Step ${step}, ${policy.says}: ${told}. The largest is ${names[chosen]}.`;
  const title = svg("text", { x: 0, y: 12 }, `what it does: the largest of ${policy.says}`);
  return picture(280, 40 + 30 * values.length, alt, title, rows, zero);
}

/** What the memory held up to now: a strip for each unit, dark where there is much in it. */
function drawMemory(ui, { frames, policy, step }) {
  const bottom = 24 + clamp(3 * policy.units, 60, 160);
  const { width, axis } = overTime(ui, frames.length, bottom, { low: policy.units, high: 0, ticks: [] });
  const [id, from, to] = [unique(), axis.x(-0.5), axis.x(frames.length - 0.5)];
  const place = { x: from, y: 24, height: bottom - 24 };
  // A mask takes its ink from the theme, as all shapes do; a picture could not.
  const strip = svg("image", { ...place, width: to - from, href: policy.image, preserveAspectRatio: "none", style: "image-rendering: pixelated" });
  const seen = svg("rect", { ...place, width: axis.x(step + 0.5) - from, class: "f-blue", mask: `url(#${id})` });
  const edge = svg("rect", { ...place, width: to - from, class: "f-none s-line" });
  const now = svg("line", { x1: axis.x(step), x2: axis.x(step), y1: 18, y2: 24, ...dashes });
  const alt = `The memory, ${policy.holds}, over steps 0 to ${step}.`;
  const title = svg("text", { x: 0, y: 12 }, `what it remembers: ${policy.holds}`);
  return picture(width, bottom + 34, alt, title, axis.axes, edge, svg("mask", { id }, strip), seen, now);
}

function draw(ui) {
  const now = state(ui);
  const { frames, last, step, rewards, policy, notes } = now;
  const seen = frames.length ? image(frames[step]) : null;
  if (frames.length && !seen) notes.push(`The picture of step ${step} is not an SVG.`);
  const pictures = [seen];
  if (policy.outputs) pictures.push(drawOutputs(now));
  if (policy.units) pictures.push(drawMemory(ui, now));
  const summary =
    `Step ${step} of 0 to ${last}: reward ${num(rewards[step] ?? 0)}, return so far ${num(total(rewards, step))}.` +
    (policy.units === 0 ? " Nothing is remembered: what it does depends on what is in view alone." : "");
  return { pictures: [...pictures, drawRewards(ui, now)].filter(Boolean), summary, notes };
}

function controls(ui) {
  slider(ui, "step", { label: "step t", min: 0, max: () => state(ui).last, step: 1 });
  player(ui, "step", { last: () => state(ui).last, what: "step", pause: 400 });
}

const render = (context) =>
  frame(context, {
    title: context.model.get("title") || "Episode player",
    names: ["frames", "rewards", "policy", "step", "title"],
    controls,
    draw,
  });

export default { render };
