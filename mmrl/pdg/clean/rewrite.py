"""Graph rewriting: replace operations, and redirect the edges that read them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from mmrl.pdg.build.expr import Expr
from mmrl.pdg.build.graph import Edge, Graph, Op, Output, reach

Made = tuple[Op, Sequence[Edge]]  # new operation with its input edges


def replaced(
    graph: Graph,
    made: Mapping[str, Sequence[Made]],
    reads: Callable[[Edge], Edge] = lambda edge: edge,
) -> Graph:
    """Replace the operations in `made`, and apply `reads` to every edge.

    `made` maps an operation to its replacements; an operation with none is removed.
    """
    kept: dict[str, Sequence[Made]] = {name: [(op, ())] for name, op in graph.ops.items()}
    found = [each for several in (kept | dict(made)).values() for each in several]
    edges = [edge for edge in graph.edges if edge.sink not in made]
    edges += [dataclasses.replace(edge, sink=op.name) for op, inputs in found for edge in inputs]
    return graph.replace(ops={op.name: op for op, _ in found}, edges=tuple(map(reads, edges)))


def renamed(edge: Edge, place: Mapping[Output, Output]) -> Edge:
    """Redirect an edge to the new name of its tensor, if `place` contains one."""
    source, output = place.get(edge.tensor, edge.tensor)
    return dataclasses.replace(edge, source=source, output=output)


def phi(graph: Graph, edge: Edge) -> dict[str, Expr]:
    """Return the index φ of an edge as a dictionary, keyed by the source's dimensions."""
    return dict(zip(graph.ops[edge.source].domain.names, edge.index, strict=True))


def composed(graph: Graph, edge: Edge, inner: Edge) -> Edge:
    """Return an edge that reads the source of `inner` directly, without the operation in between.

    `edge` must read the sink of `inner`.
    """
    at = phi(graph, edge)
    index = tuple(part.substitute(at) for part in inner.index)
    when = edge.when & inner.when.substitute(at)
    return dataclasses.replace(inner, sink=edge.sink, index=index, when=when, input=edge.input)


def remove_dead(graph: Graph) -> Graph:
    """Remove operations that the results do not depend on, except for calls of the host."""
    asked = [name for name, _ in graph.results]
    asked += [name for name, op in graph.ops.items() if op.kind == "host"]
    alive = reach(asked, lambda name: [edge.source for edge in graph.inputs(name)])
    return replaced(graph, dict.fromkeys(graph.ops.keys() - alive, ()))
