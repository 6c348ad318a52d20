"""Schedules: a map θ from the points of all operations to execution times.  §6.1

Two kinds of constraints determine a schedule. A *validity* constraint requires one point to run
before another. A *proximity* constraint expresses a preference that one point runs soon after
another; these constraints decide whether acting and learning share a loop. If every dependence is a
proximity constraint, the n reads of a window conflict with each other, so acting and learning are
interleaved only for small n. If only reads of the last element of each slice are proximity
constraints, acting and learning are interleaved for every n. With Monte-Carlo returns, they are
never interleaved: `explain` (in `waits`) returns the dependence that prevents it.

A schedule consists of isl maps, which are built by `sets`. `plan.frees` adds deallocations, and
`plan.code` generates loops from both.
"""

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal, get_args

import islpy as isl

from mmrl.pdg.build import sets
from mmrl.pdg.build.expr import TRUE, Const, structure
from mmrl.pdg.build.graph import Edge, Graph, Output
from mmrl.pdg.build.sets import IN, OUT, maps, refuse_own_values, solve, union
from mmrl.pdg.schedule.waits import Certificate as Certificate
from mmrl.pdg.schedule.waits import Wait as Wait
from mmrl.pdg.schedule.waits import explain as explain

Proximity = Literal["none", "all", "upper"]


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """Schedule θ of a graph: an isl map from the points of all operations to execution times.

    Times [c0, c1, …] have `depth` coordinates and are compared lexicographically.
    """

    graph: Graph
    times: isl.UnionMap
    depth: int

    @functools.cached_property
    def when(self) -> dict[str, isl.Map]:
        """Map op[p] -> time of each operation."""
        return {each.get_tuple_name(IN): each for each in maps(self.times)}

    @functools.cached_property
    def reads(self) -> dict[Edge, isl.Map]:
        """Map sink[p] -> source[φ(p)] of each edge, without edges that are never used."""
        points = {name: times.domain() for name, times in self.when.items()}
        relations = {e: sets.read(self.graph, e, points[e.source]) for e in self.graph.edges}
        return {edge: read for edge, read in relations.items() if not read.is_empty()}

    def uses(self, tensor: Output) -> dict[str, isl.Map]:
        """Return the maps x[q] -> times of its uses, by operation.

        The uses are the operation that computes x[q] and all operations that read it.
        """
        uses = {tensor[0]: self.when[tensor[0]]}
        for edge, read in self.reads.items():
            if edge.tensor == tensor:
                times = read.reverse().apply_range(self.when[edge.sink])
                uses[edge.sink] = uses[edge.sink].union(times) if edge.sink in uses else times
        return uses

    @functools.cached_property
    def ends(self) -> dict[Output, isl.PwMultiAff]:
        """Time of the last use of x[q], as a piecewise function of q, for every tensor.

        Only points that run count as uses; points that the stride of a tile skips do not.
        """
        uses = {x: self.uses(x).values() for x in self.graph.tensors}
        union = functools.partial(functools.reduce, isl.Map.union)
        return {x: union(several).lexmax_pw_multi_aff() for x, several in uses.items()}

    @functools.cached_property
    def last(self) -> dict[Output, isl.Map]:
        """Map x[q] -> time of its last use, for every tensor."""
        return {x: isl.Map.from_pw_multi_aff(each) for x, each in self.ends.items()}

    def __str__(self) -> str:
        return "\n".join(sorted(str(each) for each in maps(self.times)))


def schedule(graph: Graph, proximity: Proximity = "upper") -> Schedule:
    """Return a valid schedule for all bounds, which assigns a different time to every point.

    Operations on strided points are first scheduled as if they ran at every step, because isl finds
    no schedule for operations with different strides. The schedule is then restricted to the
    strided points. It remains valid, because every dependence between strided points is also a
    dependence between dense points.

        >>> from mmrl.pdg import Program
        >>> program = Program("t")
        >>> x, (t,) = program.tensor("t", name="x"), program.symbols
        >>> x[t] = 1.0
        >>> schedule(program.graph(x)).depth  # components of a time
        2
    """
    isl_context, small = sets.new_context(), _without_arrays(graph)
    refuse_own_values(small, isl_context)
    must = sets.reads(small, isl_context, dense=True).reverse()
    near = nearness(small, proximity, isl_context)
    times = solve(small, sets.domains(small, isl_context, dense=True), must, near)
    times = times.intersect_domain(sets.domains(small, isl_context))
    depth = max(each.dim(OUT) for each in maps(times))
    times = union(pad_times(each, depth) for each in maps(times))
    return with_distinct_times(Schedule(graph, times, depth))


def _without_arrays(graph: Graph) -> Graph:
    """Omit bounds that are only sizes of arrays, because isl's solver takes longer with them."""
    domains = [op.domain for op in graph.ops.values()]
    parts = [part for domain in domains for part in (domain.when, *(dim.bound for dim in domain))]
    parts += [part for edge in graph.edges for part in (edge.when, *edge.index)]
    symbols = frozenset().union(*(part.symbols() for part in parts))
    return graph.replace(bounds=tuple(name for name in graph.bounds if name in symbols))


def with_distinct_times(schedule: Schedule) -> Schedule:
    """Make times distinct by adding a coordinate that orders points with equal times.

    If two points had the same time, two operations could be the last use of a value, and neither of
    them could reuse its memory.
    """
    if schedule.times.is_injective():
        return schedule
    order = {name: k for k, name in enumerate(schedule.graph.ops)}
    times = union(
        pad_times(each, schedule.depth, order[each.get_tuple_name(IN)])
        for each in maps(schedule.times)
    )
    return Schedule(schedule.graph, times, schedule.depth + 1)


def check_proximity(proximity: Proximity) -> Proximity:
    """Return `proximity`. Raises `ValueError` for an unknown one."""
    if proximity not in get_args(Proximity):
        raise ValueError(f'`proximity` must be "none", "all" or "upper", got {proximity!r}')
    return proximity


def nearness(graph: Graph, proximity: Proximity, isl_context: isl.Context) -> isl.UnionMap | None:
    """Return the proximity constraints: a map from x[q] to the points that should follow it soon.

    The result is None for "none". "upper" replaces each slice with its last element, before which
    its reader cannot run, and min(a, b) with a: r[t : min(t + n, T)] becomes r[t + n - 1]. If an
    operation reads another one several times, as fused operations do, only the latest read is a
    constraint, because the others would conflict with it as the reads of a window do.

    A read of a different tile is not a constraint, unless the sink also reads the tensor at its own
    point, and this read is later. Its distance would be the width of a tile, because the solver
    schedules all steps, and the solver would then separate the operations of one tile.
    """
    if check_proximity(proximity) == "none":
        return None
    edges = tuple(edge for edge in graph.edges if not _between_tiles(graph, edge))
    if proximity == "upper":
        edges = tuple(
            dataclasses.replace(edge, index=tuple(part.upper() for part in edge.index))
            for edge in edges
        )
        between = collections.defaultdict(list)
        for edge in edges:
            between[edge.source, edge.sink].append(edge)
        edges = tuple(
            edge
            for edge in edges
            if not any(_later(edge, other) for other in between[edge.source, edge.sink])
        )
    return sets.reads(graph, isl_context, edges=edges, dense=True).reverse()


def _later(edge: Edge, other: Edge) -> bool:
    """Return True if `other`, between the same operations, always reads a later point."""
    if not edge.when.same(other.when):
        return False
    ahead = [b - a for a, b in zip(edge.index, other.index, strict=True)]
    difference = next((step for step in ahead if not Const(0).same(step)), Const(0))
    return isinstance(difference, Const) and difference.value > 0


def _between_tiles(graph: Graph, edge: Edge) -> bool:
    """Return True if an edge connects two different strided points.

    The result is False if the sink also reads its own point of the tensor, and this edge reads a
    later one.
    """
    sink, source = graph.ops[edge.sink].domain, graph.ops[edge.source].domain
    strided = all(not TRUE.same(d.when) and d.dense() != d for d in (sink, source))
    if not strided or structure(edge.index) == structure(source.symbols):
        return False
    last = dataclasses.replace(edge, index=tuple(part.upper() for part in edge.index))
    here = dataclasses.replace(edge, index=source.symbols)
    same = {
        e.tensor for e in graph.inputs(edge.sink) if structure(e.index) == structure(here.index)
    }
    return edge.tensor not in same or not _later(here, last)


def violations(dependences: isl.UnionMap, times: isl.UnionMap) -> isl.UnionMap:
    """Return the dependences x[q] -> y[p] that `times` violates: x[q] must run before y[p].

    An empty result proves that the order is valid for all bounds.
    """
    when = {each.get_tuple_name(IN): each for each in maps(times)}
    wrong = dependences.subtract(dependences)
    for pairs in maps(dependences):
        first, then = when[pairs.get_tuple_name(IN)], when[pairs.get_tuple_name(OUT)]
        wrong = wrong.union(isl.UnionMap.from_map(pairs.subtract(first.lex_lt_map(then))))
    return wrong


def iteration(schedule: Schedule) -> isl.Map:
    """Return the map from times to loop iterations, [c0, c1, …] -> [c0, …, ck].

    The last coordinate ck is the counter of the innermost loop.
    """
    loops = [k for k in range(schedule.depth) if not constants(maps(schedule.times), k)]
    count = 1 + max(loops, default=-1)
    time = [f"c{k}" for k in range(schedule.depth)]
    text = f"{{ [{', '.join(time)}] -> [{', '.join(time[:count])}] }}"
    return isl.Map(text, context=schedule.times.get_ctx())


def constants(times: Sequence[isl.Map], k: int) -> list[int]:
    """Return coordinate k of each map if it is constant in all of them, else an empty list."""
    numbers = [each.plain_get_val_if_fixed(OUT, k) for each in times]
    return [n.to_python() for n in numbers] if all(n.is_int() for n in numbers) else []


def pad_times(times: isl.Map, depth: int, last: int | None = None) -> isl.Map:
    """Pad times with zeros to `depth` coordinates, and append `last` unless it is None."""
    numbers = [0] * (depth - times.dim(OUT)) + ([] if last is None else [last])
    for number in numbers:
        times = times.add_dims(OUT, 1)
        times = times.fix_val(OUT, times.dim(OUT) - 1, number)
    return times
