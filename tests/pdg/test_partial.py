"""Tensors on a part of their dimensions, and slices with nothing in them: all ways to run agree."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.expr import max_, min_
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor
from mmrl.pdg.passes import fuse, vectorize
from mmrl.pdg.run import Compiled, compile
from mmrl.pdg.run.naive import execute


def line() -> tuple[Program, Any, Any, Tensor]:
    """x[t] = t + 1."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    return p, t, T, p.value(t + 1).astype("float32")


def plane() -> tuple[Program, Any, Any, Tensor]:
    """x[i, t] = 10 i + t + 1."""
    p = Program("i", "t")
    i, t = p.symbols
    return p, p.symbols, p.bounds, p.value(10 * i + t + 1).astype("float32")


def same(graph: Graph | Compiled, *wanted: Any, **bounds: int) -> None:
    """The naive order, the interpreter and the XLA program give what is wanted."""
    compiled = compile(graph, {}) if isinstance(graph, Graph) else graph
    graph = compiled.graph
    assert compiled.check(**bounds).ok
    naive = execute(graph, bounds)
    done, xla = compiled.interpret(bounds).results, compiled.xla(bounds)()
    for place, want in enumerate(wanted):
        points = naive[graph.results[place]]
        flat = np.reshape([points[p] for p in sorted(points)], np.shape(want))
        for got in (flat, done[place], xla[place]):
            if np.size(want):  # with no points there is no telling along which dimension
                assert np.shape(got) == np.shape(want)
            np.testing.assert_allclose(np.ravel(got), np.ravel(want), rtol=1e-6)


@pytest.mark.slow
def test_a_result_on_a_part_of_its_points_has_these_alone():
    p, t, _, x = line()
    compiled = compile(p.graph(x[t + 1], x[t % 2 == 0], x[t - 1] * 2.0, x), {})
    for T in (1, 2, 5):
        row = np.arange(1.0, T + 1)
        same(compiled, row[1:], row[::2], row[:-1] * 2, row, T=T)


@pytest.mark.slow
def test_a_part_of_a_plane_is_a_grid():
    p, (i, t), _, x = plane()
    compiled = compile(p.graph(x[i + 1, t % 3 == 0], x[i, t + 2]), {})
    for T in (1, 5):
        rows = 10.0 * np.arange(3)[:, None] + np.arange(1.0, T + 1)
        same(compiled, rows[1:, ::3], rows[:, 2:], I=3, T=T)


def test_a_read_of_a_read_exists_where_both_do():
    p, t, _, x = line()
    graph = p.graph(x[t + 1][t - 1], (x[t + 1] * 1.0)[t - 1], x[t - 1][t + 1] * 1.0)
    same(graph, np.arange(2.0, 6.0), np.arange(2.0, 6.0), np.arange(1.0, 5.0), T=5)


def test_a_result_that_is_no_grid_is_refused():
    p, (i, t), _, x = plane()
    with pytest.raises(
        ValueError, match=r"`results` .* is defined only where .*; z\[i, t\] = 0.0`"
    ):
        p.graph(x[i, t - i])
    z = p.tensor(i, t, name="z")
    z[i, t] = x[i, t - i]
    z[i, t] = 0.0
    want = [[10.0 * i + t - i + 1 if t >= i else 0.0 for t in range(4)] for i in range(3)]
    same(p.graph(z), np.array(want), I=3, T=4)


def test_results_over_two_dimensions_that_others_read_by_slices():
    p, (i, t), (_, T), r = plane()
    rows = 10.0 * np.arange(2)[:, None] + np.arange(1.0, 6.0)
    powers = np.array([[0.9 ** (k - t) * (k >= t) for t in range(5)] for k in range(5)])
    same(p.graph(r, r[i, t:T].discounted_sum(0.9)), rows, rows @ powers, I=2, T=5)


@pytest.mark.slow
def test_a_definition_holds_where_its_value_exists():
    p, (i, t), _, v = plane()
    boot = p.tensor(i, t, name="boot")
    boot[i, t] = v[i, t + 2]
    with pytest.raises(ValueError, match=r"`boot\[i, t\]` is not defined where .*: add a case"):
        p.graph(boot)
    boot[i, t] = -1.0
    after = p.tensor(i, t, name="after")
    after[i, t + 1] = v[i, t + 2]  # after[i, t] = v[i, t + 1] for 1 <= t < T - 1
    after[i, t] = -1.0
    compiled = compile(p.graph(boot, after), {})
    for T in (1, 2, 5):
        rows = 10.0 * np.arange(2)[:, None] + np.arange(1.0, T + 3)
        rows[:, T:] = -1.0
        shifted = rows[:, 1 : T + 1].copy()
        shifted[:, 0] = -1.0
        same(compiled, rows[:, 2:], shifted, I=2, T=T)


def test_a_definition_from_a_value_that_exists_elsewhere_is_refused():
    p, (i, t), _, x = plane()
    y = p.tensor(i, name="y")
    with pytest.raises(ValueError, match=r"the value differs along \['t'\]"):
        y[i] = p.value(i)[t % 2 == 0]
    del x


@pytest.mark.full
def test_nothing_adds_up_to_zero():
    p, t, T, x = line()
    weights = p.value(t + 2).astype("float32")
    slices: list[tuple[Any, Callable[[int, int], slice]]] = [
        (slice(0, t), lambda t, T: slice(0, t)),
        (slice(t + 1, T), lambda t, T: slice(t + 1, T)),
        (slice(t + 2, T), lambda t, T: slice(t + 2, T)),
        (slice(max_(t - 2, 0), t), lambda t, T: slice(max(t - 2, 0), t)),
        (slice(t, min_(2, T)), lambda t, T: slice(t, 2)),
        (slice(t, t), lambda t, T: slice(t, t)),
    ]
    results = [(x[k].sum(), x[k].discounted_sum(0.5), x[k] @ weights[k]) for k, _ in slices]
    compiled = compile(p.graph(*itertools.chain(*results)), {})
    for size in (1, 5):
        row, wanted = np.arange(1.0, size + 1), []
        for _, part in slices:
            parts = [row[part(t, size)] for t in range(size)]
            wanted.append([some.sum() for some in parts])
            wanted.append([sum(0.5**k * x for k, x in enumerate(some)) for some in parts])
            wanted.append([(some * (some + 1)).sum() for some in parts])
        same(compiled, *wanted, T=size)


@pytest.mark.slow
def test_the_gradient_of_an_empty_sum_is_zero():
    p, t, T, x = line()
    y = x[t + 1 : T].sum() ** 2
    want = jax.grad(lambda x: sum(x[k + 1 :].sum() ** 2 for k in range(4)))(np.arange(1.0, 5.0))
    same(p.graph(gradient(y, x)), want, T=4)


@pytest.mark.slow
def test_nothing_has_no_mean_and_no_extremes():
    _, t, T, x = line()
    acts = (Tensor.mean, Tensor.max, Tensor.min)
    for act in acts:
        for part in (slice(0, t), slice(t + 1, T), slice(2, 2), slice(t, min_(3, T))):
            with pytest.raises(ValueError, match=r"reads too little for `(mean|max|min)`"):
                x.program.graph(act(x[part]))
    compiled = compile(x.program.graph(*(act(x[2:T]) for act in acts)), {})
    same(compiled, 4.0, 5.0, 3.0, T=5)
    for run in (lambda: execute(compiled.graph, {"T": 2}), lambda: compiled.xla({"T": 2})):
        with pytest.raises(ValueError, match=r"`bounds` are too small"):
            run()


@pytest.mark.parametrize("part", [slice(0, -1), slice(-2, None), slice(None, -3)])
def test_indices_do_not_count_from_the_end(part: slice):
    _, _, _, x = line()
    with pytest.raises(ValueError, match=r"`cast` .* from the end.* T - "):
        x[part]


def test_a_slice_that_ends_before_it_begins_is_refused():
    _, t, _, x = line()
    for part in (slice(3, 1), slice(t, t - 2)):
        with pytest.raises(ValueError, match="ends before it begins"):
            x[part]


@pytest.mark.slow
def test_what_a_window_past_the_end_reads_back_stays_inside():
    p = Program("s", "t")
    (s, t), (_, T) = p.symbols, p.bounds
    x = p.value(10 * s + t + 1).astype("float32")
    y = x[1, min_(s + t, T - 1)] ** 2

    def loss(x: Any) -> Any:
        return sum(x[1, min(s + t, 3)] ** 2 for s in range(3) for t in range(4))

    data = 10.0 * np.arange(3)[:, None] + np.arange(1.0, 5.0)
    same(p.graph(gradient(y, x)), jax.grad(loss)(data), S=3, T=4)


def test_bounds_too_small_for_an_index_are_named():
    _, t, T, x = line()
    for read in (x[max_(t, 3)], x[min_(t + 2, 4)], x[max_(T - 3, 2)]):
        graph = x.program.graph(read * 1.0)
        execute(graph, {"T": 5})
        for run in (
            execute,
            lambda g, b: compile(g, {}).interpret(b),
            lambda g, b: compile(g, {}).xla(b),
        ):
            with pytest.raises(ValueError, match=r"`bounds` are too small for `.*`, got {'T': 2}"):
                run(graph, {"T": 2})


def test_what_reads_itself_is_refused():
    p = Program("t")
    (t,), _ = p.symbols, p.bounds
    x = p.tensor(t, name="x")
    x[0] = 1.0
    x[t] = x
    with pytest.raises(ValueError, match=r"`x\[t\]` depends on itself through its own value"):
        p.graph(x)


@pytest.mark.slow
def test_two_are_not_fused_where_one_reads_a_window_of_the_other():
    p, t, T, x = line()
    y = x * x + x[t : min_(t + 3, T)].sum() ** 2
    graph = p.graph(gradient(y, x))
    fused, words = fuse(graph)
    assert any("are not fused" in word for word in words)
    row = np.arange(1.0, 6.0)
    want = jax.grad(lambda x: sum(x[k] ** 2 + x[k : k + 3].sum() ** 2 for k in range(5)))(row)
    for each in (graph, fused):
        same(each, want, T=5)


@pytest.mark.slow
def test_a_block_walks_along_its_own_dimension_alone():
    p = Program("i", "t")
    i, t = p.symbols
    x = p.value(2 * i + 1).astype("float32")
    graph = p.graph((x[t] * 3.0)[t + 1])  # at every t < I, where the bounds differ
    for I, T in ((3, 5), (5, 3)):  # noqa: E741
        want = 3.0 * (2.0 * np.arange(1, min(I, T)) + 1.0)
        same(compile(graph, {"vectorize": lambda g: vectorize(g, "t")}), want, I=I, T=T)


@pytest.mark.slow
def test_a_gradient_flows_back_from_a_part_of_the_points():
    p, t, _, x = line()
    y = x[t // 2][t >= 1] ** 2
    want = jax.grad(lambda x: sum(x[k // 2] ** 2 for k in range(1, 5)))(np.arange(1.0, 6.0))
    same(p.graph(gradient(y, x)), want, T=5)


@pytest.mark.slow
def test_the_gradient_of_an_empty_slice_at_the_smallest_bounds():
    p, _, T, x = line()
    graph = p.graph(gradient(x[1:T].discounted_sum(0.5), x))
    for passes in ({}, {"vectorize": lambda graph: vectorize(graph, "t")}):
        compiled = compile(graph, passes)
        same(compiled, [0.0], T=1)
        same(compiled, [0.0, 1.0, 0.5], T=3)


@pytest.mark.slow
def test_the_gradient_of_a_read_that_never_is():
    p, (i, t), _, x = plane()
    y = (x * x)[0:i, t].discounted_sum(0.5)
    graph = p.graph(y, gradient(y, x))
    same(graph, [[0, 0]], [[0, 0]], I=1, T=2)
    same(graph, [[0, 0], [1, 4]], [[2, 4], [0, 0]], I=2, T=2)


@pytest.mark.slow
def test_padding_stays_behind():
    p, t, T, x = line()
    rest, row = x[t:T], np.arange(1.0, 6.0)
    flipped, joined = rest.flip(), p.apply("concatenate", x[0:2], rest, axis=0)
    graph = p.graph(flipped.discounted_sum(0.5), joined.discounted_sum(0.5), rest[..., 0])
    powers = 0.5 ** np.arange(7)
    back = [row[k:][::-1] @ powers[: 5 - k] for k in range(5)]
    both = [np.append(row[:2], row[k:]) @ powers[: 7 - k] for k in range(5)]
    same(graph, back, both, row, T=5)


def test_padding_between_entries_is_refused():
    p, t, T, x = line()
    rest, wide = x[t:T], p.fn(lambda x: jnp.stack([x, x]), x[t:T])
    with pytest.raises(ValueError, match=r"`concatenate` would leave .* T - t"):
        p.apply("concatenate", rest, rest, axis=0)
    with pytest.raises(ValueError, match=r"`reshape` would leave .* T - t"):
        wide.reshape(-1)
    for at in (-1, slice(-2, None), slice(None, None, -1)):
        with pytest.raises(ValueError, match="would count the padding of an axis of T - t"):
            rest[..., at]
    with pytest.raises(ValueError, match=r"reads too little for `take` where t \+ 2 >= T"):
        p.graph(rest[..., 2])
    assert str(p.graph(rest[t < T - 2][..., 1:3].sum()).ops["sum"].domain) == "[t: T >= t + 3]"
