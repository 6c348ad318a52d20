"""Laws and equivalences that hold for every memory model, at the start and with any parameters.

Each row of `MODELS` is compiled once per question and asked twice: as built, and after every
trainable leaf has been moved. Errors are relative to the largest absolute value.
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
from tests.helpers.memories import is_monoid, sizes

T, SPLIT, IN, OUT = 24, 10, 5, 3
STARTS = (0, 3, 4, SPLIT, 17)  # an episode of one step, and one that begins where tapes are split
LATER = 17  # the last episode
MIXED = ("ffm", "gru")
MODELS = (*memory.NAMES, "ffm printed", "lru x 2", "ffm + gru")

every_model = pytest.mark.parametrize("name", MODELS)
twice = pytest.mark.parametrize("perturbed", [False, True], ids=["built", "perturbed"])


def small(name):
    """Sizes for a model's state, no two of them equal."""
    return dict(zip(sizes(name), (4, 3) if len(sizes(name)) > 1 else (6,), strict=False))


@functools.cache
def build(name, perturbed):
    key = jax.random.key(len(name))
    if name == "ffm + gru":
        parts = [memory.make(n, 4, 4, key=key, **small(n)) for n in MIXED]
        model = memory.Residual(IN, OUT, parts, key=key)
    else:
        kind, layers = name.split(" x ") if " x " in name else (name, 1)
        kind, *printed = kind.split()
        sizes = {**small(kind), **dict.fromkeys(printed, True)}
        model = memory.make(kind, IN, OUT, key=key, layers=int(layers), **sizes)
    return perturb(model) if perturbed else model


def perturb(model):
    """Moves every trainable leaf."""
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(len(leaves))
    moved = [x + jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype) for x in leaves]
    return eqx.combine(jax.tree.unflatten(structure, moved), rest)


MONOIDS = (*filter(is_monoid, memory.NAMES), "ffm printed")
every_monoid = pytest.mark.parametrize("name", MONOIDS)


@functools.cache
def data():
    """(xs, begin, next_xs, a state to start from comes from `warm`)."""
    rng = np.random.default_rng(0)
    xs, next_xs = rng.normal(size=(2, T, IN)).astype(np.float32)
    begin = np.isin(np.arange(T), STARTS)
    return jnp.asarray(xs), jnp.asarray(begin), jnp.asarray(next_xs)


def first_step():
    """Index of the first step of the episode that each step belongs to."""
    return np.maximum.accumulate(np.where(np.isin(np.arange(T), STARTS), np.arange(T), 0))


def close(got, want, rtol=1e-5):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        scale = max(1e-6, np.abs(b).max(initial=0))
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * scale)


@eqx.filter_jit
def warm(model):
    """A state in mid-episode."""
    xs = jnp.asarray(np.random.default_rng(1).normal(size=(T, IN)), jnp.float32)
    return model(model.init(), xs, jnp.zeros(T, bool))[0]


@eqx.filter_jit
def tape(model, state, xs, begin, method="auto"):
    return model(state, xs, begin, method=method)


@eqx.filter_jit
def alone(model, xs):
    """[s, j]: output j of an episode that begins at step s, read without any flag."""
    rolled = jnp.stack([jnp.roll(xs, -s, axis=0) for s in range(T)])
    never = jnp.zeros(T, bool)
    return jax.vmap(lambda xs: model(model.init(), xs, never)[1])(rolled)


@every_model
@twice
def test_tape_equals_every_episode_alone(name, perturbed):
    model, (xs, begin, _) = build(name, perturbed), data()
    _, ys = tape(model, warm(model), xs, begin)
    start = first_step()
    close(ys, alone(model, xs)[start, np.arange(T) - start])


@eqx.filter_jit
def stepwise(model, state, xs, begin):
    return jax.lax.scan(lambda h, x: model.step(h, *x), state, (xs, begin))


@every_model
@twice
def test_step_equals_tape(name, perturbed):
    model, (xs, begin, _) = build(name, perturbed), data()
    begin = begin.at[0].set(False)
    state = warm(model)
    close(stepwise(model, state, xs, begin), tape(model, state, xs, begin))


@eqx.filter_jit
def in_two(model, state, xs, begin):
    middle, first = model(state, xs[:SPLIT], begin[:SPLIT])
    end, second = model(middle, xs[SPLIT:], begin[SPLIT:])
    same, nothing = model(end, xs[:0], begin[:0])
    return end, jnp.concatenate([first, second, nothing]), same


@every_model
@twice
@pytest.mark.parametrize("start_there", [False, True])
def test_split_tape_carries_the_state_over(name, perturbed, start_there):
    model, (xs, begin, _) = build(name, perturbed), data()
    begin = begin.at[jnp.array([0, SPLIT])].set(jnp.array([False, start_there]))
    state = warm(model)
    end, ys, same = in_two(model, state, xs, begin)
    close((end, ys), tape(model, state, xs, begin))
    close(same, end, rtol=0)


@eqx.filter_jit
def look(model, state, xs, begin, next_xs):
    return model.lookahead(state, xs, begin, next_xs)


@eqx.filter_jit
def appended(model, state, xs, begin, next_xs):
    """Output t + 1 of the tape in which next_xs[t] follows xs[t], for every t."""
    xs = jnp.concatenate([xs, xs[:1]])
    begin = jnp.concatenate([begin, begin[:1]])

    def after(t):
        return model(state, xs.at[t + 1].set(next_xs[t]), begin.at[t + 1].set(False))[1][t + 1]

    return jax.vmap(after)(jnp.arange(T))


@every_model
@twice
def test_lookahead_equals_the_tape_with_the_next_observation_appended(name, perturbed):
    model, (xs, begin, next_xs) = build(name, perturbed), data()
    begin = begin.at[0].set(False)
    state = warm(model)
    end, ys, next_ys = look(model, state, xs, begin, next_xs)
    close((end, ys), tape(model, state, xs, begin))
    close(next_ys, appended(model, state, xs, begin, next_xs))


@functools.cache
def long_data():
    """Longer than a block of "chunked", with begins at both sides of its edge."""
    rng = np.random.default_rng(2)
    chunk = inspect.signature(scan.scan).parameters["chunk"].default
    begin = rng.random(chunk + 20) < 0.05
    begin[[0, chunk - 1, chunk, chunk + 1]] = [False, True, False, True]
    length = len(begin)
    return jnp.asarray(rng.normal(size=(length, IN)), jnp.float32), jnp.asarray(begin)


@every_monoid
@pytest.mark.parametrize("method", [m for m in scan.METHODS if m not in ("auto", "sequential")])
def test_every_method_gives_the_same_outputs_and_state(name, method):
    xs, begin = long_data()
    for perturbed in (False, True):
        model = build(name, perturbed)
        want = tape(model, warm(model), xs, begin, "sequential")
        close(tape(model, warm(model), xs, begin, method), want, rtol=2e-5)


@eqx.filter_jit
def gradients(model, state, xs, begin, weights, method):
    params, rest = eqx.partition((model, state, xs), eqx.is_inexact_array)

    def loss(params):
        model, state, xs = eqx.combine(params, rest)
        return jnp.vdot(weights, model(state, xs, begin, method=method)[1])

    return jax.grad(loss)(params)


def weights():
    # A plain sum over features has almost no gradient through a layer norm.
    return jnp.asarray(np.random.default_rng(3).normal(size=(T, OUT)), jnp.float32)


@every_monoid
def test_gradients_do_not_depend_on_the_method(name):
    xs, begin, _ = data()
    begin = begin.at[0].set(False)
    for perturbed in (False, True):
        model = build(name, perturbed)
        want = gradients(model, warm(model), xs, begin, weights(), "sequential")
        got = gradients(model, warm(model), xs, begin, weights(), "associative")
        close(got, want, rtol=1e-4)
        assert all(np.isfinite(g).all() for g in jax.tree.leaves(want))


@every_model
def test_gradient_reaches_every_parameter(name):
    model, (xs, begin, _) = build(name, True), data()
    grads = gradients(model, warm(model), xs, begin, weights(), "auto")[0]
    for path, grad in jax.tree_util.tree_leaves_with_path(grads):
        assert np.abs(grad).max() > 0, jax.tree_util.keystr(path)


@eqx.filter_jit
def later(model, state, xs, begin, method):
    """Outputs of the last episode, and the gradient of a sum of them with respect to xs."""

    def loss(xs):
        ys = model(state, xs, begin, method=method)[1][LATER:]
        return jnp.vdot(weights()[LATER:], ys), ys

    (_, ys), grads = jax.value_and_grad(loss, has_aux=True)(xs)
    return ys, grads[LATER:]


def methods(name):
    return ("sequential", "associative") if name in MONOIDS else ("auto",)


@every_model
@pytest.mark.parametrize("poison", ["+ 100", "nan", "inf", "state"])
def test_nothing_leaks_into_a_later_episode(name, poison):
    xs, begin, _ = data()
    for perturbed in (False, True):
        model = build(name, perturbed)
        state, bad, bad_state = warm(model), xs, warm(model)
        if poison == "+ 100":
            bad = xs.at[:LATER].add(100.0)
        elif poison == "state":
            bad_state = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), state)
        else:
            bad = xs.at[LATER - 3].set(float(poison))
        for method in methods(name):
            clean = later(model, state, xs, begin, method)
            got = later(model, bad_state, bad, begin, method)
            for a, b in zip(got, clean, strict=True):
                np.testing.assert_array_equal(a, b)


@eqx.filter_jit
def jacobian(model, xs, begin):
    return jax.jacrev(lambda xs: model(model.init(), xs, begin)[1])(xs)


@every_model
def test_outputs_depend_on_their_own_past_only(name):
    model, (xs, begin, _) = build(name, True), data()
    start, time = first_step(), np.arange(T)
    visible = (start[:, None] <= time[None]) & (time[None] <= time[:, None])
    slopes = np.abs(jacobian(model, xs, begin)).max(axis=(1, 3))
    assert (slopes[~visible] == 0).all()
    assert (np.diag(slopes) > 0).all()
    remembers = slopes[visible & (time[:, None] > time[None])].max() > 0
    assert remembers == (name != "none")


@eqx.filter_jit
def law_errors(model, xs, begin):
    """xs: [case, element, step, in]; every element composes up to 8 encoded observations."""
    monoid = Resettable(model.monoid)

    def element(xs, begin):
        parts = jax.vmap(model.encode)(xs), begin
        return scan.fold(monoid, parts)

    def case(xs, begin):
        a, b, c = (element(xs[i], begin[i]) for i in range(3))
        e = monoid.identity()
        pairs = [(monoid(monoid(a, b), c), monoid(a, monoid(b, c)))]
        return [*pairs, (monoid(e, a), a), (monoid(a, e), a)]

    return jax.vmap(case)(xs, begin)


@every_monoid
@twice
def test_monoid_laws_hold_on_what_the_model_encodes(name, perturbed):
    rng = np.random.default_rng(4)
    xs = jnp.asarray(rng.normal(size=(200, 3, 8, IN)), jnp.float32)
    begin = jnp.asarray(rng.random((200, 3, 8)) < 0.1)
    for left, right in law_errors(build(name, perturbed), xs, begin):
        close(left, right)
