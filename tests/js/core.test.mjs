import assert from "node:assert/strict";
import { test } from "node:test";
import { num, percent, pick, range, series, slide } from "../../mmrl/course/widgets/js/core.mjs";
import { ticks } from "../../mmrl/course/widgets/js/plot.mjs";

test("numbers are short, with a typographic minus and a word for invalid numbers", () => {
  const cases = [[0, "0"], [-0.125, "−0.125"], [1234.567, "1230"], [NaN, "NaN"], [-Infinity, "−∞"], [1e-9, "1.0e−9"], [1e7, "1.0e7"], [undefined, "NaN"]];
  for (const [value, text] of cases) assert.equal(num(value), text);
  assert.equal(percent(0.04567), "4.6 %");
  assert.equal(percent(0.5), "50 %");
});

const options = { name: "values", most: 3, fallback: [7] };

test("an empty array is replaced by an example, with a note", () => {
  for (const raw of [[], undefined, null, { values: [], length: 0 }]) {
    const { values, notes } = series(raw, options);
    assert.deepEqual(values, [7]);
    assert.match(notes[0], /`values` is empty/);
  }
});

test("entries that are not finite are drawn as 0 and counted", () => {
  const { values, notes } = series({ values: [1, null, NaN], length: 3 }, options);
  assert.deepEqual(values, [1, 0, 0]);
  assert.match(notes[0], /2 entries that are not finite \(step 1 first\)/);
});

test("a very long array is truncated, and its length is reported", () => {
  const { values, notes } = series({ values: [1, 2, 3], length: 1e8 }, options);
  assert.deepEqual(values, [1, 2, 3]);
  assert.match(notes[0], /has 100000000 steps; the first 3 are shown/);
});

test("a valid array has no notes", () => {
  assert.deepEqual(series([1, 2], options), { values: [1, 2], notes: [] });
});

test("a slider handles every key of a slider and no other key", () => {
  const at = { min: 0, max: 1, step: 0.1 };
  assert.equal(slide("ArrowRight", 0.2, at), 0.3);
  assert.equal(slide("ArrowUp", 0.2, at), 0.3);
  assert.equal(slide("ArrowDown", 0.2, at), 0.1);
  assert.equal(slide("ArrowLeft", 0, at), 0);
  assert.equal(slide("PageUp", 0.95, { ...at, step: 0.05 }), 1);
  assert.equal(slide("PageDown", 50, { min: 0, max: 100, step: 1 }), 40);
  assert.equal(slide("Home", 0.2, at), 0);
  assert.equal(slide("End", 0.2, at), 1);
  for (const key of ["a", "Tab", "Enter", "Escape", " "]) assert.equal(slide(key, 0.2, at), null);
});

test("down and right select the next radio button, and up and left the previous one", () => {
  for (const key of ["ArrowRight", "ArrowDown"]) assert.equal(pick(key, 1, 4), 2);
  for (const key of ["ArrowLeft", "ArrowUp"]) assert.equal(pick(key, 1, 4), 0);
  assert.equal(pick("Home", 2, 4), 0);
  assert.equal(pick("End", 1, 4), 3);
  for (const key of ["PageUp", "PageDown", "Tab", " "]) assert.equal(pick(key, 1, 4), null);
});

test("a slider reaches its ends and stays on its grid", () => {
  let value = 0.1;
  const at = { min: 0.1, max: 1, step: 0.05 };
  for (const _ of range(40)) value = slide("ArrowRight", value, at);
  assert.equal(value, 1);
  for (const _ of range(7)) value = slide("ArrowLeft", value, at);
  assert.equal(value, 0.65);
});

test("ticks are round numbers within the range", () => {
  assert.deepEqual(ticks(0, 1, 4), [0, 0.5, 1]);
  assert.deepEqual(ticks(-1, 7, 4), [0, 2, 4, 6]);
  assert.ok(ticks(0, 0, 3).length >= 1);
});
