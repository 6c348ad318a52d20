"""Estimated cost of a run: bytes alive, operations, and floating-point operations.

A value is counted from the operation that computes it to its last reader, as in the interpreter
(`alive`). Temporary arrays inside an operation are managed by XLA and not counted.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mmrl.pdg.build.graph import Graph, Op
from mmrl.pdg.passes.choose import Cost, count, operations
from mmrl.pdg.plan.account import ReadTable
from mmrl.pdg.plan.alive import Peak


def cost(graph: Graph, bounds: Mapping[str, int], most: Peak) -> Cost:
    """Return the bytes alive, the operations and the floating-point operations of a run."""
    return Cost(most.bytes, operations(graph, bounds), flops(graph, bounds), exact=most.exact)


def flops(graph: Graph, bounds: Mapping[str, int]) -> int:
    """Return the floating-point operations of a run, counted in the jaxpr of each operation."""
    table, without = ReadTable(graph, bounds), ("input", "host", "constant")
    counted = [op for op in graph.ops.values() if op.run is not None and op.kind not in without]
    return sum(count(op, bounds) * work(traced(table, op)) for op in counted)


def traced(table: ReadTable, op: Op) -> Any:
    """Return the jaxpr of an operation; its first arguments are the counters, sorted by name."""
    types, values = table.types, []
    for read in table.reads[op.name]:
        values.append(jax.tree.map(functools.partial(_led, read.widths), types[read.tensor]))
    here = dict.fromkeys(op.domain.names, jax.ShapeDtypeStruct((), np.int32))

    def run(point: Any, values: Any) -> Any:
        assert op.run is not None
        return op.run({**table.bounds, **point}, *values)

    return jax.make_jaxpr(run)(here, values).jaxpr


def _led(lead: Sequence[int], x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype)


def work(jaxpr: Any) -> int:
    """Return the number of scalar operations in a jaxpr.

    A product of an (m, k) and a (k, n) matrix counts as 2 m n k, and a convolution counts two per
    product of entries. Any other primitive counts one per value that it returns. A `while` counts
    as one iteration, and a `cond` as its most expensive branch.
    """
    found = 0
    for equation in jaxpr.eqns:
        inner = [work(each) for each in _inner(equation.params)]
        turns = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        out = sum(math.prod(v.aval.shape) for v in equation.outvars if hasattr(v.aval, "shape"))
        if inner:
            found += turns * (max(inner) if equation.primitive.name == "cond" else sum(inner))
        elif equation.primitive.name == "dot_general":
            (axes, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            found += 2 * out * math.prod(shape[axis] for axis in axes)
        elif equation.primitive.name == "conv_general_dilated":
            filters = equation.invars[1].aval.shape
            outputs = filters[equation.params["dimension_numbers"].rhs_spec[0]]
            found += 2 * out * math.prod(filters) // outputs
        else:
            found += out
    return found


def _inner(params: Mapping[str, Any]) -> list[Any]:
    """Return the jaxprs among an equation's parameters."""
    found = []
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            each = getattr(each, "jaxpr", each)
            if hasattr(each, "eqns"):
                found.append(each)
    return found
