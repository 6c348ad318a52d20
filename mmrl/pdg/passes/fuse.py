"""Fuse: operations at the same points that hand values straight on become one.  §5.4

    y[t] = f(x[t]); z[t] = g(y[t])      ↦      z[t] = g(f(x[t]))

Fewer operations to schedule, to launch and to keep, and XLA sees them together. Two are not fused
if something that the second waits for waits for the first: the pair would wait for itself.
Branching definitions stay apart, since they copy and compute nothing.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from mmrl.pdg.expr import TRUE
from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.passes.compose import Region, Tensor, region
from mmrl.pdg.passes.cycles import components, level, shift


def fuse(graph: Graph, only: Collection[str] | None = None) -> tuple[Graph, list[str]]:
    """The graph with all regions fused, and which operations each one holds.

    `only` limits it to some operations. A region is called like the result in it, or like the last
    of its operations that others read.
    """
    groups = {name: name for name in graph.ops}  # union-find: each points towards its group's name

    def find(name: str) -> str:
        while groups[name] != name:
            name = groups[name]
        return name

    words, refused = [], set()
    for edge in _straight(graph, only):
        a, b = find(edge.source), find(edge.sink)
        asked = {find(op) for op, _ in graph.results}
        if a == b or {a, b} <= asked:  # one name for two results would not do
            continue
        if _waits(graph, {op for op in graph.ops if find(op) in (a, b)}, edge, find):
            refused.add(f"{edge.source} and {edge.sink} stay apart: a path leads around")
            continue
        groups[a] = b
    regions: dict[str, list[str]] = {}
    for name in graph.ops:
        regions.setdefault(find(name), []).append(name)
    for names in regions.values():
        if len(names) > 1:
            graph, text = _fused(graph, names)
            words.append(text)
    return graph, [*words, *sorted(refused)]


def _straight(graph: Graph, only: Collection[str] | None) -> list[Edge]:
    """The edges along which a value is handed on at the same point."""
    found = []
    for edge in graph.edges:
        sink, source = graph.ops[edge.sink], graph.ops[edge.source]
        alike = sink.domain.names == source.domain.names and sink.domain.when.same(
            source.domain.when
        )
        same = all(p.same(s) for p, s in zip(edge.index, source.domain.symbols, strict=True))
        chosen = only is None or (edge.sink in only and edge.source in only)
        if alike and same and chosen and sink.run and source.run and TRUE.same(edge.when):
            found.append(edge)
    return found


def _waits(graph: Graph, group: set[str], edge: Edge, find) -> bool:
    """Whether one of the group would read another, or a path come back in, at no earlier point."""
    domain = graph.ops[edge.sink].domain
    edges = _forward(graph, domain.names[-1]) if len(domain) else list(graph.edges)
    if any({e.sink, e.source} <= group and not _here(graph, e) for e in edges):
        return True
    members: dict[str, set[str]] = {}
    for name in graph.ops:
        members.setdefault(find(name), set()).add(name)
    below: dict[str, set[str]] = {name: set() for name in graph.ops}
    for e in edges:
        below[e.sink].add(e.source)
    for names in members.values():
        if len(names) > 1:  # what is fused already waits for all that any of it waits for
            for name in names:
                below[name] |= names
    seen: set[str] = set()
    front = {source for op in group for source in below[op]} - group
    while front:
        if front & group:
            return True
        seen |= front
        front = {source for op in front for source in below[op]} - seen
    return False


def _forward(graph: Graph, name: str) -> list[Edge]:
    """The edges that do not surely lead to an earlier point, along d or outside it."""
    edges = level(graph, name)
    kept = []
    for component in components(list(graph.ops), edges):
        inside = [e for e in edges if e.sink in component and e.source in component]
        steps = {e: _step(graph, e, name) for e in inside}
        sure = all(step is not None and step <= 0 for step in steps.values())
        kept += [e for e in inside if not (sure and steps[e])]
    crossing = {id(e) for e in kept}
    place = {op: k for k, c in enumerate(components(list(graph.ops), edges)) for op in c}
    return kept + [e for e in edges if id(e) not in crossing and place[e.sink] != place[e.source]]


def _step(graph: Graph, edge: Edge, name: str) -> int | None:
    """How far along d an edge leads; None if that is not one number."""
    if name not in graph.ops[edge.sink].domain.names:
        return None
    for dim, part in zip(graph.ops[edge.source].domain, edge.index, strict=True):
        if dim.name == name:
            return shift(part, name)
    return None


def _fused(graph: Graph, names: list[str]) -> tuple[Graph, str]:
    """The graph with one operation in place of several."""
    inside = [e for e in graph.edges if e.sink in names and e.source in names and _here(graph, e)]
    body = region(graph, names, inside, ())
    last = body.ops[-1]
    readers = [e for e in graph.edges if e.source in names and e not in inside]
    asked = [op for op in body.ops if op in {result for result, _ in graph.results}]
    first = [(op, k) for op in asked for k in range(len(graph.ops[op].outputs))]
    needed: list[Tensor] = list(dict.fromkeys(first + [(e.source, e.output) for e in readers]))
    reads = list(dict.fromkeys((e.source, e.output, e.index, e.when) for e in body.outside))
    title = asked[0] if asked else last if last in {op for op, _ in needed} else needed[0][0]
    place = {tensor: k for k, tensor in enumerate(needed)}
    run = _run(
        body, needed, [reads.index((e.source, e.output, e.index, e.when)) for e in body.outside]
    )
    outputs = tuple(graph.ops[op].outputs[k] for op, k in needed)
    op = Op(title, "fused", graph.ops[last].domain, outputs, run, {"ops": body.ops})
    edges = [Edge(title, s, index, when, k, out) for k, (s, out, index, when) in enumerate(reads)]
    edges += [e for e in graph.edges if e.sink not in names]
    edges = [
        dataclasses.replace(e, source=title, output=place[e.source, e.output])
        if e.source in names
        else e
        for e in edges
    ]
    ops = {
        name: op if name == last else old
        for name, old in graph.ops.items()
        if name not in names or name == last
    }
    ops = {o.name: o for o in ops.values()}
    fused = graph.replace(ops=ops, edges=tuple(edges))
    return fused, f"fused into {title}: {', '.join(body.ops)}"


def _here(graph: Graph, edge: Edge) -> bool:
    symbols = graph.ops[edge.source].domain.symbols
    return all(part.same(symbol) for part, symbol in zip(edge.index, symbols, strict=True))


def _run(body: Region, needed: list[Tensor], which: list[int]):
    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        values = body.run(env, [inputs[k] for k in which], {})
        return tuple(values[tensor] for tensor in needed)

    return run
