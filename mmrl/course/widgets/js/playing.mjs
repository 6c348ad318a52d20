// The outputs of a policy for each action, and the contents of its memory, up to the visible step.
import { clamp, picture, svg, unique } from "./core.mjs";
import { plot } from "./plot.mjs";

/** The index of the largest number; in a tie, the first one. */
export function largest(values) {
  return values.indexOf(Math.max(...values));
}

/** Axes that all pictures over the steps of an episode share. */
export function overTime(ui, steps, bottom, y) {
  const width = Math.max(280, ui.width);
  const box = [60, 24, width - 8, bottom];
  return { width, box, axis: plot(box, { x: { low: -0.6, high: steps - 0.4, label: "step t" }, y }) };
}

export const dashes = { class: "s-ink", "stroke-width": 1.5, "stroke-dasharray": "3 3" };

/** A bar for the output of each action, on a scale that all steps share. */
export function drawOutputs({ policy, step }) {
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
  const title = svg("text", { x: 0, y: 12 }, `its action: the largest ${policy.says}`);
  return picture(280, 40 + 30 * values.length, alt, title, rows, zero);
}

/** The memory up to the visible step: a strip for each unit, where dark is a large value. */
export function drawMemory(ui, { steps, policy, step }) {
  const bottom = 24 + clamp(3 * policy.units, 60, 160);
  const { width, axis } = overTime(ui, steps, bottom, { low: policy.units, high: 0, ticks: [] });
  const [id, from, to] = [unique(), axis.x(-0.5), axis.x(steps - 0.5)];
  const place = { x: from, y: 24, height: bottom - 24 };
  // A mask is filled with the theme's color, as all shapes are, which a picture would not be.
  const strip = svg("image", { ...place, width: to - from, href: policy.image, preserveAspectRatio: "none", style: "image-rendering: pixelated" });
  const seen = svg("rect", { ...place, width: axis.x(step + 0.5) - from, class: "f-blue", mask: `url(#${id})` });
  const edge = svg("rect", { ...place, width: to - from, class: "f-none s-line" });
  const now = svg("line", { x1: axis.x(step), x2: axis.x(step), y1: 18, y2: 24, ...dashes });
  const alt = `The memory, ${policy.holds}, over steps 0 to ${step}.`;
  const title = svg("text", { x: 0, y: 12 }, `its memory: ${policy.holds}`);
  return picture(width, bottom + 34, alt, title, axis.axes, edge, svg("mask", { id }, strip), seen, now);
}
