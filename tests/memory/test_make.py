"""Memories by name, and what a wrong call says."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from mmrl import memory
from tests.helpers.memories import sizes

KEY = jax.random.key(0)
XS, BEGIN = jnp.zeros((6, 5)), jnp.zeros(6, bool)


@pytest.mark.parametrize("name", memory.NAMES)
def test_every_name_builds_with_default_sizes(name):
    def run(key):
        model = memory.make(name, 5, 3, key=key)
        return model.init(), *model(model.init(), XS, BEGIN)

    start, state, ys = eqx.filter_eval_shape(run, KEY)
    assert ys.shape == (6, 3) and ys.dtype == jnp.float32
    assert jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, start)


@pytest.mark.parametrize("name", memory.NAMES)
def test_every_model_can_be_built_inside_a_vmap(name):
    build = eqx.filter_vmap(lambda key: memory.make(name, 5, 3, key=key, layers=2))
    models = eqx.filter_eval_shape(build, jax.random.split(KEY, 4))
    assert {x.shape[0] for x in jax.tree.leaves(models)} == {4}


@pytest.mark.parametrize(
    "name, sizes",
    [
        *((name, dict.fromkeys(sizes(name), 1)) for name in memory.NAMES),
        ("s5", {"state_size": 6, "blocks": 3}),
    ],
)
def test_smallest_sizes_work(name, sizes):
    @jax.jit
    def run(key, xs):
        model = memory.make(name, 5, 3, key=key, **sizes)
        return model(model.init(), xs, BEGIN)[1]

    xs = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    assert np.isfinite(run(KEY, xs)).all()


def test_layers_make_a_residual_stack_of_different_layers():
    model = memory.make("lru", 5, 3, key=KEY, layers=3, state_size=4)
    assert isinstance(model, memory.Residual) and len(model.init()) == 3
    assert not np.array_equal(model.blocks[0].memory.nu, model.blocks[1].memory.nu)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: memory.make("lur", 5, 3, key=KEY), "`name`.*'lur'.*Did you mean `lru`"),
        (lambda: memory.make("LSTM", 5, 3, key=KEY), "Did you mean `lstm`"),
        (
            lambda: memory.make("?", 5, 3, key=KEY),
            r"`name` must .*got '\?'.*one of `elman`, .*`none`",
        ),
        (lambda: memory.make("lru", 5, 3, key=KEY, size=4), "`sizes`.*`state_size`.*got `size`"),
        (lambda: memory.make("none", 5, 3, key=KEY, size=4), "must be empty.*got `size`"),
        (lambda: memory.make("lru", 5, 3, key=KEY, state_size=0), "`state_size`.*at least 1.*0"),
        (lambda: memory.make("gru", 0, 3, key=KEY), "`input_size`.*at least 1"),
        (lambda: memory.make("gru", 5, 3, key=0), "`key` must be .*got 0"),
        (lambda: memory.LRU(5, 3, key=None), "`key` must be .*None"),
        (lambda: memory.make("lru", 5, 3, key=jax.random.split(KEY), layers=2), "`key`.*vmap"),
        (lambda: memory.make("gru", 5, 3, key=KEY, layers=0), "`layers`.*at least 1.*0"),
        (lambda: memory.make("s5", 5, 3, key=KEY, blocks=5), "`blocks` must divide"),
        (lambda: memory.make("s5", 5, 3, key=KEY, step_size=(0.1, 0.0)), "`step_size`"),
        (lambda: memory.make("s5", 5, 3, key=KEY, step_size=(0.1, jnp.inf)), "`step_size`"),
        (lambda: memory.make("lru", 5, 3, key=KEY, decay=(0.9, 1.0)), "`decay`"),
        (lambda: memory.make("lru", 5, 3, key=KEY, phase=0.0), "`phase`"),
        (lambda: memory.make("ffm", 5, 3, key=KEY, period=(0.0, 9.0)), "`period`"),
        (lambda: memory.make("ffm", 5, 3, key=KEY, period=(2.0, jnp.inf)), "`period`"),
        (lambda: memory.make("ffm", 5, 3, key=KEY, decay=(jnp.nan, 0.5)), "`decay`"),
        (lambda: memory.Residual(5, 3, [], key=KEY), "`memories`"),
        (
            lambda: memory.Residual(5, 3, [memory.make("gru", 4, 6, key=KEY)], key=KEY),
            r"`memories`.*\[4, 6\]",
        ),
    ],
)
def test_wrong_construction_says_what_to_do(call, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        call()


WRONG = {
    "width": ({"xs": XS[:, :4]}, r"`xs` must have shape \(time, 5\).*got \(6, 4\)"),
    "batch axis": ({"xs": XS[None]}, r"`xs`.*got \(1, 6, 5\).*vmap"),
    "no time axis": ({"xs": XS[0]}, r"`xs`.*got \(5,\)"),
    "float flags": ({"begin": BEGIN.astype(jnp.float32)}, "`begin` must be boolean.*float32"),
    "too many flags": ({"begin": jnp.zeros(7, bool)}, r"`begin`.*\(6,\).*got \(7,\)"),
    "one flag": ({"begin": jnp.zeros((), bool)}, r"`begin`.*\(6,\).*got \(\)"),
    "foreign state": ({"state": {"h": XS}}, "`state` must have the shapes.*init"),
}


@pytest.mark.parametrize("name", ["lru", "gru", "none", "stack"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_call_says_what_to_do(name, wrong):
    layers = 2 if name == "stack" else 1
    model = memory.make("lru" if name == "stack" else name, 5, 3, key=KEY, layers=layers)
    change, message = WRONG[wrong]
    arguments = {"state": model.init(), "xs": XS, "begin": BEGIN} | change
    with pytest.raises(ValueError, match=message):
        model(**arguments)
    with pytest.raises(ValueError, match=message):
        model.lookahead(**arguments, next_xs=arguments["xs"])


@pytest.mark.parametrize("name", ["lru", "gru", "none", "stack"])
def test_wrong_step_and_lookahead_say_what_to_do(name):
    layers = 2 if name == "stack" else 1
    model = memory.make("lru" if name == "stack" else name, 5, 3, key=KEY, layers=layers)
    state, false = model.init(), jnp.zeros((), bool)
    with pytest.raises(ValueError, match=r"`x` must have shape \(5,\); got \(6, 5\)"):
        model.step(state, XS, false)
    with pytest.raises(ValueError, match=r"`begin` must be boolean.*int32"):
        model.step(state, XS[0], jnp.zeros((), jnp.int32))
    with pytest.raises(ValueError, match=r"`begin` must have shape \(\).*got \(6,\)"):
        model.step(state, XS[0], BEGIN)
    with pytest.raises(ValueError, match=r"`next_xs`.*time = 6.*got \(5, 5\)"):
        model.lookahead(state, XS, BEGIN, XS[:5])


@pytest.mark.full_except("none", "lru")
@pytest.mark.parametrize(
    "name", ["none", *(pytest.param(x, marks=pytest.mark.slow) for x in ("lru", "gru", "stack"))]
)
def test_plain_python_numbers_are_arrays(name):
    layers = 2 if name == "stack" else 1
    model = memory.make("lru" if name == "stack" else name, 5, 3, key=KEY, layers=layers)
    xs, state = jnp.arange(10.0).reshape(2, 5), model.init()
    for begin in ([True, False], [1, 0], (True, 0)):
        result = model.lookahead(state, xs.tolist(), begin, xs.tolist())
        expected = model.lookahead(state, xs, jnp.array([True, False]), xs)
        jax.tree.map(np.testing.assert_array_equal, result, expected)
        np.testing.assert_array_equal(model(state, xs.tolist(), begin)[1], result[1])
    for begin in (0, False, np.False_):
        y = model.step(state, xs[0].tolist(), begin)[1]
        np.testing.assert_array_equal(y, model.step(state, xs[0], jnp.array(False))[1])


@pytest.mark.parametrize(
    ("argument", "xs", "begin"),
    [
        ("xs", [[1, 2, 3, 4, 5], [1]], [True, False]),
        ("xs", "text", [True]),
        ("xs", None, [True]),
        ("begin", XS, None),
        ("begin", XS, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        ("begin", XS[:2], [[True], []]),
    ],
)
def test_what_is_not_an_array_is_refused(argument, xs, begin):
    model = memory.make("lru", 5, 3, key=KEY)
    with pytest.raises(ValueError, match=f"^`{argument}` must "):
        model(model.init(), xs, begin)


def test_state_of_another_size_is_refused():
    small, large = (memory.make("lru", 5, 3, key=KEY, state_size=n) for n in (2, 4))
    with pytest.raises(ValueError, match=r"`state`.*\(4,\).*got.*\(2,\)"):
        large(small.init(), XS, BEGIN)


def test_recurrence_that_is_no_monoid_refuses_a_parallel_method():
    model = memory.make("gru", 5, 3, key=KEY)
    with pytest.raises(ValueError, match=r"`method`.*GRU.*'associative'"):
        model(model.init(), XS, BEGIN, method="associative")


def test_unknown_method_is_refused():
    model = memory.make("lru", 5, 3, key=KEY)
    with pytest.raises(ValueError, match=r"`method`.*'magic'"):
        model(model.init(), XS, BEGIN, method="magic")


@pytest.mark.parametrize("name", ["lru", "gru"])
def test_a_flag_may_be_a_python_bool(name):
    model = memory.make(name, 5, 3, key=KEY)
    step = eqx.filter_jit(lambda begin: model.step(model.init(), XS[0], begin)[1])
    np.testing.assert_array_equal(step(True), step(jnp.array(True)))
