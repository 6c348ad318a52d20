"""Every monoid obeys the laws, computes what it says, and keeps episodes apart."""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import mmrl.monoid
from mmrl.monoid import (
    EWMA,
    Affine,
    Decay,
    LogSumExp,
    LongMoments,
    MatrixAffine,
    Max,
    Moments,
    Monoid,
    Product,
    Resettable,
    Sum,
    TopK,
    Window,
    laws,
    products,
)
from mmrl.scan import fold, scan
from tests.helpers.monoids import NAMES, PLAIN, Draw, make, tape


def test_every_monoid_is_asked():
    public = [getattr(mmrl.monoid, name) for name in mmrl.monoid.__all__]
    every = {x for x in public if inspect.isclass(x) and issubclass(x, Monoid)}
    assert {type(make(name, Draw(0))[0]) for name in NAMES} == every - {Monoid}


def triples(name: str):
    draw = Draw(seed=0)
    (monoid, x), (_, y), (_, z) = (make(name, draw) for _ in range(3))
    keys = jax.random.split(jax.random.key(0), 3)
    return monoid, [products(monoid, w, key) for w, key in zip((x, y, z), keys, strict=True)]


def perturb(monoid: Monoid) -> Monoid:
    """Moves every leaf that an optimiser could move."""
    rng = np.random.default_rng(1)
    floats, rest = eqx.partition(monoid, eqx.is_inexact_array)
    other = jax.tree.map(lambda x: x + jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype), floats)
    return eqx.combine(other, rest)


def rounding(name: str, bound: float) -> float:
    """The errors that a law may have: none where nothing is added."""
    return 0.0 if name.endswith(("topk", "window")) else bound


@pytest.mark.parametrize("name", PLAIN)
def test_laws_in_single_precision(name):
    monoid, abc = triples(name)
    errors = laws(monoid, *abc)
    assert max(errors.values()) <= rounding(name, 1e-5), errors


# Without resets they are the same laws again: four in five of these elements have none.
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[len(PLAIN) :])
def test_laws_in_double_precision(name, x64):
    monoid, abc = triples(name)
    errors = laws(monoid, *abc)
    assert max(errors.values()) <= rounding(name, 1e-12), errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resettable decay", "resettable product"])
def test_laws_hold_wherever_training_leads(name, x64):
    monoid, abc = triples(name)
    other = perturb(monoid)
    assert not eqx.tree_equal(other, monoid)
    errors = laws(other, *abc)
    assert max(errors.values()) <= 1e-12, errors


def test_only_decay_has_anything_to_train():
    for name in PLAIN:
        monoid, _ = make(name, Draw(0))
        trainable = jax.tree.leaves(eqx.filter(monoid, eqx.is_inexact_array))
        assert bool(trainable) == (name in ("decay", "product")), name


# The checker: it has to reject what is wrong


class NaiveMax(Max):
    """max(γ m, m'): fades the past once per combine, however many steps it holds."""

    def identity(self):
        return jnp.full(self.shape, -jnp.inf)

    def __call__(self, a, b):
        return jnp.maximum(0.5 * a, b)


class KeepLast(Sum):
    """Linear attention that returns the later normaliser instead of the sum."""

    def __call__(self, a, b):
        return {"S": a["S"] + b["S"], "z": b["z"]}


class LeakyReset(Resettable):
    """The flag of the later element is forgotten."""

    def __call__(self, a, b):
        return super().__call__(a, b)[0], a[1]


class PrintedReset(Resettable):
    """Eq. 22 as printed: a product with 1 - b', where -∞ · 0 is no number."""

    def __call__(self, a, b):
        keep = 1.0 - b[1]
        past = jax.tree.map(lambda h, e: h * keep + e * b[1], a[0], self.inner.identity())
        return self.inner(past, b[0]), a[1] | b[1]


class Not(Monoid):
    """The opposite of the earlier flag: no monoid at all."""

    def identity(self):
        return jnp.zeros((), bool)

    def __call__(self, a, b):
        return ~a


def failed_laws(wrong: Monoid, name: str) -> set[str]:
    draw = Draw(seed=0)
    abc = [products(wrong, make(name, draw)[1], jax.random.key(i)) for i in range(3)]
    return {law for law, error in laws(wrong, *abc).items() if error > 1e-3}


def test_a_decay_inside_the_maximum_is_not_associative():
    draw = Draw(seed=0)
    errors = laws(NaiveMax((4,)), *(jnp.asarray(draw.normal(4)[:, 0]) for _ in range(3)))
    assert errors["associativity"] > 0.1


def test_a_normaliser_that_is_not_summed_is_associative_but_breaks_an_identity():
    example = {"S": jnp.zeros((2, 3)), "z": jnp.zeros(3)}
    assert failed_laws(KeepLast(example), "sum") == {"right identity"}


@pytest.mark.slow
def test_resets_that_forget_the_flag_or_multiply_are_rejected():
    assert "associativity" in failed_laws(LeakyReset(Affine()), "resettable affine")
    assert failed_laws(PrintedReset(Max((4,))), "resettable max")


def test_laws_count_a_wrong_flag_as_one():
    flags = jnp.array([True, False])
    assert laws(Not(), flags, flags, flags)["left identity"] == 1.0


def test_laws_count_a_nan_as_infinitely_wrong():
    x = (jnp.full((3,), 0.5), jnp.array([1.0, jnp.nan, 2.0]))
    assert laws(Affine(), x, x, x)["associativity"] == float("inf")


# What each computes


def rows(*columns, dtype="f4"):
    return tuple(jnp.asarray(np.asarray(c).astype(dtype)) for c in columns)


@pytest.mark.parametrize("monoid", [Moments(), LongMoments()])
def test_moments_of_large_means_keep_the_identity(monoid):
    sample = tuple(map(jnp.float32, (3, 1e30, 0)))
    element, empty = (sample + Moments().identity())[: len(monoid.identity())], monoid.identity()
    for product in monoid(empty, element), monoid(element, empty):
        np.testing.assert_array_equal(product, element)


def test_moments_are_numpys_mean_and_variance():
    x = (5 + np.random.default_rng(0).normal(size=(500, 3))).astype("f4")
    count, mean, square = scan(Moments(), rows(np.ones_like(x), x, np.zeros_like(x)))
    for t in (0, 1, 10, 499):
        assert np.all(count[t] == t + 1)
        np.testing.assert_allclose(mean[t], x[: t + 1].mean(0), rtol=1e-5)
        np.testing.assert_allclose(square[t] / count[t], x[: t + 1].var(0), rtol=1e-4, atol=1e-6)


def test_moments_of_a_large_mean_do_not_cancel():
    """The textbook E[x²] - E[x]² loses the variance altogether here."""
    x = (1e4 + np.random.default_rng(0).normal(size=1000)).astype("f4")
    _, _, square = fold(Moments(), rows(np.ones_like(x), x, np.zeros_like(x)))
    np.testing.assert_allclose(square / 1000, x.astype("f8").var(), rtol=1e-2)


def test_moments_take_weights():
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=200).astype("f4"), rng.integers(0, 4, 200).astype("f4")
    count, mean, square = fold(Moments(), rows(w, x, np.zeros_like(x)))
    copies = np.repeat(x, w.astype(int))
    np.testing.assert_allclose(
        [count, mean, square / count], [copies.size, copies.mean(), copies.var()], rtol=1e-5
    )


@pytest.mark.parametrize("beta", [0.889, 0.999512])
def test_ewma_is_the_recurrence_of_ppo_ewma(beta):
    """w ← 1 + βw, θ̄ ← θ/w + β (w_before / w) θ̄ in double precision, 20 000 steps."""
    theta = (1 + 0.01 * np.random.default_rng(0).normal(size=20_000)).astype("f4")
    result = fold(EWMA(), rows(np.full_like(theta, beta), np.ones_like(theta), theta))
    weight, mean = 1.0, float(theta[0])
    for x in theta[1:].astype(float):
        weight, before = 1 + float(np.float32(beta)) * weight, weight
        mean = x / weight + float(np.float32(beta)) * before / weight * mean
    np.testing.assert_allclose(result[1], weight, rtol=1e-3)
    np.testing.assert_allclose(result[2], mean, rtol=1e-5)


def test_ewma_of_a_constant_never_drifts():
    ones = np.ones(20_000, "f4")
    means = scan(EWMA(), rows(0.999512 * ones, ones, 1.1 * ones))[2]
    assert np.all(means == np.float32(1.1))


def test_ewma_starts_anew_without_a_trace():
    """β = 0 is exact: neither rounding nor a NaN of the past remains."""
    for past in (1e8, np.nan, np.inf):
        beta, weight, mean = EWMA()(rows(0.9, 5.0, past), rows(0.0, 1.0, 0.1))
        assert (beta, weight, mean) == (0.0, 1.0, np.float32(0.1))


@pytest.mark.parametrize("name", ["max", "logsumexp"])
def test_fading_maxima_are_those_of_a_loop(name):
    rng = np.random.default_rng(0)
    fade, x = -rng.uniform(0, 0.3, (200, 3)), rng.normal(size=(200, 3))
    monoid, join = {"max": (Max(), np.maximum), "logsumexp": (LogSumExp(), np.logaddexp)}[name]
    hs = scan(monoid, rows(fade, x))[1]
    m = np.full(3, -np.inf)
    for t in range(200):
        m = join(m + fade[t], x[t])
        np.testing.assert_allclose(hs[t], m, atol=1e-4)


def test_max_without_fading_is_the_running_maximum():
    x = np.random.default_rng(0).normal(size=(100, 2)).astype("f4")
    np.testing.assert_array_equal(scan(Max(), rows(0 * x, x))[1], np.maximum.accumulate(x))


def test_affine_without_a_diagonal_is_matrix_affine():
    rng = np.random.default_rng(0)
    gain, total = rows(rng.uniform(0, 1, (30, 3)), rng.normal(size=(30, 3)))
    diagonal = jax.vmap(jnp.diag)(gain), total[:, None, :]
    vector, matrix = scan(Affine(), (gain, total)), scan(MatrixAffine(1, 3), diagonal)
    np.testing.assert_allclose(matrix[1][:, 0], vector[1], atol=1e-5)
    np.testing.assert_allclose(jax.vmap(jnp.diag)(matrix[0]), vector[0], atol=1e-5)


def test_the_delta_rule_overwrites_a_key_and_spares_the_others():
    """Reading a key gives its latest value: matrices on the wrong side fail here."""
    k1, k2, k3 = np.eye(3)
    keys, values = np.stack([k1, k2, k1]), np.array([[1.0, 2], [3, 4], [5, 6]])
    maps = np.eye(3) - keys[:, :, None] * keys[:, None, :]
    _, state = fold(MatrixAffine(2, 3), rows(maps, values[:, :, None] * keys[:, None, :]))
    np.testing.assert_allclose(state @ k1, [5, 6])
    np.testing.assert_allclose(state @ k2, [3, 4])
    np.testing.assert_allclose(state @ k3, [0, 0])


def test_decay_has_the_impulse_response_of_a_damped_oscillator():
    alpha, omega = np.array([0.01, 0.2]), np.array([0.0, 0.5, 3.0])
    impulse = np.zeros((200, 2, 3), "c8")
    impulse[0] = 1
    trace, time = scan(Decay(*rows(alpha, omega)), (jnp.asarray(impulse), jnp.ones(200)))
    t = np.arange(200)[:, None, None]
    expected = np.exp(t * (-alpha[:, None] + 1j * omega))
    np.testing.assert_allclose(trace, expected, atol=1e-4)
    np.testing.assert_array_equal(time, np.arange(1, 201))


@pytest.mark.slow
def test_topk_holds_the_largest_keys_and_their_payload():
    rng = np.random.default_rng(0)
    keys, ids = rng.permutation(100).astype("f4"), np.arange(100)
    empty = jnp.full((100, 4), -jnp.inf), jnp.zeros((100, 4), int)
    elements = empty[0].at[:, 0].set(keys), empty[1].at[:, 0].set(ids)
    largest, payload = scan(TopK(4, jnp.zeros((), int)), elements)
    for t in (0, 2, 3, 50, 99):
        best = np.argsort(-keys[: t + 1])[:4]
        np.testing.assert_array_equal(largest[t, : best.size], keys[best])
        np.testing.assert_array_equal(payload[t, : best.size], ids[best])
        assert np.all(largest[t, best.size :] == -np.inf) and np.all(payload[t, best.size :] == 0)


def test_topk_keeps_the_earlier_of_two_equals():
    monoid = TopK(1, jnp.zeros((), int))
    a, b = ((jnp.ones(1), jnp.array([i])) for i in (1, 2))
    assert monoid(a, b)[1] == 1 and monoid(b, a)[1] == 2


@pytest.mark.slow
def test_merged_reservoirs_hold_what_one_reservoir_would():
    """Two actors that sample apart and merge: exact, since each key decides for itself."""
    keys = jax.random.uniform(jax.random.key(0), (2, 50, 1))
    keys = jnp.pad(keys, [(0, 0), (0, 0), (0, 7)], constant_values=-jnp.inf)
    ids = jnp.zeros((2, 50, 8), int).at[:, :, 0].set(jnp.arange(100).reshape(2, 50))
    monoid = TopK(8, jnp.zeros((), int))
    apart = [fold(monoid, (keys[i], ids[i])) for i in (0, 1)]
    together = fold(monoid, (keys.reshape(100, 8), ids.reshape(100, 8)))
    assert eqx.tree_equal(monoid(*apart), together)


def test_window_holds_the_last_items_in_order():
    x = np.random.default_rng(0).normal(size=(20, 2)).astype("f4")
    items = jnp.zeros((20, 3, 2)).at[:, -1].set(x)
    items_in, count = scan(Window(3, (2,)), (items, jnp.ones(20)))
    longer = np.concatenate([np.zeros((2, 2), "f4"), x])
    for t in range(20):
        np.testing.assert_array_equal(items_in[t], longer[t : t + 3])
        assert count[t] == min(t + 1, 3)


def test_product_runs_its_factors_side_by_side():
    x = jnp.arange(1.0, 6.0)
    both = fold(Product((Sum(x[0]), Max())), (x, (jnp.zeros(5), x)))
    assert both[0] == 15 and both[1][1] == 5


# Resets


def test_a_reset_is_the_episode_alone():
    monoid, (x, _) = make("resettable decay", Draw(0))
    xs, begin = tape(x, 20), jnp.arange(20) == 12
    whole = scan(monoid, (xs, begin))[0]
    alone = scan(monoid.inner, jax.tree.map(lambda leaf: leaf[12:], xs))
    for ours, theirs in zip(jax.tree.leaves(whole), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(ours[12:], theirs, atol=1e-6)


@pytest.mark.parametrize("method", ["sequential", "associative", "chunked"])
@pytest.mark.parametrize("name", ["affine", "max", "logsumexp", "ewma"])
def test_no_poison_crosses_a_reset_forwards_or_backwards(name, method):
    monoid, elements = make(f"resettable {name}", Draw(0))
    x, _ = tape(elements, 12)
    begin = jnp.arange(12) == 6

    def later(x):
        hs = scan(monoid, (x, begin), method=method, chunk=4)[0]
        hs = jax.tree.map(lambda leaf: leaf[6:], hs)
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(hs)), hs

    values_and_gradient = jax.jit(jax.grad(later, has_aux=True))
    gradient, values = values_and_gradient(x)
    assert all(np.all(leaf[:6] == 0) for leaf in jax.tree.leaves(gradient))
    for poison in (np.nan, np.inf):
        result = values_and_gradient(jax.tree.map(lambda leaf, p=poison: leaf.at[3].set(p), x))
        assert eqx.tree_equal(result[1], values)
        for ours, clean in zip(*map(jax.tree.leaves, (result[0], gradient)), strict=True):
            np.testing.assert_array_equal(ours[6:], clean[6:])


@pytest.mark.slow
def test_logsumexp_of_nothing_has_a_gradient_of_zero():
    def total(w, m):
        return jnp.sum(jnp.exp(scan(LogSumExp(), (w, m))[1]))

    grads = jax.grad(total, argnums=(0, 1))(jnp.zeros(4), jnp.array([-jnp.inf, -jnp.inf, 0.0, 1.0]))
    assert np.all(np.isfinite(np.stack(grads)))


def test_a_reset_keeps_the_precision_of_the_elements():
    x = (jnp.ones(5, jnp.bfloat16), jnp.ones(5, jnp.bfloat16)), jnp.arange(5) == 2
    (gain, total), _ = scan(Resettable(Affine()), x)
    assert gain.dtype == total.dtype == jnp.bfloat16
    assert total.astype(float).tolist() == [1, 2, 1, 2, 3]


@pytest.mark.parametrize("build", [lambda: TopK(0, jnp.zeros(())), lambda: Window(0)])
def test_an_empty_memory_is_refused(build):
    with pytest.raises(ValueError, match="`k` must be at least 1"):
        build()


@pytest.mark.parametrize("monoid", [Max(), LogSumExp()])
def test_integers_are_refused_where_the_identity_is_infinite(
    monoid: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users make mistakes
    fades, values = [-1, -1, -1], [1, 5, 2]
    floats = jnp.array(fades, float), jnp.array(values, float)
    assert jnp.isfinite(scan(monoid, floats)[1]).all()
    with pytest.raises(ValueError, match=r"`xs` must be floating-point for `\w+`"):
        scan(monoid, (jnp.array(fades), jnp.array(values)))


def test_an_init_that_would_be_rounded_is_refused():
    whole = jnp.array([1, 2, 3])
    np.testing.assert_array_equal(scan(Sum(jnp.int32(0)), whole, 5), [6, 8, 11])
    with pytest.raises(ValueError, match="`init` must have the shape and dtype of one element"):
        scan(Sum(jnp.int32(0)), whole, 0.5)
    with pytest.raises(ValueError, match="`init` must have the shape and dtype of one element"):
        scan(Affine(), (jnp.ones(3, int), whole), (1, 2.5))
