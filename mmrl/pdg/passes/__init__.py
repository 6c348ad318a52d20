"""Passes that transform a graph before it is scheduled: lift, vectorize, tile and fuse.

A pass is a function of a graph. It returns a new graph with the same results, and sentences that
report what it changed and what it left unchanged. `stages` records the graph before the first pass
and after every pass.
"""

import dataclasses
from collections.abc import Callable, Mapping

from mmrl.pdg.build.graph import Graph
from mmrl.pdg.clean import remove_dead
from mmrl.pdg.clean.recompute import ops_with_residuals, recompute
from mmrl.pdg.passes.fuse import fuse
from mmrl.pdg.passes.lift import lift_loops
from mmrl.pdg.passes.loops import Recurrence, lift, recognize
from mmrl.pdg.passes.steps import DeclaredMonoid, Refusal, declare
from mmrl.pdg.passes.tile import tile, vectorize

__all__ = [
    "DeclaredMonoid",
    "Recurrence",
    "Refusal",
    "Stage",
    "declare",
    "fuse",
    "lift",
    "lift_loops",
    "ops_with_residuals",
    "recognize",
    "recompute",
    "stages",
    "tile",
    "vectorize",
]


Pass = Callable[[Graph], tuple[Graph, list[str]]]


@dataclasses.dataclass(frozen=True)
class Stage:
    """Graph after a pass, and the pass's report of its changes."""

    name: str
    graph: Graph
    words: tuple[str, ...] = ()


def stages(graph: Graph, passes: Mapping[str, Pass]) -> list[Stage]:
    """Apply passes in order, and return the initial graph and the graph after each pass.

    For example, `{"tile": lambda graph: tile(graph, "t", 8), "fuse": fuse}` are two passes. To
    disable a pass, omit it. Dead operations are removed after each pass.
    """
    results = [Stage("program", graph)]
    for name, change in passes.items():
        try:
            output = change(graph)
        except Exception as error:
            error.add_note(f"in the pass {name!r}")
            raise
        if not (isinstance(output, tuple) and len(output) == 2 and isinstance(output[0], Graph)):
            raise ValueError(
                f"`passes`: {name!r} must return a graph and a list of strings, as `tile` does; "
                f"got a {type(output).__name__}"
            )
        graph, words = output
        graph = remove_dead(graph)
        results.append(Stage(name, graph, tuple(words)))
    return results
