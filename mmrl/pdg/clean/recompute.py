"""Recomputation: repeat an operation in its gradient instead of keeping its residuals.

    y[t], r[t] = f(x[t]); dx[t] = g(r[t], dy[t])    ↦    y[t] = f(x[t]); dx[t] = g(x[t], dy[t])

By default, the residuals r occupy memory from the forward pass f to the backward pass g. This pass
frees them at the cost of time: g reads the arguments of f and calls f again. Apply it before
passes that vectorize or tile, because operations that these have changed are not recomputed.
"""

import dataclasses
from collections.abc import Collection

from mmrl.pdg.build.derivative import Forward, PullBack, guard
from mmrl.pdg.build.expr import Sym
from mmrl.pdg.build.graph import Graph, Op
from mmrl.pdg.clean.rewrite import NewOp, remove_dead, replace_ops


def ops_with_residuals(graph: Graph) -> list[str]:
    """Return the operations that store residuals by default, and that `recompute` may change."""
    pairs = [(_forward(graph, op), op.run) for op in graph.ops.values()]
    names = [name for name, run in pairs if name and isinstance(run, PullBack) and not run.explicit]
    return list(dict.fromkeys(names))


def drop_idle(graph: Graph) -> Graph:
    """Remove forward passes that only a single gradient reads, such as the forward pass of a loss.

    The gradient then calls the function itself. The function still runs only once, but stores no
    residuals.
    """
    results = {name for name, _ in graph.results}
    forward = {op.name: name for op in graph.ops.values() if (name := _forward(graph, op))}
    for name in dict.fromkeys(forward.values()):
        readers = {edge.sink for edge in graph.readers(name)}
        if name not in results and len(readers) == 1 and forward.get(*readers) == name:
            graph, _ = recompute(graph, [name])
    return graph


def recompute(graph: Graph, only: Collection[str] | None = None) -> tuple[Graph, list[str]]:
    """Recompute the residuals of some operations in their gradients.

    `only` names these operations; by default, they are those that `ops_with_residuals`
    returns. Returns the new graph, and sentences that describe the changes.
    """
    selection = set(ops_with_residuals(graph) if only is None else only)
    pairs = [(op, name) for op in graph.ops.values() if (name := _forward(graph, op)) in selection]
    replacements = {op.name: [_again(graph, op, str(name))] for op, name in pairs}
    graph = replace_ops(graph, replacements)
    names = list(dict.fromkeys(str(name) for _, name in pairs))
    for name in names:
        graph = _without_residuals(graph, name)
    graph = remove_dead(graph)
    words = [f"the gradient of {name} recomputes {name}" for name in names]
    return graph, words + [f"{name} stores no residuals" for name in sorted(selection - {*names})]


def _forward(graph: Graph, op: Op) -> str | None:
    """Return the operation whose residuals a gradient reads, or None if a pass changed either."""
    if not isinstance(op.run, PullBack) or not op.run.residuals:
        return None
    source = graph.inputs(op.name)[len(op.run.argument_positions)].source
    run = graph.ops[source].run
    while isinstance(run, Forward) and run is not op.run.derivative.op.run:
        run = run.derivative.op.run
    return source if run is op.run.derivative.op.run else None


def _again(graph: Graph, op: Op, name: str) -> NewOp:
    """Return a gradient that reads the operation's arguments instead of its residuals."""
    back, reads = op.run, graph.inputs(op.name)
    assert isinstance(back, PullBack)
    cotangents = reads[len(back.argument_positions) + len(back.residual_outputs) :]
    bounds = [Sym(bound) for bound in graph.bounds]
    (new,) = PullBack.parts(back.derivative, [back.wrt], (), (), bounds, back.explicit)
    arguments = [edge for edge in graph.inputs(name) if edge.input in new.argument_positions]
    edges = [
        dataclasses.replace(edge, sink=op.name, input=k)
        for k, edge in enumerate([*arguments, *cotangents])
    ]
    return dataclasses.replace(op, run=new, params={**op.params, **guard(new)}), edges


def _without_residuals(graph: Graph, name: str) -> Graph:
    """Remove the residuals of an operation if no other gradient reads them."""
    op = graph.ops[name]
    if not isinstance(op.run, Forward):
        return graph
    plain = op.run.derivative.op
    if any(edge.output >= len(plain.outputs) for edge in graph.readers(name)):
        return graph
    new = dataclasses.replace(op, run=plain.run, outputs=plain.outputs, params=plain.params)
    return _without_residuals(graph.replace(ops={**graph.ops, name: new}), name)
