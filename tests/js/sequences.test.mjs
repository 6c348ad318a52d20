// Tests of R2D2's sequences and of sampling them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { range } from "../../mmrl/course/widgets/js/core.mjs";
import { chances, drawn, effective, gradient, importance, priorities, sequences, unbiased, uniforms } from "../../mmrl/course/widgets/js/priority_explorer.mjs";
import { begins, cut, uses } from "../../mmrl/course/widgets/js/sequence_cutter.mjs";

const near = (a, b, by = 1e-9) => assert.ok(Math.abs(a - b) < by, `${a}, not ${b}`);
const sum = (values) => values.reduce((a, b) => a + b, 0);

test("an episode of 23 steps is cut as by hand", () => {
  const rows = cut([23], { length: 8, overlap: 4, burn_in: 6, n: 3 });
  assert.deepEqual(rows.map((row) => row.s), [0, 4, 8, 12, 16]);
  assert.deepEqual(rows.map((row) => row.prefix), [0, 0, 2, 6, 10]);
  assert.deepEqual(rows.map((row) => row.steps), [8, 8, 8, 8, 7]);
  assert.deepEqual(rows.map((row) => row.tail), [2, 2, 2, 2, 0]);
  assert.deepEqual(rows.map((row) => row.pad), [0, 0, 0, 0, 3]);
});

test("for all sizes, every step is trained, the last of an episode once, and no sequence crosses an end", () => {
  const lengths = [1, 2, 7, 16, 30];
  for (const length of [2, 5, 16]) {
    for (const overlap of range(length)) {
      const sizes = { length, overlap, burn_in: 3, n: 4 };
      const rows = cut(lengths, sizes);
      const { trained, copies } = uses(lengths, rows);
      assert.ok(trained.every((count) => count >= 1), JSON.stringify(sizes));
      const lasts = begins(lengths).map((start, e) => trained[start + lengths[e] - 1]);
      assert.deepEqual(lasts, [1, 1, 1, 1, 1]);
      assert.ok(copies.every((count, t) => count >= trained[t]));
      assert.equal(sum(copies), sum(rows.map((row) => row.s + row.steps + row.tail - row.prefix)));
      for (const { episode, s, prefix, steps, tail, pad } of rows) {
        assert.ok(prefix >= 0 && steps > 0 && s + steps + tail <= lengths[episode]);
        assert.equal(steps + tail + pad, length + 3);
      }
    }
  }
});

test("the priority lies between the mean and the maximum", () => {
  const rows = sequences([0, 0, -4, 0, 1, 1, 1, 1, 2], 4);
  assert.deepEqual(rows, [[0, 0, 4, 0], [1, 1, 1, 1], [2]]);
  assert.deepEqual(priorities(rows, 1), [4, 1, 2]);
  assert.deepEqual(priorities(rows, 0), [1, 1, 2]);
  priorities(rows, 0.9).forEach((p, i) => near(p, [3.7, 1, 2][i]));
});

test("weights remove the bias completely at β = 1 and have no effect at β = 0", () => {
  const p = [3, 0, 0.1, 1, 1e9];
  const P = chances(p, 0.9);
  near(sum(P), 1);
  assert.ok(P.every((x) => x > 0));
  assert.ok(unbiased(gradient(P, importance(P, 1))));
  assert.deepEqual(importance(P, 0), [1, 1, 1, 1, 1]);
  const part = gradient(P, importance(P, 0.6));
  assert.ok(!unbiased(part) && part[4] < P[4] && part[4] > 0.2);
  assert.ok(importance(P, 0.6).every((w) => w > 0 && w <= 1));
});

test("the effective number is N for equal probabilities and 1 for a single sequence", () => {
  near(effective(chances([5, 1, 3], 0)), 3);
  near(effective([1, 0, 0]), 1);
});

test("draws are reproducible and follow their probabilities", () => {
  // The C++ standard specifies the 10 000th number of std::minstd_rand.
  assert.equal(Math.round(uniforms(10000).at(-1) * 2147483647), 399268537);
  const P = [0.5, 0.3, 0.15, 0.05];
  const hits = drawn(P, 20000);
  assert.deepEqual(drawn(P, 20000), hits);
  assert.equal(sum(hits), 20000);
  hits.forEach((k, i) => near(k / 20000, P[i], 4 * Math.sqrt((P[i] * (1 - P[i])) / 20000)));
});
