// A read x[φ(t)] for all t: readers, reads, and the lifetime of each value.
import { range } from "./core.mjs";

const at = (point) => [point, point + 1];

/**
 * The index expressions, keyed by their text. `reads(t, T, n)` is a range [from, to) of x, and
 * `readers(k, T, n)` a range of y, which `inverse` and `when` state in symbols. If the readers are
 * strided, `every` is the stride, and `inverse` is only the range that contains them.
 */
export const PATTERNS = {
  "t": { reads: (t) => at(t), inverse: "k", readers: (k) => at(k) },
  "t+3": { reads: (t) => at(t + 3), inverse: "k - 3", when: "k >= 3", readers: (k) => at(k - 3) },
  "t-1": { reads: (t) => at(t - 1), inverse: "k + 1", when: "T >= k + 2", readers: (k) => at(k + 1) },
  "0:T": { reads: (t, T) => [0, T], inverse: "0:T", readers: (k, T) => [0, T] },
  "t:T": { reads: (t, T) => [t, T], inverse: "0:k + 1", readers: (k) => [0, k + 1] },
  "0:t+1": { reads: (t) => [0, t + 1], inverse: "k:T", readers: (k, T) => [k, T] },
  "t:min(t+n,T)": {
    reads: (t, T, n) => [t, Math.min(t + n, T)],
    inverse: "max(0, k - n + 1):k + 1",
    readers: (k, T, n) => [Math.max(0, k - n + 1), k + 1],
  },
  "max(0,t-n):t+1": {
    reads: (t, T, n) => [Math.max(0, t - n), t + 1],
    inverse: "k:min(T, k + n + 1)",
    readers: (k, T, n) => [k, Math.min(T, k + n + 1)],
  },
  "t//2": {
    reads: (t) => at(Math.floor(t / 2)),
    inverse: "2 * k:min(T, 2 * k + 2)",
    when: "T >= 2 * k + 1",
    readers: (k, T) => [2 * k, Math.min(T, 2 * k + 2)],
  },
  "t%8": {
    reads: (t) => at(t % 8),
    inverse: "k:T - (T - k - 1) % 8",
    when: "k <= 7",
    every: 8,
    readers: (k, T) => [k, k < 8 ? T : k],
  },
  "T-1-t": { reads: (t, T) => at(T - 1 - t), inverse: "T - k - 1", readers: (k, T) => at(T - 1 - k) },
};

const span = ([from, to], low, high, every = 1) => range(Math.max(0, Math.ceil((to - from) / every)), (i) => from + i * every).filter((i) => i >= low && i < high);

/** φ(t), the reads of y[t], or null if y[t] does not exist because it would read outside of x. */
export function reads(name, t, T, n) {
  const found = span(PATTERNS[name].reads(t, T, n), 0, T);
  return found.length ? found : null;
}

/** φ⁻¹(k), the readers of x[k], by the formula. */
export const readers = (name, k, T, n) => span(PATTERNS[name].readers(k, T, n), 0, T, PATTERNS[name].every);

/**
 * Readers y[0], y[1], … run in order. Elements of x are computed in order, as late as possible, and
 * freed after their last reader. `alive[t]` contains the live elements while y[t] runs, `most` is the
 * maximum number of them, and `ring` the smallest W such that x[k] can be stored in slot k mod W.
 */
export function lives(name, T, n) {
  const rows = range(T, (t) => reads(name, t, T, n));
  const columns = range(T, (k) => readers(name, k, T, n));
  const last = columns.map((ts) => (ts.length ? ts.at(-1) : null));
  let top = -1;
  const made = rows.map((row) => (top = Math.max(top, ...(row ?? []))));
  const alive = range(T, (t) => range(made[t] + 1).filter((k) => last[k] !== null && last[k] >= t));
  const fits = (slots) => alive.every((ks) => new Set(ks.map((k) => k % slots)).size === ks.length);
  return { rows, columns, last, alive, most: Math.max(...alive.map((ks) => ks.length)), ring: range(T, (i) => i + 1).find(fits) };
}
