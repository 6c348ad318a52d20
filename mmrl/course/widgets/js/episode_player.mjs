// One episode, step by step, with pictures from mmrl.course.drawings. For a policy, the player also
// shows the values of the actions, and the memory.
import { clamp, frame, num, picture, player, range, series, slider, svg } from "./core.mjs";
import { dashes, drawMemory, drawOutputs, overTime } from "./playing.mjs";

/** The sum of the rewards up to and including `step`. */
export function total(rewards, step) {
  return rewards.slice(0, step + 1).reduce((sum, r) => sum + r, 0);
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

/** Parse SVG text to a node that fits into its place; null if the text is not SVG. */
function image(text) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (root.tagName !== "svg") return null;
  for (const node of root.querySelectorAll("script, style")) node.remove();
  root.setAttribute("role", "img");
  if (!root.getAttribute("aria-label")) root.setAttribute("aria-label", "one step of the episode");
  return document.importNode(root, true);
}

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
  const alt = `Rewards of ${rewards.length} steps; their sum up to step ${step} is ${num(total(rewards, step))}.`;
  return picture(width, 126, alt, svg("text", { x: 0, y: 12 }, "rewards"), axis.axes, bars, now);
}

function draw(ui) {
  const now = state(ui);
  const { frames, last, step, rewards, policy, notes } = now;
  const seen = frames.length ? image(frames[step]) : null;
  if (frames.length && !seen) notes.push(`The picture of step ${step} is not an SVG.`);
  const pictures = [seen];
  if (policy.outputs) pictures.push(drawOutputs(now));
  if (policy.units) pictures.push(drawMemory(ui, { ...now, steps: frames.length }));
  const summary =
    `Step ${step} of 0 to ${last}: reward ${num(rewards[step] ?? 0)}, return so far ${num(total(rewards, step))}.` +
    (policy.units === 0 ? " It has no memory: its action depends only on the current observation." : "");
  return { pictures: [...pictures, drawRewards(ui, now)].filter(Boolean), summary, notes };
}

const title = (model) => model.get("title") || "Episode player";

function controls(ui) {
  ui.syncs.push(() => {
    ui.root.setAttribute("aria-label", title(ui));
    ui.root.querySelector(".mmrl-title").textContent = title(ui);
  });
  slider(ui, "step", { label: "step t", min: 0, max: () => state(ui).last, step: 1 });
  player(ui, "step", { last: () => state(ui).last, what: "step", pause: 400 });
}

const render = (context) =>
  frame(context, {
    title: title(context.model),
    names: ["frames", "rewards", "policy", "step", "title"],
    controls,
    draw,
  });

export default { render };
