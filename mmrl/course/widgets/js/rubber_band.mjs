// A Gaussian policy that climbs a hill while a rubber band ties it to θ_prox. Pure functions.
import { range } from "./core.mjs";
import { clipped, decayOf, penalized, trail } from "./proximal.mjs";

/** Fixed normal samples: Box and Muller over x ← 48271 x mod (2³¹ - 1). */
export function normals(count, seed = 2022) {
  let x = seed;
  const uniform = () => (x = (48271 * x) % 2147483647) / 2147483647;
  const draws = new Float64Array(count + 1);
  for (let i = 0; i < count; i += 2) {
    const [size, turn] = [Math.sqrt(-2 * Math.log(uniform())), 2 * Math.PI * uniform()];
    draws[i] = size * Math.cos(turn);
    draws[i + 1] = size * Math.sin(turn);
  }
  return draws.subarray(0, count);
}

/**
 * The hill: a policy N(θ, σ²) samples an action a in the plane and gets -Σ h a² / 2 + ν z. Its critic
 * is perfect.
 */
export const HILL = { curvature: [0.25, 1.2], sigma: 0.5, noise: 1.0, start: [-3, 1.6], minibatches: 8 };

const MOMENTS = { beta1: 0.9, beta2: 0.999 };

function ascend(optimizer, rate) {
  if (optimizer === "sgd") return (gradient) => gradient.map((g) => rate * g);
  const [m, v] = [[0, 0], [0, 0]];
  const { beta1, beta2 } = MOMENTS;
  let t = 0;
  return (gradient) => {
    t += 1;
    return gradient.map((g, i) => {
      m[i] += (1 - beta1) * (g - m[i]);
      v[i] += (1 - beta2) * (g * g - v[i]);
      return (rate * (m[i] / (1 - beta1 ** t))) / (Math.sqrt(v[i] / (1 - beta2 ** t)) + 1e-8);
    });
  };
}

/** The gradient of the mean objective over the actions `batch`, sampled from N(behavior, σ²). */
function slope(theta, batch, { behavior, proximal, band, epsilon, weight }) {
  const { curvature, sigma, noise } = HILL;
  const value = -behavior.reduce((sum, x, i) => sum + (curvature[i] * (x * x + sigma * sigma)) / 2, 0);
  const out = [0, 0];
  const settings = { behavior: 0, proximal: 0, advantage: 0, epsilon, weight: 0, most: 100 };
  // log N(a; θ) - log N(a; μ) = (|a - μ|² - |a - θ|²) / 2σ², because all logarithms are relative to μ.
  const far = (a, x) => ((a[0] - x[0]) ** 2 + (a[1] - x[1]) ** 2) / (2 * sigma * sigma);
  for (const z of batch) {
    const a = [behavior[0] + sigma * z[0], behavior[1] + sigma * z[1]];
    settings.advantage = -(curvature[0] * a[0] ** 2 + curvature[1] * a[1] ** 2) / 2 + noise * z[2] - value;
    const origin = far(a, behavior);
    settings.proximal = proximal ? origin - far(a, proximal) : 0;
    const { gradient } = (proximal && band === "clip" ? clipped : penalized)(origin - far(a, theta), settings);
    for (const i of [0, 1]) out[i] += (gradient * (a[i] - theta[i])) / (sigma * sigma * batch.length);
  }
  // KL[N(θ_p, σ²), N(θ, σ²)] = |θ - θ_p|² / 2σ².
  if (proximal && band === "kl") out.forEach((_, i) => (out[i] -= (weight * (theta[i] - proximal[i])) / (sigma * sigma)));
  return out;
}

/**
 * θ and θ_prox after every gradient step on `batch` of the examples `z`, each of which is [z, z, z].
 * The data of an iteration of 8 steps comes from the policy `staleness` iterations earlier.
 * `proximal` is "behavior", "recent" (the start of the iteration), "ewma" or "none".
 */
export function climb(z, settings) {
  const { batch, proximal, center, learning_rate: rate, staleness, optimizer } = settings;
  const decay = decayOf(center);
  const mean = { at: [...HILL.start], weight: 1 };
  const step = ascend(optimizer, rate);
  const starts = [];
  let theta = [...HILL.start];
  const rows = [{ examples: 0, theta, prox: proximal === "none" ? null : theta }];
  for (let t = 0; (t + 1) * batch <= z.length; t++) {
    if (t % HILL.minibatches === 0) starts.push(theta);
    const behavior = starts[Math.max(0, starts.length - 1 - staleness)];
    const prox = { behavior, recent: starts.at(-1), ewma: mean.at, none: null }[proximal];
    const by = step(slope(theta, z.slice(t * batch, (t + 1) * batch), { ...settings, behavior, proximal: prox }));
    theta = theta.map((x, i) => x + by[i]);
    trail(mean, theta, decay);
    rows.push({ examples: (t + 1) * batch, theta, prox: proximal === "ewma" ? [...mean.at] : prox });
    if (!theta.every((x) => Math.abs(x) < 1e3)) break;
  }
  return rows;
}

/** Examples as triples: two numbers for the action, and one for the noise of its reward. */
export const examples = (count) => {
  const draws = normals(3 * count);
  return range(count, (i) => draws.subarray(3 * i, 3 * i + 3));
};

/** The root mean square distance between two paths after equal numbers of examples. */
export function gap(one, other) {
  const at = new Map(other.map((row) => [row.examples, row.theta]));
  const squares = one.filter((row) => at.has(row.examples)).map(({ examples, theta }) => {
    const there = at.get(examples);
    return (theta[0] - there[0]) ** 2 + (theta[1] - there[1]) ** 2;
  });
  return Math.sqrt(squares.reduce((a, b) => a + b, 0) / squares.length);
}

export const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
