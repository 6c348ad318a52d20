"""Explanations of a schedule: the last point that must run before each point of an operation.

They are derived from the transitive closure of all dependences, so they include dependences through
other operations, and hold for all bounds. For example, d[i, t] -> x[i, T - 1] means that each
learning step depends on the last acting step, so no schedule interleaves the two. With n-step
returns, the result is d[i, t] -> x[i, t + n - 1], so learning and acting can be interleaved.
"""

import dataclasses

import islpy as isl

from mmrl.pdg.build import sets
from mmrl.pdg.build.expr import TRUE, Expr, Structural
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.sets import IN, OUT, PARAM, context


@dataclasses.dataclass(frozen=True, eq=False)
class Wait(Structural):
    """Last point on which a point depends: `index`, in the case that `when` holds."""

    index: tuple[Expr, ...]
    when: Expr


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Last point of `source` on which each point of `sink` depends.

    `waits` lists this point case by case, and is empty if `sink` does not depend on `source`.
    Unless `exact`, isl's closure may contain additional dependences.
    """

    sink: str
    source: str
    names: tuple[str, ...]  # dimensions of the sink
    waits: tuple[Wait, ...]
    exact: bool

    def __str__(self) -> str:
        left = f"{self.sink}[{', '.join(self.names)}]"
        lines = []
        for wait in self.waits:
            condition = "" if TRUE.same(wait.when) else f" if {wait.when}"
            lines.append(f"{left} -> {self.source}[{', '.join(map(str, wait.index))}]{condition}")
        return "\n".join(lines) or f"{left} waits for no point of {self.source}"


def explain(graph: Graph, sink: str, source: str) -> Certificate:
    """Return the last point of `source` that must run before each point of `sink`.

    Raises `ValueError` for a name that is not an operation of the graph.

        >>> from mmrl.pdg import Program
        >>> p = Program("t")
        >>> (t,), (T,) = p.symbols, p.bounds
        >>> print(explain(p.graph(p.value(t)[t:T].sum()), "sum", "value"))
        sum[t] -> value[T - 1]
    """
    for name in (sink, source):
        if name not in graph.ops:
            raise ValueError(
                f"`{name}` is not an operation of the graph, which has {sorted(graph.ops)}"
            )
    isl_context = sets.new_context()
    closure, exact = sets.reads(graph, isl_context).transitive_closure()
    points = {name: sets.points(graph, name, isl_context) for name in (sink, source)}
    paths = closure.intersect_domain(isl.UnionSet.from_set(points[sink]))
    paths = paths.intersect_range(isl.UnionSet.from_set(points[source]))
    names = graph.ops[sink].domain.names
    if paths.is_empty():
        return Certificate(sink, source, names, (), bool(exact))
    assumptions = _as_parameters(isl.Map.from_domain(points[sink]), names).params()
    assumptions = assumptions.intersect_params(context(graph, 1, isl_context))
    last = _as_parameters(isl.Map.from_union_map(paths).lexmax(), names).range()
    waits: list[Wait] = []

    def add(where: isl.Set, values: isl.MultiAff) -> None:
        coordinates = (isl.PwAff.from_aff(values.get_aff(k)) for k in range(values.dim(OUT)))
        index = tuple(sets.to_expr(sets.ast_of(each, assumptions)) for each in coordinates)
        condition = sets.ast_of(where.gist(assumptions).coalesce(), assumptions)
        when = TRUE if assumptions.is_subset(where) else sets.to_expr(condition)
        waits.append(Wait(index, when))

    isl.PwMultiAff.from_set(last.intersect_params(assumptions)).coalesce().foreach_piece(add)
    return Certificate(sink, source, names, tuple(waits), bool(exact))


def _as_parameters(relation: isl.Map, names: tuple[str, ...]) -> isl.Map:
    """Turn the dimensions of the relation's domain into parameters with the given names."""
    bounds = relation.dim(PARAM)
    relation = relation.move_dims(PARAM, bounds, IN, 0, len(names))
    for k, name in enumerate(names):
        relation = relation.set_dim_name(PARAM, bounds + k, name)
    return relation
