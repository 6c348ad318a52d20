"""Tile: a block of m points of d in each run, the middle between looping and vectorizing.  §5.3

    total[t] = total[t - 1] + d[t]    ↦    total[s] = total[s - m] + Σ_{k<m} d[s + k], s = 0, m, …

m = 1 interleaves most and keeps least; m = T is vectorizing. What learns from a block may run as
soon as acting is through with it, so the peak of a window of n steps is m + n - 1 points.

Every operation that is tiled exists at the first points of blocks only, t mod m = 0, and its other
indices stay as they were. So the scheduler may first place all points and then take the stride
("dense, then strided"), which keeps acting and learning at the same pace.

Blocks end in sums and in loops of which only the last state is read. The last block may be short:
its missing points are zeros, and add nothing.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping

import jax

from mmrl.pdg.expr import Slice
from mmrl.pdg.graph import Graph, Op
from mmrl.pdg.passes.access import ZERO, Block
from mmrl.pdg.passes.blocks import build, tiled
from mmrl.pdg.passes.cycles import cycles
from mmrl.pdg.passes.loops import Loop, analyze
from mmrl.pdg.passes.move import whole
from mmrl.pdg.passes.values import Refusal
from mmrl.pdg.passes.vectorize import Reason, movable, say


def tile(
    graph: Graph,
    name: str,
    size: int | None = None,
    *,
    budget: int | None = None,
    bounds: Mapping[str, int] | None = None,
) -> tuple[Graph, list[str]]:
    """The graph with all operations tiled that can be, `size` points of `name` at a time.

    Or give a `budget` in bytes for the largest of them, and the `bounds` that sizes depend on: m is
    then the largest power of two that keeps to it.

    Raises `ValueError` if not exactly one of `size` and `budget` is given, or a size below 1.
    """
    if (size is None) == (budget is None) or (size is not None and size < 1):
        raise ValueError(f"Give `size`, at least 1, or `budget`; got {size} and {budget}.")
    everything = whole(graph, name)
    if size is None:
        size = _size(graph, everything, budget or 0, bounds or {})
    block = dataclasses.replace(everything, size=size)
    moved, loops, sums, reasons = _choose(graph, block)
    if not moved:
        return graph, ["nothing tiled", *say(reasons)]
    ends = [loop.carried[0] for loop in loops]
    inside = {op for loop in loops for op in loop.ops}
    words = say([(ops, why) for ops, why in reasons if not inside & set(ops)])
    words.insert(0, f"tiled by {size} along {name}: {', '.join([*moved, *ends, *sums])}")
    return build(graph, block, moved, loops, sums), words


def _size(graph: Graph, everything: Block, budget: int, bounds: Mapping[str, int]) -> int:
    """The largest power of two such that a block of the largest operation fits the budget."""
    able, _ = movable(graph, everything)
    missing = set(graph.bounds) - set(bounds)
    if missing:
        raise ValueError(f"`bounds` must say how large {', '.join(sorted(missing))} are.")
    largest = max((_bytes(graph.ops[op], bounds) for op in able), default=1)
    return 2 ** int(math.log2(max(1, budget // max(1, largest))))


def _bytes(op: Op, bounds: Mapping[str, int]) -> int:
    leaves = jax.tree.leaves(op.types(bounds))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def _loops(graph: Graph, name: str) -> list[Loop]:
    """Forward loops of which only the last state is read."""
    found = []
    for cycle in cycles(graph, name):
        if cycle.trivial:
            continue
        try:
            loop = analyze(graph, cycle, whole(graph, name))
        except Refusal:
            continue
        if loop.final and loop.way > 0:
            found.append(loop)
    return found


def _sums(graph: Graph, block: Block) -> list[str]:
    """Operations that add up all of d."""
    found = []
    for op in graph.ops.values():
        edges = graph.inputs(op.name)
        if op.kind != "sum" or op.params.get("axis") != 0 or len(edges) != 1:
            continue
        source, slices = graph.ops[edges[0].source].domain, edges[0].slices
        all_of_it = slices == (Slice(ZERO, block.bound),)
        if all_of_it and source.names[edges[0].index.index(slices[0])] == block.name:
            found.append(op.name)
    return found


def _choose(graph: Graph, block: Block) -> tuple[list[str], list[Loop], list[str], list[Reason]]:
    """The largest set of operations that can be tiled together with the ends they flow into."""
    loops, sums = _loops(graph, block.name), _sums(graph, block)
    moved, reasons = movable(graph, block)
    while True:
        kept = [loop for loop in loops if tiled(loop, block, moved)]
        ended = [name for name in sums if graph.inputs(name)[0].source in moved]
        ends = {*ended, *(op for loop in kept for op in loop.ops)}
        loose = [op for op in moved if not _stays_inside(graph, op, moved, ends)]
        if not loose and (kept, ended) == (loops, sums):
            fed = [loop for loop in kept if {edge.source for edge in loop.outside} & set(moved)]
            blocks = [tiled(loop, block, moved) for loop in fed]
            return moved, [loop for loop in blocks if loop is not None], ended, reasons
        loops, sums = kept, ended
        reasons += [((op,), "it is read point by point") for op in loose]
        moved, more = movable(graph, block, [op for op in moved if op not in loose])
        reasons += more


def _stays_inside(graph: Graph, op: str, moved: Collection[str], ends: Collection[str]) -> bool:
    asked = any(op == name for name, _ in graph.results)
    return not asked and all(e.sink in moved or e.sink in ends for e in graph.readers(op))
