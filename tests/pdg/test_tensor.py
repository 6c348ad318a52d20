"""Recurrent tensors as a learner writes them: definitions, reads, operations, randomness."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

from mmrl.pdg.build import ops
from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.expr import max_, min_
from mmrl.pdg.build.program import Program, fn
from mmrl.pdg.build.tensor import Tensor
from mmrl.pdg.run import compile
from mmrl.pdg.run.naive import execute, legal_order
from tests.helpers.branches import BRANCHES


def values(tensor: Tensor, **bounds: int) -> dict[tuple[int, ...], Any]:
    (found,) = execute(tensor.program.graph(tensor), bounds).values()
    return found


def line() -> tuple[Program, Any, Any, Tensor]:
    """x[t] = t + 1."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    return p, t, T, p.value(t + 1).astype("float32")


def test_operations_have_the_name_that_is_given_or_that_of_their_kind():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    slow, fast = p.tensor(t, name="slow"), p.fn(lambda t: t * 1.0, p.value(t), name="fast")
    slow[0] = 0.0
    slow[t + 1] = 0.9 * slow + fast
    double = p.fn(lambda x: x + x, fast)
    loss = -(slow * double)[0:T].mean()
    drawn = p.sample(lambda key: 1.0)  # its numbers depend on its name, which stays
    λ = fast + 1.0  # isl cannot read it
    graph = p.graph(loss + drawn, gradient(loss, fast), λ * 2.0)
    built = ["slow", "value", "fast", "constant", "mul", "add", "fn", "mul_2", "mean", "neg"]
    built += ["fn_2", "add_2"]
    assert list(p.ops)[: len(built)] == built
    assert {"vjp_mul_2", "vjp_mean", "grad_fast"} <= set(graph.ops)


def test_names_that_the_integer_sets_cannot_read_are_replaced():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.constant(1.0, name="a b")
    y = p.apply("add", x, p.value(t).astype("float32"), name="T")
    z = p.fn(lambda y: 2 * y, p.apply("neg", y, name="t"), name="Exists")
    graph = p.graph(p.apply("sum", z[0:T], axis=0, name="y[0]"))
    assert not {"a b", "T", "t", "Exists", "y[0]"} & set(graph.ops)
    assert execute(graph, {"T": 3})[graph.results[0]][()] == -12
    for name in ("floord", "Min", "infinity", "é"):
        with pytest.raises(ValueError, match="`names` must be different names"):
            Program(name)


def test_a_learning_rate_schedule_is_a_recurrence():
    """lr[i] = lr[i - 1] × 0.98, the example of §4."""
    p = Program("i", "t")
    (i, t), _ = p.symbols, p.bounds
    rate = p.tensor(i, name="rate")
    rate[0] = 0.1
    rate[i + 1] = rate * 0.98
    assert rate.domain.names == ("i",) and (rate * p.value(t)).domain.names == ("i", "t")
    found = values(rate, I=5, T=1)
    np.testing.assert_allclose(
        [found[k,] for k in range(5)], [0.1 * 0.98**k for k in range(5)], 1e-6
    )


def test_the_first_definition_that_covers_a_point_wins():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.tensor(t)
    x[0] = 10.0
    x[T - 1] = 20.0
    x[1:3] = 30.0
    x[t % 2 == 0] = x[t - 1] + 1.0
    x[t] = p.value(-t).astype("float32")
    found = values(x, T=7)
    assert [float(found[k,]) for k in range(7)] == [10.0, 30.0, 30.0, -3.0, -2.0, -5.0, 20.0]


def test_a_definition_may_look_ahead():
    p, t, T, x = line()
    total = p.tensor(t, name="total")
    total[T - 1] = x[T - 1]
    total[t - 1] = total + x[t - 1]  # total[t] for t >= 1, x one step before
    found = values(total, T=5)
    assert [float(found[k,]) for k in range(5)] == [15.0, 14.0, 12.0, 9.0, 5.0]


def test_a_slice_of_a_slice_is_computed_first():
    _, t, T, x = line()
    sums = x[t : min_(t + 2, T)].sum()
    found = values(sums[0:T].max() + x[T - 1], T=4)
    assert float(found[()]) == 7.0 + 4.0
    halves = x[t // 2][0:T]  # φ is no symbol: the tensor is computed before it is sliced
    assert values(halves * 1.0, T=4)[()].tolist() == [1.0, 1.0, 2.0, 2.0]
    shifted = x[t + 1][t + 1]
    assert str(shifted.domain) == "[t: T >= t + 3]"
    assert [float(v) for v in values(shifted * 1.0, T=5).values()] == [3.0, 4.0, 5.0]


def test_a_slice_may_end_before_the_missing_points():
    p, t, T, x = line()
    jump = (x[t + 1] - x[t]) * x  # has no last point
    behind = x[t - 1] * 1.0  # has no first point
    reads = [jump[0 : T - 1], jump[t : T - 1], behind[1:T], (x * x[t + 2])[0 : T - 2]]
    sums = [read.sum() for read in reads]
    slope, xs = gradient(sums[0] + sums[3], x), np.arange(1.0, 7)
    *found, ours = compile(p.graph(*sums, slope)).xla({"T": len(xs)})()
    later = [xs[k:-1].sum() for k in range(len(xs))]
    wanted = [xs[:-1].sum(), later, xs[:-1].sum(), xs[:-2] @ xs[2:]]
    jax.tree.map(np.testing.assert_allclose, found, list(map(np.float32, wanted)))
    loss = lambda x: ((x[1:] - x[:-1]) * x[:-1]).sum() + x[:-2] @ x[2:]  # noqa: E731
    np.testing.assert_allclose(ours, jax.grad(loss)(jnp.asarray(xs)))


def test_padding_does_not_count():
    _, t, T, x = line()
    window = x[t : min_(t + 3, T)]
    p = x.program
    reduced = [window.sum(), window.mean(), window.max(), (-window).max(), window.min()]
    weights = p.value(t).astype("float32")[t : min_(t + 3, T)] + 1.0
    reduced += [window.discounted_sum(0.5), (window + 1.0).exp() @ weights]
    found = execute(p.graph(*reduced), {"T": 5})
    for k in range(5):
        row = np.arange(k, min(k + 3, 5)) + 1.0
        want = [row.sum(), row.mean(), row.max(), -row.min(), row.min()]
        want += [sum(0.5**j * r for j, r in enumerate(row)), np.exp(row + 1) @ row]
        got = [float(values[k,]) for values in found.values()]
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("executor", ["naive", "xla"])
def test_functions_receive_padding_that_is_zero(executor: str):
    """Also if the ragged array was computed, so that f(0) stands in the padding."""
    p, t, T, x = line()
    window = x[t : min_(t + 3, T)]
    pairs = p.fn(lambda a: (a, 2 * a), window + 1.0)
    arrays = [x[0 : t + 1] + 1.0, (window * 0.0).exp(), window, pairs[1] + 1.0]
    graph = p.graph(*(p.fn(jnp.sum, array) for array in arrays))
    if executor == "xla":
        found = list(compile(graph, {}).xla({"T": 5})())
    else:
        found = [[v[k,] for k in range(5)] for v in execute(graph, {"T": 5}).values()]
    xs = np.arange(1.0, 6.0)
    for k in range(5):
        row = xs[k : k + 3]
        want = [(xs[: k + 1] + 1).sum(), len(row), row.sum(), (2 * (row + 1) + 1).sum()]
        np.testing.assert_allclose([float(values[k]) for values in found], want, rtol=1e-6)


def test_an_index_beyond_an_axis_is_refused():
    p, t, *_ = line()
    x = p.input("vectors", jnp.zeros(3), t)
    assert x[..., -3].shape == x[..., 2].shape == ()
    for index in (3, 7, -4):
        with pytest.raises(ValueError, match=f"`{index}` must be an index into an axis of 3"):
            x[..., index]


def test_a_cumulative_sum_over_padding_is_refused():
    p, t, *_ = line()
    x = p.input("vectors", jnp.zeros(2), t)
    with pytest.raises(ValueError, match="`cumsum` would leave padding between entries"):
        x[0 : t + 1].transpose().cumsum(None)


@pytest.mark.parametrize("first, then", [(0, 0.5), (True, 2.5), (True, 3), (0.0, 1j)])
def test_a_constant_that_would_lose_digits_is_refused(first: Any, then: Any):
    p, t, *_ = line()
    y = p.tensor(t, name="y")
    y[0] = first
    with pytest.raises(ValueError, match=r"`value` must be .*, as in the first definition"):
        y[t + 1] = then


def test_a_ragged_tensor_read_elsewhere_is_cut():
    _, t, T, x = line()
    rest = (x[t:T] * 1.0)[2] + 0.0  # T - 2 values at one point
    assert str(rest.type) == "float32[T - 2]"
    assert values(rest, T=5)[()].tolist() == [3.0, 4.0, 5.0]


@pytest.mark.slow
def test_every_operation_does_what_jax_does():
    p = Program("t")
    matrix = jnp.arange(1.0, 7.0).reshape(2, 3) / 4
    x, y = p.constant(matrix), p.constant(matrix[::-1] + 0.1)
    pairs: list[tuple[Tensor, Any]] = [
        (x + y, matrix + y_(matrix)),
        (1.0 - x, 1.0 - matrix),
        (2 * x / y, 2 * matrix / y_(matrix)),
        (3.0 / x, 3.0 / matrix),
        (x**2, matrix**2),
        (2.0**x, 2.0**matrix),
        (-x, -matrix),
        (x.exp().log().tanh().relu().sqrt().abs(), jnp.sqrt(jnp.tanh(matrix))),
        (np.sum(x, 1) - np.mean(x, axis=1), matrix.sum(1) - matrix.mean(1)),
        (x < y, matrix < y_(matrix)),
        (x >= y, matrix >= y_(matrix)),
        (x > 1.0, matrix > 1.0),
        (x <= 1.0, matrix <= 1.0),
        (x == y, matrix == y_(matrix)),
        (x != 1.0, matrix != 1.0),
        ((x > 0.3) & (x < 1.0) | ~(x < y), (matrix > 0.3) & (matrix < 1) | (matrix >= y_(matrix))),
        ((x < y).where(x, 0.0), jnp.where(matrix < y_(matrix), matrix, 0.0)),
        (x.minimum(y).maximum(0.5), jnp.maximum(jnp.minimum(matrix, y_(matrix)), 0.5)),
        (x.astype("int32"), matrix.astype("int32")),
        (x.sum(1) @ x, matrix.sum(1) @ matrix),
        (x @ y.transpose(), matrix @ y_(matrix).T),
        (x.mean(0), matrix.mean(0)),
        (x.max(), matrix.max()),
        (x.min(1), matrix.min(1)),
        (x.cumsum(1).flip(0), jnp.cumsum(matrix, 1)[::-1]),
        (x.softmax(1), jax.nn.softmax(matrix, 1)),
        (x.reshape(3, 2).expand_dims(0).squeeze(0), matrix.reshape(3, 2)),
        (x[..., 1, 0:2], matrix[1, 0:2]),
        (p.apply("concatenate", x, y, axis=0), jnp.concatenate([matrix, y_(matrix)])),
    ]
    found = execute(p.graph(*(tensor for tensor, _ in pairs)), {"T": 1})
    for (tensor, want), got in zip(pairs, found.values(), strict=True):
        np.testing.assert_allclose(got[()], want, rtol=1e-6, err_msg=repr(tensor))
    built = {op.kind for op in p.ops.values()}
    assert set(ops.TABLE) - built == {"discounted_sum"}  # met above, where padding matters


def y_(matrix: Any) -> Any:
    return matrix[::-1] + 0.1


def test_functions_take_and_return_trees():
    p = Program("t")
    (t,), _ = p.symbols, p.bounds
    whole, (double, half) = p.value(t), p.fn(lambda t: (2 * t, {"half": t / 2}), p.value(t))
    both = fn(lambda a, b: {"sum": a + b["half"]}, double, half)
    assert str(both.type["sum"]) == "float32[]" and both.domain == whole.domain
    assert float(values(both, T=3)[2,]["sum"]) == 5.0


def test_an_optimizer_is_two_functions():
    """Adam on w² / 2 from w = 1: optax's state is a tuple, and a tensor."""
    p = Program("i")
    (i,), (last,) = p.symbols, p.bounds
    adam = optax.adam(0.1)
    w, state = p.tensor(i, name="w"), p.tensor(i, name="state")
    w[0] = 1.0
    state[0] = p.fn(adam.init, w[0], name="start", whole=True)
    slope = gradient(w * w * 0.5, w)
    update, after = p.fn(adam.update, slope, state)
    state[i + 1] = after
    w[i + 1] = w + update
    (got,) = execute(p.graph(w[last - 1]), {"I": 5}).values()
    want = jnp.float32(1.0)
    kept = adam.init(want)
    for _ in range(4):
        change, kept = adam.update(want, kept)
        want = want + change
    np.testing.assert_allclose(got[()], want, rtol=1e-6)


def test_a_network_is_a_tensor_and_a_function():
    p = Program("i", "t")
    (i, t), _ = p.symbols, p.bounds
    net = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    params, static = eqx.partition(net, eqx.is_array)
    w = p.tensor(i, name="w")
    w[0] = params
    w[i + 1] = p.fn(lambda w: jax.tree.map(lambda x: x * 0.5, w), w)
    x = p.fn(lambda t: jnp.stack([t, t + 1.0]), p.value(t).astype("float32"))
    out = p.fn(lambda w, x: eqx.combine(w, static)(x)[0], w, x, name="net")
    found = values(out, I=2, T=2)
    np.testing.assert_allclose(found[0, 1], net(jnp.array([1.0, 2.0]))[0], rtol=1e-6)
    half = jax.tree.map(lambda x: x * 0.5 if eqx.is_array(x) else x, net)
    np.testing.assert_allclose(found[1, 1], half(jnp.array([1.0, 2.0]))[0], rtol=1e-6)


def test_randomness_is_a_function_of_the_point():
    def draws(seed: int, order: int, T: int) -> dict[tuple[int, ...], Any]:
        p = Program("i", "t", seed=seed)
        x = p.sample(lambda key: jax.random.normal(key, (2,)), over=p.symbols, name="x")
        return next(iter(execute(p.graph(x), {"I": 2, "T": T}, seed=order).values()))

    first, second, longer, other = draws(0, 0, 3), draws(0, 1, 3), draws(0, 0, 4), draws(1, 0, 3)
    for point in first:
        np.testing.assert_array_equal(first[point], second[point])
        np.testing.assert_array_equal(first[point], longer[point])
        assert not np.array_equal(first[point], other[point])
    assert len({v.tobytes() for v in map(np.asarray, first.values())}) == 6


def test_orders_differ_and_are_legal():
    p, t, _, x = line()
    y = p.tensor(t, name="y")
    y[0] = 0.0
    y[t + 1] = y + x
    graph = p.graph(y)
    orders = [legal_order(graph, {"T": 4}, seed) for seed in range(4)]
    assert len({tuple(order) for order in orders}) > 1
    for order in orders:
        assert all(order.index(("y", (k,))) < order.index(("y", (k + 1,))) for k in range(3))


def test_too_small_bounds_are_named():
    _, _, _, x = line()
    graph = x.program.graph(x[2:5].sum())
    run = compile(graph, {})
    for use in (
        lambda: execute(graph, {"T": 4}),
        lambda: run.check(T=4),
        lambda: run.xla({"T": 4}),
    ):
        with pytest.raises(ValueError, match=r"too small for `sum <- cast\[2:5\]`, got {'T': 4}"):
            use()
    assert run.check(T=5).ok and float(run.xla({"T": 5})()[0]) == 12.0


def test_a_tensor_is_neither_many_nor_true():
    _, _, _, x = line()
    with pytest.raises(TypeError, match="is a single tensor"):
        _first, _second = x
    with pytest.raises(TypeError, match="has no truth value"):
        bool(x > 0.0)
    assert repr(np.float32(2.0) * x).startswith("Tensor(mul")
    _, t, T, x = line()
    assert (
        repr(x[t : min_(t + 4, T)])
        == "Tensor(cast[t:min(t + 4, T)] over [t]: float32[min(4, T - t)])"
    )


def target_network(detached: bool) -> Any:
    """Weights whose loss also reads those of earlier steps, as a target network does."""
    p, t, *_ = line()
    w = p.tensor(t, name="w")
    w[0] = 1.0
    old = w[max_(0, t - 3)]
    loss = w * (old.detach() if detached else old)
    w[t + 1] = w - 0.1 * gradient(loss, w)
    return compile(p.graph(w)).xla(T=6)()[0]


def test_a_target_network_is_a_detached_read():
    w = [1.0]
    for step in range(5):
        w.append(w[step] - 0.1 * w[max(0, step - 3)])
    np.testing.assert_allclose(target_network(detached=True), w, rtol=1e-6)


JAX_ONLY = r"`f` must compute with JAX arrays, .*\(.*\): write `jnp` instead of `np`, `jnp.where`"


def misuse() -> dict[str, tuple[Any, str]]:
    p, t, T, x = line()
    u, v = p.tensor(t, name="u"), p.tensor(name="v")
    tree, key = p.fn(lambda a: {"a": a, "b": -a}, x, name="d"), jax.random.key(0)

    def define(tensor: Tensor, key: Any, value: Any) -> Any:
        def act() -> None:
            tensor[key] = value

        return act

    u[0] = 1.0
    return {
        "read before": (lambda: p.tensor(t, name="early") + 1.0, "has no type yet"),
        "twice": (define(u, 0, 2.0), r"already defined wherever `u\[0\] = …`"),
        "type": (define(u, t, p.constant(jnp.zeros(3))), "was first defined as float32"),
        "turned": (define(u, 2 * t, 1.0), r"must be a number, .*0:4, t or t \+ 1"),
        "window": (define(u, slice(t, T), 1.0), r"must be a number, .*0:4, t or t \+ 1"),
        "wider": (define(v, (), x), "the value differs along"),
        "at a point": (define(u, 1, x), "the value differs along"),
        "computed": (define(x, 0, 1.0), "only tensors of `Program.tensor`"),
        "a read": (define(x[t + 1], 0, 1.0), "is an indexed read"),
        "program": (lambda: x + line()[3], "belongs to another program"),
        "behind the end": (define(u, T, 1.0), r"`u\[T\] = …` defines no point, .*0 <= t < T"),
        "before the start": (define(u, -1, 1.0), "not from the end: instead of -1 write T - 1"),
        "if": (lambda: p.fn(lambda a: a if t == 0 else a + 1, x), "no truth value"),
        "if t <": (lambda: x if t < 1 else u, r"no truth value .*`\(p.value\(t\) == 0\).where\("),
        "len": (lambda: len(x), r"a single tensor \(`shape` is the shape of its array at each"),
        "numpy's": (
            lambda: np.sum(x[0:T], dtype=int),
            "only `axis`, got .*int",
        ),
        "if t ==": (lambda: x if t == 0 else u, r"no truth value .*`\(p.value\(t\) == 0\).where\("),
        "if ==": (lambda: 1 if x == 1 else 2, "equal.* has no truth value .* `where` .*`&`"),
        "closed over": (lambda: p.fn(lambda a: a + u, x), "every tensor .* input of `fn`"),
        "no function": (lambda: fn(x, x), r"`f` must be a function, got Tensor\(cast"),  # pyright: ignore
        "axis": (lambda: x.sum(0), r"`sum` .* axis of float32\[\].* got 0: .* slice .*`x\[0:T\]`"),
        "no slice": (lambda: x.discounted_sum(0.9), r"as in `x\[0:T\]`"),
        "no key": (
            lambda: p.sample(lambda a: a, x, name="f"),
            "`f` must accept a key and 1 input, ",
        ),
        "one input": (lambda: p.fn(lambda a: a, x, x, name="f"), "`f` must accept 2 inputs, "),
        "no return": (lambda: p.fn(lambda a: None, x, name="f"), "`f` .* got None: .*`return`"),
        "no loss": (lambda: gradient(1.0, x), "must be tensors of a program, got 1.0"),  # pyright: ignore
        "no index": (lambda: p.value(x), "is not an index"),  # pyright: ignore
        "several": (define(u, t + 1, p.fn(lambda x: (x, x), x)), "be one tensor, got a tuple"),
        "several read": (lambda: p.fn(jnp.add, x, (x, x)), "be one tensor, got a tuple"),
        "names": (lambda: Program("T"), "lower case"),
        "same names": (lambda: Program("t", "t"), "different names"),
        "reserved": (lambda: Program("min"), "different names"),
        "tree": (lambda: p.constant({"a": 1.0}) + 1.0, "is a tree of arrays"),
        "nothing": (lambda: gradient(x.sum()), "`wrt` must name at least one"),
        "symbol": (lambda: p.tensor("q"), "`q` is not a symbol of this program, which has t"),
        "alone": (lambda: fn(math.sin, 1.0), "must contain a tensor"),
        "key": (lambda: p.sample(lambda key: key, over=(t,)), "typed key"),
        "length": (lambda: p.fn(lambda r: r @ jnp.ones(4), x[t:T]), r"T - t = \d+ .*\(4,\)"),
        "length of all": (lambda: p.fn(lambda r: r.reshape(9), x[0:T]), r"for T = \d+ "),
        "ragged twice": (lambda: x[t:T][0:T], "cannot be sliced along t"),
        "square": (
            lambda: x[t:T].program.fn(lambda r: jnp.outer(r, r).ravel(), x[t:T]),
            "linear.* T - t =",
        ),
        "numbers of NumPy": (lambda: p.fn(lambda a: np.tanh(a), x, name="f"), JAX_ONLY),
        "if in a function": (lambda: p.fn(lambda a: a if a > 0 else -a, x, name="f"), JAX_ONLY),
        "if in a sample": (
            lambda: p.sample(lambda k, a: -a if a > 0 else a, x, name="f"),
            JAX_ONLY,
        ),
        "number": (lambda: p.fn(lambda a: float(a), x, name="f"), JAX_ONLY),
        "range": (lambda: p.fn(lambda a: sum(range(a)), t, name="f"), JAX_ONLY),
        "mask": (lambda: p.fn(lambda a: a[a > 0], p.constant(jnp.ones(3)), name="f"), JAX_ONLY),
        "if with a slice": (lambda: p.fn(lambda a: a if a[0] else -a, x[t:T], name="f"), JAX_ONLY),
        "entry": (lambda: tree["a"], r"`'a'` is not an index .*`p.fn\(lambda x: x\['a'\], x\)`"),
        "entry of a constant": (lambda: p.constant({"a": 1.0})["a"], "`'a'` is not an index"),
        "entry of a read": (lambda: tree[t + 1]["a"], "x = d$"),
        "entry that is defined": (define(u, "a", 1.0), "`'a'` is not an index of points of `u`"),
        "index from a tensor": (lambda: x[x], r"is not an index .*lambda x, k: x\[k\], x, k\)"),
        "end from a tensor": (lambda: x[t:x], "is not an index of points of `cast`"),
        "gradient of a tree": (
            lambda: gradient(p.fn(lambda w: w["a"], tree, name="loss"), tree) * 0.1,
            r"`vjp_loss`, a gradient, must be a single array .*`p.fn\(lambda w, dw: jax.tree.map",
        ),
        "tree as a loss": (lambda: gradient(tree, x), r"`d` must be a single .*lambda w: w\['a'\]"),
        "list of tensors": (lambda: gradient(x.sum(), [x]), "each tensor as a separate argument"),  # pyright: ignore
        "key of a function": (lambda: p.fn(jax.random.normal, key), r"`p.sample\(f, …\)` in place"),
        "key of an input": (lambda: p.input("seeds", key), r"typed key: .*`p.sample\(f, …\)`"),
        "hole": (lambda: x[t + 1][0:T], "leaves|exists only where"),
        "where defined": (
            lambda: p.graph((x[t + 1] * 1.0)[t:T].sum()),
            r"`mul` exists only where T >= t \+ 2, so a slice along t may have holes, because it "
            r"reads `cast\[t \+ 1\]`; write t:T - 1, or define",
        ),
        "hole in a window": (
            lambda: (x[t + 2] * 1.0 + x)[t : min_(t + 2, T)],
            r"`add` exists only where T >= t \+ 3, .* reads `cast\[t \+ 2\]`; "
            r"write t:min_\(t \+ 2, T - 2\)",
        ),
        "target": (
            lambda: target_network(detached=False),
            r"itself through .*: `detach` each read",
        ),
        "hole at the end for small T": (
            lambda: ((x[t + 1] - x) * 1.0)[0:5],
            r"exists only where T >= t \+ 2, so .* `cast\[t \+ 1\]`; write 0:min_\(5, T - 1\)",
        ),
        "hole at the start": (
            lambda: (x[t - 1] * 1.0)[0:T],
            r"exists only where t >= 1, so .* `cast\[t - 1\]`; write 1:T",
        ),
        "hole in the middle": (lambda: (x * 1.0)[t % 2 == 0][0:T], "so a slice along .* may have"),
    }


def test_a_tuple_of_one_symbol_is_not_a_symbol(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users make mistakes
    p = Program("t")
    t, T = p.symbols, p.bounds
    x = p.tensor("t", name="x")
    x[t] = 1.0
    acts = [lambda: t + 1, lambda: T - 1, lambda: 2 * t, lambda: t == 0, lambda: t < 1]  # pyright: ignore
    acts += [lambda: x[0:T], lambda: p.tensor(t), lambda: p.input("y", 0.0, t)]  # pyright: ignore
    for act in acts:
        with pytest.raises((TypeError, ValueError), match=r"\(t,\), \(T,\) = p.symbols"):
            act()
    assert t == tuple(t) and f"{t} {T}" == "(t,) (T,)"


NUMBERS: list[Any] = [jnp.tanh, jax.nn.softmax, jnp.asarray, np.tanh, np.asarray, math.tanh, float]
NUMBERS += [lambda x: jnp.maximum(x, 0), lambda x: jax.jit(jnp.add)(x, 1), lambda x: range(x)]


@pytest.mark.parametrize("use", BRANCHES)
def test_no_branch_is_taken_by_a_comparison_in_a_program(use: str):
    p, t, _, x = line()
    outside = lambda a: BRANCHES[use](t, 0)  # noqa: E731 # a symbol of the program, at a point
    for act in (lambda: BRANCHES[use](t, 0), lambda: p.fn(outside, x), lambda: BRANCHES[use](x, 0)):
        with pytest.raises(TypeError, match="no truth value"):
            act()


@pytest.mark.parametrize("use", NUMBERS)
def test_a_function_of_numbers_is_given_to_fn(use: Any):
    _, t, _, x = line()
    for value in (x, t, t + 1):
        with pytest.raises((ValueError, TypeError)):
            use(value)
    primitives: list[Any] = [jax.nn.relu, jax.lax.exp]
    for primitive in primitives:
        for value in (x, t, t + 1):
            with pytest.raises((ValueError, TypeError)):
                primitive(value)
    for matrix in (jnp.ones((2, 3)), np.ones((2, 3), np.float32)):
        assert repr(matrix @ (jnp.ones(3) * x)).endswith("float32[2])")
    assert repr(jnp.ones(3) * x + np.ones(3)).endswith("float32[3])")
    assert str(np.int64(2) + t) == "t + 2" and x.program.fn(jnp.tanh, t).dtype == "float32"


@pytest.mark.parametrize("name", misuse())
def test_misuse_is_explained(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users make mistakes
    act, message = misuse()[name]
    with pytest.raises((ValueError, TypeError), match=message):
        act()
