"""Layers and optimizers of recurrent tensors against Equinox and optax."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mmrl.pdg import compile, gradient
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.nn import Adam, Descent, Layers, convolution, dense, norm
from mmrl.pdg.build.program import Program
from mmrl.pdg.passes import tile, vectorize

NET = Layers(
    convolution("filters", 2, 3, 2, jax.nn.relu, stride=2),
    lambda x: x.reshape(-1),
    norm("norm", 12),
    dense("hidden", 12, 4, jnp.tanh),
    dense("out", 4, 1, bias=False, scale=0.5),
)
IMAGES = jax.random.normal(jax.random.key(1), (5, 2, 4, 4))


def slopes() -> tuple[Graph, Any]:
    """The squares of the network's results, summed over t, by each layer's parameters."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    w = jax.tree.map(lambda x: x + 0.1, NET.init(jax.random.key(0)))  # no bias is 0, no gain is 1
    made = {name: p.input(name, w[name]) for name in NET.names}
    loss = p.fn(lambda y: y[0] ** 2, NET(made, p.input("x", IMAGES[0], t)))
    return p.graph(loss[0:T].sum(), *gradient(loss, *made.values())), w


def by_equinox(w: Any) -> Any:
    """The same network of Equinox's modules, with these parameters."""
    key = jax.random.key(0)
    layers = (
        eqx.nn.Conv2d(2, 3, 2, 2, key=key),
        eqx.nn.LayerNorm(12),
        eqx.nn.Linear(12, 4, key=key),
        eqx.nn.Linear(4, 1, use_bias=False, key=key),
    )
    where = lambda m: (m[0].weight, m[0].bias, m[1].weight, m[1].bias, m[2].weight, m[2].bias)  # noqa: E731
    values = [w["filters"]["W"], w["filters"]["b"], w["norm"]["g"], w["norm"]["b"]]
    values += [w["hidden"]["W"].T, w["hidden"]["b"]]
    layers = eqx.tree_at(where, layers, values)
    layers = eqx.tree_at(lambda m: m[3].weight, layers, w["out"]["W"].T)

    def apply(x: Any) -> Any:
        conv, scale, hidden, out = layers
        return out(jnp.tanh(hidden(scale(jax.nn.relu(conv(x)).reshape(-1)))))[0]

    return jnp.square(jax.vmap(apply)(IMAGES)).sum()


@pytest.mark.full
def test_layers_and_their_gradients_are_those_of_equinox():
    graph, w = slopes()
    tiled = compile(graph, {"tile": lambda g: tile(g, "t", 2)})
    loss, *found = tiled.xla(T=5)(**w, x=IMAGES)
    wanted, gradients = jax.jit(jax.value_and_grad(by_equinox))(w)
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    for name, g in zip(NET.names, found, strict=True):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), g, gradients[name]
        )
    far = jnp.square(jax.vmap(NET.apply, (None, 0))(w, IMAGES)).sum() - wanted
    np.testing.assert_allclose(far, 0, atol=1e-4)


@pytest.mark.full
def test_a_gradient_of_parameters_is_a_product_of_matrices():
    """Each layer's own, with no term of it: parameters have an operation apart from inputs."""
    graph, w = slopes()
    back = [op.params["wrt"] for op in graph.ops.values() if op.params.get("of") == "hidden_2"]
    assert sorted(back) == [(0,), (1,)]
    program = compile(graph, {"vectorize": lambda g: vectorize(g, "t")}).xla(T=5)
    assert "5x12x4" not in program.lower(**w, x=IMAGES).as_text()


@pytest.mark.parametrize("activation", [jnp.tanh, jax.nn.gelu])
@pytest.mark.parametrize("result", [False, True])
def test_a_network_that_is_used_twice_at_a_point_runs_once(activation: Any, result: bool):
    """With residuals that only one of both uses keeps, as those of gelu, and if one is a result."""
    net = Layers(dense("hidden", 3, 4, activation), dense("out", 4, 1))
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    w = {name: p.input(name, x) for name, x in net.init(jax.random.key(0)).items()}
    x = p.input("x", jnp.zeros(3), t)
    act, judge = net(w, x, "act"), net(w, x, "judge")
    loss = p.fn(lambda a, b: ((a - b - 1) ** 2).sum(), judge, act.detach(), name="loss")
    results = [act[0:T].read()] if result else []
    graph = p.graph(*gradient(loss, *w.values()), *results)
    runs = {name for name in graph.ops if name.startswith(("act", "judge"))}
    assert runs == {"act_hidden", "act_out"}


def test_layers_have_different_names():
    with pytest.raises(ValueError, match="different names"):
        Layers(norm("a", 2), norm("a", 2))


START = {"a": jnp.array([1.0, -2.0]), "b": jnp.array(0.5)}


def descended(*optimizers: Any) -> Graph:
    """The last parameters after I K steps on a⁴ + b², by each of the optimizers."""
    p = Program("i", "k")
    (i, k), (last, K) = p.symbols, p.bounds
    found = []
    for optimizer in optimizers:
        w = p.tensor(i, k, name="w")
        w[0, 0] = START
        loss = p.fn(lambda w: (w["a"] ** 4).sum() + w["b"] ** 2, w)
        (after,) = optimizer.step([w], [gradient(loss, w)])
        p.follow(w, after)
        found.append(after[last - 1, K - 1])
    return p.graph(*found)


@pytest.mark.full
def test_optimizers_are_those_of_optax():
    found = compile(descended(Adam(0.1, 0.98), Descent(0.02, 0.9))).xla(I=3, K=2)()
    others = optax.adam(lambda n: 0.1 * 0.98**n), optax.sgd(lambda n: 0.02 * 0.9**n)
    for after, optimizer in zip(found, others, strict=True):
        w, state = START, optimizer.init(START)
        for _ in range(6):
            slope = jax.grad(lambda w: (w["a"] ** 4).sum() + w["b"] ** 2)(w)
            change, state = optimizer.update(slope, state, w)
            w = optax.apply_updates(w, change)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), after, w)


def test_optimizers_keep_whole_numbers_and_dtypes():
    """Leaves without a gradient, half precision, whole rates, and tensors in no list."""
    start = {"n": jnp.int32(2), "w": jnp.array([1.0, -2.0], jnp.bfloat16)}
    p = Program("i")
    (i,), (last,) = p.symbols, p.bounds
    results = []
    for optimizer in (Adam(1), Descent(np.int64(1), decay=1)):
        w = p.tensor(i, name="w")
        w[0] = start
        loss = p.fn(lambda w: (w["n"] * w["w"] ** 2).sum().astype(jnp.float32), w)
        (after,) = optimizer.step(w, gradient(loss, w))
        p.follow(w, after)
        results.append(after[last - 1])
    adam, descent = compile(p.graph(*results), {}).interpret(I=1, backend="numpy").results
    for found, wanted in ((adam, [0.0, -1.0]), (descent, [-3.0, 6.0])):
        assert found["n"] == 2 and found["n"].dtype == np.int32
        assert found["w"].dtype == jnp.bfloat16
        np.testing.assert_allclose(found["w"].astype(np.float32), wanted, atol=0.02)


def test_a_rate_may_differ_from_point_to_point():
    """A tensor η[i], without another decay; squares of gradients exceed half precision."""
    p = Program("i")
    (i,), (last,) = p.symbols, p.bounds
    rate = p.tensor(i, name="rate")
    rate[0] = 0.5
    rate[i + 1] = 0.5 * rate
    results = []
    for optimizer in (Descent(rate), Descent(0.5, decay=0.5), Adam(rate)):
        w = p.tensor(i, name="w")
        w[0] = jnp.float16(3.0)
        loss = p.fn(lambda w: 200.0 * w.astype(jnp.float32), w)
        (after,) = optimizer.step([w], [gradient(loss, w)])
        p.follow(w, after)
        results.append(after[last - 1])
    one, other, adam = compile(p.graph(*results), {}).interpret(I=2, backend="numpy").results
    assert one == other == 3.0 - 200.0 * 0.75 and adam.dtype == jnp.float16
    np.testing.assert_allclose(adam, 3.0 - 0.75, atol=0.01)
    with pytest.raises(ValueError, match="`rate` must be a number if it decays"):
        Descent(rate, decay=0.5).step([w], [w])


def test_adam_squares_large_gradients_of_half_precision():
    p = Program("i")
    (i,), (last,) = p.symbols, p.bounds
    w = p.tensor(i, name="w")
    w[0] = jnp.float16(3.0)
    loss = p.fn(lambda w: 1000.0 * w.astype(jnp.float32), w)
    (after,) = Adam(0.5).step([w], [gradient(loss, w)])
    p.follow(w, after)
    (found,) = compile(p.graph(after[last - 1]), {}).interpret(I=2, backend="numpy").results
    np.testing.assert_allclose(found, 2.0, atol=0.01)
