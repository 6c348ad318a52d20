"""Folds of all that follows, x[t:T], as loops that run backward, of which lift makes scans.

    g[t] = Σ_k γᵏ x[t + k]      ↦      g[T - 1] = x[T - 1],  g[t] = x[t] + γ g[t + 1]

The left side reads T - t points at each t, O(T²) in all; the right side reads two. It is right
because the fold is a homomorphism of lists: a return is a monoid. (The paper's code matches sums
and prefix sums, §5.2, and names discounted ones as still to do.)
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from mmrl.pdg.expr import TRUE, Expr, Slice
from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.passes.access import Block

Combine = Callable[[Any, Any, Mapping[str, Any]], Any]
FOLDS: dict[str, Combine] = {
    "sum": lambda x, rest, params: x + rest,
    "max": lambda x, rest, params: jnp.maximum(x, rest),
    "discounted_sum": lambda x, rest, params: x + params["gamma"] * rest,
}


def unfold(graph: Graph, block: Block) -> tuple[Graph, list[str]]:
    """The graph in which folds of x[…, d:D] are loops over d, and the names of these folds."""
    found = [op.name for op in graph.ops.values() if _is_suffix_fold(graph, op, block)]
    ops, edges = dict(graph.ops), [edge for edge in graph.edges if edge.sink not in found]
    for name in found:
        made, reads = _loop(graph, name, block)
        ops |= {op.name: op for op in made}
        edges += reads
    return graph.replace(ops=ops, edges=tuple(edges)), found


def _is_suffix_fold(graph: Graph, op: Op, block: Block) -> bool:
    edges = graph.inputs(op.name)
    if op.kind not in FOLDS or op.params.get("axis", 0) != 0 or len(edges) != 1:
        return False
    source = graph.ops[edges[0].source]
    total = TRUE.same(op.domain.when) and TRUE.same(source.domain.when)
    suffix = Slice(block.symbol, block.bound)
    # A sum of flags is a number: there one fold is not the type of the other.
    same = source.outputs[edges[0].output] == op.outputs[0]
    return total and same and edges[0].slices == (suffix,) and block.name in op.domain.names


def _loop(graph: Graph, name: str, block: Block) -> tuple[list[Op], list[Edge]]:
    op, (edge,) = graph.ops[name], graph.inputs(name)
    symbol, end = block.symbol, block.bound - 1
    here: tuple[Expr, ...] = tuple(symbol if part in edge.slices else part for part in edge.index)
    after = tuple(s + 1 if s.same(symbol) else s for s in op.domain.symbols)
    earlier: Any = symbol < end
    last: Any = symbol == end
    more, fold, params = f"{name}_more", FOLDS[op.kind], op.params

    def run(env: Mapping[str, Any], x: Any, rest: Any) -> tuple[Any, ...]:
        return (fold(x, rest, params),)

    made = [
        Op(more, "fn", op.domain.restrict(earlier), op.outputs, run, params),
        Op(name, "merge", op.domain, op.outputs, None, {}),
    ]
    reads = [
        Edge(more, edge.source, here, output=edge.output),
        Edge(more, name, after, input=1),
        Edge(name, edge.source, here, last, output=edge.output),
        Edge(name, more, op.domain.symbols, earlier),
    ]
    return made, reads
