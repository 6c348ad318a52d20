"""Which operations depend on themselves, seen from one dimension d.

A training loop is one great cycle: parameters act, actions make experience, experience makes
parameters. Along t, most of it is none: what goes through the iteration before is done by then. So
edges that lead to an earlier point of another dimension are left out before cycles are looked
for. (The paper calls a cycle trivial if all its indices of d are d or constant, §5.2.)
"""

import dataclasses
from collections.abc import Mapping

from mmrl.pdg.expr import Const, Expr, Slice, Sym
from mmrl.pdg.graph import Edge, Graph
from mmrl.pdg.validate import components


@dataclasses.dataclass(frozen=True)
class Cycle:
    """Operations that depend on each other at one point of the other dimensions.

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
    """The edges on which an operation may depend on itself at one point of the other dimensions.

    On a component whose edges all lead to no later point of another dimension, those that lead to
    an earlier one are left out: no way along them ends where it began. Or the other way around.
    """
    edges = list(graph.edges)
    dims = dict.fromkeys(dim.name for op in graph.ops.values() for dim in op.domain)
    for component in components(edges):
        inside = [e for e in edges if e.sink in component and e.source in component]
        for other in (dim for dim in dims if dim != name):
            steps = {edge: _step(graph, edge, other) for edge in inside}
            known = [step for step in steps.values() if step is not None]
            gone = {edge for edge, step in steps.items() if step}
            if gone and len(known) == len(inside) and (max(known) <= 0 or min(known) >= 0):
                return level(graph.replace(edges=tuple(e for e in edges if e not in gone)), name)
    return edges


def _step(graph: Graph, edge: Edge, name: str) -> int | None:
    """How far along a dimension the edge leads from each point of the sink; None if who knows."""
    sink, names = graph.ops[edge.sink].domain.names, graph.ops[edge.source].domain.names
    known = name in sink and name in names
    return shift(edge.index[names.index(name)], name) if known else None


def shift(part: Expr, name: str) -> int | None:
    """c if the index is d + c."""
    if isinstance(part, Slice):
        return None
    difference = part - Sym(name)
    return difference.value if isinstance(difference, Const) else None
