// Tests of rescaled returns in float32, and of Q after inexact starts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { range } from "../../mmrl/course/widgets/js/core.mjs";
import { uniforms } from "../../mmrl/course/widgets/js/random.mjs";
import { MEMORIES, averaged, crossing, deltaQ, follow, gateBias, geometric, kept } from "../../mmrl/course/widgets/js/recurrence.mjs";
import { INVERSES, largest, place, relative, rescale, roundTrip, roundUp, target, value } from "../../mmrl/course/widgets/js/rescaling_explorer.mjs";
import { above, apart } from "../../mmrl/course/widgets/js/staleness_explorer.mjs";

const near = (a, b, by = 1e-9) => assert.ok(Math.abs(a - b) <= by * Math.max(1, Math.abs(b)), `${a}, not ${b}`);

test("without rounding, h is odd and compressing, and both formulas invert it", () => {
  for (const x of [0, 1e-4, 0.3, 7, 1e3, 1e6]) {
    for (const eps of [1e-4, 1e-3, 0.1]) {
      near(rescale(-x, eps), -rescale(x, eps));
      near(rescale(x, eps), Math.sqrt(x + 1) - 1 + eps * x);
      near(INVERSES.stable(rescale(x, eps), eps), x);
      near(INVERSES.textbook(rescale(-x, eps), eps), -x, 1e-7);
    }
  }
});

test("in float32 the textbook inverse is inaccurate near 0, and the stable one is accurate everywhere", () => {
  const decades = (from, to) => range(33, (i) => from + ((to - from) * i) / 32);
  const worst = (kind, from, to) => Math.max(...largest(1e-3, kind, decades(from, to), 40));
  const measured = [[-3, -1, 0.03, 0.1], [-1, 1, 5e-4, 2e-3], [1, 4, 1e-5, 5e-5], [4, 6, 5e-7, 3e-6]];
  for (const [from, to, low, high] of measured) {
    const found = worst("textbook", from, to);
    assert.ok(low < found && found < high, `10^${from} to 10^${to}: ${found}`);
    assert.ok(worst("stable", from, to) < 6e-7);
  }
  assert.equal(roundTrip(-0.01, 1e-3, "stable"), roundTrip(0.01, 1e-3, "stable"));
  for (const kind of ["textbook", "stable"]) assert.equal(roundTrip(0, 1e-3, kind), 0);
});

test("all intermediate float32 results of a target are float32 numbers", () => {
  const settings = { x: 12.3, eps: 1e-3, n: 4, gamma: 0.99, reward: -0.7 };
  for (const kind of ["textbook", "stable"]) {
    const [exact, rounded] = [target(settings, kind), target(settings, kind, Math.fround)];
    for (const [name, number] of Object.entries(rounded)) {
      assert.equal(number, Math.fround(number));
      assert.ok(relative(number, exact[name]) < 1e-4);
    }
    near(exact.sum, -0.7 * (1 + 0.99 + 0.99 ** 2 + 0.99 ** 3) + 0.99 ** 4 * 12.3);
  }
});

test("the slider of returns has both signs, 0 in the middle, and an inverse", () => {
  for (const x of [-1e6, -250, -1e-4, 0, 0.03, 1, 1e6]) near(value(place(x)), x, 1e-12);
  for (const at of range(203, (i) => -10.1 + i / 10)) near(place(value(at)), Math.abs(at) < 0.05 ? 0 : at, 3e-3);
  assert.deepEqual([0, 0.3, 2.1, 11, 198, 500].map(roundUp), [0.02, 0.5, 5, 20, 200, 500]);
});

test("half is left after one half-life", () => {
  for (const life of [1, 7, 100]) {
    near(kept(life) ** life, 0.5);
    near(1 / (1 + Math.exp(-gateBias(life))), kept(life));
  }
  const zs = new Array(MEMORIES.lru.draws).fill(0);
  const weights = MEMORIES.lru.weights(zs, 5);
  const state = Float64Array.from({ length: MEMORIES.lru.size }, (_, j) => (j < 16 ? 1 : 0));
  for (const _ of range(5)) MEMORIES.lru.step(weights, state, [1, 1, 1, 1]);
  range(16).forEach((j) => near(Math.hypot(state[j], state[16 + j]), 0.5));
});

test("an LSTM with zero weights forgets at the rate of its bias", () => {
  const weights = MEMORIES.lstm.weights(new Array(MEMORIES.lstm.draws).fill(0), 10);
  const state = new Float64Array(32).fill(1);
  for (const _ of range(10)) MEMORIES.lstm.step(weights, state, [3, -1, 0, 2]);
  near(state[16], 0.5);
  near(state[0], 0.5 * Math.tanh(0.5));
});

test("ΔQ is a distance relative to the best value", () => {
  assert.equal(deltaQ([1, 2], [1, 2]), 0);
  near(deltaQ([4, 6], [1, 2]), 2.5);
  near(deltaQ([-2, -4], [-2, -1]), 3);
});

const OPTIONS = { start: 60, burnIn: 20, steps: 10 };
const ends = (curves, pick) => Object.fromEntries(Object.entries(curves).map(([name, values]) => [name, values.at(pick)]));

test("zero is worst, stored with burn-in is best, and the order of the other two depends on the memory", () => {
  for (const name of ["lstm", "lru"]) {
    for (const drift of [0.02, 0.1]) {
      for (const life of [2, 5, 20, 50]) {
        const first = ends(averaged(name, life, drift, OPTIONS), -10);
        const rest = [first.burn_in, first.stored];
        assert.ok(first.zero > Math.max(...rest) && first.stored_burn_in < Math.min(...rest), `${name} ${life} ${drift}`);
        if (life === 2) assert.ok(first.burn_in < first.stored);
        if (life >= 20) assert.ok(first.stored < first.burn_in);
      }
    }
  }
});

test("a burn-in over the whole episode is exact, and so are stored states without drift", () => {
  for (const name of ["lstm", "lru"]) {
    const whole = averaged(name, 20, 0.2, { start: 12, burnIn: 12, steps: 5 });
    for (const values of [whole.burn_in, whole.stored_burn_in]) assert.deepEqual(values, new Array(17).fill(0));
    assert.ok(whole.stored.every((x) => x > 0) && whole.stored.length === 5);
    const fresh = averaged(name, 20, 0, OPTIONS);
    for (const values of [fresh.stored, fresh.stored_burn_in]) assert.ok(values.every((x) => x === 0));
    const bare = averaged(name, 20, 0.2, { ...OPTIONS, burnIn: 0 });
    assert.deepEqual([bare.burn_in, bare.stored_burn_in], [bare.zero, bare.stored]);
  }
});

test("only the requested steps are returned, with the same values", () => {
  const all = averaged("lstm", 10, 0.1, OPTIONS);
  const some = averaged("lstm", 10, 0.1, { ...OPTIONS, steps: 1, since: OPTIONS.start });
  for (const [name, values] of Object.entries(some)) assert.deepEqual(values, [all[name].at(-10)]);
  assert.equal(all.burn_in.length, 30);
});

test("in an LRU every error decays at the rate of |λ|", () => {
  const memory = MEMORIES.lru;
  const next = uniforms(3);
  const weights = memory.weights(range(memory.draws, (i) => (i < 32 ? 0 : next() - 0.5)), 4);
  const xs = range(30, () => range(4, () => next() - 0.5));
  const exact = follow(memory, weights, xs);
  const state = new Float64Array(memory.size);
  const off = (t) => Math.hypot(...exact(t).map((x, i) => x - state[i]));
  const before = off(10);
  for (const t of range(8, (k) => 10 + k)) memory.step(weights, state, xs[t]);
  near(off(18), before / 4);
});

test("the mean of ratios, crossings, label distances and clipped lines are correct", () => {
  near(geometric([1, 100]), 10);
  assert.equal(geometric([0, 3]), 0);
  near(crossing([1, 10, 100], [1, 10, 100], [31.622776601683793, 31.622776601683793, 31.622776601683793]), 31.622776601683793);
  assert.equal(crossing([1, 10], [1, 2], [3, 4]), null);
  assert.equal(crossing([1, 10], [0, 0], [0, 0]), null);
  assert.deepEqual(apart([50, 10, 52], 16, 0, 60), [44, 10, 60]);
  assert.deepEqual(apart([500, 500], 16, 0, 60).sort(), [44, 60]);
  assert.deepEqual(above([[0, 0], [10, 20], [20, 20], [30, 0]], 10), [[0, 0], [5, 10], [10, NaN], [20, NaN], [25, 10], [30, 0]]);
});

test("uniform numbers are uniform and identical on every machine", () => {
  const next = uniforms(1);
  const draws = range(20000, () => next());
  near(draws.reduce((a, b) => a + b, 0) / 20000, 0.5, 0.02);
  assert.ok(draws.every((x) => x >= 0 && x < 1));
  assert.equal(draws[0], uniforms(1)());
});
