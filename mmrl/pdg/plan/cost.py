"""Count what a run takes without computing it: bytes alive, operations, floating-point operations.

The bytes are those of every value from the operation that makes it to its last reader, at each
event of the run, as the interpreter holds them: a merge copies nothing unless it is read by slices
along one dimension, because those are kept in one array, and an operation that is the last to read
a value may write over it. Temporary arrays inside of an operation are XLA's, and not counted.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mmrl.pdg.build.graph import Graph, Output, Point
from mmrl.pdg.build.indexing import largest_number
from mmrl.pdg.passes.choose import Cost, count, operations
from mmrl.pdg.plan.account import Read, ReadTable, nbytes
from mmrl.pdg.plan.code import Body, Event, trace
from mmrl.pdg.plan.frees import donations
from mmrl.pdg.schedule import Schedule

MOST = 200_000
"""Runs of operations, and values that they read, that are followed; longer runs are continued."""


def cost(schedule: Schedule, loops: Body, bounds: Mapping[str, int]) -> Cost:
    """Return the cost of a run; `loops` are those of the schedule."""
    graph = schedule.graph
    return Cost(peak(schedule, loops, bounds), operations(graph, bounds), flops(graph, bounds))


def peak(schedule: Schedule, loops: Body, bounds: Mapping[str, int]) -> int:
    """Return the most bytes alive at once.

    If a run has more than `MOST` steps, the outermost dimension is cut to sizes beyond every number
    in its indices, and the peak is continued along the polynomial of degree 1 or 2 through them.
    Where there is none, the sizes double.
    """
    graph, sizes = schedule.graph, dict(bounds)
    outermost = next(iter(graph.bounds), None)
    if outermost is None or _steps(graph, sizes) <= MOST:
        return _followed(schedule, loops, sizes)
    size, step = sizes[outermost], max(1, _reach(graph, outermost))
    at = functools.cache(lambda size: _followed(schedule, loops, sizes | {outermost: size}))
    first = 2 + step + (size - 2) % step  # then the same remainder as `size`, by any tile
    while first + 3 * step < size:
        a, b, c = (at(first + k * step) for k in range(3))
        slope, bend, n = b - a, c - 2 * b + a, (size - first) // step
        if bend == 0 or at(first + 3 * step) - 3 * c + 3 * b - a == 0:
            return a + n * slope + n * (n - 1) // 2 * bend
        first += first // step * step
    return at(size)


def _steps(graph: Graph, bounds: Mapping[str, int]) -> int:
    """The number of points of all operations, and of the values that they read."""
    reads = ReadTable(graph, bounds).reads
    each = {name: 1 + sum(math.prod(read.widths) for read in reads[name]) for name in graph.ops}
    return sum(count(op, bounds) * each[name] for name, op in graph.ops.items())


def _followed(schedule: Schedule, loops: Body, sizes: Mapping[str, int]) -> int:
    """The most bytes alive at once, by following every operation."""
    return int(timeline(schedule, trace(loops, **sizes), sizes).max(initial=0))


def _reach(graph: Graph, bound: str) -> int:
    """The largest number in an expression with a bound or with a dimension of that bound."""
    dims = [dim for op in graph.ops.values() for dim in op.domain]
    names = {bound} | {dim.name for dim in dims if bound in dim.bound.symbols()}
    exprs = [dim.bound for dim in dims] + [op.domain.when for op in graph.ops.values()]
    exprs += [part for edge in graph.edges for part in (*edge.index, edge.when)]
    return max((largest_number(e) for e in exprs if names & e.symbols()), default=0)


Value = tuple[Output, Point]


def timeline(schedule: Schedule, events: Sequence[Event], bounds: Mapping[str, int]) -> np.ndarray:
    """Return the bytes alive during each operation of a run; results stay to its end."""
    graph, table = schedule.graph, ReadTable(schedule.graph, bounds)
    donated = set(donations(schedule))
    root: dict[Value, Value] = {}
    last: dict[Value, int] = {}  # the last use of each value under its own name
    begin: dict[Value, int] = {}
    gives: list[tuple[int, Value]] = []
    runs = [(str(name), point) for kind, name, point in events if kind == "run"]
    for now, (name, point) in enumerate(runs):
        read = [(each.edge, value) for each in table.reads[name] for value in _values(each, point)]
        read = [(edge, value) for edge, value in read if value in root]
        last |= {value: now for _, value in read}
        made = [(tensor, point) for tensor in table.outputs[name]]
        last |= dict.fromkeys(made, now)
        if graph.ops[name].run is None and len(table.sliced[name, 0]) != 1:
            root[made[0]] = root[read[0][1]]
            continue
        gives += [(now, v) for e, v in read if e in donated and len(table.sliced[v[0]]) != 1]
        root |= {value: value for value in made}
        begin |= dict.fromkeys(made, now)
    last |= {value: len(runs) for value in root if value[0] in graph.results}
    holders: dict[Value, list[Value]] = {}
    for value, place in root.items():
        holders.setdefault(place, []).append(value)
    end = {place: max(last[value] for value in names) for place, names in holders.items()}
    for now, value in gives:  # what the operation writes takes the place of what it reads
        others = (last[other] for other in holders[root[value]] if other != value)
        if last[value] == now and all(each < now for each in others):
            end[root[value]] = now - 1
    size = {tensor: nbytes(kind) for tensor, kind in table.types().items()}
    steps = np.zeros(len(runs) + 2, np.int64)
    for value, now in begin.items():
        steps[now] += size[value[0]]
        steps[end[value] + 1] -= size[value[0]]
    return np.cumsum(steps)[: len(runs)]


def _values(read: Read, point: Point) -> Iterable[Value]:
    if not read.exists(point):
        return ()
    axes = (part if isinstance(part, range) else (part,) for part in read.index(point))
    return ((read.tensor, at) for at in itertools.product(*axes))


def sizes(graph: Graph, bounds: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes that one run of each operation reads and writes."""
    table = ReadTable(graph, bounds)
    size = {tensor: nbytes(kind) for tensor, kind in table.types().items()}
    return {
        name: sum(size[read.tensor] * math.prod(read.widths) for read in table.reads[name])
        + sum(size[tensor] for tensor in table.outputs[name])
        for name, op in graph.ops.items()
        if op.run is not None
    }


def flops(graph: Graph, bounds: Mapping[str, int]) -> int:
    """Return the floating-point operations of a run, by the primitives of each operation."""
    table = ReadTable(graph, bounds)
    types = table.types()
    found = 0
    for name, op in graph.ops.items():
        if op.run is None or op.kind in ("input", "host", "constant"):
            continue
        values = []
        for read in table.reads[name]:
            lead = functools.partial(_led, read.widths)
            values.append(jax.tree.map(lead, types[read.tensor]))
        here = dict.fromkeys(op.domain.names, jax.ShapeDtypeStruct((), np.int32))

        def run(point: Any, values: Any, op: Any = op) -> Any:
            return op.run({**table.bounds, **point}, *values)

        found += count(op, bounds) * work(jax.make_jaxpr(run)(here, values).jaxpr)
    return found


def _led(lead: Sequence[int], x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype)


def work(jaxpr: Any) -> int:
    """Return the scalar operations of a jaxpr: 2 m n k of a product, else one for each number.

    A `while` counts as one turn, and a `cond` as its longest branch.
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
        else:
            found += out
    return found


def _inner(params: Mapping[str, Any]) -> list[Any]:
    """The jaxprs in an equation's parameters."""
    found = []
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            each = getattr(each, "jaxpr", each)
            if hasattr(each, "eqns"):
                found.append(each)
    return found
