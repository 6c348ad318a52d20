"""Graph validation: all inputs and reads are defined, and there is no cycle.  §5.1"""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.expr import FALSE, TRUE, Const, Expr, Slice
from mmrl.pdg.build.graph import Domain, Edge, Graph, Op, Point
from mmrl.pdg.build.graph import reads as points_read
from mmrl.pdg.build.indexing import largest_number, roomy, stays, within
from mmrl.pdg.build.sets import has_order, is_grid, never, simplify

Instance = tuple[str, Point]  # operation at a point
Needs = list[tuple[Edge, Instance]]
_FEW = 12  # maximum bound in the first run that is searched for a cycle


def validate(graph: Graph) -> Graph:
    """Return the graph if it is valid. Raises `ValueError` with the location of the first error.

    The checks assume that bounds exceed every constant in the program's indices.
    """
    for op in graph.ops.values():
        _check_inputs(graph, op)
    for edge in graph.edges:
        _check_read(graph, edge)
    for name, _ in graph.results:
        _check_result(graph.ops[name])
    check_cycles(graph)
    return graph


def _check_inputs(graph: Graph, op: Op) -> None:
    edges = graph.inputs(op.name)
    if op.kind == "merge":
        return _check_cases(op, edges)
    if [edge.input for edge in edges] != list(range(len(edges))):
        raise ValueError(
            f"`graph`: the operation `{op.name}` needs one edge for each argument, got "
            f"{list(map(str, edges))}; add the missing edges"
        )
    if op.run is None:
        raise ValueError(
            f"`graph`: the operation `{op.name}` of kind `{op.kind}` must have a function `run`, "
            f"got None"
        )
    lacking, room = ~op.needs, roomy(op.domain, op.needs)
    if not TRUE.same(op.needs) and not never(lacking, room):
        raise ValueError(
            f"`{edges[0]}` reads too little for `{op.kind}` where {simplify(lacking, room)}: use a "
            f"longer slice such as x[0:t + 1], or exclude these points, as in x[0:t][t > 0]"
        )
    return None


def _check_cases(op: Op, edges: Sequence[Edge]) -> None:
    """Check that exactly one case of a branching definition holds at every point."""
    rest: Expr = TRUE
    for edge in edges:
        if not never(edge.when & ~rest, op.domain):
            both = simplify(edge.when & ~rest, op.domain)
            raise ValueError(
                f"`{op.name}{op.domain}` is defined twice where {both}: make the cases exclusive"
            )
        rest = rest & ~edge.when
    if not never(rest, roomy(op.domain, rest)):
        where = simplify(rest, op.domain) if edges else TRUE
        at = "anywhere" if where.same(TRUE) else f"where {where}"
        raise ValueError(f"`{op.name}{op.domain}` is not defined {at}: add a case")


def _check_result(op: Op) -> None:
    """Check that the points of a result form a grid, which an array requires."""
    if not is_grid(op.domain):
        where = ", ".join(op.domain.names)
        raise ValueError(
            f"`results` must be defined on a full grid, but `{op.name}[{where}]` is defined only "
            f"where {op.domain.when}. Define the missing points in a new `Program.tensor`, as in "
            f"`z[{where}] = {op.name}; z[{where}] = 0.0`"
        )


def _check_read(graph: Graph, edge: Edge) -> None:
    if edge.source not in graph.ops or edge.sink not in graph.ops:
        raise ValueError(
            f"`{edge}` must connect two operations of the graph, but one of them is missing"
        )
    sink, source = graph.ops[edge.sink], graph.ops[edge.source]
    if len(edge.index) != len(source.domain):
        raise ValueError(
            f"`{edge}` needs an index for each of {list(source.domain.names)}, got "
            f"{len(edge.index)} indices"
        )
    if edge.output >= len(source.outputs):
        raise ValueError(
            f"`{edge}` reads output {edge.output}, but `{source.name}` has only "
            f"{len(source.outputs)} outputs, counted from 0"
        )
    inside = within(source.domain, edge.index, source.name)
    wrong, sizes = edge.when & ~inside, [dim.bound for dim in source.domain]
    room = roomy(sink.domain, inside, *edge.index, *sizes)
    if not never(wrong, room):
        raise ValueError(
            f"`{edge}` reads `{source.name}` outside its domain {source.domain}, at the points "
            f"{simplify(wrong, room)} of `{sink.name}`. Define a separate case for these points"
        )


def check_bounds(graph: Graph, bounds: Mapping[str, int]) -> dict[str, int]:
    """Check that the bounds fit the program, and return them as integers.

    Raises `ValueError` for the same reasons as `Graph.sizes`, and if the bounds are too small for
    the reads. `validate` assumes that bounds exceed the constants in an index; this function
    evaluates the index at the actual bounds.
    """
    sizes = graph.sizes(bounds)
    for op in graph.ops.values():
        edges = graph.inputs(op.name)
        for edge in edges:
            inside = stays(graph.ops[edge.source].domain, edge.index)
            _try_out(op.domain.restrict(edge.when), inside, sizes, str(edge))
        if op.run is None:
            cases = functools.reduce(operator.or_, (edge.when for edge in edges), FALSE)
            _try_out(op.domain, cases, sizes, op.name)
        _try_out(op.domain, op.needs, sizes, op.name)
    return sizes


fitting = check_bounds  # former name, which can still be imported


def run_env(
    graph: Graph, bounds: Mapping[str, int], key: Any, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Check the random key and the inputs of a run, and return them as entries of `env`.

    Raises `ValueError` if an input is missing or unknown, or has the wrong structure, shape or
    dtype, and if the key is a number.
    """
    if isinstance(key, int | float):
        raise ValueError(
            f"`key` must be a random key, got {key}: write `jax.random.key({int(key)})`"
        )
    declarations = {op.params["name"]: op for op in graph.ops.values() if op.kind == "input"}
    for name in [*inputs, *declarations]:
        if name not in declarations or name not in inputs:
            own = ", ".join(declarations) or "none"
            problem = "lacks the input" if name in declarations else "received the unknown input"
            raise ValueError(f"the run {problem} `{name}`; the program's inputs: {own}")
    values = {name: _fits(op, bounds, inputs[name]) for name, op in declarations.items()}
    return ({} if key is None else {"key": key}) | ({"inputs": values} if values else {})


def _fits(op: Op, bounds: Mapping[str, int], value: Any) -> Any:
    """Convert the value of an input to arrays of its declared types."""
    name, kind, domain = (op.params[field] for field in ("name", "like", "domain"))
    axes = tuple(int(dim.bound.evaluate(bounds)) for dim in domain)
    if jax.tree.structure(value) != jax.tree.structure(kind):
        want, got = jax.tree.structure(kind), jax.tree.structure(value)
        raise ValueError(f"the input `{name}` must be a {want}, got a {got}")

    def fit(kind: Any, x: Any) -> Any:
        shape = axes + kind.shape
        if jnp.shape(x) != shape:
            along = f": {kind.shape} at each [{', '.join(domain.names)}]" if axes else ""
            raise ValueError(
                f"the input `{name}` must have the shape {shape}{along}; got {jnp.shape(x)}"
            )
        if not jnp.can_cast(jnp.result_type(x), kind.dtype, "same_kind"):
            raise ValueError(f"the input `{name}` must be {kind.dtype}, got {jnp.result_type(x)}")
        return jnp.asarray(x, kind.dtype)

    return jax.tree.map(fit, kind, value)


def _try_out(domain: Domain, condition: Expr, sizes: Mapping[str, int], what: str) -> None:
    """Raise `ValueError` if a condition is false at a point of a domain for the given bounds."""
    names = condition.symbols() | domain.when.symbols()
    # Only dimensions that occur in a condition are enumerated.
    dims = [d if d.name in names else dataclasses.replace(d, bound=Const(1)) for d in domain]
    bounds = names.union(*(dim.bound.symbols() for dim in dims)) & set(sizes)
    large = min((sizes[name] for name in bounds), default=0) > largest_number(condition)
    if large or TRUE.same(condition):
        return
    some = dataclasses.replace(domain, dims=tuple(dims))
    if not all(bool(condition.evaluate(some.env(p, sizes))) for p in some.points(sizes)):
        raise ValueError(f"`bounds` are too small for `{what}`, got {dict(sizes)}: enlarge them")


def check_cycles(graph: Graph) -> None:
    """Raise `ValueError` if a point depends on itself.

    If isl finds a schedule for all bounds, there is no cycle. Otherwise, two small runs are
    searched for a cycle. Their bounds exceed every constant in the program, up to a maximum.
    """
    if not has_order(graph):
        exprs = [part for edge in graph.edges for part in (*edge.index, edge.when)]
        least = min(1 + max(map(largest_number, exprs), default=0), _FEW)
        for size in (least, least + 1):
            _check_run(graph, dict.fromkeys(graph.bounds, size))


def _check_run(graph: Graph, bounds: Mapping[str, int]) -> None:
    pending = {
        (op.name, point): needs(graph, op.name, point, bounds)
        for op in graph.ops.values()
        for point in op.domain.points(bounds)
    }
    while ready := [x for x, reads in pending.items() if not any(n in pending for _, n in reads)]:
        for instance in ready:
            del pending[instance]
    for start in pending:
        if path := _path(pending, start):
            raise ValueError(describe_cycle(graph, path, start[1], bounds))


def needs(graph: Graph, name: str, point: Point, bounds: Mapping[str, int]) -> Needs:
    """Return every value that an operation reads at a point, as pairs (edge, instance)."""
    env = graph.ops[name].domain.env(point, bounds)
    edges = [edge for edge in graph.inputs(name) if bool(edge.when.evaluate(env))]
    return [(edge, (edge.source, at)) for edge in edges for at in points_read(edge.index, env)]


def _path(
    reads: Mapping[Instance, Sequence[tuple[Edge, Instance]]], start: Instance
) -> list[tuple[Edge, Point]]:
    """Return a shortest cycle through an instance, as pairs (edge, point that the edge reads)."""
    ready: list[tuple[Instance, list[tuple[Edge, Point]]]] = [(start, [])]
    visited: set[Instance] = set()
    while ready:
        sink, path = ready.pop(0)
        for edge, source in reads.get(sink, ()):
            further = [*path, (edge, source[1])]
            if source == start:
                return further
            if source not in visited:
                visited.add(source)
                ready.append((source, further))
    return []


def describe_cycle(
    graph: Graph, path: Sequence[tuple[Edge, Point]], start: Point, bounds: Mapping[str, int]
) -> str:
    """Return a sentence such as "x[t] depends on itself through y[t + 1]", and an example."""
    domain = graph.ops[path[0][0].sink].domain
    at: dict[str, Expr] = dict(zip(domain.names, domain.symbols, strict=True))
    through = []
    for edge, point in path:
        index = [
            Const(x) if isinstance(part, Slice) else part.substitute(at)
            for part, x in zip(edge.index, point, strict=True)
        ]
        at = dict(zip(graph.ops[edge.source].domain.names, index, strict=True))
        through.append(f"{edge.source}[{', '.join(map(str, index))}]")
    first = f"{path[0][0].sink}[{', '.join(domain.names)}]"
    where = ", ".join(f"{k} = {v}" for k, v in domain.env(start, bounds).items())
    chain = ", then ".join(through[:-1]) or "its own value"
    back = any(graph.ops[edge.source].kind == "vjp" for edge, _ in path)
    remedy = ": `detach` each read whose gradient you do not need" if back else ""
    return f"`{first}` depends on itself through {chain} (for instance at {where}){remedy}"
