"""Is the graph a program? Every input there, every read defined, nothing waits for itself.  §5.1"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import islpy as isl

from mmrl.pdg.domain import Domain, Point, conjuncts
from mmrl.pdg.domain import reads as points_read
from mmrl.pdg.expr import TRUE, Const, Expr, Slice
from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.indexing import roomy
from mmrl.pdg.polyhedra import never, new_context, outside, reads, simplify


def validate(graph: Graph) -> Graph:
    """The graph itself. Raises `ValueError` that names what is wrong and where.

    Bounds may be assumed to exceed every number in the program's indices.
    """
    for op in graph.ops.values():
        _check_inputs(graph, op)
    for edge in graph.edges:
        _check_read(graph, edge)
    check_cycles(graph)
    return graph


def _check_inputs(graph: Graph, op: Op) -> None:
    edges = graph.inputs(op.name)
    if op.kind == "merge":
        return _check_cases(op, edges)
    if [edge.input for edge in edges] != list(range(len(edges))):
        raise ValueError(
            f"`{op.name}` needs one edge for each argument, got {list(map(str, edges))}"
        )
    if op.run is None:
        raise ValueError(f"`{op.name}` of kind `{op.kind}` has no `run`")
    return None


def _check_cases(op: Op, edges: Sequence[Edge]) -> None:
    """Of a branching definition, one case holds at every point."""
    rest: Expr = TRUE
    for edge in edges:
        if not never(edge.when & ~rest, op.domain):
            both = simplify(edge.when & ~rest, op.domain)
            raise ValueError(f"`{op.name}{op.domain}` is defined twice where {both}")
        rest = rest & ~edge.when
    if not never(rest, roomy(op.domain, rest)):
        where = simplify(rest, op.domain) if edges else TRUE
        at = "anywhere" if where.same(TRUE) else f"where {where}"
        raise ValueError(f"`{op.name}{op.domain}` is not defined {at}: add a case")


def _check_read(graph: Graph, edge: Edge) -> None:
    if edge.source not in graph.ops or edge.sink not in graph.ops:
        raise ValueError(f"`{edge}` joins operations of which one is missing")
    sink, source = graph.ops[edge.sink], graph.ops[edge.source]
    if len(edge.index) != len(source.domain):
        raise ValueError(f"`{edge}` needs an index for each of {list(source.domain.names)}")
    if edge.output >= len(source.outputs):
        raise ValueError(f"`{edge}`: `{source.name}` has only {len(source.outputs)} outputs")
    wrong = outside(graph, edge, new_context())
    if wrong.is_empty():
        return
    sizes = [dim.bound for dim in source.domain]
    domain = roomy(sink.domain.restrict(edge.when), *edge.index, *sizes)
    bad = wrong.domain().intersect_params(_bounds_only(domain, graph.bounds, wrong.get_ctx()))
    if not bad.is_empty():
        raise ValueError(
            f"`{edge}` reads `{source.name}` where it is not defined, {source.domain}: "
            f"{bad.to_str()}; define those points as a case of their own"
        )


def _bounds_only(domain: Domain, bounds: Sequence[str], context: isl.Context) -> isl.Set:
    """The bounds for which a domain has points, by its conditions on bounds alone."""
    parts = [part.isl() for part in conjuncts(domain.when) if part.symbols() <= set(bounds)]
    text = " and ".join(parts) or "true"
    return isl.Set(f"[{', '.join(sorted(bounds))}] -> {{ : {text} }}", context=context)


def check_cycles(graph: Graph) -> None:
    """Raises `ValueError` if an instance waits for itself: "x[t] depends on itself through …".

    Dimension by dimension, as loops are distributed (Allen & Kennedy 1987): if no read in a
    component looks ahead (or none looks back), reads of strictly earlier (later) points close no
    cycle. What remains undecided is decided by the transitive closure of the reads.
    """
    _check_component(graph, list(graph.edges))


def _check_component(graph: Graph, edges: Sequence[Edge]) -> None:
    for group in components(edges):
        inside = [e for e in edges if e.sink in group and e.source in group]
        if not inside:
            continue
        rest = _without_carried(graph, group, inside)
        if rest is None:
            _check_closure(graph, inside)
        else:
            _check_component(graph, rest)


def _without_carried(graph: Graph, group: set[str], edges: Sequence[Edge]) -> list[Edge] | None:
    """The edges within one iteration of a loop around the group, None without one."""
    shared = [set(graph.ops[name].domain.names) for name in group]
    for name in sorted(
        set.intersection(*shared), key=lambda n: graph.ops[edges[0].sink].domain.names.index(n)
    ):
        for forward in (True, False):
            if all(_steps(graph, edge, name, forward, False) for edge in edges):
                rest = [e for e in edges if not _steps(graph, e, name, forward, True)]
                if len(rest) < len(edges):
                    return rest
    return None


def _steps(graph: Graph, edge: Edge, name: str, forward: bool, strictly: bool) -> bool:
    """Does the edge never look ahead in a dimension (`forward`), or never look back?"""
    domain = graph.ops[edge.sink].domain
    part = edge.index[graph.ops[edge.source].domain.names.index(name)]
    symbol = domain.symbols[domain.names.index(name)]
    low, last = (part.lo, part.hi - 1) if isinstance(part, Slice) else (part, part)
    wrong = (last > symbol) if forward else (low < symbol)
    if strictly:
        wrong = (last >= symbol) if forward else (low <= symbol)
    return never(wrong & (low <= last), domain.restrict(edge.when))


def components(edges: Iterable[Edge]) -> list[set[str]]:
    """Groups of operations that can reach each other: Tarjan's strongly connected components."""
    after: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        after[edge.sink].append(edge.source)
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for source in after[name]:
            if source not in number:
                visit(source)
                low[name] = min(low[name], low[source])
            elif source in stack:
                low[name] = min(low[name], number[source])
        if low[name] == number[name]:
            place = stack.index(name)
            found.append(set(stack[place:]))
            del stack[place:]

    for name in list(after):
        if name not in number:
            visit(name)
    return found


def _check_closure(graph: Graph, edges: Sequence[Edge]) -> None:
    relation = reads(graph, new_context(), edges=edges)
    closure, _ = relation.transitive_closure()
    loops = closure.intersect(isl.UnionSet.identity(closure.domain()))
    if loops.is_empty():
        return
    sample = loops.domain().sample_point().to_set()
    name = sample.get_tuple_name() or ""
    point = sample.sample_point()
    bounds = {
        bound: point.get_coordinate_val(isl.dim_type.param, k).to_python()
        for k, bound in enumerate(sorted(graph.bounds))
    }
    start = tuple(
        point.get_coordinate_val(isl.dim_type.set, k).to_python()
        for k in range(len(graph.ops[name].domain))
    )
    path = _path(graph, edges, name, start, bounds)
    if path is not None:  # a closure that isl could only approximate may hold too much
        raise ValueError(describe_cycle(graph, path, start, bounds))


def _path(
    graph: Graph, edges: Sequence[Edge], name: str, start: Point, bounds: Mapping[str, int]
) -> list[tuple[Edge, Point]] | None:
    """The shortest way from an instance back to itself: edges, and where each leads."""
    ready: list[tuple[str, Point, list[tuple[Edge, Point]]]] = [(name, start, [])]
    seen: set[tuple[str, Point]] = set()
    while ready:
        sink, at, path = ready.pop(0)
        env = graph.ops[sink].domain.env(at, bounds)
        for edge in edges:
            if edge.sink != sink or not bool(edge.when.evaluate(env)):
                continue
            for point in points_read(edge.index, env):
                if (edge.source, point) == (name, start):
                    return [*path, (edge, point)]
                if (edge.source, point) not in seen:
                    seen.add((edge.source, point))
                    ready.append((edge.source, point, [*path, (edge, point)]))
    return None


def describe_cycle(
    graph: Graph, path: Sequence[tuple[Edge, Point]], start: Point, bounds: Mapping[str, int]
) -> str:
    """ "x[t] depends on itself through y[t + 1]", and at which point."""
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
    return f"`{first}` depends on itself through {chain} (for instance at {where})"
