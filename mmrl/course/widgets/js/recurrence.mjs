// Small recurrent networks, and the error of their Q after a start from an inexact state.
import { range } from "./core.mjs";
import { uniforms } from "./random.mjs";

const [INPUTS, UNITS, ACTIONS, NETWORKS] = [4, 16, 4, 5];
const LONGEST = 140;
const sigmoid = (z) => 1 / (1 + Math.exp(-z));
// Several times as fast as Math.tanh, and accurate to 16 decimal places.
const tanh = (z) => 1 - 2 / (Math.exp(2 * z) + 1);

/** `count` samples of a standard normal distribution (Box and Muller). */
const normals = (next, count) =>
  range(count, () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next()));

/** The fraction retained per step if half is left after `life` steps. */
export const kept = (life) => 2 ** (-1 / life);
/** The bias of the forget gate for which, without inputs, it retains this fraction of the cell. */
export const gateBias = (life) => Math.log(kept(life) / (1 - kept(life)));

/** The product of row `i` of a matrix, stored row by row, and the first `n` entries of `xs`. */
function row(matrix, i, n, xs) {
  let sum = 0;
  for (let j = 0; j < n; j++) sum += matrix[i * n + j] * xs[j];
  return sum;
}

/** Split `values` into parts of the given lengths, each multiplied by its scale. */
function parts(values, ...sizes) {
  let start = 0;
  return sizes.map(([length, scale]) => {
    const part = values.slice(start, start + length).map((z) => scale * z);
    start += length;
    return Float64Array.from(part);
  });
}

const gates = new Float64Array(4 * UNITS);  // reused by every step

/**
 * Two memories. `size` is the number of state entries; `weights` converts normal samples, the first
 * `fixed` of which only drift; `step` updates a state in place like an LSTM or LRU of mmrl.memory.
 */
export const MEMORIES = {
  // The state is h, then c. The gates are i, f, g, o; only the forget gate has a bias.
  lstm: {
    size: 2 * UNITS, fixed: 0, draws: 4 * UNITS * (INPUTS + UNITS) + ACTIONS * UNITS,
    weights(z, life) {
      const bias = new Float64Array(4 * UNITS).fill(gateBias(life), UNITS, 2 * UNITS);
      const [input, recur, out] = parts(z, [4 * UNITS * INPUTS, INPUTS ** -0.5],
        [4 * UNITS * UNITS, 0.5 * UNITS ** -0.5], [ACTIONS * UNITS, UNITS ** -0.5]);
      return { input, recur, bias, out };
    },
    step({ input, recur, bias }, state, x) {
      const n = state.length / 2;
      for (let i = 0; i < 4 * n; i++) gates[i] = bias[i] + row(input, i, x.length, x) + row(recur, i, n, state);
      for (let i = 0; i < n; i++) {
        const cell = sigmoid(gates[n + i]) * state[n + i] + sigmoid(gates[i]) * tanh(gates[2 * n + i]);
        state[n + i] = cell;
        state[i] = sigmoid(gates[3 * n + i]) * tanh(cell);
      }
    },
    q: ({ out }, state) => range((2 * out.length) / state.length, (a) => row(out, a, state.length / 2, state)),
  },
  // The state is Re h, then Im h; λ = exp(-rate + i turn), and √(1 - |λ|²) gives h the scale of x.
  lru: {
    size: 2 * UNITS, fixed: 2 * UNITS, draws: 2 * UNITS * (1 + INPUTS + ACTIONS),
    weights(z, life) {
      // Rates and angles drift by a factor, as exp(ν) and exp(θ) do, so that |λ| stays below 1.
      const turn = range(UNITS, (j) => ((0.1 * (j + 0.5)) / UNITS) * Math.exp(z[j]));
      const rate = range(UNITS, (j) => (Math.LN2 / life) * Math.exp(z[UNITS + j]));
      const [, input, out] = parts(z, [2 * UNITS, 1], [2 * UNITS * INPUTS, (2 * INPUTS) ** -0.5],
        [2 * UNITS * ACTIONS, UNITS ** -0.5]);
      return { rate, turn, input, out };
    },
    step({ rate, turn, input }, state, x) {
      const n = state.length / 2;
      for (let j = 0; j < n; j++) {
        const size = Math.exp(-rate[j]);
        const [a, b] = [size * Math.cos(turn[j]), size * Math.sin(turn[j])];
        const gain = Math.sqrt(-Math.expm1(-2 * rate[j]));
        const [re, im] = [state[j], state[n + j]];
        state[j] = a * re - b * im + gain * row(input, j, x.length, x);
        state[n + j] = b * re + a * im + gain * row(input, n + j, x.length, x);
      }
    },
    // Re(C h): a row of `out` is Re C, then -Im C.
    q: ({ out }, state) => range(out.length / state.length, (a) => row(out, a, state.length, state)),
  },
};

/** ‖q̂ - q‖₂ / |max_a q_a|, the error of Q that a wrong state makes (Kapturowski et al. 2019). */
export const deltaQ = (q, exact) => Math.hypot(...q.map((x, a) => x - exact[a])) / Math.abs(Math.max(...exact));

/** A function that returns the state before step t of an episode with an empty initial state, computed on demand. */
export function follow(memory, weights, xs) {
  const states = [range(memory.size, () => 0)];
  return (t) => {
    while (states.length <= t) {
      const next = states.at(-1).slice();
      memory.step(weights, next, xs[states.length - 1]);
      states.push(next);
    }
    return states[t];
  };
}

/**
 * ΔQ of the four starts at steps `since` … `start + steps - 1` of an episode, {name: [ΔQ, …]},
 * without steps before a start. The burn-in has `burnIn` steps before step `start`; `exact` and `acted`
 * return the states computed with the learner's and the actor's weights.
 */
export function errors(memory, weights, xs, { exact, acted, start, burnIn, steps, since = 0 }) {
  const empty = range(memory.size, () => 0);
  const from = start - burnIn;
  const first = Math.max(from, since);
  const qs = range(start + steps - first, (k) => memory.q(weights, exact(first + k + 1)));
  const roll = (begin, begun) => {
    const [state, out] = [begin.slice(), []];
    for (let t = begun; t < start + steps; t++) {
      memory.step(weights, state, xs[t]);
      if (t >= first) out.push(deltaQ(memory.q(weights, state), qs[t - first]));
    }
    return out;
  };
  return {
    zero: roll(empty, start),
    burn_in: roll(empty, from),
    stored: roll(acted(start), start),
    stored_burn_in: roll(acted(from), from),
  };
}

/** The geometric mean, which preserves ratios between starts; 0 if a value is 0. */
export const geometric = (values) => Math.exp(values.reduce((sum, x) => sum + Math.log(x), 0) / values.length);

const known = new Map();
/** Cache the results of `make` by key; only the most recently used keys are kept. */
function remember(key, make) {
  const value = known.has(key) ? known.get(key) : make();
  known.delete(key);
  known.set(key, value);
  if (known.size > 500) known.delete(known.keys().next().value);
  return value;
}

/** One network and one episode from a seed; the actor's weights differ from the learner's by `drift`. */
function network(name, seed, life, drift) {
  const memory = MEMORIES[name];
  const base = remember(`${name} ${seed}`, () => {
    const next = uniforms(seed);
    const zs = normals(next, memory.draws).map((z, i) => (i < memory.fixed ? 0 : z));
    const away = normals(next, memory.draws);
    return { zs, away, xs: range(LONGEST, () => Float64Array.from(normals(next, INPUTS))) };
  });
  const at = (far) => remember(`${name} ${seed} ${life} ${far}`, () => {
    const weights = memory.weights(base.zs.map((z, i) => z + far * base.away[i]), life);
    return { weights, states: follow(memory, weights, base.xs) };
  });
  const learner = at(0);
  return { memory, xs: base.xs, weights: learner.weights, exact: learner.states, acted: at(drift).states };
}

/** The geometric mean of `errors` over all networks. */
export function averaged(name, life, drift, times) {
  return remember(JSON.stringify([name, life, drift, times]), () => mean(name, life, drift, times));
}

function mean(name, life, drift, times) {
  const each = range(NETWORKS, (seed) => {
    const { memory, weights, xs, ...paths } = network(name, seed + 1, life, drift);
    return errors(memory, weights, xs, { ...paths, ...times });
  });
  const over = (start) => each[0][start].map((_, t) => geometric(each.map((one) => one[start][t])));
  return Object.fromEntries(Object.keys(each[0]).map((start) => [start, over(start)]));
}

/** The point at which two curves over `lives` cross, interpolated on a log-log scale, or null. */
export function crossing(lives, one, other) {
  const gaps = one.map((x, i) => Math.log(x) - Math.log(other[i]));
  const i = gaps.findIndex((gap, k) => k > 0 && gap * gaps[k - 1] <= 0 && Number.isFinite(gap - gaps[k - 1]));
  if (i < 1) return null;
  const share = gaps[i - 1] / (gaps[i - 1] - gaps[i]) || 0;
  return lives[i - 1] * (lives[i] / lives[i - 1]) ** share;
}
