"""Combinations of passes compute what the program says, point by point."""

import collections
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.expr import TRUE, Slice, Sym, as_expr, max_, min_
from mmrl.pdg.build.graph import ArrayType, Domain, Edge, Graph, Op
from mmrl.pdg.build.program import Program
from mmrl.pdg.clean.validate import validate
from mmrl.pdg.passes import fuse, lift_loops, stages, tile, vectorize
from mmrl.pdg.plan.code import generate, trace
from mmrl.pdg.plan.frees import plan_memory
from mmrl.pdg.run import compile
from mmrl.pdg.run import naive as order
from mmrl.pdg.run.naive import execute
from mmrl.pdg.schedule import schedule

i, t, T = Sym("i"), Sym("t"), Sym("T")
ONCE, RUNS, STEPS = Domain.of(), Domain.of("i"), Domain.of("i", "t")
BOUNDS = {"I": 2, "T": 7}
N = 3


def results(graph, **bounds):
    """What every result is at every point: the whole program, one operation at a time."""
    found = execute(validate(graph), bounds)
    return {(name, p): x for (name, _), points in found.items() for p, x in points.items()}


class Build:
    def __init__(self):
        self.ops, self.edges = {}, []

    def fn(self, name, domain, run, *reads, shapes=((3,),), kind="fn", **params):
        types = tuple(ArrayType(shape, np.dtype("float32")) for shape in shapes)
        whole = lambda env, *inputs: run(env, *inputs) if len(shapes) > 1 else (run(env, *inputs),)  # noqa: E731
        self.ops[name] = Op(name, kind, domain, types, whole, params)
        for k, (source, output, *index) in enumerate(reads):
            self.edge(name, source, output, index, TRUE, k)

    def merge(self, name, domain, *choices, shape=(3,)):
        self.ops[name] = Op(name, "merge", domain, (ArrayType(shape, np.dtype("float32")),))
        for when, source, output, *index in choices:
            self.edge(name, source, output, index, when, 0)

    def edge(self, name, source, output, index, when, k):
        self.edges.append(Edge(name, source, tuple(map(as_expr, index)), when, k, output))

    def graph(self, *results):
        return Graph(self.ops, tuple(self.edges), ("I", "T"), tuple((r, 0) for r in results))


def noise(env, number):
    key = jax.random.key(number)
    for name in ("i", "t"):
        key = jax.random.fold_in(key, env[name])
    return jax.random.normal(key, (3,))


def acting(b):
    b.fn("init", ONCE, lambda env: jnp.array([0.5, -0.2, 0.1]))
    b.merge("w", RUNS, (i == 0, "init", 0), (i >= 1, "update", 0, i - 1))
    b.fn("reset", RUNS, lambda env: jnp.ones(3) * (1.0 + env["i"]))
    b.merge("o", STEPS, (t == 0, "reset", 0, i), (t >= 1, "step", 0, i, t - 1))
    b.fn(
        "a",
        STEPS,
        lambda env, w, o: jnp.tanh(w * o) + noise(env, 1),
        ("w", 0, i),
        ("o", 0, i, t),
    )
    b.fn(
        "step",
        STEPS,
        lambda env, o, a: (jnp.cos(o + a), (o * a).sum()),
        ("o", 0, i, t),
        ("a", 0, i, t),
        shapes=((3,), ()),
    )


def learning(b):
    b.fn(
        "d",
        STEPS,
        lambda env, w, o, a, g: g * (a - jnp.tanh(w * o)) * o,
        ("w", 0, i),
        ("o", 0, i, t),
        ("a", 0, i, t),
        ("g", 0, i, t),
    )
    b.fn("zero", ONCE, lambda env: jnp.zeros(3))
    b.merge("before", STEPS, (t == 0, "zero", 0), (t >= 1, "total", 0, i, t - 1))
    b.fn("total", STEPS, lambda env, x, y: x + y, ("before", 0, i, t), ("d", 0, i, t))
    b.fn("update", RUNS, lambda env, w, g: w + 0.1 * g, ("w", 0, i), ("total", 0, i, T - 1))


def reinforce(n=None):
    """Policy gradient with returns of n steps, or to the end, summed step by step."""
    b = Build()
    acting(b)
    stop = T if n is None else min_(t + n, T)
    b.fn(
        "g",
        STEPS,
        lambda env, r: 0.9 ** jnp.arange(len(r)) @ r,
        ("step", 1, i, Slice(t, stop)),
        shapes=((),),
    )
    learning(b)
    return b.graph("update")


def recurrent():
    """Returns by a backward recurrence, a moving average by a forward one, whose points count."""
    b = Build()
    acting(b)
    b.fn(
        "more",
        STEPS.restrict(t < T - 1),
        lambda env, r, g: r + 0.9 * g,
        ("step", 1, i, t),
        ("g", 0, i, t + 1),
        shapes=((),),
    )
    b.merge("g", STEPS, (t == T - 1, "step", 1, i, t), (t < T - 1, "more", 0, i, t), shape=())
    b.merge("mean", STEPS, (t == 0, "a", 0, i, t), (t >= 1, "blend", 0, i, t))
    b.fn(
        "blend",
        STEPS.restrict(t >= 1),
        lambda env, m, a: 0.8 * m + 0.2 * a,
        ("mean", 0, i, t - 1),
        ("a", 0, i, t),
    )
    b.fn(
        "last", RUNS, lambda env, ms: ms[::-1].sum(0) + ms[2], ("mean", 0, i, Slice(as_expr(0), T))
    )
    learning(b)
    return b.graph("update", "mean", "last")


def reduced():
    """A sum over a slice, reads at numbers and two steps ago, and a branch apart from the loop."""
    b = Build()
    acting(b)
    b.fn("g", STEPS, lambda env, r: r * env["t"], ("step", 1, i, t), shapes=((),))
    b.merge("odd", STEPS, (t < 2, "g", 0, i, t), (t >= 2, "g", 0, i, t - 2), shape=())
    b.fn(
        "d",
        STEPS,
        lambda env, w, o, z, s, g: w * o * g + z + s,
        ("w", 0, i),
        ("o", 0, i, t),
        ("a", 0, i, 0),
        ("odd", 0, i, t),
        ("odd", 0, i, t),
    )
    b.fn(
        "sum", RUNS, lambda env, x: x.sum(0), ("d", 0, i, Slice(as_expr(0), T)), kind="sum", axis=0
    )
    b.fn("update", RUNS, lambda env, w, g: w + 0.1 * g, ("w", 0, i), ("sum", 0, i))
    return b.graph("update", "odd")


def written():
    """The same by recurrent tensors: advantages by a backward recurrence, symbolic gradients."""
    p = Program("i", "t")
    i, t = p.symbols
    _, T = p.bounds
    w, o, g = p.tensor(i, name="w"), p.tensor(i, t, name="o"), p.tensor(i, t, name="g")
    w[0] = p.constant(jnp.array([0.5, -0.2, 0.1]), name="init")
    o[i, 0] = p.sample(lambda key: jax.random.normal(key, (3,)), over=(i,), name="reset")
    a = p.sample(lambda key, w, o: jnp.tanh(w * o) + jax.random.normal(key, (3,)), w, o, name="a")
    after, r = p.fn(lambda o, a: (jnp.cos(o + a), (o * a).sum()), o, a, name="step")
    o[i, t + 1] = after
    g[i, T - 1] = r[i, T - 1]
    g[i, t] = r + 0.9 * g[i, t + 1]
    loss = p.fn(
        lambda w, o, a, g: g * ((a - jnp.tanh(w * o)) ** 2).sum(),
        w,
        o.detach(),
        a.detach(),
        g.detach(),
        name="loss",
    )
    new = p.fn(lambda w, d: w - 0.1 * d, w, gradient(loss, w), name="update")
    w[i + 1] = new
    return p.graph(new)


PROGRAMS = {
    "monte carlo": reinforce,
    "n steps": lambda: reinforce(N),
    "recurrent": recurrent,
    "reduced": reduced,
    "written": written,
}
PASSES = {
    "lift": lambda g: lift_loops(g, "t", when="always"),
    "vectorize": lambda g: vectorize(g, "t"),
    "tile": lambda g: tile(g, "t", 3),
    "fuse": fuse,
}
# Every program is seen with and without each pass, and every two passes in all four ways.
COMBINED = {
    "monte carlo": [("vectorize", "tile"), ("lift", "fuse")],
    "n steps": [("tile", "fuse"), ("lift", "vectorize")],
    "recurrent": [("lift", "vectorize", "tile", "fuse"), ("lift", "vectorize", "fuse")],
    "reduced": [("vectorize", "fuse"), ("lift", "tile")],
    "written": [("vectorize", "tile", "fuse"), ("lift",)],
}


@functools.cache
def meaning(program, I, T):  # noqa: E741
    return results(PROGRAMS[program](), I=I, T=T)


def check(program, names, I=2, T=5):  # noqa: E741
    want = meaning(program, I, T)
    done = stages(PROGRAMS[program](), {name: PASSES[name] for name in names})
    assert [stage.name for stage in done] == ["program", *names]
    graph = done[-1].graph
    got = results(graph, I=I, T=T)
    assert got.keys() == want.keys()
    for key in want:
        np.testing.assert_allclose(got[key], want[key], rtol=1e-5, atol=1e-5, err_msg=str(key))


@pytest.mark.full_except(
    "monte carlo-vectorize+tile",
    "monte carlo-lift+fuse",
    "n steps-tile+fuse",
    "n steps-lift+vectorize",
    "reduced-lift+tile",
    "reduced-vectorize+fuse",
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "names"),
    [(program, names) for program, rows in COMBINED.items() for names in rows],
    ids=lambda part: part if isinstance(part, str) else "+".join(part),
)
def test_passes_keep_the_meaning(program, names):
    check(program, names)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3, 4, 6])  # less than one block, one, one and a point, two
def test_blocks_may_divide_the_dimension_or_not(steps):
    check("n steps", ("tile",), T=steps)


def test_a_state_ends_with_the_last_point_of_a_short_block():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    a = p.fn(jnp.cos, p.sample(lambda key: jax.random.normal(key, (3,)), over=(t,)), name="a")
    state = p.tensor(t, name="state")
    state[0] = p.constant(jnp.ones(3))
    after = p.fn(lambda x, a: 0.5 * x + a, state, a, name="after")
    state[t + 1] = after
    graph = p.graph(p.fn(jnp.sin, after[T - 1], name="end"))
    tiled, said = tile(graph, "t", 3)
    assert "after" in said[0]
    ((_, got),), ((_, want),) = (results(g, T=5).items() for g in (tiled, graph))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_short_block_holds_zeros_beyond_the_end():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    state = p.tensor(t, name="state")
    state[0] = p.constant(jnp.zeros(()))
    one = p.fn(jnp.exp, p.sample(lambda key: jnp.zeros(()), over=(t,)), name="one")
    state[t + 1] = after = p.fn(lambda s, x, y: s + x * y, state, one, one)
    graph, _ = tile(p.graph(p.fn(jnp.sin, after[T - 1])), "t", 3)
    (last,) = graph.ops["one"].run({"t": 3, "T": 4}, jnp.zeros(3))
    np.testing.assert_array_equal(last, [1, 0, 0])


@pytest.mark.full
@pytest.mark.slow
def test_scans_of_one_step():
    check("recurrent", ("lift", "vectorize"), T=1)


@pytest.mark.parametrize(("n", "m", "peak"), [(3, 4, 6), (None, 4, 17)])
def test_tiles_keep_m_and_the_window_without_one(n, m, peak):
    graph, _ = tile(reinforce(n), "t", m)
    tree = generate(plan_memory(schedule(graph)))
    report = order.check(graph, trace(tree, I=2, T=17), I=2, T=17)
    assert report.ok, str(report)
    assert report.device["o", 0] == peak


def words(change):
    return "\n".join(change[1])


def test_lift_says_what_it_found_and_what_is_in_the_way():
    graph, said = lift_loops(recurrent(), "t", when="always")
    assert "o, a, step stay a loop over t: tanh of a·x + b, in a" in said
    assert "more, g became one scan over t: affine" in said
    assert "before, total became one scan over t: sum" in said
    assert graph.ops["g"].domain.names == ("i",)
    assert graph.ops["mean"].kind == "view"  # the user asked for its points
    assert [e.source for e in graph.inputs("update")] == ["w", "total"]
    (last,) = jax.tree.leaves(graph.ops["total"].types(BOUNDS))
    assert last.shape == (3,)  # only the last sum is ever read, so only that is kept


def test_lift_waits_for_nobody_unless_told():
    graph, said = lift_loops(recurrent(), "t")
    assert graph.ops["total"].domain.names == ("i", "t")
    text = "\n".join(said)
    assert "more, g became one scan" in text  # it runs backward: its readers wait as it is
    assert (
        "update reads only total[T - 1], but lifting would store values for all points of t" in text
    )
    assert "mean, blend stay a loop over t: its points are results" in text


def test_lift_says_who_would_have_to_wait():
    graph = recurrent().replace(results=(("update", 0),))
    (blend,) = [e for e in graph.inputs("d") if e.source == "o"]
    reads = dataclasses.replace(blend, source="mean", input=4)
    d = dataclasses.replace(graph.ops["d"], run=lambda env, w, o, a, g, m: (m,))
    graph = graph.replace(ops={**graph.ops, "d": d}, edges=(*graph.edges, reads))
    said = "\n".join(lift_loops(graph, "t")[1])
    assert "d reads mean[t] at each step, but would have to wait for all points of t" in said


def test_a_loop_with_two_states_is_refused_by_their_names():
    b = Build()
    b.fn("x", STEPS, lambda env: jnp.ones(3))
    b.merge("s", STEPS, (t == 0, "x", 0, i, t), (t >= 1, "more", 0, i, t - 1))
    b.fn("more", STEPS, lambda env, s, u: s + u, ("s", 0, i, t), ("u", 0, i, t))
    b.merge("u", STEPS, (t == 0, "x", 0, i, t), (t >= 1, "s", 0, i, t - 1))
    assert "it carries more and s, not one tensor" in words(lift_loops(b.graph("s"), "t"))


def test_a_loop_with_two_states_of_one_operation_is_refused_by_its_outputs():
    b = Build()
    b.fn("x", STEPS, lambda env: jnp.ones(3))
    b.fn(
        "step",
        STEPS,
        lambda env, s, u: (s + u, s - u),
        ("s", 0, i, t),
        ("u", 0, i, t),
        shapes=((3,), (3,)),
    )
    for output, name in enumerate("su"):
        b.merge(name, STEPS, (t == 0, "x", 0, i, t), (t >= 1, "step", output, i, t - 1))
    assert "it carries step.0 and step.1, not one tensor" in words(lift_loops(b.graph("s"), "t"))


@pytest.mark.parametrize("at", ["the last", "earlier", "even"])
def test_a_read_of_earlier_weights_does_not_close_a_cycle(at: str):
    """A target network holds the weights of an earlier iteration, at a distance that varies."""
    p = Program("i", "b")
    (i, b), (_, B) = p.symbols, p.bounds
    w = p.tensor(i, name="w")
    w[0] = 1.0
    parts = {"the last": i, "earlier": max_(0, i - 3), "even": i // 2 * 2}
    y = p.fn(lambda w, old, b: w * b + old, w, w[parts[at]].detach(), p.value(b), name="y")
    w[i + 1] = w - 0.1 * gradient((y * y)[i, 0:B].mean(), w)  # adds up over b
    before = p.graph(w)
    after, _ = vectorize(before, "b")
    assert "over" in after.ops["y"].params
    bounds = {"I": 6, "B": 4}
    jax.tree.map(np.testing.assert_allclose, execute(after, bounds), execute(before, bounds))


def test_a_block_whose_reads_a_condition_on_two_dimensions_restricts_stays():
    """x[i + 1, t] exists where y does, but not for each i at some t."""
    p = Program("i", "t")
    (i, t), (I, _) = p.symbols, p.bounds  # noqa: E741
    x = p.fn(lambda i, t: i * 10.0 + t, p.value(i), p.value(t), name="x")
    z = p.tensor(i, t, name="z")
    z[i, t] = x[i + 1, t][i + t + 1 < I] * 2.0
    z[i, t] = 0.0
    before = p.graph(z)
    after, _ = vectorize(before, "t")
    bounds = {"I": 3, "T": 4}
    got, want = (execute(graph, bounds)["z", 0] for graph in (after, before))
    jax.tree.map(np.testing.assert_allclose, got, want)


def test_vectorize_moves_what_is_not_on_a_cycle():
    graph, said = vectorize(reinforce(N), "t")
    assert said[0] == "vectorized over t: g, d, before, total"
    assert "o, a, step stay in loops: a cycle through different points of t" in said
    assert [str(e) for e in graph.inputs("g")] == ["g <- step.1[i, 0:T]"]
    # The sum of the gradients and its terms are one operation, which holds no term alone.
    assert str(graph.ops["total"].domain) == "[i]" and "d" not in graph.ops


def test_tiles_read_no_further_than_they_must():
    graph, said = tile(reinforce(N), "t", 4)
    assert said == [
        "tiled by 4 along t: g, d, total",
        "o, a, step stay in loops: a cycle through different points of t",
    ]
    assert str(graph.ops["g"].domain) == "[i, t: t % 4 == 0]"
    assert [str(e) for e in graph.inputs("g")] == ["g <- step.1[i, t:min(t + 6, T)]"]
    # The terms of a sum are in it: a block of them is there at most once, and never alone.
    assert [str(e) for e in graph.inputs("total")][2:] == [
        "total <- o[i, t:min(t + 4, T)]",
        "total <- a[i, t:min(t + 4, T)]",
        "total <- g[i, t]",
    ]
    assert [e.source for e in graph.inputs("total_first")] == ["zero"]
    assert [e.source for e in graph.inputs("total_before")] == ["total_first", "total"]
    assert str(graph.inputs("update")[1]) == "update <- total[i, 4 * ((T - 1) // 4)]"


def test_a_budget_sets_the_size_of_tiles():
    bounds = {"I": 2, "T": 64}
    assert "tiled by 4 " in words(tile(reinforce(N), "t", budget=48 + 11, bounds=bounds))
    assert "tiled by 1 " in words(tile(reinforce(N), "t", budget=5, bounds=bounds))
    with pytest.raises(ValueError, match=r"`size`.* or `budget`"):
        tile(reinforce(N), "t", 4, budget=100)


def test_fuse_leaves_apart_what_waits_in_between():
    graph, said = fuse(reinforce(N))
    assert "a and d are not fused: a second path connects them" in said  # via rewards
    assert "fused into step: a, step" in said
    assert "fused into total: g, d, total" in said
    assert len(graph.ops) == len(reinforce(N).ops) - 3


def test_arithmetic_vanishes_only_where_it_gives_the_same_bits():
    p = Program("t")
    (t,) = p.symbols
    odd = jnp.array([jnp.nan, jnp.inf, -jnp.inf, -0.0, 1.5])
    x = p.fn(lambda t: odd[t] + odd[::-1], p.value(t), name="x")
    same = 1 * x / 1.0 - 0
    n = p.value(t)
    tensors = [same.tanh(), x + 0.0, x * 0.0, x * -1, (n + 0) * 2, n * 1.0, p.constant(odd) * 0.0]
    graph = p.graph(*(x.read() for x in tensors))
    kinds = collections.Counter(op.kind for op in graph.ops.values())
    # What stays: x + 0, 0 x, -x, 2 n and the n with a fraction.
    assert (kinds["add"], kinds["mul"], kinds["div"] + kinds["sub"]) == (1, 4, 0)
    wanted = [lambda x: jnp.tanh(x), lambda x: x + 0.0, lambda x: x * 0.0, lambda x: x * -1]
    found = execute(graph, {"T": 5})
    for (name, k), f in zip(graph.results, wanted, strict=False):
        for (at,), value in found[name, k].items():
            expected = np.asarray(f(odd[at] + odd[::-1]))
            np.testing.assert_array_equal(value, expected)
            np.testing.assert_array_equal(np.signbit(value), np.signbit(expected))
    (folded,) = found[graph.results[-1]].values()
    np.testing.assert_array_equal(folded, odd * 0.0)  # not zeros: NaN three times


def test_a_constant_is_fused_into_all_that_read_it():
    p = Program("i", "t")
    (i, t), (_, T) = p.symbols, p.bounds
    c, x = p.constant(jnp.arange(3.0), name="c"), p.tensor(i, t, name="x")
    x[i, 0] = p.fn(lambda c, i: c * i, c, p.value(i))
    after = p.fn(lambda x, c: 0.5 * x + c, x, c, name="after")
    x[i, t + 1] = after
    plain = p.graph(p.fn(lambda x, c: x @ c, after[i, T - 1], c, name="seen"))
    graph, said = fuse(plain)
    assert "c" in plain.ops and not any(op.kind == "constant" for op in graph.ops.values())
    assert any("c_of_seen_1" in each for each in said)
    bounds = {"I": 2, "T": 3}
    one, other = (compile(each, {}).interpret(bounds) for each in (plain, graph))
    np.testing.assert_array_equal(one.results, other.results)
    np.testing.assert_allclose(compile(graph, {}).xla(bounds)(), one.results, rtol=1e-6)
    assert other.account.peak() == one.account.peak() - 12


def test_a_dimension_is_named_or_a_symbol_and_errors_name_it_and_the_pass():
    t, graph = Program("t").symbols[0], reinforce()
    assert vectorize(graph, t)[1] == vectorize(graph, "t")[1]
    for change in (lift_loops, vectorize, lambda graph, name: tile(graph, name, 2)):
        with pytest.raises(ValueError, match=r"`k` is not a dimension") as error:
            stages(graph, {"mine": lambda graph, change=change: change(graph, "k")})
        assert error.value.__notes__[0].endswith("` along k")
        assert error.value.__notes__[1] == "in the pass 'mine'"


@pytest.mark.parametrize("size", ["4", 4.0, 0])
def test_a_tile_has_a_whole_number_of_points(size: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users make mistakes
    with pytest.raises(ValueError, match=f"`size`, .*; got {size!r} and None"):
        tile(reinforce(), "t", size)


def test_a_tile_may_have_a_number_of_numpy():
    graph = reinforce()
    assert str(tile(graph, "t", np.int64(2))[0]) == str(tile(graph, "t", 2)[0])
