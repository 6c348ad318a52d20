"""Domains and reads of a graph as integer sets and relations, and inverses of reads.  §5.1, §6.1

isl, the integer set library, computes with sets whose bounds are symbols, so its results hold for
all bounds, whereas enumeration covers only one choice of bounds. For example, isl computes which
points read a point, which points must run before it, and whether a condition always holds. Sets
that are used together must share one `isl.Context`. Pass the same context to every call, or omit it
everywhere to use isl's default.
"""

import dataclasses
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence

try:
    import islpy as isl
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "`mmrl.pdg` needs islpy, the integer set library: `pip install islpy`, or in a checkout "
        "`pip install -c requirements.lock -e '.[pdg]'`.",
        name="islpy",
    ) from error

from mmrl.pdg.build.expr import (
    FALSE,
    TRUE,
    Const,
    Expr,
    Max,
    Min,
    Slice,
    Structural,
    Sym,
    as_expr,
    max_,
    min_,
)
from mmrl.pdg.build.graph import Domain, Edge, Graph

IN, OUT, PARAM = isl.dim_type.in_, isl.dim_type.out, isl.dim_type.param
_Kind = isl.ast_expr_type


def new_context() -> isl.Context:
    """Return a new context whose generated expressions may contain min and max."""
    context = isl.Context()
    context.set_ast_build_detect_min_max(1)
    return context


def domains(
    graph: Graph, context: isl.Context | None = None, *, dense: bool = False
) -> isl.UnionSet:
    """Return { op[p] : p in Ω(op) }; `dense` ignores strides, as the scheduler requires."""
    parts = []
    for op in graph.ops.values():
        domain = op.domain.dense() if dense else op.domain
        parts.append(f"{op.name}{_tuple(domain.names)} : {within(domain)}")
    return isl.UnionSet(_braces(graph.bounds, parts), context=context)


def points(
    graph: Graph, op: str, context: isl.Context | None = None, *, dense: bool = False
) -> isl.Set:
    """Return { op[p] : p in Ω(op) } for one operation."""
    single = graph.replace(ops={op: graph.ops[op]})
    return isl.Set.from_union_set(domains(single, context, dense=dense))


def reads(
    graph: Graph,
    context: isl.Context | None = None,
    *,
    edges: Iterable[Edge] | None = None,
    dense: bool = False,
) -> isl.UnionMap:
    """Return { sink[p] -> source[q] : q in φ(p), ψ(p) } for all edges, or for `edges`.  §5.1"""
    several = graph.edges if edges is None else list(edges)
    text = _braces(graph.bounds, [_reads(graph, edge, dense) for edge in several])
    sources = graph.replace(ops={edge.source: graph.ops[edge.source] for edge in several})
    relation = isl.UnionMap(text, context=context)
    return relation.intersect_range(domains(sources, context, dense=dense))


def read(graph: Graph, edge: Edge, source: isl.Set) -> isl.Map:
    """Return { sink[p] -> source[q] : q in φ(p), ψ(p) } of one edge; q ranges over `source`."""
    text = _braces(graph.bounds, [_reads(graph, edge, dense=False)])
    return isl.Map(text, context=source.get_ctx()).intersect_range(source)


def at(relation: isl.Map, bounds: Mapping[str, int]) -> isl.Map:
    """Return a relation with its parameters fixed to the given bounds."""
    values = " and ".join(f"{name} = {number}" for name, number in bounds.items()) or "true"
    text = _braces(list(bounds), [f": {values}"])
    result = relation.intersect_params(isl.Set(text, context=relation.get_ctx()))
    return result.project_out(isl.dim_type.param, 0, result.dim(isl.dim_type.param))


def _reads(graph: Graph, edge: Edge, dense: bool) -> str:
    domain = graph.ops[edge.sink].domain
    domain = domain.dense() if dense else domain
    axes = [f"at{axis}" for axis in range(len(edge.index))]
    conditions = [within(domain.restrict(edge.when)), *map(_equals, axes, edge.index)]
    left, right = f"{edge.sink}{_tuple(domain.names)}", f"{edge.source}{_tuple(axes)}"
    return f"{left} -> {right} : {' and '.join(conditions)}"


def _equals(axis: str, part: Expr) -> str:
    if isinstance(part, Slice):
        return f"{part.lo.isl()} <= {axis} < {part.hi.isl()}"
    return f"{axis} = {part.isl()}"


def within(domain: Domain) -> str:
    """Return the constraints of a domain in isl's notation."""
    parts = [f"0 <= {dim.name} < {dim.bound.isl()}" for dim in domain]
    return " and ".join([*parts, domain.when.isl()])


def _tuple(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _braces(parameters: Sequence[str], parts: Sequence[str]) -> str:
    return f"{_tuple(sorted(parameters))} -> {{ {'; '.join(parts)} }}"


def always(when: Expr, domain: Domain) -> bool:
    """Return True if `when` holds at every point of a domain, for all bounds."""
    return _set(domain.restrict(~when), isl.Context()).is_empty()


def never(when: Expr, domain: Domain) -> bool:
    """Return True if `when` holds at no point of a domain, for all bounds."""
    return _set(domain.restrict(when), isl.Context()).is_empty()


def is_grid(domain: Domain) -> bool:
    """Return True if a domain is a product of coordinate sets, for all bounds."""
    points, kind = _set(domain, isl.Context()), isl.dim_type.set
    grid = isl.Set.universe(points.get_space())
    for axis in range(len(domain)):
        line = points
        for k in set(range(len(domain))) - {axis}:
            line = line.project_out(kind, k, 1).insert_dims(kind, k, 1)
        grid = grid.intersect(line)
    return grid.is_equal(points)


def simplify(when: Expr, domain: Domain) -> Expr:
    """Return a short condition that is equivalent to `when` within the domain."""
    context = new_context()
    assumptions = _parametric(domain, context)
    condition = _parametric(domain.restrict(when), context)
    return _condition(condition.gist(assumptions).coalesce(), assumptions)


def _names(domain: Domain, *more: Expr) -> list[str]:
    """Return the sorted names of all symbols in a domain and in expressions."""
    names = set(domain.names) | domain.when.symbols()
    for expr in (*more, *(dim.bound for dim in domain)):
        names |= expr.symbols()
    return sorted(names)


def _set(domain: Domain, context: isl.Context) -> isl.Set:
    parameters = [name for name in _names(domain) if name not in domain.names]
    text = _braces(parameters, [f"{_tuple(domain.names)} : {within(domain)}"])
    return isl.Set(text, context=context)


def _parametric(domain: Domain, context: isl.Context) -> isl.Set:
    """Return the domain with its symbols as parameters; results are expressions in them."""
    return isl.Set(_braces(_names(domain), [f": {within(domain)}"]), context=context)


@dataclasses.dataclass(frozen=True, eq=False)
class Inverse(Structural):
    """Inverse φ⁻¹ of a read: the sink's points that read a given point of the source.  §5.1

    All expressions are in the symbols of the *source*. `index` contains a point or a slice for each
    dimension of the sink. `when` holds at the source's points that at least one point of the sink
    reads. Unless `exact`, the box spanned by `index` may also contain points of the sink that do
    not read the source's point.
    """

    index: tuple[Expr, ...]
    when: Expr
    exact: bool


def invert(sink: Domain, source: Domain, index: Sequence[Expr], when: Expr = TRUE) -> Inverse:
    """Return φ⁻¹ of the read `source[index]` at the points of `sink` where `when` holds.

    For example, the inverses of `[t + 3]`, `[t:T]` and `[0:T]` are `[t - 3]`, `[0:t + 1]` and
    `[0:T]`.

        >>> t = Domain.of("t")
        >>> print(invert(t, t, [Slice(Sym("t"), Sym("T"))]).index[0])
        0:t + 1
    """
    context = new_context()
    rename = {name: Sym(f"{name}_") for name in sink.names}
    indices = [part.substitute(rename) for part in index]
    box = " and ".join(f"0 <= {dim.name}_ < {dim.bound.substitute(rename).isl()}" for dim in sink)
    where = sink.when.substitute(rename) & when.substitute(rename)
    at = [f"{name}_" for name in sink.names]
    equal = [_equals(dim.name, part) for dim, part in zip(source, indices, strict=True)]
    names = _names(source, *indices, where, *(dim.bound for dim in sink))
    parameters = [name for name in names if name not in at]

    def points_where(*conditions: str) -> isl.Set:
        text = " and ".join(part for part in conditions if part)
        return isl.Set(_braces(parameters, [f"{_tuple(at)} : {text or 'true'}"]), context=context)

    # Assume that every bound is at least 1; otherwise the graph would be empty.
    sizes = [f"{dim.bound.isl()} >= 1" for dim in (*sink, *source) if isinstance(dim.bound, Sym)]
    assumptions = _parametric(source, context).intersect(points_where(*sizes).params())
    readers = points_where(box, where.isl(), *equal).intersect_params(assumptions)
    ranges = [
        _range(readers, name, dim.bound, assumptions) for name, dim in zip(at, sink, strict=True)
    ]
    spans = [_equals(name, part.substitute({})) for name, part in zip(at, ranges, strict=True)]
    whole = points_where(*spans).intersect_params(readers.params())
    nonempty = readers.params().gist(assumptions).coalesce()
    return Inverse(tuple(ranges), _condition(nonempty, assumptions), whole.is_equal(readers))


def _range(readers: isl.Set, name: str, bound: Expr, assumptions: isl.Set) -> Expr:
    """Return a slice or point of one axis that contains all readers.

    The result is an expression in the parameters. It may contain points that are not readers, but
    no points outside the axis. If isl's expressions for the first and the last reader do not form
    such a slice, the result is the complete axis.
    """
    axis = readers.project_out_except([name], [isl.dim_type.set])
    nonempty = assumptions.intersect(axis.params())
    lows, highs = (
        _candidates(ast_of(edge.gist(nonempty), nonempty))
        for edge in (axis.dim_min(0), axis.dim_max(0))
    )
    parameters = [name or "" for name in axis.get_var_names(isl.dim_type.param)]
    inside = f"[{name}] : 0 <= {name} < {bound.isl()}"
    box = isl.Set(_braces([*bound.symbols()], [inside]), context=axis.get_ctx())
    for low in lows:
        for high in highs:
            part = low if low.same(high) else Slice(low, successor(high))
            text = _braces(parameters, [f"[{name}] : {_equals(name, part)}"])
            hull = isl.Set(text, context=axis.get_ctx()).intersect_params(nonempty)
            if axis.is_subset(hull) and hull.is_subset(box):
                return part
    return Slice(Const(0), bound)


def successor(value: Expr) -> Expr:
    """Return value + 1, the stop of a slice or loop whose last point is `value`.

    For a minimum or maximum, 1 is added to each argument.
    """
    if isinstance(value, Min | Max):
        return as_expr(value.compute(successor(value.left), successor(value.right)))
    return value + 1


def _candidates(node: isl.AstExpr) -> list[Expr]:
    """Return candidate index expressions for a node of isl's syntax tree; the caller tests them.

    Index expressions have no conditional. The candidates for a conditional are the maximum and the
    minimum of its two branches, and each branch by itself.
    """
    if node.get_type() == _Kind.op and _operator(node) in ("cond", "select"):
        first, second = (_candidates(node.get_op_arg(k)) for k in (1, 2))
        pairs = [(a, b) for a in first for b in second]
        return [extreme(a, b) for extreme in (max_, min_) for a, b in pairs] + first + second
    try:
        return [to_expr(node)]
    except ValueError:
        return []


def _condition(condition: isl.Set, assumptions: isl.Set) -> Expr:
    if assumptions.is_subset(condition):
        return TRUE
    if condition.is_empty():
        return FALSE
    return to_expr(ast_of(condition, assumptions))


def ast_of(value: isl.Set | isl.PwAff, assumptions: isl.Set) -> isl.AstExpr:
    """Return isl's syntax tree of a condition or a value, valid where `assumptions` hold.

    The variables of the tree are the parameters. Both arguments are first given the same parameters
    in the same order, because isl compares parameters by position when it detects remainders.
    Otherwise, it would turn (i + T) % 2 + T <= 1 into i % 2 + T <= 1.
    """
    assumptions = assumptions.align_params(value.get_space())
    value = value.align_params(assumptions.get_space())
    build = isl.AstBuild.from_context(assumptions)
    return (
        build.expr_from_set(value) if isinstance(value, isl.Set) else build.expr_from_pw_aff(value)
    )


def to_expr(node: isl.AstExpr) -> Expr:
    """Convert a node of isl's syntax tree to an index expression.

    Raises `ValueError` for an operator without a counterpart in index expressions, such as a
    conditional.
    """
    if node.get_type() == _Kind.id:
        return Sym(node.get_id().get_name())
    if node.get_type() == _Kind.int:
        return as_expr(node.get_val().to_python())
    terms = [to_expr(node.get_op_arg(k)) for k in range(node.get_op_n_arg())]
    kind = _operator(node)
    if kind not in _OPERATORS:
        raise ValueError(
            f"`{node.to_C_str()}` cannot be written as an index expression: it must consist of "
            f"operators in `_OPERATORS`"
        )
    return _OPERATORS[kind](*terms)


def _operator(node: isl.AstExpr) -> str:
    return str(node.get_op_type()).rpartition(".")[2]


_OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "minus": operator.neg,
    "min": min_,
    "max": max_,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    **dict.fromkeys(("div", "fdiv_q", "pdiv_q"), operator.floordiv),
    **dict.fromkeys(("pdiv_r", "zdiv_r"), operator.mod),
    **dict.fromkeys(("and_", "and_then"), operator.and_),
    **dict.fromkeys(("or_", "or_else"), operator.or_),
}


def maps(several: isl.UnionMap) -> list[isl.Map]:
    """Return the maps in a union, one per pair of (input, output) names."""
    pieces = several.get_map_list()
    return [pieces.get_at(k) for k in range(pieces.n_map())]


def union(several: Iterable[isl.Map]) -> isl.UnionMap:
    """Return the union of one or more maps."""
    return functools.reduce(isl.UnionMap.union, map(isl.UnionMap.from_map, several))


def context(graph: Graph, least: int, isl_context: isl.Context) -> isl.Set:
    """Return the set of all values of the bounds that are at least `least`."""
    limits = " and ".join(f"{name} >= {least}" for name in graph.bounds) or "true"
    return isl.Set(f"[{', '.join(graph.bounds)}] -> {{ : {limits} }}", context=isl_context)


def refuse_own_values(graph: Graph, isl_context: isl.Context) -> None:
    """Raise `ValueError` if a point reads itself, because isl's scheduler ignores such reads."""
    for edge in graph.edges:
        if edge.sink == edge.source:
            for pairs in maps(reads(graph, isl_context, edges=[edge])):
                if not pairs.intersect(isl.Map.identity(pairs.get_space())).is_empty():
                    raise ValueError(
                        f"`graph` has no schedule, because a point reads itself along `{edge}`: "
                        f"read an earlier point"
                    )


def solve(
    graph: Graph, points: isl.UnionSet, must: isl.UnionMap, near: isl.UnionMap | None = None
) -> isl.UnionMap:
    """Compute isl's schedule of the points.

    The validity constraints `must` and the proximity constraints `near` map earlier points to later
    ones. Raises `ValueError` if there is no schedule.
    """
    constraints = isl.ScheduleConstraints.on_domain(points)
    constraints = constraints.set_context(context(graph, 1, must.get_ctx())).set_validity(must)
    if near is not None:
        constraints = constraints.set_proximity(near)
    try:
        return constraints.compute_schedule().get_map()
    except isl.Error as error:
        raise ValueError(
            "`graph` cannot be scheduled, because a point depends on itself or no affine order "
            "exists; `validate` reports the point"
        ) from error


def has_order(graph: Graph) -> bool:
    """Return True if isl finds a valid order of all points, for all bounds at once."""
    isl_context = new_context()
    try:
        refuse_own_values(graph, isl_context)
        must = reads(graph, isl_context, dense=True).reverse()
        solve(graph, domains(graph, isl_context, dense=True), must)
    except ValueError:
        return False
    return True
