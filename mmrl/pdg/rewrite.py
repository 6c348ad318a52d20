"""Dead code, copies and common subexpressions: the clean-up that every program gets.  §5"""

import dataclasses
from typing import Any

import jax

from mmrl.pdg.expr import TRUE, Slice
from mmrl.pdg.graph import Edge, Graph, Op, ragged, reach
from mmrl.pdg.indexing import composes
from mmrl.pdg.ops import plus


def remove_dead(graph: Graph) -> Graph:
    """Only what the results need."""
    asked = (name for name, _ in graph.results)
    alive = reach(asked, lambda name: [edge.source for edge in graph.inputs(name)])
    ops = {name: op for name, op in graph.ops.items() if name in alive}
    return graph.replace(ops=ops, edges=tuple(e for e in graph.edges if e.sink in alive))


def share(graph: Graph) -> Graph:
    """Operations that compute the same become one; a result keeps its name."""
    while True:
        kept: dict[Any, str] = {}
        twins: dict[str, str] = {}
        asked = [name for name, _ in graph.results]
        for name in sorted(graph.ops, key=lambda name: name not in asked):
            first = kept.setdefault(_signature(graph, graph.ops[name]), name)
            if first != name and name not in asked:
                twins[name] = first
        if not twins:
            return graph
        edges = tuple(
            dataclasses.replace(e, source=twins.get(e.source, e.source))
            for e in graph.edges
            if e.sink not in twins
        )
        ops = {name: op for name, op in graph.ops.items() if name not in twins}
        graph = graph.replace(ops=ops, edges=edges)


def forward(graph: Graph) -> Graph:
    """Copies vanish, and who reads them reads their source: a sum of one gradient is a copy."""
    for name in list(graph.ops):
        op, inputs = graph.ops[name], graph.inputs(name)
        copies = op.kind == "read" or op.params.get("f") is plus
        asked = name in {name for name, _ in graph.results}
        if not copies or asked or len(inputs) != 1 or inputs[0].slices or ragged(op.outputs):
            continue
        if not TRUE.same(op.needs):
            continue
        edges = [
            _through(op, inputs[0], edge) if edge.source == name else edge
            for edge in graph.edges
            if edge.sink != name
        ]
        if None not in edges:
            ops = {other: value for other, value in graph.ops.items() if other != name}
            graph = graph.replace(ops=ops, edges=tuple(edges))
    return graph


def _through(op: Op, copied: Edge, reader: Edge) -> Edge | None:
    """An edge that reads what `op` copies; None if its slices cannot be pushed through."""
    at = dict(zip(op.domain.names, reader.index, strict=True))
    sliced = [name for name, part in at.items() if isinstance(part, Slice)]
    if not composes(copied.index, sliced):
        return None
    index = tuple(part.substitute(at) for part in copied.index)
    return dataclasses.replace(reader, source=copied.source, output=copied.output, index=index)


def _signature(graph: Graph, op: Op) -> Any:
    """Equal for operations that compute the same; random ones draw from keys of their own."""
    if op.kind == "random" or ("of" in op.params and op.params.get("random")):
        return op.name
    params = tuple(sorted((k, _mark(v)) for k, v in op.params.items()))
    inputs = frozenset(
        (e.source, e.index, e.when, e.input, e.output) for e in graph.inputs(op.name)
    )
    outputs = tuple(str(leaf) for leaf in jax.tree.leaves(op.outputs))
    return op.kind, op.domain, params, inputs, outputs


def _mark(value: Any) -> str:
    """A text that differs for parameters that differ; functions and arrays are themselves only."""
    plain = isinstance(value, str | int | float | tuple | None) or hasattr(value, "same")
    return repr(value) if plain else f"id {id(value)}"
