// Reservoirs with random lots, in one part or several, and a test of uniformity.
import { range } from "./core.mjs";
import { uniforms } from "./random.mjs";

/** The indices of the k largest `lots`, ascending; in a tie, the earlier one is kept. */
export function largest(lots, k) {
  const order = range(lots.length).sort((i, j) => lots[j] - lots[i] || i - j);
  return order.slice(0, k).sort((i, j) => i - j);
}

/** The positions in a stream of `count` that each of `parts` receives, in turn. */
export const turns = (count, parts) =>
  range(parts, (part) => range(Math.max(0, Math.ceil((count - part) / parts)), (i) => part + i * parts));

/** The contents of each part with `slots` places after all `lots`, as ascending positions. */
export function held(lots, parts, slots) {
  return turns(lots.length, parts).map((mine) => largest(mine.map((i) => lots[i]), slots).map((i) => mine[i]));
}

/** The union of all parts. */
export const kept = (parts) => parts.flat().sort((i, j) => i - j);

/** Merge parts with `slots` places into one: the `slots` largest of their lots. */
export function pooled(lots, parts, slots) {
  const union = kept(held(lots, parts, slots));
  return largest(union.map((i) => lots[i]), slots).map((i) => union[i]);
}

/** The lot to beat after each arrival, for one part; 0 until the part is full. */
export function thresholds(lots, slots) {
  const best = [];
  return lots.map((lot) => {
    let at = best.findIndex((x) => x < lot);
    if (at < 0) at = best.length;
    best.splice(at, 0, lot);
    best.length = Math.min(best.length, slots);
    return best.length < slots ? 0 : best[slots - 1];
  });
}

/** `runs` streams of `count` lots, generated from one seed. */
export function streams(seed, runs, count) {
  const next = uniforms(seed);
  return range(runs, () => Float64Array.from({ length: count }, next));
}

/** The number of reservoirs, out of `runs`, that keep each of the first `seen` unrolls. */
export function inclusion(runs, seen, parts, slots) {
  const counts = new Array(seen).fill(0);
  const mine = turns(seen, parts);
  for (const lots of runs) {
    for (const places of mine) {
      const sorted = Float64Array.from(places, (i) => lots[i]).sort();
      const least = places.length > slots ? sorted[places.length - slots] : -1;
      for (const i of places) if (lots[i] >= least) counts[i]++;
    }
  }
  return counts;
}

/** Edges of an odd number of intervals of at least `least` positions, or null if there are too few. */
export function bins(seen, least, most = 13) {
  let count = Math.min(most, Math.floor(seen / least));
  if (count % 2 === 0) count--;
  return count < 3 ? null : range(count + 1, (j) => Math.round((seen * j) / count));
}

/** Mean and covariance of the number of unrolls kept in each interval [edge_j, edge_{j+1}). */
export function law(edges, parts, slots) {
  const size = edges.length - 1;
  const mean = new Array(size).fill(0);
  const covariance = range(size, () => new Array(size).fill(0));
  for (const places of turns(edges[size], parts)) {
    const n = places.length;
    const k = Math.min(n, slots);
    const p = range(size, (j) => places.filter((i) => i >= edges[j] && i < edges[j + 1]).length / n);
    const spread = n > 1 ? (k * (n - k)) / (n - 1) : 0;
    for (let i = 0; i < size; i++) {
      mean[i] += k * p[i];
      for (let j = 0; j < size; j++) covariance[i][j] += spread * ((i === j ? p[i] : 0) - p[i] * p[j]);
    }
  }
  return { mean, covariance };
}

/** Solve A x = b for a positive definite A by Gaussian elimination. */
export function solve(A, b) {
  const rows = A.map((row, i) => [...row, b[i]]);
  const n = rows.length;
  for (let i = 0; i < n; i++) {
    for (let k = i + 1; k < n; k++) {
      const factor = rows[k][i] / rows[i][i];
      for (let j = i; j <= n; j++) rows[k][j] -= factor * rows[i][j];
    }
  }
  const x = new Array(n).fill(0);
  for (let i = n - 1; i >= 0; i--) {
    const rest = rows[i].slice(i + 1, n).reduce((total, value, j) => total + value * x[i + 1 + j], 0);
    x[i] = (rows[i][n] - rest) / rows[i][i];
  }
  return x;
}

/** P(χ² > x) for an even number of degrees of freedom, for which it is a finite sum. */
export function beyond(x, freedom) {
  let [term, total] = [1, 0];
  for (let i = 0; i < freedom / 2; i++) {
    total += term;
    term *= x / 2 / (i + 1);
  }
  return Math.exp(-x / 2) * total;
}

/**
 * Pearson's test of whether all unrolls are kept equally often, over `runs` draws.
 * A reservoir contains exactly k unrolls, so its counts vary less than independent ones, and their
 * sum is constant: the statistic is dᵀ Σ⁻¹ d without the last interval. Null without randomness.
 */
export function uniformity(counts, runs, edges, parts, slots) {
  const { mean, covariance } = law(edges, parts, slots);
  const size = mean.length;
  const found = range(size, (j) => counts.slice(edges[j], edges[j + 1]).reduce((a, b) => a + b, 0));
  const sigma = range(size, (j) => Math.sqrt(runs * covariance[j][j]));
  if (!runs || sigma.some((x) => !(x > 0))) return { found, mean, sigma, p: null };
  const off = found.slice(0, -1).map((x, j) => x - runs * mean[j]);
  const inner = covariance.slice(0, -1).map((row) => row.slice(0, -1).map((x) => runs * x));
  const solved = solve(inner, off);
  const statistic = off.reduce((total, x, j) => total + x * solved[j], 0);
  return { found, mean, sigma, statistic, p: beyond(statistic, size - 1) };
}
