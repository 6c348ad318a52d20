"""Estimated cost of a run: bytes alive, operations, and floating-point operations.

A value is alive from the operation that computes it to its last reader, as in the interpreter
(`alive`). Temporary arrays inside an operation are managed by XLA and not counted.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mmrl.pdg.build.derivative import work
from mmrl.pdg.build.graph import Graph, Op
from mmrl.pdg.passes.choose import Cost, count, operations
from mmrl.pdg.plan.account import ReadTable
from mmrl.pdg.plan.alive import Peak


def cost(graph: Graph, bounds: Mapping[str, int], most: Peak) -> Cost:
    """Return the bytes alive, the operations and the floating-point operations of a run."""
    return Cost(most.bytes, operations(graph, bounds), flops(graph, bounds), exact=most.exact)


def flops(graph: Graph, bounds: Mapping[str, int]) -> int:
    """Return the floating-point operations of a run, counted in the jaxpr of each operation."""
    table, uncounted = ReadTable(graph, bounds), ("input", "host", "constant")
    ops = [op for op in graph.ops.values() if op.run is not None and op.kind not in uncounted]
    return sum(count(op, bounds) * work(jaxpr_of(table, op)) for op in ops)


def jaxpr_of(table: ReadTable, op: Op) -> Any:
    """Return the jaxpr of an operation; its first arguments are the counters, sorted by name."""
    types, values = table.types, []
    for read in table.reads[op.name]:
        values.append(jax.tree.map(functools.partial(_with_axes, read.widths), types[read.tensor]))
    here = dict.fromkeys(op.domain.names, jax.ShapeDtypeStruct((), np.int32))

    def run(point: Any, values: Any) -> Any:
        assert op.run is not None
        return op.run({**table.bounds, **point}, *values)

    return jax.make_jaxpr(run)(here, values).jaxpr


def _with_axes(lead: Sequence[int], x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype)
