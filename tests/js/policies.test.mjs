// Tests of the behavior, proximal and current policy: averages, clips, and batch sizes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { averaging, count, fade, meanAge, overlap, rate, weightAt } from "../../mmrl/course/widgets/js/batch_calculator.mjs";
import { objective, rests, stops } from "../../mmrl/course/widgets/js/clip_explorer.mjs";
import { range } from "../../mmrl/course/widgets/js/core.mjs";
import { adjusted, centerOf, decayOf, spanOf, trail } from "../../mmrl/course/widgets/js/proximal.mjs";
import { climb, examples, gap, normals } from "../../mmrl/course/widgets/js/rubber_band.mjs";
import { runs, spaced } from "../../mmrl/course/widgets/js/rubber_band_explorer.mjs";

const near = (a, b, by = 1e-9) => assert.ok(Math.abs(a - b) < by, `${a}, not ${b}`);
const PAPER = { batch: 8192, learning_rate: 5e-4, center: 8, advantage_decay: 0, phases: 32, beta1: 0.9, beta2: 0.999 };
const ALL = { learning_rate: true, center: true, advantages: true, phases: true, betas: true };

test("dividing a batch by 4 and then by 16 equals dividing it by 64", () => {
  const two = (base, c, optimizer) => adjusted(base, c, { optimizer, on: ALL });
  for (const optimizer of ["adam", "sgd"]) {
    const [steps, once] = [two(two(PAPER, 4, optimizer), 16, optimizer), two(PAPER, 64, optimizer)];
    const back = two(once, 1 / 64, optimizer);
    for (const name of Object.keys(PAPER)) {
      near(steps[name] / (once[name] || 1), once[name] ? 1 : 0);
      near(back[name], PAPER[name], 1e-6);
    }
  }
  near(two(PAPER, 64, "sgd").learning_rate, 5e-4 / 64);
  near(two(PAPER, 64, "adam").learning_rate, 5e-4 / 8);
});

test("settings without adjustment do not change, and others stop at their limits", () => {
  const none = adjusted(PAPER, 16, { optimizer: "adam", on: {} });
  assert.deepEqual(none, { ...PAPER, batch: 512 });
  const less = adjusted(PAPER, 1 / 64, { optimizer: "adam", on: ALL });
  assert.deepEqual([less.advantage_decay, less.phases, less.center], [0, 1, 0.125]);
});

test("an average retains its age and its weights in examples if COM is multiplied by c", () => {
  for (const c of [4, 16, 256]) {
    const [after, left] = [{ center: true }, {}].map((on) => adjusted(PAPER, c, { optimizer: "adam", on }));
    const [a, b, d] = [PAPER, after, left].map((one) => averaging("proximal", one, 8));
    near(meanAge(a), 65536, 1e-6);
    near(meanAge(b), 65536, 1e-6);
    near(meanAge(d), 65536 / c, 1e-6);
    assert.ok(overlap(a, b) > 0.96 && overlap(a, d) < 0.6, `c = ${c}`);
    const whole = adjusted(PAPER, c, { optimizer: "adam", on: ALL });
    const [moments, more] = [PAPER, whole].map((one) => averaging("advantages", one, 8));
    near(moments.size, 65536);
    near(spanOf(more.decay) * more.size, spanOf(moments.decay) * moments.size, 1e-4);
    assert.ok(overlap(averaging("beta1", PAPER, 8), averaging("beta1", whole, 8)) > 0.94);
  }
});

test("weights are a density that sums to one, and an average overlaps itself completely", () => {
  const one = { decay: 0.75, size: 10 };
  near(range(4000, (i) => weightAt(one, i + 0.5)).reduce((a, b) => a + b, 0), 1);
  near(overlap(one, one), 1, 1e-5);
  near(overlap({ decay: 0, size: 10 }, { decay: 0, size: 5 }), 0.5);
});

test("decays and steps are formatted so that they can be distinguished", () => {
  assert.deepEqual([0, 0.8888888, 0.99951243, 0.9999961].map(fade), ["0", "0.889", "0.999512", "0.9999961"]);
  assert.deepEqual([5e-4, 3.125e-5, 0.0125].map(rate), ["5e−4", "3.13e−5", "0.0125"]);
  assert.deepEqual([65536, 0.125, 2048 + 1e-9].map(count), ["65\u202f536", "0.125", "2\u202f048"]);
});

test("conversions between centers, decays and spans are inverse to each other", () => {
  for (const center of [0, 0.5, 8, 128]) near(centerOf(decayOf(center)), center);
  near(spanOf(0.6), 4);
});

test("the average of a constant θ is constant, and COM 0 gives θ itself", () => {
  const mean = { at: [3, -1], weight: 1 };
  for (const _ of range(2000)) trail(mean, [3, -1], 0.999);
  assert.deepEqual(mean.at, [3, -1]);
  trail(mean, [7, 0.5], decayOf(0));
  assert.deepEqual([mean.at, mean.weight], [[7, 0.5], 1]);
});

const CLIP = { form: "clip", advantage: 1, epsilon: 0.2, weight: 1, most: 100, apart: 0.5 };
const WIDE = range(301, (i) => -1.5 + i / 100);

test("with π_p = μ the objective is PPO's", () => {
  for (const advantage of [1, -1]) {
    for (const log of WIDE) {
      const mine = objective("behavior", log, { ...CLIP, advantage });
      const [ratio, held] = [Math.exp(log), Math.min(Math.max(Math.exp(log), 0.8), 1.2)];
      near(mine.value, Math.min(ratio * advantage, held * advantage));
      const out = advantage > 0 ? ratio > 1.2 : ratio < 0.8;
      near(mine.gradient, out ? 0 : ratio * advantage);
      near(mine.value, objective("apart", log, { ...CLIP, advantage, apart: 0 }).value);
    }
  }
});

test("with π_p = π nothing is clipped, and with ε = ∞ π_p has no effect", () => {
  assert.deepEqual(stops("policy", CLIP, WIDE), []);
  for (const log of WIDE) {
    near(objective("policy", log, CLIP).gradient, Math.exp(log));
    near(objective("policy", log, { ...CLIP, epsilon: 0 }).gradient, Math.exp(log));
    near(objective("apart", log, { ...CLIP, epsilon: Infinity }).value, Math.exp(log));
  }
});

test("the gradient is zero beyond the clip range in the direction of the advantage", () => {
  const [[from, to], ...more] = stops("apart", CLIP, WIDE);
  near(from, 0.69, 1e-6);
  assert.deepEqual([to, more], [1.5, []]);
  const [[low, high]] = stops("apart", { ...CLIP, advantage: -1 }, WIDE);
  assert.ok(low === -1.5 && Math.abs(high - 0.27) < 1e-6);
  assert.deepEqual(stops("apart", { ...CLIP, advantage: 0 }, WIDE), []);
});

test("an importance weight at its limit still has a gradient", () => {
  const { value, gradient } = objective("apart", 1.1, { ...CLIP, epsilon: 1, most: 2 });
  near(value, 2);
  near(gradient, 2);
});

test("the band of the penalty pulls toward π_p", () => {
  const settings = { ...CLIP, form: "kl", advantage: 0, weight: 2 };
  near(objective("apart", 0.9, settings).gradient, -0.8);
  near(objective("apart", 0.1, settings).gradient, 0.8);
  near(objective("policy", 0.9, settings).gradient, 0);
  const [rest, ...more] = rests("apart", settings, WIDE);
  near(rest, 0.5);
  assert.deepEqual(more, []);
  const [first] = rests("behavior", { ...settings, advantage: 0.7 }, WIDE);
  near(0.7 * Math.exp(first), 2 * first, 1e-3);
});

const Z = examples(2048);
const NOW = { proximal: "ewma", band: "kl", optimizer: "sgd", change: "batch", center: 8, weight: 1, epsilon: 0.2, learning_rate: 0.04, staleness: 0, c: 8, adjust_learning_rate: true, adjust_center: true };
const paths = (now) => {
  const { base, changed, left } = runs({ ...NOW, ...now });
  return [base, changed, left].map((one) => one && climb(Z, one));
};

test("a batch divided by c preserves the path with all adjustments, but not if COM is unchanged", () => {
  for (const optimizer of ["sgd", "adam"]) {
    for (const band of ["kl", "clip"]) {
      const [base, changed, left] = paths({ optimizer, band });
      assert.ok(gap(base, left) > 6 * gap(base, changed), `${optimizer}, ${band}: ${gap(base, changed)} ${gap(base, left)}`);
    }
  }
  assert.equal(paths({ adjust_center: false })[2], null);
});

test("half the distance with twice the weight has the same pull, but either change by itself does not", () => {
  const [base, changed, left] = paths({ change: "band", c: 2 });
  assert.ok(gap(base, left) > 4 * gap(base, changed));
});

test("a band limits the policy, and without a limit it has no effect", () => {
  const lost = (now) => Math.hypot(...climb(Z, { ...runs({ ...NOW, ...now }).base }).at(-1).theta);
  assert.ok(lost({}) > lost({ proximal: "none" }));
  near(lost({ weight: 0 }), lost({ proximal: "none" }));
  near(lost({ center: 0 }), lost({ proximal: "none" }));
  near(lost({ band: "clip", epsilon: 1e9 }), lost({ proximal: "none" }));
  near(lost({ proximal: "recent" }), lost({ proximal: "behavior" }));
  assert.ok(lost({ proximal: "behavior", staleness: 8 }) > lost({ proximal: "recent", staleness: 8 }) + 0.3);
});

test("samples are normal and identical on every machine", () => {
  const draws = normals(20001);
  assert.equal(draws.length, 20001);
  near(draws.reduce((a, x) => a + x, 0) / 20001, 0, 0.03);
  near(draws.reduce((a, x) => a + x * x, 0) / 20001, 1, 0.03);
  assert.deepEqual([...normals(5)], [...draws.subarray(0, 5)]);
});

test("marks have a minimum distance, and paths are compared after equal numbers of examples", () => {
  const rows = range(9, (i) => ({ examples: i, theta: [i / 4, 0] }));
  assert.deepEqual(spaced(rows, 0.5).map(({ examples }) => examples), [2, 4, 6, 8]);
  near(gap(rows, rows.filter((_, i) => i % 2).map((row) => ({ ...row, theta: [row.theta[0], 3] }))), 3);
});
