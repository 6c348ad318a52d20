"""Graph rewriting: replace operations, and redirect the edges that read them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from mmrl.pdg.build.expr import Expr
from mmrl.pdg.build.graph import Edge, Graph, Op, Output, reach

NewOp = tuple[Op, Sequence[Edge]]  # new operation with its input edges


def replace_ops(
    graph: Graph,
    replacements: Mapping[str, Sequence[NewOp]],
    reads: Callable[[Edge], Edge] = lambda edge: edge,
) -> Graph:
    """Replace the operations in `replacements`, and apply `reads` to every edge.

    `replacements` maps an operation to its replacements; an operation with none is removed.
    """
    identity: dict[str, Sequence[NewOp]] = {name: [(op, ())] for name, op in graph.ops.items()}
    pairs = [each for several in (identity | dict(replacements)).values() for each in several]
    edges = [edge for edge in graph.edges if edge.sink not in replacements]
    edges += [dataclasses.replace(edge, sink=op.name) for op, inputs in pairs for edge in inputs]
    return graph.replace(ops={op.name: op for op, _ in pairs}, edges=tuple(map(reads, edges)))


def redirect(edge: Edge, place: Mapping[Output, Output]) -> Edge:
    """Redirect an edge to the new name of its tensor, if `place` contains one."""
    source, output = place.get(edge.tensor, edge.tensor)
    return dataclasses.replace(edge, source=source, output=output)


def phi(graph: Graph, edge: Edge) -> dict[str, Expr]:
    """Return the index φ of an edge as a dictionary, keyed by the source's dimensions."""
    return dict(zip(graph.ops[edge.source].domain.names, edge.index, strict=True))


def compose(graph: Graph, edge: Edge, inner: Edge) -> Edge:
    """Return an edge that reads the source of `inner` directly, without the operation in between.

    `edge` must read the sink of `inner`.
    """
    at = phi(graph, edge)
    index = tuple(part.substitute(at) for part in inner.index)
    when = edge.when & inner.when.substitute(at)
    return dataclasses.replace(inner, sink=edge.sink, index=index, when=when, input=edge.input)


def remove_dead(graph: Graph) -> Graph:
    """Remove operations that the results do not depend on, except for calls of the host."""
    roots = [name for name, _ in graph.results]
    roots += [name for name, op in graph.ops.items() if op.kind == "host"]
    reachable = reach(roots, lambda name: [edge.source for edge in graph.inputs(name)])
    return replace_ops(graph, dict.fromkeys(graph.ops.keys() - reachable, ()))
