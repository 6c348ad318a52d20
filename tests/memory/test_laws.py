"""Laws and equivalences that hold for every memory model, at the start and with any parameters.

Each row of `MODELS` is compiled into a few programs, which answer every question twice: as built,
and after every trainable leaf has been moved. Errors are relative to the largest absolute value.
"""

import functools
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import memory, scan
from mmrl.monoid import Resettable
from mmrl.monoid.testing import errors
from tests.helpers.memories import is_monoid, sizes

T, SPLIT, IN, OUT = 14, 7, 5, 3  # a tree over T + 1 steps has one level less than over 16
STARTS = (0, SPLIT, 8)  # an episode of one step, which begins where tapes are split
LATER = 8  # the last episode
FFM_AND_GRU = ("ffm", "gru")
MONOIDS = (*filter(is_monoid, memory.NAMES), "ffm use_mlp")
MODELS = (*MONOIDS, *(n for n in memory.NAMES if not is_monoid(n)), "lru x 2", "ffm + gru")

# Of the module, so that all tests of a model follow one another, and one worker compiles for them.
# The models that both have are the first ones of both: pytest groups them by their numbers.
every_model = pytest.mark.parametrize("name", MODELS, scope="module")
every_monoid = pytest.mark.parametrize("name", MONOIDS, scope="module")
twice = pytest.mark.parametrize("with_noise", [False, True], ids=["built", "perturbed"])


def small(name):
    """Sizes for a model's state, no two of them equal."""
    return dict(zip(sizes(name), (4, 3) if len(sizes(name)) > 1 else (6,), strict=False))


@functools.cache
def build(name, with_noise):
    if with_noise:
        return perturb(build(name, False))
    key = jax.random.key(len(name))
    if name == "ffm + gru":
        parts = [memory.make(n, 4, 4, key=key, **small(n)) for n in FFM_AND_GRU]
        return memory.Residual(IN, OUT, parts, key=key)
    kind, layers = name.split(" x ") if " x " in name else (name, 1)
    kind, *form = kind.split()
    sizes = {**small(kind), **dict.fromkeys(form, True)}
    return memory.make(kind, IN, OUT, key=key, layers=int(layers), **sizes)


def perturb(model):
    """Moves every trainable leaf."""
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(len(leaves))
    # With NumPy: JAX would compile one program for each shape.
    arrays = [
        jnp.asarray(x + 0.3 * rng.normal(size=x.shape), x.dtype) for x in map(np.asarray, leaves)
    ]
    return eqx.combine(jax.tree.unflatten(structure, arrays), rest)


def methods(name):
    return ("sequential", "associative") if name in MONOIDS else ("auto",)


@functools.cache
def data():
    """(xs, begin, next_xs), one step longer than a tape: what is looked ahead at comes after it."""
    rng = np.random.default_rng(0)
    xs, next_xs = rng.normal(size=(2, T + 1, IN)).astype(np.float32)
    return xs, np.isin(np.arange(T + 1), STARTS), next_xs


def going_on(at_split=True):
    """`begin` of a tape that goes on with an episode."""
    begin = data()[1][:T].copy()
    begin[[0, SPLIT]] = False, at_split
    return begin


def first_step():
    """Index of the first step of the episode that each step belongs to."""
    return np.maximum.accumulate(np.where(data()[1][:T], np.arange(T), 0))


def close(result, want, rtol=1e-5):
    result, want = jax.tree.leaves(result), jax.tree.leaves(want)
    assert len(result) == len(want)
    for a, b in zip(result, want, strict=True):
        scale = max(1e-6, np.abs(b).max(initial=0))
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * scale)


# Two programs for each model, of which everything is asked: a tape in all forms, and many tapes.


@eqx.filter_jit
def forms(model, state, xs, begin, next_xs):
    """(end, outputs) of one tape: whole, step by step, in two parts and looking ahead."""
    halves = jax.tree.map(lambda x: x.reshape(2, SPLIT, *x.shape[1:]), (xs, begin))
    end, parts = jax.lax.scan(lambda h, x: model(h, *x), state, halves)
    same, nothing = model(end, xs[:0], begin[:0])
    *before, next_ys = model.lookahead(state, xs, begin, next_xs)
    return {
        "whole": model(state, xs, begin),
        "steps": jax.lax.scan(lambda h, x: model.step(h, *x), state, (xs, begin)),
        "parts": (end, jnp.concatenate([*parts, nothing])),
        "no part": (end, same),
        "looked": tuple(before),
        "next": next_ys,
    }


@functools.cache
def warm(name, with_noise):
    """A state in mid-episode."""
    model, never = build(name, with_noise), np.zeros(T, bool)
    xs = np.random.default_rng(1).normal(size=(2, T, IN)).astype(np.float32)
    return forms(model, model.init(), xs[0], never, xs[1])["whole"][0]


@functools.cache
def all_forms(name, with_noise, at_split=True):
    xs, _, next_xs = data()
    state = warm(name, with_noise)
    return forms(build(name, with_noise), state, xs[:T], going_on(at_split), next_xs[:T])


@eqx.filter_jit
def many(model, tapes, method):
    """Outputs of every tape, and the gradient of their product with its weights.

    The gradient is one of (model, state, xs), that of the model for the last tape only, and so is
    the state at the end.
    """
    params, rest = eqx.partition(model, eqx.is_inexact_array)

    def one(state, xs, begin, weights):
        floats, others = eqx.partition((state, xs), eqx.is_inexact_array)

        def loss(params, floats):
            state, xs = eqx.combine(floats, others)
            end, ys = eqx.combine(params, rest)(state, xs, begin, method=method)
            return jnp.vdot(weights, ys), (end, ys)

        (_, results), grads = jax.value_and_grad(loss, (0, 1), has_aux=True)(params, floats)
        return *results, *grads

    end, ys, of_model, (of_state, of_xs) = jax.vmap(one)(*tapes)
    end, of_model = jax.tree.map(lambda x: x[-1], (end, of_model))
    return end, ys, of_model, of_state, of_xs


POISONS = ("+ 100", "nan", "inf", "state")


def tapes(name, with_noise):
    """(label, state, xs, begin, weights) of every tape that `many` is asked for."""
    xs, begin, next_xs = data()
    start, state = build(name, with_noise).init(), warm(name, with_noise)
    # A plain sum over features has almost no gradient through a layer norm.
    weights = np.random.default_rng(3).normal(size=(T + 1, OUT)).astype(np.float32)
    last = weights * (np.arange(T + 1) >= LATER)[:, None]
    ahead = np.append(going_on(), False)
    yield "tape", state, xs, begin, weights
    for s in range(T):
        yield f"alone {s}", start, np.roll(xs, -s, axis=0), np.zeros(T + 1, bool), weights
        at = np.arange(T + 1) == s
        yield f"slope {s}", start, xs, begin, weights * at[:, None]
        after = np.arange(T + 1) == s + 1
        longer = np.where(after[:, None], np.roll(next_xs, 1, axis=0), xs)
        yield f"appended {s}", state, longer, ahead & ~after, weights
    bad = xs.copy()
    bad[:LATER] += 100.0
    yield "clean", state, xs, begin, last
    yield "+ 100", state, bad, begin, last
    for poison in ("nan", "inf"):
        bad = xs.copy()
        bad[LATER - 3] = float(poison)
        yield poison, state, bad, begin, last
    yield "state", jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), state), xs, begin, last
    yield "gradient", state, xs, ahead, weights


@functools.cache
def all_tapes(name, with_noise, method):
    """`many` of all `tapes`: (outputs, gradient in xs) by label, of the last gradient and end."""
    labels, *columns = zip(*tapes(name, with_noise), strict=True)
    batch = [jax.tree.map(lambda *x: np.stack(x), *column) for column in columns]
    results = jax.device_get(many(build(name, with_noise), batch, method))
    end, ys, of_model, of_state, of_xs = results
    last = of_model, jax.tree.map(lambda g: g[-1], of_state), of_xs[-1]
    return dict(zip(labels, zip(ys, of_xs, strict=True), strict=True)), last, end


@pytest.mark.slow
@every_model
@twice
def test_tape_equals_every_episode_alone(name, with_noise):
    start, time = first_step(), np.arange(T)
    for method in methods(name):
        result, *_ = all_tapes(name, with_noise, method)
        alone = np.stack([result[f"alone {s}"][0] for s in range(T)])
        close(result["tape"][0][:T], alone[start, time - start])


@every_model
@twice
def test_step_equals_tape(name, with_noise):
    result = all_forms(name, with_noise)
    close(result["steps"], result["whole"])


@every_model
@twice
@pytest.mark.parametrize("start_there", [False, True])
def test_split_tape_carries_the_state_over(name, with_noise, start_there):
    result = all_forms(name, with_noise, start_there)
    close(result["parts"], result["whole"])
    end, same = result["no part"]
    close(same, end, rtol=0)


@every_model
@twice
def test_lookahead_equals_the_tape_with_the_next_observation_appended(name, with_noise):
    ahead = all_forms(name, with_noise)
    close(ahead["looked"], ahead["whole"])
    for method in methods(name):
        result, *_ = all_tapes(name, with_noise, method)
        close(ahead["next"], np.stack([result[f"appended {t}"][0][t + 1] for t in range(T)]))


@functools.cache
def long_data():
    """Longer than a block of "chunked", with begins at both sides of its edge."""
    rng = np.random.default_rng(2)
    chunk = inspect.signature(scan.scan).parameters["chunk"].default
    begin = rng.random(chunk + 20) < 0.05
    begin[[0, chunk - 1, chunk, chunk + 1]] = [False, True, False, True]
    length = len(begin)
    return jnp.asarray(rng.normal(size=(length, IN)), jnp.float32), jnp.asarray(begin)


@eqx.filter_jit
def in_every_way(model, state, xs, begin, ways):
    return [model(state, xs, begin, method=way) for way in ways]


@pytest.mark.full
@every_monoid
def test_long_tapes_give_the_same_outputs_and_state_by_every_method(name):
    # Any tree of products is as deep, and test_scan has them; short tapes take one in every monoid.
    trees = ["associative", "hillis_steele", "blelloch"] if name == "lru" else []
    ways = ["sequential", "chunked", *trees]
    for with_noise in (False, True):
        model, state = build(name, with_noise), warm(name, with_noise)
        want, *others = in_every_way(model, state, *long_data(), tuple(ways))
        for result in others:
            close(result, want, rtol=2e-5)


@every_monoid
def test_neither_results_nor_gradients_depend_on_the_method(name):
    for with_noise in (False, True):
        both = [all_tapes(name, with_noise, method) for method in methods(name)]
        (gradients, want, end), (other, result, last) = both
        close((last, other["gradient"][0]), (end, gradients["gradient"][0]), rtol=2e-5)
        close(result, want, rtol=1e-4)
        assert all(np.isfinite(g).all() for g in jax.tree.leaves(want))


@every_model
def test_gradient_reaches_every_parameter(name):
    for method in methods(name):
        for path, grad in jax.tree_util.tree_leaves_with_path(all_tapes(name, True, method)[1][0]):
            assert np.abs(grad).max() > 0, jax.tree_util.keystr(path)


@every_model
@pytest.mark.parametrize("poison", POISONS)
def test_nothing_leaks_into_a_later_episode(name, poison):
    for with_noise in (False, True):
        for method in methods(name):
            by_poison, *_ = all_tapes(name, with_noise, method)
            for result, clean in zip(by_poison[poison], by_poison["clean"], strict=True):
                np.testing.assert_array_equal(result[LATER:], clean[LATER:])


@every_model
def test_outputs_depend_on_their_own_past_only(name):
    start, time = first_step(), np.arange(T)
    visible = (start[:, None] <= time[None]) & (time[None] <= time[:, None])
    for method in methods(name):
        result, *_ = all_tapes(name, True, method)
        slopes = np.stack([np.abs(result[f"slope {t}"][1][:T]).max(axis=1) for t in range(T)])
        assert (slopes[~visible] == 0).all()
        assert (np.diag(slopes) > 0).all()
        remembers = slopes[visible & (time[:, None] > time[None])].max() > 0
        assert remembers == (name != "none")


@eqx.filter_jit
def law_errors(model, xs, begin):
    """xs: [element, case, step, in]; every element composes 8 encoded observations."""
    monoid = Resettable(model.monoid)

    def element(xs, begin):
        return scan.fold(monoid, (jax.vmap(model.encode)(xs), begin))

    a, b, c = (jax.vmap(element)(xs[i], begin[i]) for i in range(3))
    return errors(monoid, a, b, c)


@every_monoid
@twice
def test_monoid_laws_hold_on_what_the_model_encodes(name, with_noise):
    rng = np.random.default_rng(4)
    xs = jnp.asarray(rng.normal(size=(3, 200, 8, IN)), jnp.float32)
    begin = jnp.asarray(rng.random((3, 200, 8)) < 0.1)
    for law, worst in law_errors(build(name, with_noise), xs, begin).items():
        assert np.max(worst) < 1e-5, law
