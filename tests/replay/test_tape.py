"""The tape against a plain Python model of it, its laws of sampling, its cost and its errors."""

import dataclasses
import itertools
import re
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mmrl.replay import segments, tape, tree


class Step(eqx.Module):
    """A rollout that is not the library's: `add` asks for nothing but `last`."""

    id: jax.Array
    pixels: dict
    last: jax.Array


EXAMPLE = Step(
    jnp.zeros((), jnp.int32), {"image": jnp.zeros((2, 3), jnp.uint8)}, jnp.zeros((), bool)
)


def steps(ids, last) -> Step:
    """Steps whose every leaf can be told from their id; 0 is the id of no step."""
    xp = np if isinstance(ids, np.ndarray) else jnp  # numpy does not compile
    ids = xp.asarray(ids, "int32")
    image = xp.broadcast_to((ids % 251)[..., None, None], (*ids.shape, 2, 3)).astype("uint8")
    return Step(ids, {"image": image}, xp.asarray(last, bool))


@dataclasses.dataclass(frozen=True)
class Setting:
    workers: int
    depth: int  # steps in a ring
    time: int  # steps of a rollout, per worker
    batch: int
    top: int = 1024  # shape of the sum tree
    branch: int = 32
    short: int = 16

    @property
    def capacity(self) -> int:
        return self.workers * self.depth


SETTINGS = {
    "deep tree": Setting(3, 24, 5, 17, top=8, branch=3, short=8),
    "rollout as long as a ring": Setting(1, 7, 7, 30),
    "batch of one": Setting(2, 11, 4, 1, top=4, branch=2),
}
HISTORIES, CALLS = 60, 14


def record(setting: Setting, seed: int):
    """Random histories of add and sample, and what the tape held after every one."""
    generator = np.random.default_rng(seed)
    shape = (HISTORIES, CALLS, setting.workers, setting.time)
    often = generator.choice([0.02, 0.1, 0.3, 0.8], HISTORIES)
    last = generator.random(shape) < often[:, None, None, None]
    ids = 1 + np.broadcast_to(np.arange(np.prod(shape[1:])).reshape(shape[1:]), shape)

    def call(t, x):
        ids, last, key = x
        batch = tape.sample(t, key, setting.batch)
        return tape.add(t, steps(ids, last)), (t, tape.valid(t), batch)

    def history(ids, last, key):
        empty = tape.init(EXAMPLE, setting.capacity, workers=setting.workers)
        keys = jax.random.split(key, CALLS)
        end, trace = jax.lax.scan(call, empty, (jnp.asarray(ids), jnp.asarray(last), keys))
        again = tree.build(tape.weights(end.length))
        return end, again, trace

    keys = jax.random.split(jax.random.key(seed), HISTORIES)
    return ids, last, jax.device_get(jax.jit(jax.vmap(history))(ids, last, keys))


class Model:
    """What a tape should be: all steps ever added, and a list of the episodes among them."""

    def __init__(self, setting: Setting):
        self.setting, self.head = setting, 0
        self.open = [[] for _ in range(setting.workers)]
        self.closed = []  # (worker, head at its first step, ids)

    def add(self, ids, last):
        for w, i in np.ndindex(ids.shape):
            self.open[w].append((self.head + i, int(ids[w, i])))
            if last[w, i]:
                first = self.open[w][0][0]
                self.closed.append((w, first, [step for _, step in self.open[w]]))
                self.open[w] = []
        self.head += ids.shape[1]

    def live(self):
        """Whole episodes no step of which has been overwritten."""
        return [e for e in self.closed if e[1] >= self.head - self.setting.depth]

    def row(self, w, first):
        return w * self.setting.depth + first % self.setting.depth


def at(tree, *index):
    return jax.tree.map(lambda x: x[index], tree)


def check_table(model: Model, t: tape.Tape) -> None:
    length = np.zeros(model.setting.capacity, np.int32)
    for w, first, ids in model.live():
        row = model.row(w, first)
        assert length[row] == 0, "two episodes in a row"
        length[row] = len(ids)
    np.testing.assert_array_equal(t.length, length)


def check_sample(model: Model, batch: tape.Sample, counts: Counter) -> list:
    """Whole live episodes, none twice, only the last cut, as many as there are."""
    setting, live = model.setting, {e[2][0]: e for e in model.live()}
    count = int(batch.mask.sum())
    steps = sum(len(e[2]) for e in live.values())
    assert count == min(steps, setting.batch)
    np.testing.assert_array_equal(batch.mask, np.arange(setting.batch) < count)
    ids = batch.steps.id[:count]
    assert len(set(ids.tolist())) == count, "a step twice"
    assert all(not x[count:].any() for x in jax.tree.leaves(batch.steps)), "data without a mask"
    assert batch.begin[count:].all()
    np.testing.assert_array_equal(
        batch.steps.pixels["image"][:count], np.tile((ids % 251)[:, None, None], (1, 2, 3))
    )
    runs = np.split(ids, np.flatnonzero(batch.begin[:count])[1:]) if count else []
    episodes = [live[int(run[0])] for run in runs]
    for i, (run, (w, first, whole)) in enumerate(zip(runs, episodes, strict=True)):
        assert list(run) == whole[: len(run)]
        assert len(run) == len(whole) or i == len(runs) - 1, "cut, but not the last"
        assert batch.rows[i] == model.row(w, first)
        np.testing.assert_array_equal(
            np.flatnonzero(batch.episode[:count] == i), np.isin(ids, run).nonzero()[0]
        )
    assert (batch.rows[len(runs) :] == setting.capacity).all(), "a row that was not sampled"
    quick = -(-setting.batch // setting.short)
    counts["no episode"] += not live
    counts["one episode"] += len(live) == 1
    counts["batch not full"] += 0 < count < setting.batch
    counts["batch full"] += count == setting.batch
    counts["last cut"] += bool(runs) and len(runs[-1]) < len(episodes[-1][2])
    counts["longer race"] += len(runs) > quick
    return episodes


def count_cases(model: Model, before: list, time: int, counts: Counter) -> None:
    live, start = model.live(), model.head - model.setting.depth
    missing = [e for e in before if e not in live]
    counts["evicted"] += bool(missing)
    counts["several evicted at once"] += len(missing) > 1
    dead = [e for e in model.closed if e[1] < start]
    counts["partly overwritten"] += any(e[1] + len(e[2]) > start for e in dead)
    counts["around the ring"] += any(
        e[1] // model.setting.depth != (e[1] + len(e[2]) - 1) // model.setting.depth for e in live
    )
    new = [e for e in model.closed if e[1] + len(e[2]) > model.head - time]
    counts["continued from an earlier rollout"] += any(
        e[1] < model.head - time for e in new if e in live
    )
    counts["too long for a ring"] += any(len(e[2]) > model.setting.depth for e in new)
    counts["overwritten by the rollout that ends it"] += any(
        e[1] < start and len(e[2]) <= model.setting.depth for e in new
    )
    counts["fills the ring"] += any(len(e[2]) == model.setting.depth for e in live)
    counts["several in one rollout"] += len({e[0] for e in new}) < len(new)
    counts["still open"] += any(model.open)


# What no history of a setting can reach.
NEVER = {
    "deep tree": set(),
    # A rollout overwrites all that was there before.
    "rollout as long as a ring": {
        "batch full",
        "last cut",
        "around the ring",
        "continued from an earlier rollout",
    },
    "batch of one": {"batch not full", "longer race"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_equals_a_plain_model(name, monkeypatch):
    setting = SETTINGS[name]
    monkeypatch.setattr(tree, "TOP", setting.top)
    monkeypatch.setattr(tree, "BRANCH", setting.branch)
    monkeypatch.setattr(tape, "SHORT", setting.short)
    ids, last, (end, again, (tapes, valid, samples)) = record(setting, seed=0)
    counts = Counter()
    for history in range(HISTORIES):
        model = Model(setting)
        for call in range(CALLS):
            now = at(tapes, history, call)
            check_table(model, now)
            np.testing.assert_array_equal(valid[history, call], now.length > 0)
            check_sample(model, at(samples, history, call), counts)
            before = model.live()
            model.add(ids[history, call], last[history, call])
            count_cases(model, before, setting.time, counts)
        check_table(model, at(end, history))
    for ours, expected in zip(end.sums, again, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=0)
    never = {case for case, times in counts.items() if times == 0}
    assert never == NEVER[name], dict(counts)


# Eager calls would compile every operation on its own.
add = jax.jit(tape.add)
sample = jax.jit(tape.sample, static_argnums=2)


def tape_of(lengths, *, capacity=None) -> tape.Tape:
    """A tape of one worker with episodes of these lengths, ids counting from 1."""
    total = sum(lengths)
    last = np.zeros(total, bool)
    last[np.cumsum(lengths) - 1] = True
    build = jax.jit(lambda x: tape.add(tape.init(EXAMPLE, capacity or total), steps(*x)))
    return build((1 + np.arange(total)[None], last[None]))


def assert_same(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def orders(weights, count):
    """Every order in which `count` rows may be drawn without replacement, and its probability."""
    for order in itertools.permutations(range(len(weights)), count):
        rest, p = sum(weights), 1.0
        for row in order:
            p, rest = p * weights[row] / rest, rest - weights[row]
        yield order, p


def assert_law(orders_drawn, weights, enough=1e-4) -> None:
    """Chi-square: the orders drawn [draws, count] have the law of successive sampling."""
    law = {order: p for order, p in orders(weights, orders_drawn.shape[1]) if p > 0}
    counts = Counter(map(tuple, orders_drawn.tolist()))
    assert set(counts) <= set(law)
    expected = np.array(list(law.values())) * len(orders_drawn)
    assert expected.min() > 5, "too few draws for the test"
    results = np.array([counts[order] for order in law])
    assert stats.chisquare(results, expected).pvalue > enough


DRAWS = 40_000


@pytest.mark.slow
@pytest.mark.parametrize("top", [2, 1024])
def test_race_is_successive_sampling(top, monkeypatch):
    """P(i, j, k) = wᵢ/Σ · wⱼ/(Σ - wᵢ) · wₖ/(Σ - wᵢ - wⱼ), from a deep tree and from a flat one."""
    monkeypatch.setattr(tree, "TOP", top)
    monkeypatch.setattr(tree, "BRANCH", 2)
    weights = [1.0, 0.0, 0.0, 0.0, 4.0, 0.5, 2.0, 0.0, 3.0]
    sums = tree.build(jnp.array([weights]))

    def race(key):
        short, long = jax.random.split(key)
        noise = tree.noise(sums, short, 2)
        longer = tree.extend(noise, tree.noise(sums, long, 3))
        return tree.race(sums, noise, 2)[0], *tree.race(sums, longer, 5)

    short, long, times = jax.jit(jax.vmap(race))(jax.random.split(jax.random.key(1), DRAWS))
    np.testing.assert_array_equal(short, long[:, :2])
    assert (np.diff(times) >= 0).all() and np.isfinite(times).all()
    assert_law(np.array(long[:, :3]), weights)


def test_race_is_over_when_no_weight_is_left():
    sums = tree.build(jnp.array([[0.0, 2.0, 0.0]]))
    rows, times = tree.race(sums, tree.noise(sums, jax.random.key(0), 9), 9)
    assert rows.shape == (3,) and rows[0] == 1
    assert np.isfinite(times[0]) and np.isinf(times[1:]).all()


@pytest.mark.slow
def test_draw_never_finds_a_row_without_weight(monkeypatch):
    """Not even with the smallest and the largest uniform numbers there are."""
    monkeypatch.setattr(tree, "TOP", 2)
    monkeypatch.setattr(tree, "BRANCH", 2)
    sums = tree.build(jnp.array([[0, 0, 0, 0.1, 0.7, 0, 0.2, 0], [0, 0, 0, 0, 1.0, 0, 0.3, 0]]))
    assert len(sums) == 3
    edges = np.nextafter(np.float32([0, 1]), np.float32([0, 0]))
    uniform = np.stack(np.meshgrid(edges, edges, edges)).reshape(3, -1)
    rows, _ = tree.draw(sums, jnp.array([1.0, 0.5]), jnp.asarray(uniform))
    assert set(rows.tolist()) == {3, 4, 6}


@pytest.mark.slow
def test_every_order_of_episodes_is_as_likely():
    t = tape_of([1, 6, 2, 1])
    rows = np.flatnonzero(t.length)
    keys = jax.random.split(jax.random.key(2), DRAWS)
    # One episode is raced for at first: the other three come from the longer race.
    batch = jax.jit(jax.vmap(lambda key: sample(t, key, 10).rows))(keys)
    assert tape.SHORT >= 10
    assert_law(np.searchsorted(rows, batch[:, :3]), [1.0, 1.0, 1.0, 1.0])


def test_a_long_first_episode_changes_nothing():
    """A batch that the first episode fills and one that needs more follow one law.

    To draw anew whenever the first episodes are too short would favour the long ones.
    """
    t = tape_of([1, 1, 7, 1])
    keys = jax.random.split(jax.random.key(3), DRAWS)
    first = jax.jit(jax.vmap(lambda key: sample(t, key, 7).rows[0]))(keys)
    rows = np.flatnonzero(t.length)
    assert_law(np.searchsorted(rows, first)[:, None], [1.0, 1.0, 1.0, 1.0])


@pytest.mark.slow
def test_one_long_rollout_is_two_short_ones():
    generator = np.random.default_rng(5)
    ids, last = 1 + np.arange(60).reshape(2, 30), generator.random((2, 30)) < 0.2
    t = tape.init(EXAMPLE, 80, workers=2)
    t = add(t, steps(ids[:, ::-1], np.zeros((2, 30), bool)))
    once = add(t, steps(ids, last))
    twice = add(t, steps(ids[:, :13], last[:, :13]))
    twice = add(twice, steps(ids[:, 13:], last[:, 13:]))
    assert_same(once, twice)
    assert once.length.any() and (once.current_length > 0).any()


def test_no_number_grows_with_time():
    """There is no count of all steps that could overflow: an endless episode saturates."""

    def body(t, _):
        return add(t, steps(jnp.ones((2, 5)), jnp.zeros((2, 5)))), None

    t = tape.init(EXAMPLE, 32, workers=2)
    t = jax.jit(lambda t: jax.lax.scan(body, t, length=100)[0])(t)
    np.testing.assert_array_equal(t.current_length, [16, 16])
    assert t.cursor == 500 % 16
    # The endless episode ends, and is not stored; the next one is.
    last = np.tile([0, 1, 0, 1, 0], (2, 1))
    t = add(t, steps(np.ones((2, 5)), last))
    assert sorted(t.length.tolist())[-3:] == [0, 2, 2]
    np.testing.assert_array_equal(t.current_length, [1, 1])


@pytest.mark.full
@pytest.mark.slow
def test_seeds_under_vmap_are_seeds_alone():
    """Some seeds need the longer race and some do not."""
    generator = np.random.default_rng(6)
    ids = 1 + np.tile(np.arange(80).reshape(2, 40), (4, 1, 1))
    last = generator.random((4, 2, 40)) < np.array([0.02, 0.1, 0.5, 1.0])[:, None, None]

    def run(ids, last, key):
        t = add(tape.init(EXAMPLE, 80, workers=2), steps(ids, last))
        return t, sample(t, key, 48)

    keys = jax.random.split(jax.random.key(7), 4)
    together = jax.jit(jax.vmap(run))(ids, last, keys)
    alone = jax.jit(run)
    for i in range(4):
        assert_same(at(together, i), alone(ids[i], last[i], keys[i]))
    episodes = (together[1].rows < 80).sum(axis=1)
    assert episodes[0] <= 3 < episodes[3]


@pytest.mark.slow
def test_a_loop_copies_nothing_of_the_capacity():
    """add and sample in a loop write in place: no copy in the compiled program."""
    capacity = 1 << 17

    def body(t, x):
        t = add(t, steps(jnp.ones((16, 16)) * x[0], jnp.ones((16, 16))))
        return t, sample(t, x[1], 64).steps.id

    def loop(t):
        keys = jax.random.split(jax.random.key(0), 10)
        return jax.lax.scan(body, t, (jnp.arange(10), keys))

    t = eqx.filter_eval_shape(tape.init, EXAMPLE, capacity, workers=16)
    t = jax.tree.map(lambda x: jax.ShapeDtypeStruct((5, *x.shape), x.dtype), t)
    program = jax.jit(jax.vmap(loop), donate_argnums=0).lower(t).compile().as_text()
    copies = re.findall(r"= \w+\[([\d,]+)\]\S* (?:copy|select|transpose)\(", program)
    assert copies, "the pattern no longer fits the program's text"
    assert max(np.prod([int(n) for n in shape.split(",")]) for shape in copies) < capacity


def test_the_longer_race_runs_only_if_needed():
    """XLA moves what is constant out of loops; this loop must keep its work, or it always runs."""
    t = jax.eval_shape(lambda: jax.vmap(lambda _: tape.init(EXAMPLE, 1 << 15))(jnp.arange(3)))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))
    program = jax.jit(jax.vmap(lambda t, key: tape.sample(t, key, 512))).lower(t, keys).compile()
    before, entry = program.as_text().split("\nENTRY")
    noise = re.compile(r' = \w+\[3,\d+\].*op_name="[^"]*while/body[^"]*_exponential')
    assert noise.search(before) and not noise.search(entry)


def test_64_bit_changes_no_type(x64):
    """Indices and weights keep their 32 bits, so a loop can carry the tape."""
    t = jax.eval_shape(lambda: tape.init(EXAMPLE, 4096, workers=2))
    rollout = jax.eval_shape(lambda: steps(jnp.ones((2, 5)), jnp.ones((2, 5))))
    key = jax.eval_shape(lambda: jax.random.key(0))
    batch = jax.eval_shape(lambda t, key: tape.sample(t, key, 17), t, key)
    assert jax.eval_shape(tape.add, t, rollout) == t
    assert batch.rows.dtype == batch.episode.dtype == jnp.int32
    by_segments = jax.eval_shape(lambda t, key: segments.sample(t, key, 17, 17), t, key)
    assert by_segments.rows.dtype == by_segments.episode.dtype == jnp.int32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 0}, "`capacity` must be a positive multiple of `workers` = 1"),
        ({"capacity": 10, "workers": 4}, "Try 8"),
        ({"capacity": 8, "workers": 0}, "`workers` must be at least 1, got 0"),
        ({"capacity": 8, "example": ()}, "`example` must .*array"),
    ],
)
def test_init_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        tape.init(**{"example": EXAMPLE, **arguments})


def test_add_refuses_what_does_not_fit():
    t = tape.init(EXAMPLE, 8, workers=2)
    good = steps(np.ones((2, 4)), np.ones((2, 4)))
    jax.eval_shape(tape.add, t, good)
    for bad, message in [
        (steps(np.ones((2, 5)), np.ones((2, 5))), "1 to 4 steps per worker.* got 5"),
        (steps(np.ones((2, 0)), np.ones((2, 0))), "got 0"),
        (steps(np.ones((1, 4)), np.ones((1, 4))), r"2 workers, got bool\[1, 4\]"),
        (steps(np.ones(4), np.ones(4)), r"`rollout.last` must be .*\[worker, time\]"),
        (
            eqx.tree_at(lambda s: s.id, good, jnp.ones((2, 4))),
            r"int32\[2, 4\], got float32\[2, 4\]",
        ),
        (eqx.tree_at(lambda s: s.id, good, good.id[..., None]), r"got int32\[2, 4, 1\]"),
        (eqx.tree_at(lambda s: s.pixels, good, good.id), "`rollout` must .*PyTreeDef"),
    ]:
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(tape.add, t, bad)


def test_sample_refuses_an_empty_batch():
    with pytest.raises(ValueError, match="`batch` must be at least 1 step, got 0"):
        sample(tape_of([2]), jax.random.key(0), 0)
