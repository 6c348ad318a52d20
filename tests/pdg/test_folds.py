"""Sums, means and extremes of slices that move: at every point, all at once, and in blocks."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.expr import Const, Slice, Sym, max_, min_
from mmrl.pdg.build.graph import Domain, Edge, Graph, Op, array_type
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor
from mmrl.pdg.clean.validate import validate
from mmrl.pdg.passes import lift_loops, move, tile, vectorize
from mmrl.pdg.passes.folds import Fold, folds
from mmrl.pdg.passes.lift import unfold
from mmrl.pdg.plan.alive import peak
from mmrl.pdg.run import compile
from mmrl.pdg.run.naive import execute

GAMMA = 0.9
FOLDS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(0),
    "discounted_sum": lambda x: (
        x.discounted_sum(GAMMA)
        if isinstance(x, Tensor)
        else sum((GAMMA**k * row for k, row in enumerate(x)), 0 * x.sum(0))
    ),
}
SLICES = {
    "prefix": lambda t, T: slice(0, t + 1),
    "suffix": lambda t, T: slice(t, T),
    "ahead": lambda t, T: slice(t, min_(t + 3, T)),
    "here": lambda t, T: slice(t, min_(t + 1, T)),
    "long": lambda t, T: slice(t, min_(t + 99, T)),
    "behind": lambda t, T: slice(max_(t - 3, 0), t + 1),
    "around": lambda t, T: slice(max_(t - 1, 0), min_(t + 2, T)),
    "all": lambda t, T: slice(0, T),
}
PASSES = {
    "lift": [lambda g: lift_loops(g, "t", when="always")],
    "lift if it pays": [lambda g: lift_loops(g, "t")],
    "vectorize": [lambda g: vectorize(g, "t")],
    "both": [lambda g: vectorize(g, "i"), lambda g: vectorize(g, "t")],
    "tile": [lambda g: tile(g, "t", 3)],
    "tile, vectorize": [lambda g: tile(g, "t", 2), lambda g: vectorize(g, "i")],
}
# Ties, also of extremes, and only numbers below 0, so that zeros for padding change a maximum.
DATA = jnp.round(2 * jax.random.normal(jax.random.key(0), (2, 7, 2))) - 9.0


def program(part: str, kind: str, integers: bool = False) -> Graph:
    """Folds over t, their total, and the gradient of its square by what is folded."""
    p = Program("i", "t")
    (i, t), (_, T) = p.symbols, p.bounds
    data = DATA.astype(jnp.int32) if integers else DATA
    x = p.fn(lambda i, t: data[i, t], p.value(i), p.value(t), name="x")
    y = FOLDS[kind](x[i, SLICES[part](t, T)])
    if "t" not in y.domain.names or integers:
        return p.graph(y)
    loss = (y * y)[i, 0:T].sum(0).sum()
    return p.graph(y, loss, gradient(loss, x))


def oracle(part: str, kind: str, length: int, data: jax.Array) -> Sequence[Any]:
    def run(x):
        parts = [SLICES[part](t, length) for t in range(length if part != "all" else 1)]
        ends = [(p.start, p.stop) for p in parts]
        return jnp.stack([jnp.stack([FOLDS[kind](row[a:b]) for a, b in ends]) for row in x])

    if part == "all":
        return [run(data)[:, 0]]
    slope = jax.grad(lambda x: (run(x) ** 2).sum())(data)
    return [run(data), (run(data) ** 2).sum((1, 2)), slope]


def values(graph: Graph, length: int) -> Sequence[Any]:
    found = execute(graph, {"I": 2, "T": length})
    return [np.stack([found[r][k] for k in sorted(found[r])]) for r in graph.results]


def passed(graph: Graph, name: str) -> Graph:
    for change in PASSES[name]:
        graph = change(graph)[0]
        validate(graph)
    return graph


def agree(got: Sequence[Any], want: Sequence[Any]) -> None:
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(np.ravel(x), np.ravel(y), rtol=1e-5, atol=1e-5)


# Every kind in one window, and every slice with one kind.
PAIRS = [("behind", kind) for kind in FOLDS]
PAIRS += [*zip([part for part in SLICES if part != "behind"], 2 * [*FOLDS], strict=False)]


@pytest.mark.full
@pytest.mark.parametrize(("part", "kind"), PAIRS)
def test_folds_and_their_gradients_agree_with_loops_after_every_pass(part: str, kind: str):
    graph = program(part, kind)
    for length in (1, 7):
        want = oracle(part, kind, length, DATA[:, :length])
        agree(values(graph, length), want)
        for name in PASSES:
            agree(values(passed(graph, name), length), want)


@pytest.mark.parametrize("kind", FOLDS)
def test_a_gradient_of_a_window_holds_no_array_for_each_window(kind: str):
    """O(T n) numbers for windows of n steps: each point gathers a window of single cotangents."""
    graph = program("behind", kind)
    fold = graph.results[0][0]
    assert not any(op.params.get("of") == fold for op in graph.ops.values() if op.kind == "vjp")


@pytest.mark.parametrize("kind", ["max", "min"])
def test_the_gradient_of_an_extreme_that_is_nan_is_nan(kind: str):
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.input("x", 1.0, t)
    y = FOLDS[kind](x[SLICES["behind"](t, T)])
    got = compile(p.graph(gradient(y[0:T].sum(), x)), {}).xla(T=9)
    data = jnp.arange(9.0).at[4].set(jnp.nan)

    def total(x: jax.Array) -> jax.Array:
        fold = jnp.max if kind == "max" else jnp.min
        return sum(fold(x[max(k - 3, 0) : k + 1]) for k in range(9))

    np.testing.assert_array_equal(got(x=data)[0], jax.grad(total)(data))


@pytest.mark.parametrize("kind", FOLDS)
def test_numbers_next_to_each_other_are_folded_in_every_range(kind: str):
    """Short and long ranges, empty ones, and one that is longer than the array."""
    op = Op("y", kind, Domain(), (array_type((2,), jnp.float32),), None, {"gamma": GAMMA})
    fold = Fold(op, Edge("y", "x", ()), "t", Slice(Const(0), Sym("T")))
    low, high = np.triu_indices(8)
    some = (high > low) | (kind in ("sum", "discounted_sum"))
    low, high = low[some], high[some]
    got = fold.ranges(DATA[0], jnp.asarray(low), jnp.asarray(high), 7)
    want = [FOLDS[kind](np.asarray(DATA[0])[a:b]) for a, b in zip(low, high, strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", FOLDS)
def test_a_fold_of_all_is_tiled_with_a_short_last_block(kind: str):
    for integers in (False, True):
        graph = program("all", kind, integers)
        blocks, words = tile(graph, "t", 3)
        assert words[0].endswith(f"x, {graph.results[0][0]}")
        agree(values(blocks, 7), values(graph, 7))


def test_a_fold_on_a_cycle_reads_its_value_before_in_place_of_all():
    p = Program("i", "t")
    i, t = p.symbols
    x = p.fn(lambda i, t: DATA[i, t], p.value(i), p.value(t), name="x")
    y = p.tensor(i, t, name="y")
    y[i, 0] = x[i, 0]
    y[i, t + 1] = 0.5 * y[i, 0 : t + 1].mean(0) + y[i, 0 : t + 1].discounted_sum(GAMMA) + x
    graph = p.graph(y)
    loop, names = unfold(graph, move.whole(graph, "t"))
    validate(loop)
    assert names == ["mean", "discounted_sum"] and not any(edge.slices for edge in loop.edges)
    agree(values(loop, 7), values(graph, 7))


def test_lift_folds_at_once_only_where_readers_wait_for_all():
    p = Program("i", "t")
    (i, t), (_, T) = p.symbols, p.bounds
    x = p.fn(lambda i, t: DATA[i, t], p.value(i), p.value(t), name="x")
    y = x[i, t : min_(t + 3, T)].max(0)
    for result, dims in ((y, ("i", "t")), (y[i, 0:T].sum(0), ("i",))):
        lifted, _ = lift_loops(p.graph(result), "t")
        op = lifted.ops[y.source]  # a view, if its points are picked out of a block
        assert op.kind != "view" and op.domain.names == dims


TILED = {
    **SLICES,
    "before": lambda t, T: slice(0, t),
    "later": lambda t, T: slice(t + 1, T),
    "next": lambda t, T: slice(min_(t + 1, T - 1), min_(t + 1, T - 1) + 1),
}


def weighted(part: str, kind: str, slopes: bool = True) -> Graph:
    """The square of folds of products, which are tiled too, and its gradient by their factor."""
    p = Program("i", "t")
    (i, t), (I, T) = p.symbols, p.bounds  # noqa: E741
    x = p.fn(lambda i, t: DATA[i, t], p.value(i), p.value(t), name="x")
    w = p.input("w", 1.0)
    y = FOLDS[kind]((x * w)[i, TILED[part](t, T)])
    loss = (y * y)[i, 0:T].sum(0).sum()[0:I].sum()
    return p.graph(loss, *([gradient(loss, w)] if slopes else []))


def total(part: str, kind: str, length: int, slopes: bool = True) -> Sequence[Any]:
    def run(w: Any) -> Any:
        found = 0.0
        for row in DATA[:, :length] * w:
            for t in range(length):
                here = TILED[part](t, length)
                taken = row[here.start : here.stop]
                found += (FOLDS[kind](taken) ** 2).sum() if len(taken) else 0.0
        return found

    return [run(0.7), *([jax.grad(run)(0.7)] if slopes else [])]


# Folds that are carried, in both directions; windows that reach one block, and several.
CARRIED = [("prefix", "mean", True), ("suffix", "sum", True), ("before", "sum", False)]
CARRIED += [("prefix", "max", False), ("suffix", "min", False)]
CARRIED += [(part, "discounted_sum", False) for part in ("prefix", "suffix", "before", "later")]
CARRIED += [("behind", "max", True), ("ahead", "discounted_sum", True), ("next", "min", False)]


@pytest.mark.full_except("prefix mean", "ahead discounted_sum")
@pytest.mark.parametrize(
    ("part", "kind", "slopes"), CARRIED, ids=[" ".join(row[:2]) for row in CARRIED]
)
def test_a_fold_of_tiles_is_tiled_itself(part: str, kind: str, slopes: bool):
    graph = weighted(part, kind, slopes)
    moving = (fold for fold in folds(graph, "t") if "t" in fold.part.symbols())
    name = next(fold.op.name for fold in moving if fold.kind == kind)
    for size in (2, 3):
        tiles, words = tile(graph, "t", size)
        validate(tiles)
        assert f" {name}," in words[0] and not any("stay" in word for word in words)
        for length in (1, 7) if size == 3 else (4,):
            found = execute(tiles, {"I": 2, "T": length}, w=np.float32(0.7))
            got = [found[result][()] for result in tiles.results]
            agree(got, total(part, kind, length, slopes))


@pytest.mark.full
@pytest.mark.parametrize(("part", "kind"), [("prefix", "sum"), ("around", "max")])
def test_executors_fold_tiles_as_loops_do(part: str, kind: str):
    """The bytes that the interpreter counts are those of the plan."""
    compiled = compile(weighted(part, kind), {"tile": lambda g: tile(g, "t", 3)})
    bounds, want = {"I": 2, "T": 7}, total(part, kind, 7)
    assert compiled.check(**bounds).ok
    agree(compiled.xla(bounds)(w=0.7), want)
    for backend in ("jax", "numpy"):
        run = compiled.interpret(bounds, backend=backend, w=0.7)
        agree(run.results, want)
        assert backend == "numpy" or run.account.peak() == peak(compiled.schedule, bounds).bytes


@pytest.mark.parametrize("part", ["prefix", "ahead", "behind"])
def test_a_fold_of_tiles_keeps_a_few_tiles_of_a_loop(part: str):
    """What is read is computed by a loop, and freed a few blocks later, however long it runs."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    s = p.tensor(t, name="s")
    s[0] = p.constant(1.0)
    s[t + 1] = (s * 0.9).tanh()
    y = (s * 2.0)[TILED[part](t, T)].sum(0)
    graph = p.graph((y * y)[0:T].sum(0))
    compiled = compile(graph, {"tile": lambda g: tile(g, "t", 4)})
    assert peak(compiled.schedule, {"T": 64}).bytes == peak(compiled.schedule, {"T": 32}).bytes


def test_a_read_of_tiles_that_are_far_away_is_reported():
    _, words = tile(weighted("prefix", "max"), "t", 3)
    assert any("equal" in word and "mul[i, 0:t + 1]" in word for word in words)


def test_a_block_exists_whose_first_point_does_not():
    """a[t] is defined for t >= 1, so the block of points 0, 1, 2 has two of its points."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    s, c = p.tensor(t, name="s"), p.tensor(t, name="c")
    s[0] = p.constant(1.0)
    s[t + 1] = (s * 0.9).tanh()
    c[0] = p.constant(0.0)
    c[t] = s[t - 1] * 2.0
    d = p.tensor(t, name="d")
    d[T - 1] = p.constant(0.0)
    d[t] = c[t + 1] * 3.0
    graph = p.graph((c * d)[0:T].sum(0))
    tiles, words = tile(graph, "t", 3)
    assert " c," in words[0] and " d," in words[0]
    for length in (2, 7):
        want, got = (execute(g, {"T": length}) for g in (graph, tiles))
        agree([got[tiles.results[0]][()]], [want[graph.results[0]][()]])


def test_a_fold_in_blocks_exists_where_the_fold_does():
    """Its values are read at i + 1, which the last i does not have."""
    p = Program("i", "t")
    (i, t), (_, T) = p.symbols, p.bounds
    x = p.fn(lambda i, t: DATA[i, t], p.value(i), p.value(t), name="x")
    graph = p.graph((x * 2.0)[i + 1, 0:T].sum(0))
    tiles, _ = tile(graph, "t", 3)
    agree(values(validate(tiles), 7), values(graph, 7))


@pytest.mark.full
def test_executors_fold_as_loops_do():
    graph, want = program("behind", "mean"), oracle("behind", "mean", 7, DATA)
    for change in (lambda g: vectorize(g, "t"), lambda g: tile(g, "t", 3)):
        compiled, bounds = compile(graph, {"change": change}), {"I": 2, "T": 7}
        assert compiled.check(**bounds).ok
        agree(compiled.xla(bounds)(), want)
        for backend in ("jax", "numpy"):
            agree(compiled.interpret(bounds, backend=backend).results, want)
