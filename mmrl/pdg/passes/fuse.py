"""Operator fusion: the same results from fewer operations.  §5.4

An operation and its reader at the same point become a single operation:

    y[t] = f(x[t]); z[t] = g(y[t])      ↦      z[t] = g(f(x[t]))

Fusion leaves fewer operations to schedule and launch, and fewer values to store, and XLA optimizes
the two operations together. A pair is not fused if the second operation also reads a third one that
depends on the first, because the fused operation would then depend on itself. Branching definitions
are not fused, because they only copy.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mmrl.pdg.build.expr import TRUE, structure
from mmrl.pdg.build.graph import Edge, Graph, Op, Output
from mmrl.pdg.build.sets import has_order
from mmrl.pdg.clean import NewOp, compose, redirect, remove_dead, replace_ops
from mmrl.pdg.clean import fold as fold
from mmrl.pdg.clean import forward as forward
from mmrl.pdg.clean import phi as phi
from mmrl.pdg.clean import share as share

# Former names, which can still be imported from this module.
Made, composed, renamed, replaced = NewOp, compose, redirect, replace_ops


def fuse(graph: Graph, only: Collection[str] | None = None) -> tuple[Graph, list[str]]:
    """Fuse operations into regions, and return the graph and a sentence for each region.

    `only` limits fusion to the given operations. A region is named after the result that it
    contains, or else after the last of its operations that others read.

        >>> from mmrl.pdg import Program
        >>> p = Program("t")
        >>> fuse(p.graph(2.0 * p.value(p.symbols[0])))[1]
        ['fused into mul: value, mul']
    """
    selection = set(graph.ops if only is None else only)
    graph, copies = _spread(graph, selection)
    selection |= copies
    home = {name: name for name in graph.ops}  # region of each operation
    refusals = set()
    for edge in [e for e in graph.edges if {e.source, e.sink} <= selection and straight(graph, e)]:
        first, second = home[edge.source], home[edge.sink]
        results = {name for name, _ in graph.results}
        # A region has one name, so it cannot contain two results.
        if first == second or {first, second} <= results:
            continue
        name, fusion = join(graph, first, second)
        # Fusing the copy of a constant cannot create a cycle, because the copy has no inputs.
        if first not in copies and not has_order(fusion):
            refusals.add(
                f"{edge.source} and {edge.sink} are not fused: a second path connects them"
            )
            continue
        graph = fusion
        home |= {op: name for op, now in home.items() if now in (first, second)}
    several = [op for op in graph.ops.values() if list(home.values()).count(op.name) > 1]
    words = [f"fused into {op.name}: {', '.join(_parts(op))}" for op in several]
    return graph, [*words, *sorted(refusals)]


def _spread(graph: Graph, selection: Collection[str]) -> tuple[Graph, set[str]]:
    """Give each reader its own copy of a constant; return the graph and the names of the copies.

    The copies are then fused into their readers, so constants need not be stored or freed.
    """
    results, copies = {name for name, _ in graph.results}, set()
    for edge in [e for e in graph.edges if e.sink in selection and TRUE.same(e.when)]:
        source, sink = graph.ops[edge.source], graph.ops[edge.sink]
        constant = source.kind == "constant" and not source.domain and edge.source in selection
        if constant and sink.run and sink.kind != "host" and edge.source not in results:
            name = f"{source.name}_of_{sink.name}_{edge.input}"
            copy = dataclasses.replace(source, name=name, domain=sink.domain)
            new = dataclasses.replace(edge, source=name, index=sink.domain.symbols)
            edges = tuple(new if other is edge else other for other in graph.edges)
            graph = graph.replace(ops={name: copy, **graph.ops}, edges=edges)
            copies.add(name)
    return remove_dead(graph), copies


def straight(graph: Graph, edge: Edge) -> bool:
    """Return True if an edge connects two operations at the same point, and both can be fused."""
    sink, source = graph.ops[edge.sink], graph.ops[edge.source]
    alike = sink.domain == source.domain
    # Inputs and calls of the host are identified by their kind, so they must not be fused.
    joins = sink.run and source.run and not {"host", "input"} & {sink.kind, source.kind}
    return alike and bool(joins) and TRUE.same(edge.when) and _here(graph, edge)


def _here(graph: Graph, edge: Edge) -> bool:
    return structure(edge.index) == structure(graph.ops[edge.source].domain.symbols)


def _parts(op: Op) -> tuple[str, ...]:
    return op.params["ops"] if op.kind == "fused" else (op.name,)


def join(graph: Graph, first: str, second: str) -> tuple[str, Graph]:
    """Fuse `second` with its input `first`, and return the new name and the graph."""
    pair = (graph.ops[first], graph.ops[second])
    inside = [e for e in graph.inputs(second) if e.source == first and _here(graph, e)]
    outside = [e for op in pair for e in graph.inputs(op.name) if e not in inside]
    readers = [e for e in graph.edges if e.source in (first, second) and e not in inside]
    results = [op for op in pair if op.name in {name for name, _ in graph.results}]
    tensors = [(op.name, k) for op in results for k in range(len(op.outputs))]
    tensors = list(dict.fromkeys([*tensors, *(e.tensor for e in readers)]))
    title = results[0].name if results else second if second in dict(tensors) else first
    alike = {e: dataclasses.replace(e, sink=title, input=0) for e in outside}
    reads = list(dict.fromkeys(alike.values()))
    which = {e: reads.index(same) for e, same in alike.items()}
    outputs = tuple(graph.ops[name].outputs[k] for name, k in tensors)
    params = {"ops": (*_parts(pair[0]), *_parts(pair[1]))}
    op = Op(title, "fused", pair[1].domain, outputs, _run(graph, pair, which, tensors), params)
    edges = [dataclasses.replace(e, input=k) for k, e in enumerate(reads)]
    place = {tensor: (title, k) for k, tensor in enumerate(tensors)}
    new = {first: [], second: [(op, edges)]}
    return title, replace_ops(graph, new, lambda edge: redirect(edge, place))


def _run(
    graph: Graph, pair: tuple[Op, Op], which: Mapping[Edge, int], outputs: list[Output]
) -> Callable[..., tuple[Any, ...]]:
    """Return a function that runs both operations.

    `which` maps the edges from other operations to indices of the inputs. Along the remaining
    edges, the second operation reads the first.
    """

    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        values: dict[Output, Any] = {}
        for op in pair:
            assert op.run is not None
            arguments = [
                inputs[which[e]] if e in which else values[e.source, e.output]
                for e in graph.inputs(op.name)
            ]
            values |= {(op.name, k): value for k, value in enumerate(op.run(env, *arguments))}
        return tuple(values[tensor] for tensor in outputs)

    return run
