// The browser's results equal JAX's: tests/course/widgets/test_widgets.py writes the results of mmrl.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { FAMILIES } from "../../mmrl/course/widgets/js/memory_explorer.mjs";
import { PATTERNS, lives } from "../../mmrl/course/widgets/js/patterns.mjs";
import { chances, drawn, effective, gradient, importance, priorities, sequences } from "../../mmrl/course/widgets/js/priority_explorer.mjs";
import { adjusted, centerOf, clipped, decayOf, penalized, spanOf, trail } from "../../mmrl/course/widgets/js/proximal.mjs";
import { layers, layout, marks, unpack } from "../../mmrl/course/widgets/js/graph_evolution.mjs";
import { difference, first as shownFirst, inOrder, levels as treeLevels } from "../../mmrl/course/widgets/js/lift_inspector.mjs";
import { episode, unpack as arraysOf } from "../../mmrl/course/widgets/js/live_agent.mjs";
import { MEMORIES, errors, follow } from "../../mmrl/course/widgets/js/recurrence.mjs";
import { bins, held, inclusion, kept, pooled, streams, thresholds, turns, uniformity } from "../../mmrl/course/widgets/js/reservoirs.mjs";
import { INVERSES, rescale } from "../../mmrl/course/widgets/js/rescaling_explorer.mjs";
import { climb } from "../../mmrl/course/widgets/js/rubber_band.mjs";
import { episodes, influence, leak, states } from "../../mmrl/course/widgets/js/reset_explorer.mjs";
import { MONOIDS, resettable } from "../../mmrl/course/widgets/js/monoids.mjs";
import { count, run, schedule } from "../../mmrl/course/widgets/js/scan_player.mjs";
import { LINKS, MODELS, cost } from "../../mmrl/course/widgets/js/scaling_calculator.mjs";
import { follow as happened, lead, peak } from "../../mmrl/course/widgets/js/schedule_explorer.mjs";
import { account, split } from "../../mmrl/course/widgets/js/segments_explorer.mjs";
import { average, before, cumulative, first } from "../../mmrl/course/widgets/js/sensitivity_explorer.mjs";
import { triangle } from "../../mmrl/course/widgets/js/triangles.mjs";
import { cut, uses } from "../../mmrl/course/widgets/js/sequence_cutter.mjs";
import { heard, prefixes, sharded } from "../../mmrl/course/widgets/js/sharded_scan_player.mjs";
import { frontier, tiles } from "../../mmrl/course/widgets/js/tile_explorer.mjs";
import { follow as stored, lastReader, next } from "../../mmrl/course/widgets/js/step_debugger.mjs";
import { TARGETS } from "../../mmrl/course/widgets/js/targets.mjs";
import { START, best, keeps, learn, valleys } from "../../mmrl/course/widgets/js/valleys.mjs";
import { contributions, fixedPoint, trace } from "../../mmrl/course/widgets/js/vtrace_explorer.mjs";

const path = process.env.MMRL_VECTORS;
const vectors = path ? JSON.parse(readFileSync(path, "utf8")) : {};
const each = (name, check) =>
  test(name, { skip: path ? false : "run by tests/course/widgets/test_widgets.py, which has JAX" }, () => {
    assert.ok(vectors[name].length > 0);
    for (const vector of vectors[name]) check(vector);
  });

// Rows such as { call: "returns_explorer.weights", given: ["gae", …], wanted: … } need no test here.
for (const [name, rows] of Object.entries(vectors).filter(([, rows]) => rows[0]?.call)) {
  test(name, async () => {
    for (const { call, given, wanted } of rows) {
      const [file, pure] = call.split(".");
      const module = await import(`../../mmrl/course/widgets/js/${file}.mjs`);
      close(module[pure](...given), wanted, `${call}(${JSON.stringify(given)})`);
    }
  });
}

function close(got, wanted, where) {
  if (wanted?.constructor === Object) {
    for (const [name, value] of Object.entries(wanted)) close(got[name], value, `${where}.${name}`);
    return;
  }
  if (Array.isArray(wanted)) {
    assert.equal(got.length, wanted.length, where);
    wanted.forEach((w, i) => close(got[i], w, `${where}[${i}]`));
    return;
  }
  assert.ok(Math.abs(got - wanted) <= 1e-6 * Math.max(1, Math.abs(wanted)), `${where}: ${got}, not ${wanted}`);
}

each("schedule", ({ length, method, chunk, levels, work, depth }) => {
  const mine = schedule(length, method, chunk);
  assert.deepEqual(mine, levels, `${method}, ${length} steps, chunk ${chunk}`);
  assert.deepEqual(count(mine), [work, depth]);
});

each("prefixes", ({ monoid, xs, gain, method, wanted }) => {
  const m = MONOIDS[monoid];
  const rows = run(m, xs.map((x, t) => m.lift(x, t, gain)), schedule(xs.length, method, 3));
  close(rows.at(-1).map((cell) => [cell.element].flat().at(-1)), wanted, `${monoid}, ${method}`);
  assert.ok(rows.at(-1).every((cell, t) => cell.from === 0 && cell.to === t));
});

each("targets", ({ kind, tape, settings, wanted }) => {
  close(TARGETS[kind](tape, settings), wanted, kind);
});

each("resets", ({ xs, gain, begin, mode, wanted, jacobian }) => {
  close(states(xs, gain, begin, mode), wanted, mode);
  close(influence(xs.length, gain, begin, mode), jacobian, `${mode}, influence`);
  const crossing = leak(jacobian, episodes(begin));
  assert.ok(mode === "select" ? crossing === 0 : crossing > 0);
});

each("segments", ({ lengths, size, real, padding, late, seen }) => {
  close(split(lengths, size).map((row) => row.steps), real, `L = ${size}`);
  const mine = account(lengths, size, 60);
  close([mine.padding, mine.late, mine.seen], [padding, late, seen], `L = ${size}`);
});

each("eigenvalues", ({ family, settings, real, imag }) => {
  const mine = FAMILIES[family](settings);
  close(mine.map(({ rate, turn }) => Math.exp(-rate) * Math.cos(turn)), real, family);
  close(mine.map(({ rate, turn }) => Math.exp(-rate) * Math.sin(turn)), imag, family);
});

each("sensitivities", ({ values, size, outside, ages }) => {
  const rows = triangle(values);
  close(rows.map((row, n) => before(row, first(n, size))), outside, `L = ${size}`);
  close(average(rows, size), outside.reduce((a, b) => a + b, 0) / outside.length, `L = ${size}, mean`);
  close(cumulative(rows.at(-1)), ages, "by age");
});

each("cuts", ({ lengths, sizes, windows, counts }) => {
  const rows = cut(lengths, sizes);
  const mine = rows.map(({ episode, s, prefix, steps, tail, pad }) => [episode, s, s - prefix, steps, tail, pad]);
  assert.deepEqual(mine, windows, JSON.stringify(sizes));
  assert.deepEqual(uses(lengths, rows), counts);
});

each("priorities", ({ errors, steps, settings, wanted, hits }) => {
  const p = priorities(sequences(errors, steps), settings.eta);
  const P = chances(p, settings.alpha);
  const w = importance(P, settings.beta);
  const mine = { p, P, w, share: gradient(P, w), effective: effective(P) };
  for (const [name, value] of Object.entries(wanted)) close(mine[name], value, name);
  assert.deepEqual(drawn(P, 200), hits);
});

each("rescalings", ({ xs, eps, y, back, textbook, stable }) => {
  close(xs.map((x) => rescale(x, eps)), y, `h, ε = ${eps}`);
  close(y.map((x) => INVERSES.stable(x, eps)), back, `h⁻¹, ε = ${eps}`);
  // If every operation is rounded, float32 results are identical everywhere, bit for bit.
  const trip = (kind) => xs.map((x) => INVERSES[kind](rescale(x, eps, Math.fround), eps, Math.fround) + 0);
  assert.deepEqual([trip("textbook"), trip("stable")], [textbook, stable].map((row) => row.map((x) => x + 0)));
});

each("stale", ({ memory, size, xs, learner, actor, settings, deltas }) => {
  const model = { ...MEMORIES[memory], size };
  const paths = { exact: follow(model, learner, xs), acted: follow(model, actor, xs) };
  const mine = errors(model, learner, xs, { ...paths, ...settings });
  assert.deepEqual(Object.keys(mine), Object.keys(deltas));
  for (const [name, values] of Object.entries(deltas)) close(mine[name], values, `${memory}, ${name}`);
});

const PAPER = { batch: 8192, learning_rate: 5e-4, center: 8, advantage_decay: 0, phases: 32, beta1: 0.9, beta2: 0.999 };
const ALL = { learning_rate: true, center: true, advantages: true, phases: true, betas: true };

each("adjustments", ({ c, batch, learning_rate, decays, phases }) => {
  const mine = adjusted(PAPER, c, { optimizer: "adam", on: ALL });
  close([mine.batch, mine.learning_rate / learning_rate, mine.phases], [batch, 1, phases], `c = ${c}`);
  const found = { ...mine, prox: decayOf(mine.center) };
  // The numbers in the table have five to seven digits.
  for (const [name, decay] of Object.entries(decays)) assert.ok(Math.abs(found[name] - decay) < 6e-6, `${name}, c = ${c}`);
});

each("spans", ({ decay, center, span }) => {
  close([centerOf(decay), spanOf(decay), decayOf(center)], [center, span, decay], `β = ${decay}`);
});

each("averages", ({ thetas, center, wanted }) => {
  const mean = { at: [...thetas[0]], weight: 1 };
  const mine = thetas.map((theta, t) => (t && trail(mean, theta, decayOf(center)), [...mean.at]));
  close(mine, wanted, `COM = ${center}`);
});

each("clips", ({ form, settings, logs, wanted }) => {
  const mine = logs.map((log) => (form === "clip" ? clipped : penalized)(log, settings));
  const where = `${form} ${JSON.stringify(settings)}`;
  for (const what of ["value", "gradient"]) close(mine.map((one) => one[what]), wanted[what], `${what}, ${where}`);
});

each("climbs", ({ z, settings, thetas, proxes }) => {
  const rows = climb(z, settings);
  const where = JSON.stringify(settings);
  close(rows.map(({ theta }) => theta), thetas, where);
  assert.equal(rows.at(-1).examples, z.length);
  // A row contains the average after its step, and the two other policies before the step.
  const mine = rows.map(({ prox }) => prox);
  close(settings.proximal === "ewma" ? mine.slice(0, -1) : mine.slice(1), proxes, where);
});

each("traces", ({ tape, settings, values, advantages, adds }) => {
  const mine = trace(tape, settings);
  const where = JSON.stringify(settings);
  close(mine.targets, values, `v̂, ${where}`);
  close(mine.advantages, advantages, `advantages, ${where}`);
  adds.forEach((row, s) => close(contributions(mine, s), row, `step ${s}, ${where}`));
});

each("learned", ({ pi, mu, rho_max, rewards, gamma, value }) => {
  const law = fixedPoint(pi, mu, rho_max);
  close(law.reduce((total, p, i) => total + p * rewards[i], 0) / (1 - gamma), value, `ρ̄ = ${rho_max}`);
});

each("reservoirs", ({ lots, parts, slots, ids, levels, merged }) => {
  const mine = held(lots, parts, slots);
  assert.deepEqual(mine, ids, `${parts} parts of ${slots}`);
  turns(lots.length, parts).forEach((places, part) => {
    close(thresholds(places.map((i) => lots[i]), slots), levels[part], `part ${part}`);
  });
  assert.deepEqual(pooled(lots, parts, slots), merged);
  assert.deepEqual(pooled(lots, parts, slots), kept(held(lots, 1, slots)));
});

each("inclusions", ({ seed, runs, seen, parts, slots, counts, edges, statistic, p, sigma }) => {
  const mine = inclusion(streams(seed, runs, seen), seen, parts, slots);
  assert.deepEqual(mine, counts);
  assert.deepEqual(bins(seen, Math.max(5, parts)), edges);
  const test = uniformity(mine, runs, edges, parts, slots);
  close([test.statistic, test.p], [statistic, p], `${parts} parts of ${slots}`);
  close(test.sigma, sigma, "σ");
});

each("valleys", ({ count, angle, conflict, settings, start, thetas, joint, told }) => {
  const where = `${count} valleys, ${angle} degrees, ${JSON.stringify(settings)}`;
  const tasks = valleys(count, angle, conflict);
  const rows = learn(tasks, settings);
  close(START, start, where);
  close(rows.map(({ theta }) => theta), thetas, where);
  close(best(tasks), joint, `best, ${where}`);
  keeps(tasks, rows, rows.length - 1).forEach((mine, k) => {
    for (const name of ["now", "stage", "kept"]) {
      if (told[k][name] === null) assert.equal(mine[name], null, where);
      else close(mine[name], told[k][name], `${name} of task ${k + 1}, ${where}`);
    }
  });
});

each("patterns", ({ name, T, n, inverse, exact, rows, columns, kept }) => {
  const mine = lives(name, T, n);
  assert.equal(PATTERNS[name].inverse, inverse, name);
  assert.equal(!PATTERNS[name].every, exact, name);
  assert.deepEqual(mine.rows.map((row) => row ?? []), rows, `${name}, T = ${T}, n = ${n}`);
  assert.deepEqual(mine.columns, columns, `${name}, T = ${T}, n = ${n}`);
  assert.deepEqual(mine.alive, kept, `${name}, T = ${T}, n = ${n}`);
  assert.equal(mine.most, Math.max(...kept.map((ks) => ks.length)));
  const slots = (W) => kept.every((ks) => new Set(ks.map((k) => k % W)).size === ks.length);
  assert.ok(slots(mine.ring) && (mine.ring === 1 || !slots(mine.ring - 1)));
});

each("schedules", ({ events, alive, lead: ahead, peak: most }) => {
  const runs = happened(events);
  assert.deepEqual(runs.map((run) => [...run.alive].sort((a, b) => a - b)), alive);
  assert.deepEqual([lead(runs), peak(runs)], [ahead, most]);
});

each("tiles", ({ n, m, T, launches, peak: most }) => {
  const mine = tiles(T, n ?? Infinity, m);
  assert.deepEqual([mine.launches, mine.peak], [launches, most], `n = ${n}, m = ${m}, T = ${T}`);
  assert.equal(mine.peak, Math.min(T, m + (n ?? T) - 1));
  const best = frontier(T, n ?? Infinity);
  assert.ok(best.some((one) => one.launches <= launches && one.peak <= most));
  if (n) best.slice(1).forEach((one, i) => assert.ok(one.launches < best[i].launches && one.peak >= best[i].peak));
});

each("debugged", ({ program, peaks, timeline, alive }) => {
  const { events } = program;
  assert.deepEqual(stored(program, 0).most, peaks);
  events.forEach((event, at) => {
    const now = stored(program, at);
    const here = [...now.cells].filter(([, status]) => status === "alive" || status === "new").map(([key]) => key);
    assert.equal(here.length, timeline[at]);
    assert.deepEqual(here.sort(), alive[at]);
    assert.deepEqual(now.alive.reduce((a, b) => a + b), timeline[at]);
    const [line, , what, t, reads] = event;
    for (const [k, s] of reads ?? []) assert.ok(here.includes(`${k} ${s}`), `${what}[${t}] reads what is there`);
    if (!reads) assert.equal(now.cells.get(`${what} ${t}`), "going");
    // The last reader ran before, and there is no later reader.
    if (!reads) assert.equal(lastReader(events, at, what, t), lastReader(events, events.length, what, t));
    assert.equal(events[next(events, at, line)][0], line);
    assert.ok(next(events, at, line) === at || next(events, at, line) < at || events.slice(at + 1, next(events, at, line)).every((each) => each[0] !== line));
  });
  assert.equal(next(events, 5, -1), 5);
});

each("inspected", ({ shown, T, levels, depth, work, gap, inputs, mixed, order }) => {
  assert.deepEqual(inOrder(mixed), order);
  const mine = treeLevels(T);
  assert.deepEqual(mine, levels);
  assert.deepEqual([mine.length, mine.flat().length], [depth, work]);
  const run = shownFirst(shown, T);
  close(run.inputs, inputs, shown.title);
  assert.equal(run.loop.length, T);
  if (shown.form) close(difference(run.loop, run.tree), gap, shown.title);
});

each("evolved", ({ name, stage, edges }) => {
  const graph = unpack(stage);
  assert.deepEqual([graph.name, graph.edges.length], [name, edges.length]);
  graph.edges.forEach(({ sink, source, output, phi, psi }, k) => {
    assert.equal(`${sink} <- ${source}${output ? `.${output}` : ""}[${phi}]${psi ? ` if ${psi}` : ""}`, edges[k]);
  });
  const layer = layers(graph.ops, graph.edges);
  for (const { sink, source, loop } of graph.edges) assert.ok(loop || layer[source] < layer[sink], `${source} above ${sink}`);
  for (const width of [300, 376, 552]) {
    const { rows, wide, height } = layout(graph, width);
    assert.equal(height, rows.length * 54);
    assert.deepEqual(rows.flatMap((row) => row.flatMap(({ op }) => (op ? [op.name] : []))).sort(), graph.ops.map((op) => op.name).sort());
    for (const row of rows) {
      row.forEach(({ x, op }, j) => {
        const half = op ? wide / 2 : 0;
        assert.ok(x - half >= -0.01 && x + half <= width + 0.01, `${name}: ${op?.name} at ${x} of ${width}`);
        const before = row[j - 1];
        if (before) assert.ok(x - before.x >= half + (before.op ? wide / 2 : 0), `${name}: ${op?.name} overlaps ${before.op?.name}`);
      });
    }
  }
  assert.ok(Object.values(marks(graph, graph)).every((mark) => mark === ""));
  const less = { ...graph, ops: graph.ops.slice(1), edges: graph.edges.slice(0, -1) };
  const found = marks(graph, less);
  assert.equal(found[graph.ops[0].name], "new");
  assert.equal(found[edges.at(-1).split(" ")[0]], graph.ops[0].name === edges.at(-1).split(" ")[0] ? "new" : "changed");
});

each("plays", ({ policy, deck, wipes, wanted }) => {
  const steps = episode(policy, arraysOf(policy), deck, wipes);
  assert.equal(steps.length, 51);
  steps.forEach((step, t) => {
    for (const name of ["outputs", "sizes"]) {
      wanted[t][name].forEach((w, i) => assert.ok(Math.abs(step[name][i] - w) < 1e-4 * (1 + Math.abs(w)), `${name} at ${t}`));
    }
    assert.equal(step.right, step.said === deck[0]);
  });
});

each("sharded", ({ monoid, xs, gain, reset, devices, reverse, states: wanted, totals }) => {
  const m = MONOIDS[monoid];
  const mine = sharded(resettable(m), xs.map((x, t) => [m.lift(x, t, gain), t === reset]), devices, reverse);
  const where = `${monoid}, ${devices} devices, reset at ${reset}${reverse ? ", from the end" : ""}`;
  close(mine.states.map(([h]) => [h].flat().at(-1)), wanted, where);
  close(mine.totals.map((total) => total.flat().map(Number)), totals, `${where}: totals`);
  mine.before.forEach((past, i) => {
    const said = heard(mine.totals, i, reverse).reverse().map((j) => mine.totals[j]);
    assert.deepEqual(prefixes(resettable(m), said).at(-1) ?? [m.identity, false], past, `${where}: the past of ${i}`);
  });
});

each("costs", ({ model, d, steps, devices, network, united, sizes, wanted }) => {
  assert.deepEqual(MODELS[model].leaves(d), sizes, model);
  const mine = cost(sizes, steps, devices, LINKS[network], united);
  for (const [name, number] of Object.entries(wanted)) {
    assert.ok(Math.abs(mine[name] - number) <= 1e-12 * number, `${model}, ${devices} devices, ${network}: ${name}`);
  }
});
