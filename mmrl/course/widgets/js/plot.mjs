// Axes for small plots.
import { num, svg } from "./core.mjs";

/** About `count` round numbers from `low` to `high`. */
export function ticks(low, high, count = 4) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => span / s <= count + 0.5) ?? 10 * power;
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    out.push(Number((i * step).toPrecision(12)));
  }
  return out;
}

/**
 * The scales and axes of a plot in the box [left, top, right, bottom], in pixels.
 * `x` and `y` are {low, high, label, log, ticks}. Returns {x, y, axes}.
 */
export function plot([left, top, right, bottom], { x, y }) {
  const scale = ({ low, high, log }, from, to) => {
    const f = log ? Math.log10 : (v) => v;
    const span = f(high) - f(low) || 1;
    return (v) => from + ((f(v) - f(low)) / span) * (to - from);
  };
  const [sx, sy] = [scale(x, left, right), scale(y, bottom, top)];
  const axes = svg("g", { "aria-hidden": "true" });
  const lines = (axis, room) => axis.ticks ?? ticks(axis.low, axis.high, Math.max(2, room));
  for (const v of lines(y, (bottom - top) / 40)) {
    axes.append(svg("line", { x1: left, x2: right, y1: sy(v), y2: sy(v), class: "s-line", "stroke-width": 0.6 }));
    axes.append(svg("text", { x: left - 6, y: sy(v) + 4, "text-anchor": "end", class: "dim" }, num(v)));
  }
  for (const v of lines(x, (right - left) / 70)) {
    axes.append(svg("text", { x: sx(v), y: bottom + 16, "text-anchor": "middle", class: "dim" }, num(v)));
  }
  if (y.label) axes.append(svg("text", { x: left - 40, y: top - 8 }, y.label));
  if (x.label) axes.append(svg("text", { x: right, y: bottom + 31, "text-anchor": "end" }, x.label));
  return { x: sx, y: sy, axes };
}

/** A line through points [[x, y], …] in pixels, with a gap at each point that is not finite. */
export function path(points, attributes) {
  let pen = "M";
  let d = "";
  for (const [x, y] of points) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      pen = "M";
      continue;
    }
    d += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return svg("path", { d, class: "f-none", ...attributes });
}
