"""The probes of the models page: their tapes, their scores of known readers, and both grids."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import memory
from mmrl.course.experiments import experiment_model_times as times
from mmrl.course.experiments import experiment_models as models
from mmrl.course.experiments import recall_probes as probes

LENGTH = 24


def sample_tape(pairs: int = 40, length: int = LENGTH, seed: int = 0) -> probes.Tape:
    return probes.tapes(np.random.default_rng(seed), pairs, length)


def reader(reach: int, sees_order: bool, lasts: int = 10**6) -> Any:
    """Return a network that knows the last `reach` symbols and perhaps the order of the marks.

    After `lasts` steps it knows neither.
    """

    def net(xs: Any) -> tuple[Any, Any]:
        steps = np.arange(len(xs))
        logits = [
            jnp.where((lag <= reach) & (steps < lasts), 1.0, 0.0)[:, None]
            * xs[np.maximum(steps - lag, 0), : probes.SYMBOLS]
            for lag in probes.LAGS
        ]
        a, b = jnp.argmax(xs[:, -2]), jnp.argmax(xs[:, -1])
        sign = jnp.where(steps < lasts, jnp.sign(b - a), -1)
        return jnp.stack(logits, axis=1), sign * 1.0 if sees_order else jnp.ones(len(xs))

    return net


def test_the_cells_are_all_memories():
    for grid in (models.GRID, times.GRID):
        assert [cell.name for cell in grid.cells] == list(memory.NAMES)
    assert len(models.RATES) == len(models.SEEDS) and models.TUNED_ON not in models.SEEDS


def test_twins_differ_in_the_order_of_their_marks_only():
    batch = sample_tape(400)
    symbols, places = np.asarray(batch.symbols), np.asarray(batch.places)
    np.testing.assert_array_equal(symbols[::2], symbols[1::2])
    np.testing.assert_array_equal(places[::2], places[1::2, ::-1])
    assert {*symbols.ravel().tolist()} == {*range(probes.SYMBOLS)}
    assert (places[:, 0] != places[:, 1]).all()
    assert {*places.ravel().tolist()} == {*range(LENGTH - 1)}, "the last step reveals no mark"
    assert sample_tape(50, 300).places.max() < probes.TRAIN_STEPS - 1


def test_inputs_and_answers_are_those_of_a_plain_loop():
    batch = sample_tape(1)
    tape = jax.tree.map(lambda x: x[0], batch)
    symbols, (a, b) = tape.symbols.tolist(), tape.places.tolist()
    answers, mask = (np.asarray(x) for x in tape.past())
    inputs = np.asarray(tape.inputs())
    for t in range(LENGTH):
        row = [float(symbols[t] == s) for s in range(probes.SYMBOLS)]
        assert inputs[t].tolist() == [*row, float(t == a), float(t == b)]
        assert bool(tape.decided()[t]) == (t >= max(a, b))
        for i, lag in enumerate(probes.LAGS):
            assert mask[t, i] == (t >= lag)
            if t >= lag:
                assert answers[t, i] == symbols[t - lag]
    assert bool(tape.first()) == (a < b)


@pytest.mark.parametrize(("reach", "lasts"), [(1, 10**6), (4, 10**6), (8, 60)])
def test_a_memory_of_k_steps_recalls_exactly_k(reach: int, lasts: int):
    scores = probes.evaluate(reader(reach, True, lasts), sample_tape(40, 3 * 32), 32)
    recall, longer = np.asarray(scores.recall), np.asarray(scores.longer)
    for i, lag in enumerate(probes.LAGS[:5]):
        if lag <= reach:
            assert recall[i] == 1 and (longer[i] == 1) == (lasts > 96)
        else:
            assert abs(recall[i]) < 0.15 and abs(longer[i]) < 0.15
    assert scores.order == 1 and (scores.longer_order == 1) == (lasts > 96)


def test_a_memory_without_order_scores_zero():
    scores = probes.evaluate(reader(1, False), sample_tape(40, 64), 32)
    assert scores.order == 0 and scores.longer_order == 0


def test_the_loss_is_the_cross_entropy_of_one_task():
    batch = sample_tape(3)

    def net(xs: Any) -> tuple[Any, Any]:
        rows = jnp.arange(1.0, 1 + len(xs) * len(probes.LAGS) * probes.SYMBOLS)
        return jnp.sin(rows).reshape(len(xs), -1, probes.SYMBOLS), jnp.cos(jnp.arange(len(xs)))

    recall, order = [], []
    for i in range(len(batch.symbols)):
        tape = jax.tree.map(lambda x, i=i: np.asarray(x[i]), batch)
        logits, first = (np.asarray(x, np.float64) for x in net(tape.symbols))
        for t in range(LENGTH):
            for j, lag in enumerate(probes.LAGS):
                if t >= lag:
                    weights = np.exp(logits[t, j])
                    recall.append(-np.log(weights[tape.symbols[t - lag]] / weights.sum()))
        a, b = tape.places
        late = first[max(a, b) :] * (1 if a < b else -1)
        order.append(np.mean(np.log(1 + np.exp(-late))))
    np.testing.assert_allclose(probes.loss(net, batch, 1.0), np.mean(recall), rtol=1e-5)
    np.testing.assert_allclose(probes.loss(net, batch, 0.0), np.mean(order), rtol=1e-5)


def test_training_falls_to_a_rate_of_zero():
    """Adam's first update has the length of the rate in each entry, and the last is smaller."""
    net = probes.Reader("none", 4, key=jax.random.key(0))
    batches = jax.tree.map(lambda x: x[None], sample_tape(2))
    still = probes.train(net, batches, 0.0, 1.0)
    net_after = probes.train(net, batches, 0.25, 1.0)
    before, after = net.read_out.bias, net_after.read_out.bias
    np.testing.assert_array_equal(still.read_out.bias, before)
    slopes = np.asarray(jnp.abs(after - before))[:-1]  # the last output belongs to the other task
    past = slopes[: probes.SYMBOLS * 5]  # lags within the tape
    np.testing.assert_allclose(past, 0.25, rtol=1e-3)
    assert after[-1] == before[-1]
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x]), batches)
    further = probes.train(net, twice, 0.25, 1.0).read_out.bias - before
    assert np.abs(further).max() <= 0.25 + 0.125 * 1.01


def test_numbers_of_a_state_are_real_numbers():
    sizes = {"none": 0, "lru": 2 * 2 * 64, "gru": 64, "frame_stack": 4 * 32 + 1}
    for name, size in sizes.items():
        model = memory.make(name, 32, 32, key=jax.random.key(0))
        assert models.count(model.init()) == size


def test_operations_of_a_linear_layer_and_kinds():
    model = memory.make("none", 32, 16, key=jax.random.key(0))
    assert 2 * 32 * 16 <= models.operations(model) <= 2 * 32 * 16 + 2 * 16
    kinds = {"none": "no memory", "gru": "recurrence", "lru": "monoid", "gtrxl": "stack of monoids"}
    for name, kind in kinds.items():
        assert models.kind(memory.make(name, 8, 8, key=jax.random.key(0))) == kind


def test_each_task_has_the_rate_that_was_best_on_the_other_seed(monkeypatch: pytest.MonkeyPatch):
    calls: list[tuple[list[int], list[list[float]], int]] = []

    def programs(*_: Any) -> Any:
        def scores(seeds: Any, rates: Any, tapes: int) -> probes.Scores:
            calls.append((list(seeds), np.asarray(rates).tolist(), tapes))
            good = np.array([[0.1, 0.5, 0.2], [0.1, 0.2, 0.9]])  # [task, seed or rate]
            lags = np.repeat(good[..., None], len(probes.LAGS), axis=-1)
            return probes.Scores(lags, lags / 2, good, good / 2)

        return scores

    monkeypatch.setattr(models, "programs", programs)
    row = models.measure(models.Cell("none"), False, None)
    low, middle, high = models.RATES
    assert calls[0] == ([models.TUNED_ON] * 3, [[low, middle, high]] * 2, models.TUNED_TAPES)
    assert calls[1] == (list(models.SEEDS), [[middle] * 3, [high] * 3], models.HELD_OUT)
    assert models.TUNED_TAPES != models.HELD_OUT
    assert row["rates"] == {"recall": middle, "order": high}
    assert row["order"] == [0.1, 0.2, 0.9] and row["kept"] == [0.05, 0.1, 0.45]
    assert [seed[0] for seed in row["recall"]] == [0.1, 0.5, 0.2]
    assert [seed[0] for seed in row["longer"]] == [0.05, 0.25, 0.1]


def test_times_are_least_times_divided_by_those_of_the_gru(monkeypatch: pytest.MonkeyPatch):
    seconds = {"own": iter([4.0, 6.0] * 3), "base": iter([2.0, 9.0, 3.0, 1.5, 5.0, 5.0])}
    names = iter(["own", "base"])

    def compiled(model: Any, length: int) -> dict[str, Any]:
        who = next(names)
        cost = {"own": 3.0, "base": 2.0}[who]
        return {"compile": cost, "forward": seconds[who], "both": seconds[who]}

    monkeypatch.setattr(times, "compile_calls", compiled)
    monkeypatch.setattr(times, "processor_seconds", next)
    monkeypatch.setattr(times, "ROUNDS", 3)
    row = times.measure(models.Cell("none"), False, None)
    assert row["seconds"] == {"compile": 3, "forward": 4, "both": 6}
    assert row["base_seconds"] == {"compile": 2, "forward": 2, "both": 1.5}
    assert row["ratios"] == {"compile": 1.5, "forward": 2, "both": 4}


def test_the_timed_programs_are_the_outputs_and_their_gradient():
    model = memory.make("none", 3, 2, key=jax.random.key(0))
    program = times.compile_calls(model, 5)
    xs = jax.random.normal(jax.random.key(1), (5, 3))
    ys = xs @ model.read_out.weight.T + model.read_out.bias[None]
    np.testing.assert_allclose(program["forward"](), ys, rtol=1e-5)
    arrays, d_xs = program["both"]()
    np.testing.assert_allclose(d_xs, 2 * ys @ model.read_out.weight / ys.size, rtol=1e-5)
    np.testing.assert_allclose(arrays.read_out.bias, 2 * ys.sum(0) / ys.size, rtol=1e-5)
