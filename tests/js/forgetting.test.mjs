// Valleys that are learned in sequence: closed forms, and the data of the plots.
import assert from "node:assert/strict";
import { test } from "node:test";
import { stages } from "../../mmrl/course/widgets/js/forgetting_explorer.mjs";
import { START, best, clip, held, keeps, learn, loss, solved, valleys } from "../../mmrl/course/widgets/js/valleys.mjs";

const near = (a, b, by = 1e-9) => assert.ok(Math.abs(a - b) <= by * Math.max(1, Math.abs(b)), `${a}, not ${b}`);
const PLAIN = { protocol: "sequential", steps: 200, cycles: 1, replay: 0, ewc: 0, diagonal: true };
const radians = (degrees) => (degrees * Math.PI) / 180;
const run = (count, angle, conflict, changed = {}) => {
  const tasks = valleys(count, angle, conflict);
  const rows = learn(tasks, { ...PLAIN, ...changed });
  return { tasks, rows, told: keeps(tasks, rows, rows.length - 1) };
};

test("a fraction cos² 2α of task 1 is retained, which is 0 at 45 degrees", () => {
  for (const angle of [0, 10, 30, 45, 60, 80, 90]) {
    const { tasks, rows, told } = run(2, angle, 0);
    near(told[0].kept, Math.cos(radians(2 * angle)) ** 2, 1e-8);
    near(told[1].kept, 1, 1e-8);
    // The forgetting is cos² α times the loss that task 2 removes.
    near(loss(tasks[0], rows.at(-1).theta), Math.cos(radians(angle)) ** 2 * loss(tasks[1], rows[200].theta), 1e-8);
  }
});

test("each stage shrinks the distance to the common solution by cos α", () => {
  for (const angle of [20, 45, 70]) {
    const { rows } = run(2, angle, 0, { cycles: 4 });
    const far = (stage) => Math.hypot(...rows[200 * stage].theta);
    for (let stage = 2; stage <= 8; stage++) near(far(stage) / far(stage - 1), Math.cos(radians(angle)), 1e-6);
  }
});

test("simultaneous training reaches the best compromise, which solves all tasks if valleys meet", () => {
  for (const [count, angle, conflict] of [[2, 30, 1], [3, 60, 0], [3, 40, 0.8], [2, 0, 1]]) {
    const { tasks, rows } = run(count, angle, conflict, { protocol: "simultaneous", cycles: 8 });
    const joint = best(tasks);
    rows.at(-1).theta.forEach((x, i) => near(x, joint[i], 1e-5));
    const clash = tasks.reduce((sum, task) => sum + loss(task, joint), 0);
    assert.equal(clash > 1e-9, conflict > 0 && (count === 3 || angle === 0));
  }
});

test("50 % replay retains tasks that are forgotten without it, and 100 % learns nothing new", () => {
  const kept = [0, 0.25, 0.5].map((replay) => run(2, 45, 0, { replay }).told[0].kept);
  assert.ok(kept[0] < 0.01 && kept[1] > 0.6 && kept[2] > 0.85, String(kept));
  const { rows } = run(2, 45, 0, { replay: 1, steps: 40 });
  // At the first step after the switch, the new task is 1 in 41 of the sample.
  const alone = run(2, 45, 0, { steps: 40 }).rows;
  const first = (some) => Math.hypot(...[0, 1].map((i) => some[41].theta[i] - some[40].theta[i]));
  near(first(rows) / first(alone), 1 / 41, 0.03);
});

test("with the full F and λ = 1, two tasks end at the solution of simultaneous training", () => {
  const { tasks, rows } = run(2, 45, 0, { ewc: 1, diagonal: false, steps: 1200 });
  const joint = best(tasks);
  rows.at(-1).theta.forEach((x, i) => near(x, joint[i], 1e-6));
  const diagonal = run(2, 45, 0, { ewc: 1, steps: 1200 });
  assert.ok(loss(tasks[0], diagonal.rows.at(-1).theta) > 1e-3);
  const [a, b] = held([1, 2], [0, 0], [[1, 0], [0, 0]], 3);
  near(a, 0.25);
  near(b, 2);
});

test("the history of a task starts empty and records when the task is trained", () => {
  const { tasks, rows } = run(3, 30, 0, { steps: 5, cycles: 2 });
  assert.deepEqual(keeps(tasks, rows, 0), tasks.map(() => ({ now: 0, stage: null, kept: null })));
  assert.deepEqual(keeps(tasks, rows, 5).map(({ kept }) => kept), [1, null, null]);
  assert.deepEqual(stages(rows, 30).map(({ task, from, to }) => [task, from, to]), [0, 1, 2, 0, 1, 2].map((task, i) => [task, 5 * i, 5 * i + 5]));
  assert.deepEqual(stages(rows, 7), [{ task: 0, from: 0, to: 5 }, { task: 1, from: 5, to: 7 }]);
  assert.deepEqual(stages(rows, 0), []);
  tasks.forEach((task) => near(solved(task, START), 0));
});

test("a line is clipped to a box", () => {
  const box = { x: { low: -1, high: 1 }, y: { low: -2, high: 2 } };
  assert.deepEqual(clip({ u: [1, 0], y: 0.5 }, box).map(([x]) => x), [0.5, 0.5]);
  assert.equal(clip({ u: [1, 0], y: 1.5 }, box), null);
  const slope = Math.SQRT1_2;
  for (const end of clip({ u: [slope, slope], y: 0 }, box)) near(Math.abs(end[0]) + Math.abs(end[1]), 2);
});
