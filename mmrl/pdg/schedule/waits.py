"""Why an order is forced: the last point of one operation that a point of another waits for.

Dependences are followed through everything between, for all bounds at once (transitive closure).
"Each step of learning waits for the last step of acting", d[i, t] -> x[i, T - 1], is the proof that
no schedule interleaves them; with n-step returns it reads x[i, t + n - 1], and one does.
"""

import dataclasses

import islpy as isl

from mmrl.pdg.build import sets
from mmrl.pdg.build.expr import TRUE, Expr, Structural
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.sets import IN, OUT, PARAM, context


@dataclasses.dataclass(frozen=True, eq=False)
class Wait(Structural):
    """Where `when` holds, the last point waited for is `index`."""

    index: tuple[Expr, ...]
    when: Expr


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The points of `source` that each point of `sink` waits for; empty without waits.

    If not `exact`, isl has found a set of dependences that may hold more than there are.
    """

    sink: str
    source: str
    names: tuple[str, ...]  # of the sink's dimensions
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
    """The last point of `source` that must have run before each point of `sink` can."""
    for name in (sink, source):
        if name not in graph.ops:
            raise ValueError(
                f"`{name}` is not an operation of the graph; it has {sorted(graph.ops)}"
            )
    isl_context = sets.new_context()
    closure, exact = sets.reads(graph, isl_context).transitive_closure()
    points = {name: sets.points(graph, name, isl_context) for name in (sink, source)}
    paths = closure.intersect_domain(isl.UnionSet.from_set(points[sink]))
    paths = paths.intersect_range(isl.UnionSet.from_set(points[source]))
    names = graph.ops[sink].domain.names
    if paths.is_empty():
        return Certificate(sink, source, names, (), bool(exact))
    known = _moved(isl.Map.from_domain(points[sink]), names).params()
    known = known.intersect_params(context(graph, 1, isl_context))
    last = _moved(isl.Map.from_union_map(paths).lexmax(), names).range()
    waits: list[Wait] = []

    def add(where: isl.Set, values: isl.MultiAff) -> None:
        found = (isl.PwAff.from_aff(values.get_aff(k)) for k in range(values.dim(OUT)))
        index = tuple(sets.to_expr(sets.written(each, known)) for each in found)
        condition = sets.written(where.gist(known).coalesce(), known)
        when = TRUE if known.is_subset(where) else sets.to_expr(condition)
        waits.append(Wait(index, when))

    isl.PwMultiAff.from_set(last.intersect_params(known)).coalesce().foreach_piece(add)
    return Certificate(sink, source, names, tuple(waits), bool(exact))


def _moved(relation: isl.Map, names: tuple[str, ...]) -> isl.Map:
    """The symbols of the domain as parameters, so that results are expressions in them."""
    bounds = relation.dim(PARAM)
    relation = relation.move_dims(PARAM, bounds, IN, 0, len(names))
    for k, name in enumerate(names):
        relation = relation.set_dim_name(PARAM, bounds + k, name)
    return relation
