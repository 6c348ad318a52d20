"""A batch dimension b: many episodes side by side, written as if there were one."""

import functools
import itertools
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.course import programs
from mmrl.course.ch17_compiling.by_hand import descent, judge, network, screen
from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.graph import Domain, Graph
from mmrl.pdg.build.program import Program, point_key
from mmrl.pdg.build.tensor import Tensor
from mmrl.pdg.passes import fuse, lift_loops, tile, vectorize
from mmrl.pdg.run import compile
from mmrl.pdg.run.naive import execute

SIZES = {"I": 2, "B": 3, "T": 4}
ORDERS = ["".join(order) for order in itertools.permutations("ibt")]
FIRST = jnp.array([0.5, -0.2, 0.1])


def cell(key: Any, w: Any, h: Any) -> Any:
    return jnp.tanh(w * h) + jax.random.normal(key, (3,))


class Written:
    """A program over i, b and t in some order, whose tensors are indexed by the names of these."""

    def __init__(self, order: str):
        self.p = Program(*order)
        self.symbol = dict(zip(order, self.p.symbols, strict=True))
        self.bound = dict(zip(order, self.p.bounds, strict=True))

    def at(self, x: Tensor, **parts: Any) -> tuple:
        return tuple(parts.get(name, self.symbol[name]) for name in x.domain.names)


@functools.cache
def program(order: str) -> Graph:
    """Acting from a constant, a mean over b at each step, discounted sums, and their gradient.

    At the end episodes get each other's numbers, the first those of the last.
    """
    o = Written(order)
    (i, b, t), (I, B, T) = ([x[n] for n in "ibt"] for x in (o.symbol, o.bound))  # noqa: E741
    w, h = o.p.tensor(i, name="w"), o.p.tensor(*order, name="h")
    v = o.p.tensor(*order, name="v")
    w[0] = FIRST
    h[o.at(h, t=0)] = jnp.ones(3)
    after = o.p.sample(cell, w, h, over=o.p.symbols, name="cell")
    h[o.at(h, t=t + 1)] = after
    mean = after[o.at(after, b=slice(0, B))].mean(0)
    error = o.p.fn(lambda x, m: ((x - m) ** 2).sum(), after, mean, name="error")
    v[o.at(v, t=T - 1)] = error[o.at(error, t=T - 1, b=B - 1 - b)]
    v[o.at(v)] = error + 0.5 * v[o.at(v, t=t + 1)]
    loss = v[o.at(v, t=0, b=slice(0, B))].sum(0)
    w[i + 1] = w - 0.1 * gradient(loss, w)
    return o.p.graph(w[I - 1], loss)


@functools.cache
def moved(order: str) -> tuple[Graph, list[str]]:
    return vectorize(program(order), "b")


@functools.cache
def by_hand(order: str) -> tuple:
    """The same with `jax.vmap` and `jax.grad`, and the keys of the same points."""
    tag, domain = zlib.crc32(b"cell"), Domain.of(*order)

    @jax.jit
    @jax.value_and_grad
    def loss(w: Any, i: int) -> Any:
        h, errors = jnp.ones((SIZES["B"], 3)), []
        for t in range(SIZES["T"]):
            key_of = lambda b, t=t: point_key(0, tag, domain, {"i": i, "b": b, "t": t})  # noqa: E731
            h = jax.vmap(cell, (0, None, 0))(jax.vmap(key_of)(jnp.arange(SIZES["B"])), w, h)
            errors.append(((h - h.mean(0, keepdims=True)) ** 2).sum(1))
        v = errors[-1][::-1]
        for error in errors[-2::-1]:
            v = error + 0.5 * v
        return v.sum()

    w, losses = FIRST, []
    for i in range(SIZES["I"]):
        value, slope = loss(w, i)
        losses.append(value)
        w, last = w - 0.1 * slope, w
    return last, jnp.stack(losses)


def values(graph: Graph) -> tuple:
    last, losses = (list(x.values()) for x in execute(graph, SIZES, jit=True).values())
    return last[-1], np.stack(losses)


def close(found: Any, wanted: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6), found, wanted)


@pytest.mark.full
@pytest.mark.parametrize("order", ORDERS)
def test_acting_moves_as_by_hand_in_every_order(order: str):
    graph, said = moved(order)
    assert {"h", "cell", "error", "v"} <= set(
        said[0].removeprefix("vectorized over b: ").split(", ")
    )
    assert graph.ops["h"].kind == graph.ops["v"].kind == "merge"
    assert not [op.name for op in graph.ops.values() if "b" in op.domain.names]
    close(values(graph), by_hand(order))


@pytest.mark.slow
def test_a_branch_that_does_not_line_up_is_put_in_order_before_it_is_taken():
    graph, _ = moved("ibt")
    assert [str(e) for e in graph.inputs("h")][1] == "h <- cell[i, t - 1] if t >= 1"
    first, _ = graph.inputs("v")
    assert (first.source, str(graph.ops[first.source].domain)) == ("v_error", "[i, t: t + 1 == T]")
    repeated, _ = graph.inputs("h")
    assert str(graph.ops[repeated.source]).endswith("read: float32[B, 3]")


@pytest.mark.full
@pytest.mark.parametrize(
    ("order", "then"),
    [("itb", "nothing"), ("bti", "lift"), ("itb", "vectorize"), ("bti", "tile"), ("itb", "tile")],
)
def test_later_passes_and_executors_compute_the_same(order: str, then: str):
    passes = {
        "lift": lambda g: lift_loops(g, "t", when="always"),
        "vectorize": lambda g: vectorize(g, "t"),
        "tile": lambda g: tile(g, "t", 3),
    }
    more = {} if then == "nothing" else {then: passes[then], "fuse": fuse}
    made = compile(moved(order)[0], more)
    assert made.check(**SIZES).ok
    close(tuple(made.xla(SIZES)()), by_hand(order))


@pytest.mark.slow
def test_a_tile_of_the_batch_computes_the_same():
    """Two episodes of three at a time, and then one: through acting, and in a sum over b."""
    p = Program("b", "t")
    (b, t), (B, T) = p.symbols, p.bounds
    h = p.tensor(b, t, name="h")
    h[b, 0] = jnp.ones(3)
    h[b, t + 1] = after = p.sample(cell, 0.5, h, over=(b, t), name="cell")
    error = p.fn(lambda x: (x**2).sum(), after, name="error")
    graph = p.graph(error[b, 0:T].discounted_sum(0.5)[0:B].sum(0))
    tiled, said = tile(graph, "b", 2)
    assert said[0].startswith("tiled by 2 along b: h, cell, error, ")
    made = compile(tiled, {"steps": lambda g: vectorize(g, "t")})
    assert made.check(B=3, T=4).ok
    (wanted,) = execute(graph, {"B": 3, "T": 4}).values()
    close(tuple(made.xla(B=3, T=4)()), tuple(wanted.values()))


@pytest.mark.slow
def test_a_sum_over_b_is_not_taken_for_one_over_t():
    p = Program("b", "t")
    (b, t), (B, T) = p.symbols, p.bounds
    x = p.sample(lambda key: jax.random.normal(key), over=(b, t), name="x")
    total = (x * 2.0)[0:B, 0:T].sum(0).discounted_sum(0.5)
    graph = p.graph(total)
    tiled, _ = tile(vectorize(graph, "b")[0], "t", 3)
    (found,), (wanted,) = (execute(g, {"B": 3, "T": 4}).values() for g in (tiled, graph))
    close(found, wanted)


def test_branches_along_b_and_another_dimension_stay():
    p = Program("b", "t")
    (b, t), (B, T) = p.symbols, p.bounds
    x = p.tensor(b, t)
    x[0, t], x[b, 0] = 1.0, 2.0
    x[b, t + 1] = x + 1.0
    _, said = vectorize(p.graph(x[0:B, T - 1].sum(0)), "b")
    assert "x stays in loops: its branch depends on both b and t" in said


def test_what_depends_on_itself_along_another_dimension_alone_is_no_cycle():
    """x[b, t + 1] reads y[B - 1 - b, t]: at one t, all of b may be computed at once."""
    p = Program("b", "t")
    (b, t), (B, T) = p.symbols, p.bounds
    x = p.tensor(b, t, name="x")
    x[b, 0] = p.value(b) * 1.0
    y = p.fn(lambda x: 2.0 * x, x, name="y")
    x[b, t + 1] = y[B - 1 - b, t]
    graph = p.graph(x[0:B, T - 1].sum(0))
    moved, said = vectorize(graph, "b")
    assert "x" in said[0] and "y" in said[0]
    (found,), (wanted,) = (execute(g, {"B": 3, "T": 4}).values() for g in (moved, graph))
    close(found, wanted)


def test_a_cycle_along_b_that_goes_there_and_back_along_t_stays():
    p = Program("b", "t")
    (b, t), (B, T) = p.symbols, p.bounds
    x, y, z = (p.tensor(b, t, name=name) for name in "xyz")
    x[0, t], y[b, T - 1], z[b, 0] = 1.0, 2.0, 3.0
    y[b, t] = x[b, t + 1]
    z[b, t + 1] = y
    x[b + 1, t] = z
    _, said = vectorize(p.graph(x[0:B, 0:T].sum(0).sum(0)), "b")
    assert "x, y, z stay in loops: a cycle through different points of b" in said


@pytest.mark.parametrize("name", ["reinforce", "a2c", "ppo"])
def test_no_shipped_program_acts_one_environment_after_another(name: str):
    """Also where acting reads the parameters of the first epoch, w[i, 0], which later ones make."""
    net = network(8)
    judged = net if name == "reinforce" else programs.Network(net.init, judge)
    graph = getattr(programs, name)(screen(8), judged, descent(0.1))
    moved, _ = vectorize(graph, "b")
    left = {op.name for op in moved.ops.values() if "b" in op.domain.names}
    assert left == set() and len(moved.ops) > 10
