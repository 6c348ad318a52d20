"""Fuse, and the clean-up that every program gets: fewer operations for the same results.  §5.4

Operations at the same points that hand values straight on become one:

    y[t] = f(x[t]); z[t] = g(y[t])      ↦      z[t] = g(f(x[t]))

Fewer operations to schedule, to launch and to keep, and XLA sees them together. Two are not fused
if something that the second waits for waits for the first: the pair would wait for itself, and what
results would have no schedule.
Branching definitions stay apart, since they copy and compute nothing.

`remove_dead`, `fold`, `forward` and `share` drop dead code, computed constants, copies and common
subexpressions. `replaced` is how all passes rewrite a graph.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.expr import TRUE, Expr, Slice, structure
from mmrl.pdg.graph import Edge, Graph, Op, Output, ragged, reach
from mmrl.pdg.language.indexing import composes
from mmrl.pdg.language.ops import TABLE, plus
from mmrl.pdg.schedule import schedule

Made = tuple[Op, Sequence[Edge]]  # a new operation, and what it reads


def replaced(
    graph: Graph,
    made: Mapping[str, Sequence[Made]],
    reads: Callable[[Edge], Edge] = lambda edge: edge,
) -> Graph:
    """The graph with new operations where those in `made` were, and edges as `reads` has them."""
    kept: dict[str, Sequence[Made]] = {name: [(op, ())] for name, op in graph.ops.items()}
    found = [each for several in (kept | dict(made)).values() for each in several]
    edges = [edge for edge in graph.edges if edge.sink not in made]
    edges += [dataclasses.replace(edge, sink=op.name) for op, inputs in found for edge in inputs]
    return graph.replace(ops={op.name: op for op, _ in found}, edges=tuple(map(reads, edges)))


def renamed(edge: Edge, place: Mapping[Output, Output]) -> Edge:
    """The edge to where `place` says that a tensor is now, or as it was."""
    source, output = place.get(edge.tensor, edge.tensor)
    return dataclasses.replace(edge, source=source, output=output)


def phi(graph: Graph, edge: Edge) -> dict[str, Expr]:
    """φ by the dimensions of what is read."""
    return dict(zip(graph.ops[edge.source].domain.names, edge.index, strict=True))


def composed(graph: Graph, edge: Edge, inner: Edge) -> Edge:
    """The edge to what `inner` reads, from where `edge` reads the sink of `inner`."""
    at = phi(graph, edge)
    index = tuple(part.substitute(at) for part in inner.index)
    when = edge.when & inner.when.substitute(at)
    return dataclasses.replace(inner, sink=edge.sink, index=index, when=when, input=edge.input)


def remove_dead(graph: Graph) -> Graph:
    """Only what the results need, and what calls the host."""
    asked = [name for name, _ in graph.results]
    asked += [name for name, op in graph.ops.items() if op.kind == "host"]
    alive = reach(asked, lambda name: [edge.source for edge in graph.inputs(name)])
    return replaced(graph, dict.fromkeys(graph.ops.keys() - alive, ()))


def share(graph: Graph) -> Graph:
    """Operations that compute the same become one; a result keeps its name."""
    asked = [name for name, _ in graph.results]
    while True:
        kept: dict[Any, str] = {}
        twins: dict[str, str] = {}
        for name in sorted(graph.ops, key=lambda name: name not in asked):
            first = kept.setdefault(_signature(graph, graph.ops[name]), name)
            if first != name and name not in asked:
                twins[name] = first
        if not twins:
            return graph
        place = {e.tensor: (twins[e.source], e.output) for e in graph.edges if e.source in twins}
        graph = replaced(graph, dict.fromkeys(twins, ()), lambda e, at=place: renamed(e, at))


def forward(graph: Graph) -> Graph:
    """Copies vanish, and who reads them reads their source: a sum of one gradient is a copy.

    So is arithmetic that gives x bit for bit, NaN, infinities and -0 included: 1 x, x / 1, x - 0.
    For numbers with a fraction x + 0 is none (-0 + 0 is 0), and 0 x never is (0 · inf is NaN).
    """
    asked = {name for name, _ in graph.results}
    for name in [name for name in graph.ops if name not in asked]:
        op, inputs = graph.ops[name], graph.inputs(name)
        copies = op.kind == "read" or op.params.get("f") is plus or _keeps(graph, op)
        if not copies or len(inputs) != 1 or inputs[0].slices or ragged(op.outputs):
            continue
        through = functools.partial(_through, graph, inputs[0])
        slices = [_sliced(graph, edge) for edge in graph.readers(name)]
        if TRUE.same(op.needs) and all(composes(inputs[0].index, each) for each in slices):
            graph = replaced(graph, {name: ()}, through)
    return graph


def _sliced(graph: Graph, edge: Edge) -> list[str]:
    return [name for name, part in phi(graph, edge).items() if isinstance(part, Slice)]


def _through(graph: Graph, copied: Edge, edge: Edge) -> Edge:
    return composed(graph, edge, copied) if edge.source == copied.sink else edge


def _keeps(graph: Graph, op: Op) -> bool:
    """Does an operation give its one input as it is, whatever that is?"""
    numbers, after = op.params.get("numbers", ()), op.outputs[0]
    if len(numbers) != 1:
        return False
    ((place, number),), (source, *_) = numbers, graph.inputs(op.name)
    exact = not jnp.issubdtype(after.dtype, jnp.inexact)
    units = {("mul", 0): 1, ("mul", 1): 1, ("div", 1): 1, ("sub", 1): 0}
    units |= {("add", 0): 0, ("add", 1): 0} if exact else {}
    same = units.get((op.kind, place)) == number and math.copysign(1, number) > 0
    return same and str(graph.ops[source.source].outputs[source.output]) == str(after)


def fold(graph: Graph) -> Graph:
    """Operations of the table on constants alone become constants: 0 x is what 0 x gives."""
    for name, op in graph.ops.items():
        sources = [graph.ops[edge.source] for edge in graph.inputs(name)]
        known = all("value" in source.params and not source.domain for source in sources)
        if op.kind in TABLE and sources and known:
            assert op.run is not None
            (value,) = op.run({}, *(source.params["value"] for source in sources))
            run = lambda env, value=value: (value,)  # noqa: E731
            made = dataclasses.replace(op, kind="constant", run=run, params={"value": value})
            graph = replaced(graph, {name: [(made, ())]})
    return graph


def _signature(graph: Graph, op: Op) -> Any:
    """Equal for operations that compute the same; random ones draw from keys of their own."""
    if op.kind == "random":
        return op.name
    params = tuple(sorted((k, _mark(v)) for k, v in op.params.items()))
    inputs = frozenset(dataclasses.replace(edge, sink="") for edge in graph.inputs(op.name))
    outputs = tuple(str(leaf) for leaf in jax.tree.leaves(op.outputs))
    return op.kind, op.domain, params, inputs, outputs


def _mark(value: Any) -> str:
    """A text that differs for parameters that differ; functions and arrays are themselves only."""
    plain = isinstance(value, str | int | float | tuple | None) or hasattr(value, "same")
    return repr(value) if plain else f"id {id(value)}"


def fuse(graph: Graph, only: Collection[str] | None = None) -> tuple[Graph, list[str]]:
    """The graph with all regions fused, and which operations each one holds.

    `only` limits it to some operations. A region is called like the result in it, or like the last
    of its operations that others read.
    """
    chosen = set(graph.ops if only is None else only)
    graph, copies = _spread(graph, chosen)
    chosen |= copies
    home = {name: name for name in graph.ops}  # the operation that computes it now
    refused = set()
    for edge in [e for e in graph.edges if {e.source, e.sink} <= chosen and straight(graph, e)]:
        first, second = home[edge.source], home[edge.sink]
        asked = {name for name, _ in graph.results}
        if first == second or {first, second} <= asked:  # one name for two results would not do
            continue
        name, joined = join(graph, first, second)
        try:
            # What waits for nothing may be computed anywhere.
            None if first in copies else schedule(joined, "none")
        except ValueError:
            refused.add(f"{edge.source} and {edge.sink} stay apart: a path leads around")
            continue
        graph = joined
        home |= {op: name for op, now in home.items() if now in (first, second)}
    several = [op for op in graph.ops.values() if list(home.values()).count(op.name) > 1]
    words = [f"fused into {op.name}: {', '.join(_parts(op))}" for op in several]
    return graph, [*words, *sorted(refused)]


def _spread(graph: Graph, chosen: Collection[str]) -> tuple[Graph, set[str]]:
    """A copy of each constant for each operation that reads it, where that is; and the copies.

    They are fused into their readers, so that no constant is kept, or freed.
    """
    asked, copies = {name for name, _ in graph.results}, set()
    for edge in [e for e in graph.edges if e.sink in chosen and TRUE.same(e.when)]:
        source, sink = graph.ops[edge.source], graph.ops[edge.sink]
        constant = source.kind == "constant" and not source.domain and edge.source in chosen
        if constant and sink.run and sink.kind != "host" and edge.source not in asked:
            name = f"{source.name}_of_{sink.name}_{edge.input}"
            copy = dataclasses.replace(source, name=name, domain=sink.domain)
            new = dataclasses.replace(edge, source=name, index=sink.domain.symbols)
            edges = tuple(new if other is edge else other for other in graph.edges)
            graph = graph.replace(ops={name: copy, **graph.ops}, edges=edges)
            copies.add(name)
    return remove_dead(graph), copies


def straight(graph: Graph, edge: Edge) -> bool:
    """Is a value handed on at the same point, by one operation to another that runs there?"""
    sink, source = graph.ops[edge.sink], graph.ops[edge.source]
    alike = sink.domain == source.domain
    # A run looks for inputs and for calls of the host by their kind.
    joins = sink.run and source.run and not {"host", "input"} & {sink.kind, source.kind}
    return alike and bool(joins) and TRUE.same(edge.when) and _here(graph, edge)


def _here(graph: Graph, edge: Edge) -> bool:
    return structure(edge.index) == structure(graph.ops[edge.source].domain.symbols)


def _parts(op: Op) -> tuple[str, ...]:
    return op.params["ops"] if op.kind == "fused" else (op.name,)


def join(graph: Graph, first: str, second: str) -> tuple[str, Graph]:
    """The graph with one operation in place of two, and its name; the second reads the first."""
    pair = (graph.ops[first], graph.ops[second])
    inside = [e for e in graph.inputs(second) if e.source == first and _here(graph, e)]
    outside = [e for op in pair for e in graph.inputs(op.name) if e not in inside]
    readers = [e for e in graph.edges if e.source in (first, second) and e not in inside]
    asked = [op for op in pair if op.name in {name for name, _ in graph.results}]
    needed = [(op.name, k) for op in asked for k in range(len(op.outputs))]
    needed = list(dict.fromkeys([*needed, *(e.tensor for e in readers)]))
    title = asked[0].name if asked else second if second in dict(needed) else first
    alike = {e: dataclasses.replace(e, sink=title, input=0) for e in outside}
    reads = list(dict.fromkeys(alike.values()))
    which = {e: reads.index(same) for e, same in alike.items()}
    outputs = tuple(graph.ops[name].outputs[k] for name, k in needed)
    params = {"ops": (*_parts(pair[0]), *_parts(pair[1]))}
    op = Op(title, "fused", pair[1].domain, outputs, _run(graph, pair, which, needed), params)
    edges = [dataclasses.replace(e, input=k) for k, e in enumerate(reads)]
    place = {tensor: (title, k) for k, tensor in enumerate(needed)}
    new = {first: [], second: [(op, edges)]}
    return title, replaced(graph, new, lambda edge: renamed(edge, place))


def _run(
    graph: Graph, pair: tuple[Op, Op], which: Mapping[Edge, int], needed: list[Output]
) -> Callable[..., tuple[Any, ...]]:
    """Run both operations in one; `which` input is for what, and everything else is handed on."""

    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        values: dict[Output, Any] = {}
        for op in pair:
            assert op.run is not None
            given = [
                inputs[which[e]] if e in which else values[e.source, e.output]
                for e in graph.inputs(op.name)
            ]
            values |= {(op.name, k): value for k, value in enumerate(op.run(env, *given))}
        return tuple(values[tensor] for tensor in needed)

    return run
