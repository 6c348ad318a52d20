"""Reservoirs: who stays is uniform, exact under merging, and nothing is ever cut or mixed up."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mmrl.replay import reservoir
from mmrl.replay.reservoir import Unrolls

LENGTH = 3
EXAMPLE = {"id": jnp.zeros((), jnp.int32), "pixels": jnp.zeros((2, 1), jnp.uint8)}
STATE = {"h": jnp.zeros(2)}


def unrolls(ids) -> Unrolls:
    """Unrolls whose every number can be told from their id, which is not 0."""
    xp = jnp if isinstance(ids, jax.Array) else np  # numpy does not compile
    ids = xp.asarray(ids, "int32")
    steps = ids[:, None] * 10 + xp.arange(LENGTH, dtype="int32")[None]
    pixels = xp.broadcast_to((steps % 251)[..., None, None], (*steps.shape, 2, 1))
    return Unrolls(
        {"h": xp.stack([ids, -ids], axis=1).astype("float32")},
        {"id": steps, "pixels": pixels.astype("uint8")},
    )


def empty(slots: int, workers: int = 1) -> reservoir.Reservoir:
    return reservoir.init(EXAMPLE, STATE, slots * workers * LENGTH, workers=workers, length=LENGTH)


def ids_of(some: Unrolls) -> np.ndarray:
    """The ids, after checking that every number of each unroll belongs to it."""
    ids = np.asarray(some.steps["id"])[..., 0] // 10
    flat = jax.tree.map(lambda x: np.asarray(x).reshape(ids.size, *x.shape[ids.ndim :]), some)
    jax.tree.map(np.testing.assert_array_equal, flat[:2], tuple(unrolls_or_zeros(ids.ravel())))
    return ids


def unrolls_or_zeros(ids: np.ndarray) -> Unrolls:
    whole = unrolls(ids)
    return jax.tree.map(lambda x: np.where((ids > 0).reshape(-1, *[1] * (x.ndim - 1)), x, 0), whole)


merge = jax.jit(reservoir.merge)


@jax.jit
def stream(start: reservoir.Reservoir, ids, lots) -> reservoir.Reservoir:
    """Adds [time, unroll], one row after another."""

    def body(storage, new):
        return reservoir.insert(storage, unrolls(new[0]), new[1]), None

    return jax.lax.scan(body, start, (ids, lots))[0]


def contents(storage: reservoir.Reservoir) -> list[dict[float, int]]:
    """What each worker's part holds: lot -> id."""
    ids = ids_of(storage.unrolls).reshape(storage.lots.shape)
    return [
        {float(lot): int(i) for lot, i in zip(*part, strict=True) if np.isfinite(lot)}
        for part in zip(np.asarray(storage.lots), ids, strict=True)
    ]


# Who stays


@pytest.mark.parametrize(
    ("workers", "each", "slots", "times"),
    [(3, 2, 5, 20), (2, 7, 3, 6), (1, 4, 4, 1)],
)
def test_the_largest_lots_of_every_worker_stay(workers: int, each: int, slots: int, times: int):
    """Oracle: sort all lots that ever came."""
    rng = np.random.default_rng(0)
    ids = 1 + np.arange(times * workers * each).reshape(times, workers * each)
    lots = rng.permutation(ids.size).reshape(ids.shape).astype("f4") / ids.size
    storage = stream(empty(slots, workers), ids, lots)
    for worker, part in enumerate(contents(storage)):
        mine = (slice(None), slice(worker * each, (worker + 1) * each))
        best = np.argsort(-lots[mine].ravel())[:slots]
        assert part == {
            float(lot): int(i)
            for lot, i in zip(lots[mine].ravel()[best], ids[mine].ravel()[best], strict=True)
        }
    assert storage.arrivals == times * each
    assert storage.counts.tolist() == [min(slots, times * each)] * workers


def test_a_part_fills_from_its_first_row_on():
    storage = stream(empty(6, 2), 1 + np.arange(8).reshape(2, 4), np.full((2, 4), 0.5, "f4"))
    assert np.isfinite(storage.lots).tolist() == [[True] * 4 + [False] * 2] * 2
    assert storage.threshold.tolist() == [0, 0]
    full = stream(storage, 9 + np.arange(8).reshape(2, 4), np.full((2, 4), 0.75, "f4"))
    assert full.threshold.tolist() == [0.5, 0.5] and full.counts.tolist() == [6, 6]


def test_of_equal_lots_the_earlier_stays():
    lots = np.full((5, 1), 0.25, "f4")
    storage = stream(empty(2), 1 + np.arange(5)[:, None], lots)
    assert ids_of(storage.unrolls).tolist() == [1, 2]


def test_together_or_one_after_another():
    rng = np.random.default_rng(1)
    ids, lots = 1 + np.arange(60), rng.random(60).astype("f4")
    storage = [stream(empty(7), ids.reshape(-1, n), lots.reshape(-1, n)) for n in (1, 4, 30)]
    assert contents(storage[0]) == contents(storage[1]) == contents(storage[2])


def inclusion(kept_ids: np.ndarray, items: int) -> float:
    """p of the chi-square test that each of `items` is kept equally often; [run, slot].

    Kept are always k, so counts vary by 1 - k/n of what Poisson's would, and sum up to a constant.
    """
    runs, k = kept_ids.shape
    counts = np.bincount(kept_ids.ravel(), minlength=items + 1)
    assert counts[0] == 0 and counts.size == items + 1 and counts.max() <= runs
    expected = runs * k / items
    statistic = np.sum((counts[1:] - expected) ** 2) / (expected * (1 - k / items))
    return stats.chi2.sf(statistic * (items - 1) / items, items - 1)


@jax.jit
@jax.vmap
def one_run(key) -> jax.Array:
    def body(storage, new):
        i, key = new
        return reservoir.add(storage, unrolls(i[None]), key), None

    return (
        jax.lax.scan(body, empty(6), (1 + jnp.arange(48), jax.random.split(key, 48)))[
            0
        ].unrolls.steps["id"][:, 0]
        // 10
    )


@jax.jit
@jax.vmap
def eight_parts(key) -> jax.Array:
    """48 unrolls come to 8 actors, 6 to each, who keep 4, and their reservoirs are merged."""

    def actor(ids, key):
        return reservoir.add(empty(4), unrolls(ids), key)

    parts = jax.vmap(actor)(1 + jnp.arange(48).reshape(8, 6), jax.random.split(key, 8))
    each = [jax.tree.map(lambda x, i=i: x[i], parts) for i in range(8)]
    return functools.reduce(reservoir.merge, each).unrolls.steps["id"][:, 0] // 10


@pytest.mark.parametrize("run", [one_run, eight_parts], ids=["one", "merged"])
def test_every_unroll_is_kept_equally_often(run):
    counts = np.asarray(run(jax.random.split(jax.random.key(0), 4000)))
    assert inclusion(counts, 48) > 1e-3


def test_the_test_of_inclusion_sees_a_bias():
    """A buffer that keeps the last six, and a sampler that is off by a tenth for one unroll."""
    rng = np.random.default_rng(0)
    last = np.tile(np.arange(43, 49), (4000, 1))
    assert inclusion(last, 48) < 1e-6
    lots = rng.random((4000, 48))
    lots[:, 0] **= 0.8
    assert inclusion(1 + np.argsort(-lots, axis=1)[:, :6], 48) < 1e-3


# Merging


def test_parts_that_saw_different_things_merge_into_one_that_saw_all():
    rng = np.random.default_rng(2)
    ids, lots = 1 + np.arange(96).reshape(16, 6), rng.random((16, 6)).astype("f4")
    whole = stream(empty(4, 3), ids, lots)
    parts = [stream(empty(4, 3), ids[i::8], lots[i::8]) for i in range(8)]
    union = functools.reduce(merge, parts)
    assert contents(union) == contents(whole) and union.arrivals == whole.arrivals


def test_merging_is_a_monoid():
    rng = np.random.default_rng(3)
    new = [(1 + 8 * i + np.arange(8)[None], rng.random((1, 8)).astype("f4")) for i in range(3)]
    a, b, c = (stream(empty(3, 2), *x) for x in new)
    e = empty(3, 2)
    assert contents(merge(merge(a, b), c)) == contents(merge(a, merge(b, c)))
    assert contents(merge(a, b)) == contents(merge(b, a))
    assert contents(merge(e, a)) == contents(a) == contents(merge(a, e))
    # A reservoir that was merged goes on as any other.
    more = 25 + np.arange(8)[None], rng.random((1, 8)).astype("f4")
    whole = stream(stream(a, *new[1]), *more)
    assert contents(stream(merge(a, b), *more)) == contents(whole)


# Sampling


def test_samples_are_uniform_over_what_is_stored():
    storage = stream(empty(8, 2), 1 + np.arange(10).reshape(5, 2), np.full((5, 2), 0.5, "f4"))
    batch = jax.jit(reservoir.sample, static_argnums=2)(storage, jax.random.key(0), 10_000)
    first, second = ids_of(batch).reshape(2, -1)
    for result, mine in ((first, [1, 3, 5, 7, 9]), (second, [2, 4, 6, 8, 10])):
        values, counts = np.unique(result, return_counts=True)
        assert values.tolist() == mine and stats.chisquare(counts).pvalue > 1e-3


def test_an_empty_part_gives_zeros():
    batch = reservoir.sample(empty(4), jax.random.key(0), 3)
    assert not any(np.any(x) for x in jax.tree.leaves(batch))


def test_a_memory_may_have_no_state():
    storage = reservoir.init(EXAMPLE, ((), ()), 2 * LENGTH, length=LENGTH)
    new = unrolls([1])._replace(state=((), ()))
    storage = jax.jit(reservoir.add)(storage, new, jax.random.key(0))
    batch = reservoir.sample(storage, jax.random.key(1), 2)
    assert batch.state == ((), ()) and batch.steps["id"][:, 0].tolist() == [10, 10]


def test_adding_moves_no_more_than_it_keeps():
    """In a loop the storage is written in place: it is not among what the program allocates."""
    big = reservoir.init(EXAMPLE, STATE, 300_000, length=LENGTH)
    body = jax.jit(lambda r, k: reservoir.add(r, unrolls(jnp.ones(2)), k), donate_argnums=0)
    memory = body.lower(big, jax.random.key(0)).compile().memory_analysis()
    assert memory.alias_size_in_bytes > 2_000_000
    assert memory.temp_size_in_bytes < big.unrolls.steps["id"].nbytes


@pytest.mark.slow
def test_seeds_have_a_reservoir_each():
    many = jax.vmap(lambda _: empty(4, 2))(jnp.arange(3))
    add = jax.jit(jax.vmap(lambda r, k: reservoir.add(r, unrolls(jnp.array([1, 2])), k)))
    many = add(many, jax.random.split(jax.random.key(0), 3))
    assert (many.workers, many.slots, many.length) == (2, 4, LENGTH)
    assert many.counts.tolist() == [[1, 1]] * 3 and many.threshold.shape == (3, 2)


def test_capacity_is_counted_in_steps():
    storage = reservoir.init(EXAMPLE, STATE, 50, workers=2, length=LENGTH)
    assert (storage.slots, storage.workers, storage.length) == (8, 2, LENGTH)


# Errors


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("workers", lambda: reservoir.init(EXAMPLE, STATE, 60, workers=0)),
        ("length", lambda: reservoir.init(EXAMPLE, STATE, 60, length=0)),
        ("capacity", lambda: reservoir.init(EXAMPLE, STATE, 59, workers=3)),
        ("example", lambda: reservoir.init((), STATE, 60)),
        ("batch", lambda: reservoir.sample(empty(2, 2), jax.random.key(0), 3)),
        ("batch", lambda: reservoir.sample(empty(2), jax.random.key(0), 0)),
        ("unrolls", lambda: reservoir.add(empty(2, 2), unrolls([1, 2, 3]), jax.random.key(0))),
        (
            "unrolls.steps",
            lambda: reservoir.add(
                empty(2),
                unrolls([1])._replace(steps=jax.tree.map(lambda x: x[:, :2], unrolls([1]).steps)),
                jax.random.key(0),
            ),
        ),
        (
            "unrolls.state",
            lambda: reservoir.add(empty(2), unrolls([1])._replace(state=()), jax.random.key(0)),
        ),
        ("second", lambda: reservoir.merge(empty(2), empty(3))),
        ("second", lambda: reservoir.merge(empty(2, 3), empty(3, 2))),
    ],
)
def test_errors_name_the_argument(name: str, call):
    with pytest.raises(ValueError, match=f"`{name}`"):
        call()


# Long runs


@pytest.mark.slow
def test_unrolls_with_the_largest_lots_rarely_tie():
    """Lots are drawn in steps of 2⁻²³, and of very many unrolls the last step has several."""
    top = jnp.full(1000, 1 - 2**-23)
    fine = jnp.linspace(0, 1 - 2**-20, 1000)
    assert (np.diff(reservoir._fine_scale(top, fine)) > 0).all()
    storage = reservoir.init(jnp.zeros((), jnp.int32), (), 8, length=1)
    new = Unrolls((), jnp.arange(2**15, dtype=jnp.int32)[:, None])
    lots = np.asarray(reservoir.add(storage, new, jax.random.key(0)).lots, np.float64)
    steps = 2.0 ** (23 - lots)
    assert lots.min() > 10 and np.abs(steps - steps.round()).max() > 0.05


@pytest.mark.slow
def test_the_lots_of_an_earlier_version_keep_their_order():
    """All of them were in steps of 2⁻²³ below 1."""
    steps = np.array([0, 1, 2, 3, 2**13 - 1, 2**13, 2**13 + 1, 2**22])
    lots = reservoir._fine_scale(jnp.asarray(1 - (steps + 1) * 2.0**-23, jnp.float32))
    assert (np.diff(lots) < 0).all()
    np.testing.assert_array_equal(reservoir._fine_scale(lots), lots)
    storage = stream(empty(2), np.array([[1, 2]]), np.array([[1 - 2**-23, 1 - 2**-22]], "f4"))
    after = reservoir.add(storage, unrolls(jnp.array([3])), jax.random.key(0))
    assert sorted(ids_of(after.unrolls)) == [1, 2] and after.threshold == 22


def test_the_count_of_unrolls_stays_at_its_largest():
    storage = dataclasses.replace(empty(2), arrivals=jnp.int32(2**31 - 2))
    storage = stream(storage, np.array([[1, 2]]), np.array([[0.5, 0.25]], "f4"))
    assert storage.arrivals == reservoir.merge(storage, storage).arrivals == 2**31 - 1


@pytest.mark.slow
def test_of_a_large_part_all_slots_are_drawn():
    """23 random bits reach every other one of 2²⁴."""
    storage = reservoir.init(jnp.zeros((), jnp.int32), (), 2**24, length=1)
    unrolls = Unrolls((), jnp.arange(2**24, dtype=jnp.int32)[:, None])
    storage = dataclasses.replace(storage, unrolls=unrolls, lots=jnp.zeros((1, 2**24)))
    batch = np.asarray(reservoir.sample(storage, jax.random.key(0), 4096).steps)
    assert abs(np.mean(batch % 2) - 0.5) < 0.05
