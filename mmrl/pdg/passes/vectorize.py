"""Vectorize: a dimension leaves the loops and becomes an axis of the arrays.  §5.2, Algorithm 2

    for t in range(T): y[t] = f(x[t])      ↦      y = f(x), all of t at once

Fewer and larger runs, for more memory: all of d lives at once, and nothing that is moved can be
interleaved with what makes its inputs. Operations on a cycle through different points of d, such
as acting along t, stay; those on a cycle at one point of d, such as acting along a batch b, move
together or not at all.
"""

from collections.abc import Collection

from mmrl.pdg.graph import Graph
from mmrl.pdg.passes.access import Block
from mmrl.pdg.passes.cycles import cycles
from mmrl.pdg.passes.move import can_move, move, whole, with_views

Reason = tuple[tuple[str, ...], str]  # operations, and why they stay where they are


def vectorize(graph: Graph, name: str) -> tuple[Graph, list[str]]:
    """The graph with all operations that may be vectorized over `name`, and what was done.

    Raises `ValueError` for a dimension that is not there.
    """
    block = whole(graph, name)
    moved, reasons = movable(graph, block)
    words = say(reasons)
    if not moved:
        return graph, words
    words.insert(0, f"vectorized over {name}: {', '.join(moved)}")
    graph, names = with_views(graph, moved)
    return move(graph, block, [names[op] for op in moved]), words


def movable(
    graph: Graph, block: Block, only: Collection[str] | None = None
) -> tuple[list[str], list[Reason]]:
    """The operations, of some or all, that may leave the loop over d; why others may not."""
    name = block.name
    ops = [op for op in graph.ops.values() if op.kind != "view"]  # a view is of single points
    moved = {op.name for op in ops if name in op.domain.names}
    reasons, groups = [], []
    if only is not None:
        moved &= set(only)
    for cycle in cycles(graph, name):
        on = tuple(op for op in cycle.ops if name in graph.ops[op].domain.names)
        if cycle.trivial:
            groups.append(set(on))
            continue
        if moved & set(on):
            reasons.append((on, f"a cycle through different points of {name}"))
        moved -= set(on)
    changed = True
    while changed:
        changed = False
        for op in [op for op in graph.ops if op in moved]:
            reason = can_move(graph, block, moved, op)
            if reason or any(op in group and not group <= moved for group in groups):
                reasons.append(((op,), reason or "so does another operation of its cycle"))
                moved.discard(op)
                changed = True
    return [op for op in graph.ops if op in moved], reasons


def say(reasons: Collection[Reason]) -> list[str]:
    """The reasons in words."""
    return [f"{', '.join(ops)} stay{'s' * (len(ops) == 1)}: {why}" for ops, why in reasons]
