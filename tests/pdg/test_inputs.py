"""Programs that are given values when they run, and that call Python while they do."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.pdg import Program, compile, gradient
from mmrl.pdg.graph import Graph
from mmrl.pdg.passes import fuse, lift_loops, tile, vectorize
from mmrl.pdg.verify import naive

STEPS = 6
PASSES: dict[str, Callable] = {
    "none": lambda graph: graph,
    "vectorize": lambda graph: vectorize(graph, "t"),
    "lift": lambda graph: lift_loops(graph, "t", when="always"),
    "tile": lambda graph: tile(graph, "t", 4),
    "fuse": fuse,
}


def made(graph: Graph, passes: str) -> Any:
    return compile(graph, {} if passes == "none" else {passes: PASSES[passes]})


def filtered() -> Graph:
    """Σ_t h[t], h[t] = rate h[t - 1] + <x[t], w>, and its gradients with respect to inputs."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x, w = p.input("x", jnp.zeros(3), t), p.input("w", {"a": jnp.zeros(3)})
    rate, h = p.input("rate", 0.1), p.tensor(t, name="h")
    h[0] = 0.0
    h[t + 1] = y = p.fn(lambda h, x, w, r: h * r + (x * w["a"]).sum(), h, x, w, rate, name="y")
    loss = y[0:T].sum()
    return p.graph(loss, gradient(loss, w), gradient(loss, rate))


def by_hand(w: dict, rate: Any, x: Any) -> Any:
    def step(h, x):
        h = h * rate + (x * w["a"]).sum()
        return h, h

    return jax.lax.scan(step, 0.0, x)[1].sum()


def values(seed: int) -> dict[str, Any]:
    a, b = jax.random.split(jax.random.key(seed))
    return {"x": jax.random.normal(a, (STEPS, 3)), "w": {"a": jax.random.normal(b, 3)}}


@pytest.mark.parametrize("passes", PASSES)
def test_one_program_serves_all_values(passes: str):
    graph, traced = filtered(), []
    program = made(graph, passes)
    one = program.xla(T=STEPS)
    inner, one._run = one._run, lambda inputs: (traced.append(1), inner(inputs))[1]
    one._jitted = jax.jit(one._run)
    for seed, rate in ((0, 0.5), (1, -0.9)):
        given = {**values(seed), "rate": rate}
        wanted = by_hand(**given), *jax.grad(by_hand, (0, 1))(given["w"], rate, given["x"])
        found = [one(**given), program.interpret(T=STEPS, **given).results]
        found.append(tuple(v[()] for v in naive.execute(graph, {"T": STEPS}, **given).values()))
        for results in found:
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5), results, wanted)
    assert len(traced) == 1


def test_a_key_is_given_alike():
    p = Program("t")
    drawn = p.sample(lambda key: jax.random.normal(key), over=p.symbols, name="drawn")
    graph, key = p.graph(drawn), jax.random.key(7)
    one, other = made(graph, "none").xla(T=3)(key=key)[0], made(graph, "none").xla(T=3)()[0]
    run = naive.execute(graph, {"T": 3}, key=key)["drawn", 0]
    np.testing.assert_allclose(one, [run[k,] for k in range(3)], rtol=1e-6)
    assert not np.allclose(one, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": None}, "lacks the input `rate`; the program's inputs: x, w, rate"),
        ({"more": 1.0}, "unknown input `more`"),
        ({"x": np.zeros((5, 3))}, r"`x` must have the shape \(6, 3\): \(3,\) at each \[t\]; got"),
        ({"w": 1.0}, r"`w` must be a PyTreeDef\(\{'a': \*\}\), got a PyTreeDef\(\*\)"),
        ({"rate": 1j}, "`rate` must be float32, got complex64"),
    ],
)
def test_wrong_inputs_are_named(change: dict, message: str):
    graph = filtered()
    given = {k: v for k, v in {**values(0), "rate": 0.5, **change}.items() if v is not None}
    program = made(graph, "none")
    for run in (
        lambda: program.xla(T=STEPS)(**given),
        lambda: program.interpret(T=STEPS, **given),
        lambda: naive.execute(graph, {"T": STEPS}, **given),
    ):
        with pytest.raises(ValueError, match=message):
            run()


def test_wrong_names_of_inputs():
    p = Program("t")
    p.input("x", 0.0)
    for name, message in (("x", "taken"), ("T", "lower case"), ("key", "other than key")):
        with pytest.raises(ValueError, match=message):
            p.input(name, 0.0)


def logged(log: list, buffer: list, ends: list) -> Graph:
    """A replay buffer on the host that answers, and a logger that nothing reads."""

    def store(x: Any) -> np.float32:
        buffer.append(float(x))
        return np.float32(sum(buffer))

    p = Program("i", "t")
    (i, t), (_, T) = p.symbols, p.bounds
    x = p.input("x", 0.0, i, t)
    stored = p.host(store, x, like=jnp.float32(0), name="store")
    again = p.host(store, x, like=jnp.float32(0), name="again")  # not the same as the first
    total = p.fn(lambda a, b: a + 0 * b, stored, again, name="mean")[i, 0:T].sum()
    p.host(lambda i, m: log.append((int(i), float(m))), p.value(i), total, name="log")
    for name in ("begin", "end"):  # two calls of the same function with the same inputs
        p.host(lambda: ends.append(1), name=name)
    return p.graph(total)


@pytest.mark.parametrize("way", ["naive", "interpret", *PASSES])
def test_the_host_is_called_once_at_each_point_in_order(way: str):
    log, buffer, ends = [], [], []
    graph, x = logged(log, buffer, ends), jnp.arange(6.0).reshape(2, 3) + 1
    if way == "naive":
        naive.execute(graph, {"I": 2, "T": 3}, x=x, seed=3)
    elif way == "interpret":
        made(graph, "none").interpret(I=2, T=3, x=x)
    else:
        made(graph, way).xla(I=2, T=3)(x=x)
    jax.effects_barrier()
    assert sorted(buffer) == sorted([*x.ravel()] * 2)
    firsts = [buffer.index(float(v)) for v in x.ravel()]
    assert firsts == sorted(firsts)
    assert [i for i, _ in log] == [0, 1] and ends == [1, 1]


def test_no_gradient_flows_through_the_host():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.input("x", 0.0, t)
    seen = p.host(lambda x: np.float32(2 * x), x, like=jnp.float32(0), name="seen")
    assert seen is not None
    loss = (seen * x)[0:T].sum()
    graph, x = p.graph(gradient(loss, x)), jnp.arange(1.0, 4.0)
    np.testing.assert_allclose(made(graph, "none").xla(T=3)(x=x)[0], 2 * x)


def test_the_host_is_not_called_where_it_has_no_inputs():
    p = Program("t")
    (t,), _ = p.symbols, p.bounds
    x = p.input("x", 0.0, t)
    with pytest.raises(ValueError, match=r"called only where .*t >= 1"):
        p.host(print, x[t - 1])
