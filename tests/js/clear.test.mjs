// Tests of V-trace step by step, and of reservoirs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { range } from "../../mmrl/course/widgets/js/core.mjs";
import { uniforms } from "../../mmrl/course/widgets/js/random.mjs";
import { hurdle, shares } from "../../mmrl/course/widgets/js/reservoir_explorer.mjs";
import { beyond, bins, held, inclusion, kept, largest, law, pooled, solve, streams, thresholds, turns, uniformity } from "../../mmrl/course/widgets/js/reservoirs.mjs";
import { TARGETS } from "../../mmrl/course/widgets/js/targets.mjs";
import { contributions, fixedPoint, policies, ratios, trace } from "../../mmrl/course/widgets/js/vtrace_explorer.mjs";

const near = (a, b, by = 1e-9) => assert.ok(Math.abs(a - b) <= by * Math.max(1, Math.abs(b)), `${a}, not ${b}`);
const sum = (xs) => xs.reduce((a, b) => a + b, 0);
const OPEN = { lam: 1, rho_max: Infinity, c_max: Infinity };

function tape(steps, end = -1) {
  const next = uniforms(4);
  const draw = () => range(steps, () => 2 * next() - 1);
  const [rewards, values, tail] = [draw(), draw(), 0.3];
  const discount = range(steps, (t) => (t === end ? 0 : 0.9));
  return { rewards, values, nextValues: [...values.slice(1), tail], discount, last: range(steps, (t) => t === end), ratio: range(steps, () => 3 * next()) };
}

test("the contributions of a step and all later steps sum to its target", () => {
  for (const settings of [OPEN, { lam: 0.8, rho_max: 1, c_max: 0.7 }, { lam: 1, rho_max: 0, c_max: 1 }]) {
    for (const end of [-1, 4]) {
      const one = tape(10, end);
      const seen = trace(one, settings);
      seen.targets.forEach((v, s) => near(v - one.values[s], sum(contributions(seen, s))));
      assert.deepEqual(seen.targets, TARGETS.vtrace(one, settings));
      if (end >= 0) assert.ok(contributions(seen, 2).slice(end + 1).every((x) => x === 0));
    }
  }
});

test("on-policy and without clipping, v̂ is the n-step return and the advantage is v̂ - V", () => {
  for (const end of [-1, 6]) {
    const one = { ...tape(12, end), ratio: new Array(12).fill(1) };
    const { targets, advantages } = trace(one, OPEN);
    const wanted = TARGETS.n_step(one, { n: 12 });
    targets.forEach((v, t) => near(v, wanted[t]));
    advantages.forEach((x, t) => near(x, wanted[t] - one.values[t]));
    assert.deepEqual(trace(one, { lam: 1, rho_max: 1, c_max: 1 }).targets, targets);
  }
});

test("ρ̄ determines what is learned, and c̄ only how fast", () => {
  // One state that leads to itself, with the correct value for π_ρ̄: the mean update is zero.
  const [mu, pi, rewards, gamma] = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [1, -1, 3], 0.9];
  for (const rhoMax of [0.2, 1, 2, Infinity]) {
    const law = fixedPoint(pi, mu, rhoMax);
    near(sum(law), 1);
    const value = sum(law.map((p, i) => p * rewards[i])) / (1 - gamma);
    near(sum(mu.map((p, i) => p * Math.min(rhoMax, pi[i] / p) * (rewards[i] + gamma * value - value))), 0);
  }
  assert.deepEqual(fixedPoint(pi, mu, Infinity).map((x) => x.toFixed(9)), pi.map((x) => x.toFixed(9)));
  fixedPoint(pi, mu, 1e-9).forEach((p, i) => near(p, mu[i]));
  assert.deepEqual(fixedPoint(pi, mu, 0), mu);
});

test("the four actions have valid distributions with the requested ratio", () => {
  for (const ratio of [0, 0.3, 1, 6, 10, 50, 1000]) {
    const { mu, pi } = policies(ratio);
    for (const one of [mu, pi]) {
      near(sum(one), 1);
      assert.ok(one.every((p) => p >= 0 && p <= 1 + 1e-12));
    }
    near(pi[0] / mu[0], ratio);
  }
  assert.ok(ratios("on").every((x) => x === 1));
  assert.ok(Math.max(...ratios("near")) < 1.5 && Math.max(...ratios("far")) > 4);
  assert.deepEqual(ratios("own", [2, 3]), [2, 3]);
});

test("the largest lots are kept in any order, and the earlier of two equal ones", () => {
  assert.deepEqual(largest([0.1, 0.9, 0.5, 0.7], 2), [1, 3]);
  assert.deepEqual(largest([0.5, 0.5, 0.5], 2), [0, 1]);
  assert.deepEqual(largest([0.5], 3), [0]);
  assert.deepEqual(turns(5, 2), [[0, 2, 4], [1, 3]]);
  assert.deepEqual(turns(1, 3), [[0], [], []]);
  assert.deepEqual(held([0.1, 0.9, 0.5, 0.7, 0.6], 2, 1), [[4], [1]]);
});

test("merged parts with full capacity equal one reservoir, and parts that share it do not", () => {
  let apart = 0;
  for (const lots of streams(9, 40, 57)) {
    for (const parts of [1, 2, 5, 8]) {
      assert.deepEqual(pooled(lots, parts, 11), kept(held(lots, 1, 11)));
      apart += parts > 1 && String(kept(held(lots, parts, Math.floor(11 / parts)))) !== String(kept(held(lots, 1, 11)));
    }
  }
  assert.ok(apart > 100);
});

test("the lot to beat is 0 until the part is full, never decreases, and grows as expected", () => {
  assert.deepEqual(thresholds([0.4, 0.2, 0.9, 0.3, 0.8], 2), [0, 0.2, 0.4, 0.4, 0.8]);
  const runs = streams(2, 3000, 30).map((lots) => thresholds([...lots], 6));
  for (const levels of runs) assert.ok(levels.every((x, i) => !i || x >= levels[i - 1]));
  for (const n of [6, 15, 30]) near(sum(runs.map((levels) => levels[n - 1])) / 3000, hurdle(n, { parts: 1, slots: 6 }), 0.01);
});

test("counts over runs agree with the contents of each run", () => {
  for (const [parts, slots] of [[1, 9], [4, 2], [8, 5]]) {
    const runs = streams(6, 25, 44);
    const counts = new Array(37).fill(0);
    for (const lots of runs) for (const i of kept(held(lots.slice(0, 37), parts, slots))) counts[i]++;
    assert.deepEqual(inclusion(runs, 37, parts, slots), counts);
  }
});

test("the tail of χ² for even degrees of freedom agrees with a table", () => {
  for (const [x, freedom, p] of [[5.991, 2, 0.05], [9.488, 4, 0.05], [21.026, 12, 0.05], [26.217, 12, 0.01], [0, 6, 1]]) near(beyond(x, freedom), p, 2e-5);
});

test("the number of intervals is odd, and all are long enough", () => {
  assert.equal(bins(12, 5), null);
  for (const [seen, least] of [[15, 5], [120, 5], [120, 8], [61, 8], [99, 7]]) {
    const edges = bins(seen, least);
    assert.equal(edges.length % 2, 0);
    assert.deepEqual([edges[0], edges.at(-1)], [0, seen]);
    assert.ok(edges.every((e, j) => !j || e - edges[j - 1] >= least));
  }
});

test("the count of one interval is hypergeometric, and the total is constant", () => {
  const { mean, covariance } = law([0, 10, 25, 40], 1, 8);
  mean.forEach((x, j) => near(x, [2, 3, 3][j]));
  near(covariance[0][0], (8 * (10 / 40) * (30 / 40) * (40 - 8)) / 39);
  for (const row of law([0, 9, 20, 31], 3, 4).covariance) near(sum(row), 0);
  const x = solve([[4, 1, 0], [1, 3, 1], [0, 1, 2]], [1, 2, 3]);
  near(4 * x[0] + x[1], 1);
  near(x[1] + 2 * x[2], 3);
});

test("a reservoir passes the test of uniformity at the expected rate, and FIFO never passes", () => {
  const edges = bins(60, 5);
  for (const [parts, slots] of [[1, 20], [4, 5]]) {
    const ps = range(200, (s) => uniformity(inclusion(streams(100 + s, 60, 60), 60, parts, slots), 60, edges, parts, slots).p);
    const below = ps.filter((p) => p < 0.1).length;
    assert.ok(below >= 8 && below <= 34, `${below} of 200 below 0.1, of which 20 are expected`);
    near(sum(ps) / 200, 0.5, 0.07);
  }
  const fifo = range(60, (i) => (i >= 40 ? 60 : 0));
  assert.ok(uniformity(fifo, 60, edges, 1, 20).p < 1e-12);
  assert.equal(uniformity(fifo, 60, edges, 1, 60).p, null);
  assert.equal(uniformity(new Array(60).fill(0), 0, edges, 1, 20).p, null);
});

test("the fractions of the three tasks are correct", () => {
  assert.deepEqual(shares([]), [0, 0, 0]);
  assert.deepEqual(shares([0, 39, 40, 119]), [0.5, 0.25, 0.25]);
});
