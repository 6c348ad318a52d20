"""Graph cleanup passes: remove unused operations, and merge equal ones.

`remove_dead` removes operations that no result depends on, `fold` folds constants, `forward`
replaces reads of copies with reads of the original, and `share` merges common subexpressions.
`drop_idle` removes a forward pass if only its gradient reads it. All passes rewrite the graph with
`replace_ops`. `validate` checks that a graph is a valid program.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.derivative import plain
from mmrl.pdg.build.expr import TRUE, Slice
from mmrl.pdg.build.graph import Edge, Graph, Op, ragged
from mmrl.pdg.build.indexing import composes
from mmrl.pdg.build.ops import TABLE, plus
from mmrl.pdg.clean.recompute import drop_idle
from mmrl.pdg.clean.rewrite import NewOp as NewOp
from mmrl.pdg.clean.rewrite import compose, phi, redirect, remove_dead, replace_ops
from mmrl.pdg.clean.validate import validate


def clean(graph: Graph) -> Graph:
    """Remove everything that the results do not depend on, and return the validated graph.

    Raises `ValueError` for an invalid graph; see `validate`.
    """
    return validate(share(forward(drop_idle(share(fold(remove_dead(graph)))))))


def share(graph: Graph) -> Graph:
    """Merge operations that compute the same values; results keep their names.

    Among equal operations, the one that returns the most residuals for its gradient remains.
    """
    results = {name for name, _ in graph.results}
    while True:
        groups: dict[Any, list[str]] = {}
        for name in sorted(graph.ops, key=lambda name: name not in results):
            groups.setdefault(_signature(graph, graph.ops[name]), []).append(name)
        twins: dict[str, str] = {}
        richer: dict[str, Sequence[NewOp]] = {}
        for first, most, names in _alike(graph, groups.values()):
            twins |= dict.fromkeys((name for name in names if name not in results), first)
            if twins.get(most) == first:
                op = dataclasses.replace(graph.ops[most], name=first)
                richer[first] = [(op, graph.inputs(first))]
        if not twins:
            return graph
        place = {e.tensor: (twins[e.source], e.output) for e in graph.edges if e.source in twins}
        replacements = {**dict.fromkeys(twins, ()), **richer}
        graph = replace_ops(graph, replacements, lambda e, at=place: redirect(e, at))


def _alike(graph: Graph, groups: Iterable[list[str]]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (first, richest, others) for each set of equal operations.

    The richest operation returns the residuals of all of them. An operation with other residuals
    belongs to a different set.
    """
    for names in groups:
        extra = {name: plain(graph.ops[name])[1] for name in names}
        while names:
            most = max(names, key=lambda name: len(extra[name]))
            first, *others = [n for n in names if extra[most][: len(extra[n])] == extra[n]]
            yield first, most, others
            names = [name for name in names if name not in (first, *others)]


def forward(graph: Graph) -> Graph:
    """Remove copies; their readers read the source instead.

    A sum with a single term is a copy. So are 1 x, x / 1 and x - 0, which return x exactly,
    including NaN, infinities and -0. In floating point, x + 0 is not a copy, because -0 + 0 is 0.
    The product 0 x is never replaced by 0, because 0 · inf is NaN. Copies of slices and of ragged
    arrays are kept.
    """
    results = {name for name, _ in graph.results}
    for name in [name for name in graph.ops if name not in results]:
        op, inputs = graph.ops[name], graph.inputs(name)
        copies = op.kind == "read" or op.params.get("f") is plus or _is_identity(graph, op)
        if not copies or len(inputs) != 1 or inputs[0].slices or ragged(op.outputs):
            continue
        through = functools.partial(_through, graph, inputs[0])
        slices = [_sliced_dims(graph, edge) for edge in graph.readers(name)]
        if TRUE.same(op.needs) and all(composes(inputs[0].index, each) for each in slices):
            graph = replace_ops(graph, {name: ()}, through)
    return graph


def _sliced_dims(graph: Graph, edge: Edge) -> list[str]:
    return [name for name, part in phi(graph, edge).items() if isinstance(part, Slice)]


def _through(graph: Graph, copy: Edge, edge: Edge) -> Edge:
    return compose(graph, edge, copy) if edge.source == copy.sink else edge


def _is_identity(graph: Graph, op: Op) -> bool:
    """Return True if an operation returns its only input unchanged for all values."""
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
    """Replace operations of `ops.TABLE` by their value if all inputs are constants.

    The product 0 x remains unless x is also constant, because x may be infinite.
    """
    for name, op in graph.ops.items():
        sources = [graph.ops[edge.source] for edge in graph.inputs(name)]
        is_constant = all("value" in source.params and not source.domain for source in sources)
        if op.kind in TABLE and sources and is_constant:
            assert op.run is not None
            (value,) = op.run({}, *(source.params["value"] for source in sources))
            run = lambda env, value=value: (value,)  # noqa: E731
            value_op = dataclasses.replace(op, kind="constant", run=run, params={"value": value})
            graph = replace_ops(graph, {name: [(value_op, ())]})
    return graph


def _signature(graph: Graph, op: Op) -> Any:
    """Return a key that is equal for operations that compute the same values, except residuals.

    A random operation has a unique key.
    """
    if op.kind == "random":
        return op.name
    own, _ = plain(op)
    params = tuple(sorted((k, _mark(v)) for k, v in own.params.items()))
    inputs = frozenset(dataclasses.replace(edge, sink="") for edge in graph.inputs(op.name))
    outputs = tuple(str(leaf) for leaf in jax.tree.leaves(own.outputs))
    return op.kind, op.domain, params, inputs, outputs


def _mark(value: Any) -> str:
    """Return a string that identifies a parameter; functions and arrays compare by identity."""
    plain = isinstance(value, str | int | float | tuple | None) or hasattr(value, "same")
    return repr(value) if plain else f"id {id(value)}"
