"""Which operations depend on themselves, seen from one dimension d.

A training loop is one great cycle: parameters act, actions make experience, experience makes
parameters. Along t, most of it is none: what goes through the iteration before is done by then. So
edges that lead to an earlier point of a dimension outside d are left out before cycles are looked
for. (The paper calls a cycle trivial if all its indices of d are d or constant, §5.2.)
"""

import dataclasses
from collections.abc import Mapping

from mmrl.pdg.expr import Const, Expr, Slice, Sym
from mmrl.pdg.graph import Edge, Graph
from mmrl.pdg.validate import components


@dataclasses.dataclass(frozen=True)
class Cycle:
    """Operations that depend on each other at one point of the outer dimensions.

    It is trivial if all its indices of d are d itself or do not depend on it.
    """

    ops: tuple[str, ...]
    edges: tuple[Edge, ...]
    trivial: bool

    def __str__(self) -> str:
        return ", ".join(self.ops)

    def renamed(self, names: Mapping[str, str]) -> "Cycle":
        """This cycle after its operations were given new names."""
        edges = [
            dataclasses.replace(edge, sink=names[edge.sink], source=names[edge.source])
            for edge in self.edges
        ]
        return Cycle(tuple(names[op] for op in self.ops), tuple(edges), self.trivial)


def cycles(graph: Graph, name: str) -> list[Cycle]:
    """The cycles along d = `name`: strongly connected components of what is left of the graph."""
    edges = level(graph, name)
    found = []
    for component in components(edges):
        inside = [e for e in edges if e.sink in component and e.source in component]
        if inside:
            ops = tuple(op for op in graph.ops if op in component)
            at = [
                e.index[graph.ops[e.source].domain.names.index(name)]
                for e in inside
                if name in graph.ops[e.source].domain.names
            ]
            trivial = all(name not in part.symbols() or shift(part, name) == 0 for part in at)
            found.append(Cycle(ops, tuple(inside), trivial))
    return found


def level(graph: Graph, name: str) -> list[Edge]:
    """The edges that do not lead to an earlier point outside d.

    All edges, if one that is on a cycle may lead to a later point: then nothing is sure.
    """
    ways = [(edge, _way(graph, edge, name)) for edge in graph.edges]
    if any(way > 0 for _, way in ways):
        place = {op: i for i, c in enumerate(components(graph.edges)) for op in c}
        if any(way > 0 and place[edge.sink] == place[edge.source] for edge, way in ways):
            return list(graph.edges)
    return [edge for edge, way in ways if way >= 0]


def _way(graph: Graph, edge: Edge, name: str) -> int:
    """-1 if the edge leads to an earlier point outside d, 1 if perhaps to a later one, else 0."""
    sink, source = graph.ops[edge.sink].domain, graph.ops[edge.source].domain
    rank = max(d.rank for op in graph.ops.values() for d in op.domain if d.name == name)
    for dim, part in zip(source, edge.index, strict=True):
        if dim.rank >= rank or dim.name not in sink.names:
            return 0
        distance = shift(part, dim.name)
        if distance is None:
            return 1
        if distance:
            return 1 if distance > 0 else -1
    return 0


def shift(part: Expr, name: str) -> int | None:
    """c if the index is d + c."""
    if isinstance(part, Slice):
        return None
    difference = part - Sym(name)
    return difference.value if isinstance(difference, Const) else None
