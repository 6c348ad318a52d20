"""The front door: from a graph to both executors, with and without passes."""

import numpy as np
import pytest
from pdg_graphs import reinforce

from mmrl.pdg.compiler import Compiled, compile
from mmrl.pdg.passes import fuse, tile

SIZES = {"I": 2, "T": 9}


@pytest.fixture(scope="module")
def made() -> Compiled:
    return compile(reinforce(3))


def test_both_executors_agree(made: Compiled):
    executed = made.interpret(SIZES)
    for one, other in zip(executed.results, made.xla(SIZES)(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_run_is_checked(made: Compiled):
    report = made.check(**SIZES)
    assert report.ok and report.device["o", 0] == 3


def test_it_prints_as_python(made: Compiled):
    assert "for t in range(2, T)" in str(made) and "del " not in str(made)
    assert "del d[i, t - 2]" in made.text(memory=True)


def test_passes_are_kept_with_their_words(made: Compiled):
    tiled = compile(reinforce(3), {"tile": lambda graph: tile(graph, "t", 4), "fuse": fuse})
    assert [stage.name for stage in tiled.stages] == ["program", "tile", "fuse"]
    assert tiled.stages[1].words
    assert tiled.check(**SIZES).ok
    for one, other in zip(tiled.interpret(SIZES).results, made.xla(SIZES)(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_options_reach_the_schedule():
    apart = compile(reinforce(3), proximity="none").check(**SIZES)
    assert apart.device["o", 0] == SIZES["T"]
    swapped = compile(reinforce(None), swap=[("o", 0)]).check(**SIZES)
    assert (swapped.device["o", 0], swapped.host["o", 0]) == (1, SIZES["T"])


@pytest.mark.parametrize("swap", [[("nope", 0)], [("o", 3)], [("o", 0), ("o", 0)]])
def test_only_tensors_of_the_graph_are_swapped_and_each_once(swap: list):
    with pytest.raises(ValueError, match="`swap` must name"):
        compile(reinforce(3), swap=swap)


@pytest.mark.parametrize("n", [3, None])
def test_nothing_is_fused_that_would_read_its_own_future(n: int | None):
    fused, plain = compile(reinforce(n), {"fuse": fuse}), compile(reinforce(n))
    assert len(fused.graph.ops) < len(plain.graph.ops) and fused.check(**SIZES).ok
    for one, other in zip(fused.interpret(SIZES).results, plain.xla(SIZES)(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
