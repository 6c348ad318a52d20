"""What passes do to order and memory: every changed program is enumerated.

The numbers are those that the method promises: a window of n steps keeps n observations, tiles of m
steps keep m + n - 1, and whatever waits for the end keeps all T.
"""

import pytest

from mmrl.pdg.passes import fuse, lift_loops, tile, vectorize
from mmrl.pdg.run import compile
from tests.helpers.pdg_graphs import PROGRAMS, reinforce

T, M = 23, 4
WINDOWS = {"8-step": 8, "3-step, tiles of 4": 3 + M - 1}
PASSES = {
    "fuse": fuse,
    "lift": lambda graph: lift_loops(graph, "t", when="always"),
    "tile": lambda graph: tile(graph, "t", M),
    "vectorize": lambda graph: vectorize(graph, "t"),
}
FUSED = {
    "all that can be": {"fuse": fuse},
    "actor and learner": {
        "actor": lambda graph: fuse(graph, ("a", "e")),
        "learner": lambda graph: fuse(graph, ("g", "d", "G")),
    },
}


def observations(graph, passes):
    """The most that are alive at once."""
    sizes = {name: {"I": 2, "K": 3, "T": T}[name] for name in graph.bounds}
    report = compile(graph, passes).check(**sizes)
    assert report.ok, str(report)
    return report.device["o", 0]


def kept(program, name):
    window = WINDOWS.get(program, T)
    if name == "vectorize":
        return T
    return min(T, window + M - 1) if name == "tile" and "tiles" not in program else window


@pytest.mark.parametrize(
    ("program", "name"),
    [
        *((program, name) for program in (*WINDOWS, "PPO") for name in PASSES),
        ("Monte-Carlo", "tile"),
    ],
)
def test_passes_keep_the_order_and_as_much_as_they_promise(program, name):
    graph = PROGRAMS[program]()
    assert observations(graph, {name: PASSES[name]}) == kept(program, name)


@pytest.mark.parametrize("which", FUSED)
@pytest.mark.parametrize("n", [4, 16])
def test_fused_actors_and_learners_still_share_a_loop(n, which):
    assert observations(reinforce(n), FUSED[which]) == n


@pytest.mark.parametrize("n", [3, 8])
def test_tiles_that_are_fused_keep_no_more_than_tiles(n):
    passes = {"tile": PASSES["tile"], "fuse": fuse}
    assert observations(reinforce(n), passes) == M + n - 1
