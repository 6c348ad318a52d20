"""Folds of all that follows become loops, and then scans, with the same values."""

import jax
import numpy as np
import pytest

from mmrl.pdg.build.expr import min_
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor
from mmrl.pdg.clean.validate import validate
from mmrl.pdg.passes import lift_loops, move, vectorize
from mmrl.pdg.passes.lift import unfold
from mmrl.pdg.run import compile
from mmrl.pdg.run.naive import execute

FOLDS = {
    "sum": lambda x: x.sum(0),
    "max": lambda x: x.max(0),
    "discounted_sum": lambda x: x.discounted_sum(0.9),
}


def program(fold, ahead=None, integers: bool = False) -> Graph:
    """A fold, at every t, of all that follows of x[i, t], or of the next steps only."""
    p = Program("i", "t")
    i, t = p.symbols
    T = p.bounds[1]

    def draw(key, i, t):
        return jax.random.randint(key, (3,), 0, 9) if integers else jax.random.normal(key, (3,))

    x = p.sample(draw, p.value(i), p.value(t))
    y: Tensor = fold(x[i, t : T if ahead is None else min_(t + ahead, T)])
    return p.graph(y)


def values(graph: Graph, bounds) -> list[np.ndarray]:
    found = execute(graph, bounds)[graph.results[0]]
    return [np.asarray(found[point]) for point in sorted(found)]


@pytest.mark.parametrize("kind", FOLDS)
@pytest.mark.parametrize("length", [1, 7])
def test_a_loop_folds_as_the_sum_did(kind, length):
    graph, bounds = program(FOLDS[kind]), {"I": 2, "T": length}
    loop, found = unfold(graph, move.whole(graph, "t"))
    assert len(found) == 1 and not any(edge.slices for edge in loop.edges if edge.sink in found)
    validate(loop)
    scan, words = lift_loops(graph, "t")
    assert any("became one scan" in word for word in words)
    for other in (loop, scan):
        np.testing.assert_allclose(values(other, bounds), values(graph, bounds), atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("kind", FOLDS)
def test_compiled_both_ways_it_stays_the_same(kind):
    graph, bounds = program(FOLDS[kind]), {"I": 2, "T": 7}
    compiled = compile(graph, {"lift": lambda g: lift_loops(g, "t")})
    assert compiled.check(**bounds).ok
    wanted = values(graph, bounds)
    for got in (compiled.interpret(bounds).results, compiled.xla(bounds)()):
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(got)]
        np.testing.assert_allclose(np.ravel(leaves), np.ravel(wanted), atol=1e-6)


def test_windows_other_dimensions_and_other_types_are_left_alone():
    window = program(FOLDS["sum"], ahead=3)
    assert unfold(window, move.whole(window, "t"))[1] == []
    suffix = program(FOLDS["sum"])
    assert unfold(suffix, move.whole(suffix, "i"))[1] == []
    for kind, left in (("sum", False), ("max", False), ("discounted_sum", True)):
        graph = program(FOLDS[kind], integers=True)  # a discounted sum of integers is no integer
        assert (unfold(graph, move.whole(graph, "t"))[1] == []) is left


@pytest.mark.slow
def test_no_array_of_all_windows_is_left():
    graph, bounds = program(FOLDS["discounted_sum"]), {"I": 1, "T": 64}

    def sizes(passes) -> int:
        xla = compile(graph, passes).xla(bounds)
        return xla.lower().compile().memory_analysis().temp_size_in_bytes

    lifted = {"lift": lambda g: lift_loops(g, "t")}
    windows = 64 * 64 * 3 * 4
    assert max(sizes(lifted), sizes({"vectorize": lambda g: vectorize(g, "t")})) < windows
