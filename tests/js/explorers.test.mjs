// The statements of each explorer are correct for all settings.
import assert from "node:assert/strict";
import { test } from "node:test";
import { embed, weights as attention } from "../../mmrl/course/widgets/js/attention_explorer.mjs";
import { range } from "../../mmrl/course/widgets/js/core.mjs";
import { FAMILIES, halfLife, impulse } from "../../mmrl/course/widgets/js/memory_explorer.mjs";
import { episodes, influence, leak, states } from "../../mmrl/course/widgets/js/reset_explorer.mjs";
import { weights } from "../../mmrl/course/widgets/js/returns_explorer.mjs";
import { MONOIDS } from "../../mmrl/course/widgets/js/monoids.mjs";
import { decisive } from "../../mmrl/course/widgets/js/recall_explorer.mjs";
import { METHODS, run, schedule } from "../../mmrl/course/widgets/js/scan_player.mjs";
import { account, flow, split } from "../../mmrl/course/widgets/js/segments_explorer.mjs";
import { average, before, cumulative, first, shares } from "../../mmrl/course/widgets/js/sensitivity_explorer.mjs";
import { triangle } from "../../mmrl/course/widgets/js/triangles.mjs";

const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a}, not ${b}`);

test("every monoid is associative", () => {
  for (const { lift, combine } of Object.values(MONOIDS)) {
    const [a, b, c] = [0.3, -1.2, 2].map((x, t) => lift(x, t, 0.5));
    const [left, right] = [combine(combine(a, b), c), combine(a, combine(b, c))];
    [left].flat().forEach((x, i) => near(x, [right].flat()[i]));
  }
});

test("every method computes every prefix, for all lengths and chunks", () => {
  for (const [method] of METHODS) {
    for (const length of range(17, (i) => i + 1)) {
      for (const chunk of [2, 3, 8]) {
        const words = range(length, (t) => [t, t]);
        const last = run(MONOIDS.words, words, schedule(length, method, chunk)).at(-1);
        assert.ok(last.every((cell, t) => cell.from === 0 && cell.to === t), `${method} ${length} ${chunk}`);
      }
    }
  }
});

test("correct values are fixed points of all targets", () => {
  // If every reward is 1, V = 1 / (1 - γ), and GAE is 0.
  const [gamma, ratio] = [0.9, range(12, (k) => 0.5 + (k % 3) / 2)];
  const settings = { n: 4, lam: 0.7, rho_max: 1.2, c_max: 0.8 };
  for (const kind of ["discounted", "n_step", "lambda_return", "gae", "vtrace"]) {
    const { rewards, values } = weights(kind, gamma, settings, ratio);
    const sum = [...rewards, ...values.map((w) => w * 10)].reduce((a, b) => a + b, 0);
    near(sum, kind === "gae" ? 0 : 10);
  }
});

test("a reset by selection stops both numbers and NaN", () => {
  const begin = range(9, (t) => t === 0 || t === 4);
  const xs = range(9, (t) => (t === 2 ? NaN : 1));
  const clean = (mode) => states(xs, 0.9, begin, mode).slice(4).every(Number.isFinite);
  assert.ok(clean("select"));
  assert.ok(!clean("multiply"));
  assert.ok(!clean("none"));
  assert.equal(leak(influence(9, 0.9, begin, "select"), episodes(begin)), 0);
  assert.ok(leak(influence(9, 0.9, begin, "none"), episodes(begin)) > 0.3);
});

test("segments contain every step once, and long ones cost only padding", () => {
  const lengths = [37, 8, 1, 21];
  for (const size of [1, 2, 10, 64]) {
    const rows = split(lengths, size);
    assert.equal(rows.reduce((a, row) => a + row.steps, 0), 67);
    assert.ok(rows.every((row) => row.steps + row.pad === size && row.steps > 0));
  }
  assert.deepEqual([account(lengths, 64, 64).late, account(lengths, 64, 64).seen], [0, 1]);
});

test("boxes are arranged completely, and stay inside if they may wrap", () => {
  const boxes = [5, 13, 1, 40].map((size, i) => ({ size, i }));
  const runs = flow(boxes, 10, { wrap: true });
  boxes.forEach(({ size, i }) => assert.equal(runs.filter((r) => r.i === i).reduce((a, r) => a + r.size, 0), size));
  assert.ok(runs.every((r) => r.column + r.size <= 10));
  assert.equal(flow([{ size: 30 }], 10, { wrap: false }).length, 1);
});

test("half is left after one half-life", () => {
  const unit = { rate: Math.LN2 / 8, turn: 0.3 };
  near(halfLife(unit), 8);
  near(impulse(unit, 8).envelope[8], 0.5);
  assert.equal(halfLife({ rate: 0, turn: 1 }), Infinity);
  const inside = FAMILIES.lru({ low: 0.9, high: 0.999, phase: 6.28 });
  assert.ok(inside.every(({ rate }) => Math.exp(-rate) >= 0.9 && Math.exp(-rate) <= 0.999));
});

test("attention weights sum to one and are causal", () => {
  const keys = embed([0, 1, 2, 0, 3], 6).map((v) => v.map((x) => 3 * x));
  for (const feature of ["elu", "softmax"]) {
    attention(keys, keys, feature).forEach((row, t) => {
      assert.equal(row.length, t + 1);
      assert.ok(Math.abs(row.reduce((a, b) => a + b, 0) - 1) < 1e-5);
    });
  }
});

test("observations that change a tenth of the actions are decisive, in decreasing order", () => {
  assert.deepEqual(decisive([0.1, 0, 0.75, 0.09, 0.75]), [2, 4, 0]);
  assert.deepEqual(decisive([0, 0.05]), []);
});

test("a triangle has rows of 1, 2, 3, … and omits an incomplete row", () => {
  assert.deepEqual(triangle([1, 2, 3, 4, 5, 6, 7]), [[1], [2, 3], [4, 5, 6]]);
  assert.deepEqual(triangle([7]), [[7]]);
});

test("the fractions inside and outside of a segment sum to one", () => {
  const row = [3, -1, 0, 4, 2, 1e300, 5];
  near(shares(row).reduce((a, b) => a + b, 0), 1);
  assert.deepEqual(shares([0, 0]), [0, 0]);
  for (const size of [1, 2, 3, 7, 20]) {
    const from = first(6, size);
    near(before(row, from) + cumulative(row)[6 - from], 1);
  }
  assert.deepEqual([first(9, 10), first(10, 10), first(5, 1)], [0, 10, 5]);
});

test("a longer segment never truncates more, and one as long as the episode truncates nothing", () => {
  const rows = range(12, (n) => range(n + 1, (i) => 1 + ((7 * i) % 5)));
  assert.equal(average(rows, 12), 0);
  assert.ok(average(rows, 2) > average(rows, 4) && average(rows, 4) > average(rows, 8));
  near(before(rows[11], 11), 1 - rows[11][11] / rows[11].reduce((a, b) => a + b, 0));
});
