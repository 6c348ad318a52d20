// Tasks that are valleys in a plane, and gradient descent on them. Pure functions.
import { range } from "./core.mjs";

const dot = (a, b) => a[0] * b[0] + a[1] * b[1];

/** The initial θ: 1.2 from the first valley and 2.4 along it, in axes tilted by 15 degrees. */
const FIRST = (105 * Math.PI) / 180;
const across = (angle) => [Math.cos(FIRST - angle), Math.sin(FIRST - angle)];
export const START = [0, 1].map((i) => 1.2 * across(0)[i] + 2.4 * across(Math.PI / 2)[i]);
export const RATE = 0.1;

/**
 * Task k has the loss (u·θ - y)² / 2 with |u| = 1: a valley along u·θ = y. Each is rotated by
 * `angle` degrees from the previous one. All meet at 0, except that the last is shifted by `conflict`.
 */
export function valleys(count, angle, conflict) {
  const turn = (angle * Math.PI) / 180;
  return range(count, (k) => ({ u: across(k * turn), y: k === count - 1 ? conflict : 0 }));
}

export const residual = ({ u, y }, theta) => dot(u, theta) - y;
export const loss = (task, theta) => residual(task, theta) ** 2 / 2;

/** The solved fraction of a task: 0 at the start, 1 at its best, negative if it is worse than at the start. */
export const solved = (task, theta) => 1 - loss(task, theta) / loss(task, START);

/** The θ with the least mean loss over tasks, which is nearest to the start if there are several. */
export function best(tasks) {
  const sum = (f) => tasks.reduce((total, task) => total + f(task), 0);
  const [a, b, d] = [sum(({ u }) => u[0] * u[0]), sum(({ u }) => u[0] * u[1]), sum(({ u }) => u[1] * u[1])];
  const [p, q] = [sum(({ u, y }) => y * u[0]), sum(({ u, y }) => y * u[1])];
  const det = a * d - b * b;
  if (det > 1e-9) return [(d * p - b * q) / det, (a * q - b * p) / det];
  const { u } = tasks[0];
  const far = dot(u, START) - sum((task) => task.y * Math.sign(dot(u, task.u))) / tasks.length;
  return START.map((x, i) => x - far * u[i]);
}

/** (I + s F)⁻¹ (θ + s F θ*): an implicit step of size s towards the anchor, which is always stable. */
export function held(theta, anchor, F, s) {
  const [[a, b], [c, d]] = [[1 + s * F[0][0], s * F[0][1]], [s * F[1][0], 1 + s * F[1][1]]];
  const [p, q] = [0, 1].map((i) => theta[i] + s * dot(F[i], anchor));
  const det = a * d - b * c;
  return [(d * p - b * q) / det, (a * q - c * p) / det];
}

/**
 * θ after every step: {theta, task}, where `task` is trained, or null before training and in simultaneous
 * training. A fraction `replay` of each gradient is from a uniform sample of earlier steps; `ewc` is λ
 * of ½ λ Σ F (θ - θ*)², whose F grows by u uᵀ, or its diagonal, at the end of each stage.
 */
export function learn(tasks, { protocol, steps, cycles, replay, ewc, diagonal }) {
  const counts = tasks.map(() => 0);
  const F = [[0, 0], [0, 0]];
  let [theta, anchor] = [START, START];
  const rows = [{ theta, task: null }];
  const slope = (weights) => [0, 1].map((i) => tasks.reduce((g, task, k) => g + weights[k] * residual(task, theta) * task.u[i], 0));
  for (const task of range(cycles * tasks.length, (stage) => stage % tasks.length)) {
    for (let step = 0; step < steps; step++) {
      counts[task] += 1;
      const all = counts.reduce((a, b) => a + b, 0);
      const weights = tasks.map((_, k) => (protocol === "simultaneous" ? 1 / tasks.length : (1 - replay) * (k === task) + (replay * counts[k]) / all));
      const g = slope(weights);
      theta = theta.map((x, i) => x - RATE * g[i]);
      if (protocol === "sequential" && ewc > 0) theta = held(theta, anchor, F, RATE * ewc);
      rows.push({ theta, task: protocol === "simultaneous" ? null : task });
    }
    const { u } = tasks[task];
    for (const i of [0, 1]) for (const j of [0, 1]) F[i][j] += diagonal && i !== j ? 0 : u[i] * u[j];
    anchor = theta;
  }
  return rows;
}

/**
 * For each task after `at` steps: the fraction solved `now`, at the end of its latest `stage`,
 * and the fraction `kept`; null if the task has not been trained or has not gained anything.
 */
export function keeps(tasks, rows, at) {
  return tasks.map((task, k) => {
    const now = solved(task, rows[at].theta);
    let last = at;
    while (last > 0 && rows[last].task !== k) last--;
    const stage = last > 0 ? solved(task, rows[last].theta) : null;
    return { now, stage, kept: stage !== null && stage > 1e-9 ? now / stage : null };
  });
}

/** The segment of the line u·θ = y inside a box, as two points, or null. */
export function clip({ u, y }, { x, y: z }) {
  const along = [-u[1], u[0]];
  const at = [u[0] * y, u[1] * y];
  let [from, to] = [-Infinity, Infinity];
  for (const [i, { low, high }] of [x, z].entries()) {
    if (Math.abs(along[i]) < 1e-12) {
      if (at[i] < low || at[i] > high) return null;
      continue;
    }
    const ends = [(low - at[i]) / along[i], (high - at[i]) / along[i]];
    [from, to] = [Math.max(from, Math.min(...ends)), Math.min(to, Math.max(...ends))];
  }
  return from < to ? [from, to].map((t) => at.map((p, i) => p + t * along[i])) : null;
}
