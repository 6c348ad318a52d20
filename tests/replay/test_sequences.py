"""Sequences against a plain model of them, their laws of sampling, their cost and their errors."""

import re
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.replay import sequences, tree
from mmrl.replay.cutting import Cut
from tests.replay import sequences_oracle as oracle
from tests.replay.sequences_oracle import (
    EXAMPLE,
    SMALL,
    STATE,
    Model,
    Setting,
    add,
    assert_same,
    at,
    begins,
    sample,
    steps,
    storage_of,
    window,
)

SETTINGS = {
    "deep tree": Setting(3, 36, 5, 6, 3, burn_in=4, tail=2, alpha=1.0, top=8, branch=5),
    "every step begins one, long prefix and tail": Setting(
        2, 27, 4, 3, 2, burn_in=7, tail=5, alpha=0.6, eta=0.0
    ),
    "rollouts of one step": Setting(2, 27, 1, 4, 1, burn_in=7, tail=4, alpha=0.6, eta=0.5),
    "disjoint, longest rollout": Setting(2, 16, 9, 4, 0, burn_in=0, tail=0, alpha=1.0, eta=1.0),
}
HISTORIES, CALLS, BATCH, BETA = 12, 40, 5, 0.6


def histories(setting: Setting, seed: int):
    """Ids, ends and |δ| of [history, call, worker, time], and new priorities for every row."""
    generator = np.random.default_rng(seed)
    shape = (HISTORIES, CALLS, setting.workers, setting.time)
    often = generator.choice([0.0, 0.02, 0.1, 0.3, 0.9], (*shape[:2], 1, 1))
    often[::2] = often[::2, :1]  # of every other history, all episodes are of one kind
    ids = 1 + np.broadcast_to(np.arange(np.prod(shape[1:])).reshape(shape[1:]), shape)
    errors = generator.exponential(size=shape) ** 2
    values = generator.exponential(size=(*shape[:2], setting.capacity)) * 3
    values[generator.random(values.shape) < 0.1] = np.nan
    return ids, generator.random(shape) < often, np.float32(errors), np.float32(values)


def record(setting: Setting, inputs, seed: int):
    """What was stored and drawn before every call of set_priority and add, and all at the end."""

    def call(t, x):
        ids, last, errors, values, key = x
        batch = sequences.sample(t, key, BATCH, BETA)
        weights = tree.weights(t.sums, jnp.arange(setting.capacity))[:, 0]
        table = t.available, t.past, weights, t.count
        t = sequences.set_priority(t, batch.rows, values.at[batch.rows].get(mode="clip"))
        return sequences.add(t, *steps(ids, last), errors), (table, batch)

    def history(*inputs):
        t = sequences.init(EXAMPLE, STATE, setting.capacity, **setting.sizes)
        t, trace = jax.lax.scan(call, t, inputs)
        rows = jnp.arange(setting.capacity, dtype=jnp.int32)
        again = tree.build(tree.weights(t.sums, rows).T)
        everything = sequences.window(t, rows, setting.burn_in)
        return t, again, everything, trace

    keys = jax.random.split(jax.random.key(seed), (HISTORIES, CALLS))
    return jax.device_get(jax.jit(jax.vmap(history))(*map(jnp.asarray, inputs), keys))


# What no history of a setting can reach.
NEVER = {
    "deep tree": set(),
    # What begins a step later brings a step that is new only if it is as long.
    "every step begins one, long prefix and tail": {"short last sequence"},
    "rollouts of one step": {"several ends in a rollout"},
    # Neither prefix nor tail, so that one sequence at a time is being written.
    "disjoint, longest rollout": {
        "prefix cut by the begin",
        "tail cut by the end",
        "several pending at an end",
    },
}


@pytest.mark.full_except("rollouts of one step", "disjoint, longest rollout")
@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_equals_a_plain_model(name, monkeypatch):
    setting, counts = SETTINGS[name], Counter()
    monkeypatch.setattr(tree, "TOP", setting.top)
    monkeypatch.setattr(tree, "BRANCH", setting.branch)
    inputs = histories(setting, seed=0)
    end, again, everything, (tables, samples) = record(setting, inputs, seed=0)
    for history in range(HISTORIES):
        model = Model(setting)
        for call in range(CALLS):
            table, batch = at(tables, history, call), at(samples, history, call)
            oracle.check_table(model, table)
            oracle.check_sample(model, table, batch, BETA, counts)
            ids, last, errors, values = (x[history, call] for x in inputs)
            for row in set(batch.rows[batch.rows < setting.capacity].tolist()):
                counts["priority not a number"] += np.isnan(values[row])
                if np.isfinite(values[row]):
                    model.priority[model.may()[row]] = values[row]
            oracle.count_new(model, model.add(ids, last, errors), counts)
        for row in np.flatnonzero(end.available[history]):
            oracle.check_window(model, at(everything, history), row, counts)
        oracle.check_every_step_is_trained(model, at(everything, history), counts)
    for ours, expected in zip(end.sums, again, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=0)
    # No case may be missing from the counter because it was never asked for.
    assert {case for case, times in counts.items() if times == 0} == NEVER[name], dict(counts)
    assert len(counts) == 17


@pytest.mark.slow
def test_every_step_is_trained_also_in_episodes_shorter_than_a_sequence():
    """With the sizes of the paper, all terminals are stored; so are they all in Catch's episodes.

    It is easy to get wrong. JORLDY stores when an episode has begun and whenever it has not stored
    for 40 steps: typed from its code (length 80, n = 5), that stores no terminal of 2000 episodes
    of 9 steps, and 17% of those of 5000 whose lengths are geometric with a mean of 50.
    """
    generator = np.random.default_rng(3)
    lengths = np.concatenate([np.full(50, 9), generator.geometric(0.02, 20), [250, 1, 80, 81, 120]])
    t = storage_of(lengths, 4000, length=80, overlap=40, burn_in=40, tail=4)
    rows = begins(t)
    assert t.count == rows.size == sum(len(oracle.cuts(n, 80, 40)) for n in lengths)
    result = window(t, rows, 40)
    times = np.bincount(result.steps.id[result.loss_mask], minlength=1 + sum(lengths))
    assert times[0] == 0 and set(times[1:]) == {1, 2}
    assert (times[np.cumsum(lengths)] > 0).all()


def random_rollouts(seeds, workers, time, often=(0.02, 0.1, 0.5, 1.0)):
    generator = np.random.default_rng(7)
    shape = (seeds, workers, time)
    ids = 1 + np.broadcast_to(np.arange(workers * time).reshape(shape[1:]), shape)
    last = generator.random(shape) < np.resize(often, seeds)[:, None, None]
    return ids, last, np.float32(generator.exponential(size=shape))


def test_no_scatter_gives_a_row_two_weights(monkeypatch: pytest.MonkeyPatch):
    """Accelerators apply the updates of duplicate rows in any order."""
    update, rows_in_both = tree.update, 0

    def checked(sums, rows, weights, cover=None, zeros=None):
        nonlocal rows_in_both
        for row in np.unique(rows):
            assert len(np.unique(np.asarray(weights)[np.asarray(rows) == row])) == 1
        rows_in_both += len(np.intersect1d(rows, zeros))
        return update(sums, rows, weights, cover, zeros)

    monkeypatch.setattr(tree, "update", checked)
    t = sequences.init(EXAMPLE, STATE, 80, workers=2, **SMALL)
    ends = np.broadcast_to(np.arange(16) % 4 == 3, (2, 16))
    for call in range(6):
        ids = 1 + np.arange(16 * call, 16 * call + 16) + np.zeros((2, 1), int)
        rollout, states = jax.tree.map(jnp.asarray, steps(ids, ends))
        t = sequences.add(t, rollout, states, jnp.ones((2, 16)))
        stored = np.asarray(t.table[:, 0]) > 0
        np.testing.assert_array_equal(
            tree.weights(t.sums, jnp.arange(len(stored)))[:, 0] > 0, stored
        )
    assert rows_in_both > 0


@pytest.mark.slow
def test_one_long_rollout_is_two_short_ones():
    ids, last, errors = (x[0] for x in random_rollouts(1, 2, 30, often=[0.2]))
    t = sequences.init(EXAMPLE, STATE, 80, workers=2, **SMALL)
    t = add(t, *steps(ids[:, ::-1], np.zeros((2, 30), bool)), errors)
    once = add(t, *steps(ids, last), errors)
    twice = add(t, *steps(ids[:, :13], last[:, :13]), errors[:, :13])
    twice = add(twice, *steps(ids[:, 13:], last[:, 13:]), errors[:, 13:])
    assert_same(once, twice, rtol=1e-6)
    assert once.count > 5 and (once.current_length > 0).any()


@pytest.mark.full
@pytest.mark.slow
def test_seeds_under_vmap_are_seeds_alone():
    def run(ids, last, errors, alpha, key):
        t = sequences.init(EXAMPLE, STATE, 160, workers=2, alpha=alpha, **SMALL)
        t = sequences.add(t, *steps(ids, last), errors)
        return t, sequences.sample(t, key, 6)

    inputs = *random_rollouts(4, 2, 40), np.float32([0, 0.5, 0.9, 1])
    inputs = *inputs, jax.random.split(jax.random.key(8), 4)
    together, alone = jax.jit(jax.vmap(run))(*inputs), jax.jit(run)
    for i in range(4):
        assert_same(at(together, i), alone(*(x[i] for x in inputs)), rtol=1e-6)
    assert len({x.tobytes() for x in np.asarray(together[0].available)}) == 4


@pytest.mark.slow
def test_a_loop_copies_nothing_of_the_capacity():
    """add, sample and set_priority in a loop write in place: no copy in the compiled program."""
    capacity, shape = 1 << 17, (16, 16)

    def body(t, x):
        t = sequences.add(t, *steps(jnp.ones(shape) * x[0], jnp.ones(shape)), jnp.ones(shape))
        batch = sequences.sample(t, x[1], 8)
        errors = batch.steps.id.astype(jnp.float32)
        values = sequences.priority(errors, batch.loss_mask)
        return sequences.set_priority(t, batch.rows, values), batch.weights.sum()

    def loop(t):
        keys = jax.random.split(jax.random.key(0), 10)
        return jax.lax.scan(body, t, (jnp.arange(10), keys))

    options = {"workers": 16, "length": 16, "overlap": 8, "burn_in": 8, "tail": 4}
    t = eqx.filter_eval_shape(sequences.init, EXAMPLE, STATE, capacity, **options)
    t = jax.tree.map(lambda x: jax.ShapeDtypeStruct((3, *x.shape), x.dtype), t)
    program = jax.jit(jax.vmap(loop), donate_argnums=0).lower(t).compile().as_text()
    copies = re.findall(r"= \w+\[([\d,]+)\]\S* (?:copy|select|transpose)\(", program)
    assert copies, "the pattern no longer fits the program's text"
    # One state for 8 steps is the smallest of what grows with the capacity.
    assert max(np.prod([int(n) for n in shape.split(",")]) for shape in copies) < capacity // 8


def test_64_bit_changes_no_type(x64):
    """Indices and weights keep their 32 bits, so a loop can carry the storage."""
    t = jax.eval_shape(lambda: sequences.init(EXAMPLE, STATE, 4096, workers=2, **SMALL))
    rollout, states = steps(np.ones((2, 5)), np.ones((2, 5)))
    values, rows = jnp.ones((2, 5)), jnp.ones(17, jnp.int32)
    assert values.dtype == jnp.float64
    batch = jax.eval_shape(lambda t, key: sequences.sample(t, key, 17), t, jax.random.key(0))
    for after in (
        jax.eval_shape(sequences.add, t, rollout, states, values.astype(jnp.float32)),
        jax.eval_shape(sequences.add, t, rollout, states, values),
        jax.eval_shape(sequences.set_priority, t, rows, jnp.ones(17)),
    ):
        assert after == t
    assert batch.rows.dtype == jnp.int32 and batch.weights.dtype == jnp.float32


SIZES = {"capacity": 64, "workers": 2, **SMALL}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "`length` must be at least 1, got 0"),
        ({"burn_in": -1}, "`burn_in` must be at least 0, got -1"),
        ({"tail": -1}, "`tail` must be at least 0, got -1"),
        ({"overlap": 4}, "`overlap` must be at least 0 and less than `length` = 4, got 4"),
        ({"overlap": -1}, "less than `length` = 4, got -1"),
        ({"workers": 0}, "`workers` must be at least 1, got 0"),
        (
            {"capacity": 0},
            "`capacity` must be a positive multiple of `workers` = 2 times 2, that is of 4,",
        ),
        ({"capacity": 66}, "got 66. Try 64"),
        ({"capacity": 12}, "`capacity` must be at least 16, .* 2 workers"),
        ({"example": ()}, "`example` must .*array"),
    ],
)
def test_init_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        sequences.init(**{"example": EXAMPLE, "state": STATE, **SIZES, **arguments})


def test_the_least_capacity_stores_a_sequence():
    t = sequences.init(EXAMPLE, STATE, **{**SIZES, "capacity": 16})
    for i in range(12):
        t = add(t, *steps(np.full((2, 1), 1 + i), np.zeros((2, 1))), np.ones((2, 1), np.float32))
    assert t.count == 2


def test_add_refuses_what_does_not_fit():
    t = sequences.init(EXAMPLE, STATE, **SIZES)
    rollout, states = steps(np.ones((2, 5)), np.ones((2, 5)))
    errors = np.ones((2, 5), np.float32)
    jax.eval_shape(sequences.add, t, rollout, states, errors)
    longer = *steps(np.ones((2, 26)), np.ones((2, 26))), np.ones((2, 26), np.float32)
    swap = jax.tree.map(lambda x: x.swapaxes(0, 1), states)
    other = eqx.tree_at(lambda s: s.pixels, rollout, rollout.id)
    short = {**states, "h": states["h"][:, :, 1:]}
    for bad, message in [
        (longer, "`rollout` must have 1 to 25 steps per worker.* got 26"),
        ((at(rollout, 0), states, errors), r"`rollout.last` must be .*\[worker, time\]"),
        ((other, states, errors), "`rollout` must .*PyTreeDef"),
        ((rollout, states["h"], errors), "`states` must .*PyTreeDef"),
        ((rollout, short, errors), r"`states` .* got .*\[2, 5, 1\]"),
        # Tests check the types of arguments first, so that both must be wrong in one way.
        ((rollout, swap, errors.T), r"`states` must .* float32\[2, 5, 2\], got .*\[5, 2, 2\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(sequences.add, t, *bad)


def test_sample_refuses_an_empty_batch():
    with pytest.raises(ValueError, match="`batch` must be at least 1 sequence, got 0"):
        sample(storage_of([2], 32), jax.random.key(0), 0)


@pytest.mark.parametrize("length, overlap, burn_in", [(5, 3, 2), (4, 0, 3), (7, 6, 0)])
def test_an_episode_beyond_2_to_the_31_steps_is_cut_in_the_same_places(length, overlap, burn_in):
    cut = Cut(length, overlap, burn_in, 2)
    steps = np.arange(2**31 - 60, 2**31 - 1)
    result = np.asarray(cut.wrap_counter(jnp.asarray(steps, jnp.int32)), np.int64)
    assert (result < 2**30 + 60).all() and (result > 2**30 - 60).all()
    assert ((steps - result) % (cut.period * cut.within) == 0).all()
    np.testing.assert_array_equal(cut.wrap_counter(jnp.arange(9)), np.arange(9))
