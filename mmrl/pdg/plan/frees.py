"""Memory plans: the times of deallocations, donations and transfers to and from the host.  §6.2

In this package, a *free* is a deallocation, which releases the memory of one value.

The schedule θ is fixed first, as in the first of the paper's two rounds (§6). In the second round,
the paper adds memory operations to the graph and uses a polyhedral scheduler to find their times.
That is not necessary here: given θ, the last use of x[q] is the lexicographic maximum of θ over
x[q] and all points that read x[q], and the deallocation follows immediately. Only points that run
count as uses; points that the stride of a tile skips do not.

    >>> from mmrl.pdg import Program, compile
    >>> p = Program("t")
    >>> schedule = compile(p.graph(2.0 * p.value(p.symbols[0])), {}).schedule
    >>> order_violations(plan_memory(schedule)).is_empty(), *map(str, donations(schedule))
    (True, 'mul <- value[t]')
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence

import islpy as isl

from mmrl.pdg.build import sets
from mmrl.pdg.build.expr import Slice
from mmrl.pdg.build.graph import Edge, Graph, Output
from mmrl.pdg.build.sets import IN, OUT, maps, union
from mmrl.pdg.plan.swap import merge_uses, phases
from mmrl.pdg.schedule import Schedule, pad_times, violations

# Kinds of events. In a plan, the last coordinate of a time is the kind, so events to which θ
# assigns the same time happen in this order.
FETCH, RUN, OFFLOAD, FREE = range(4)


@dataclasses.dataclass(frozen=True)
class Statement:
    """Statement of a plan: its kind ("run", "free", "offload" or "fetch") and its tensor."""

    kind: str
    op: str
    output: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Times of all statements of a program: operations, deallocations and transfers."""

    graph: Graph
    statements: Mapping[str, Statement]
    times: isl.UnionMap
    depth: int  # number of coordinates of a time, including the kind of its event


def plan_memory(
    schedule: Schedule, swap: Sequence[Output] = (), *, frees: bool = True
) -> MemoryPlan:
    """Plan to deallocate each value right after its last use, except for results.

    The tensors in `swap` are moved to the host between uses in different iterations of a loop. They
    are offloaded right after the earlier use and fetched right before the later one. If `frees` is
    False, the plan contains no deallocations.
    """
    graph, depth = schedule.graph, schedule.depth
    statements = {name: Statement("run", name) for name in graph.ops}
    # With bounds of 0, other operations would be the last uses of some values.
    within = sets.context(graph, 1, schedule.times.get_ctx())
    times = maps(schedule.times.intersect_params(within))
    placements = [pad_times(each, depth, RUN) for each in times]

    def add(statement: Statement, when: isl.PwMultiAff, place: int) -> None:
        # Name each affine piece separately. Under a single name, isl would combine the pieces into
        # conditional points such as `c0 if … else c0 - 1`.
        name = f"{statement.kind}_{statement.op}_{statement.output}"
        points = schedule.when[statement.op].domain().intersect_params(within)
        for piece in _pieces(when.intersect_params(within), points):
            new = next(each for each in _unique_names(name) if each not in statements)
            statements[new] = statement
            placements.append(pad_times(piece, depth, place).set_tuple_name(IN, new))

    for op, output in graph.tensors:
        if frees and (op, output) not in graph.results:
            add(Statement("free", op, output), schedule.ends[op, output], FREE)
    for op, output in swap:
        intervals = phases(schedule, (op, output))
        for k, stay in enumerate(intervals[:-1]):
            uses = stay.intersect_domain(merge_uses(intervals[k + 1 :]).domain())
            add(Statement("offload", op, output), uses.lexmax_pw_multi_aff(), OFFLOAD)
        for stay in intervals[1:]:
            add(Statement("fetch", op, output), stay.lexmin_pw_multi_aff(), FETCH)
    return MemoryPlan(graph, statements, union(placements), depth + 1)


def ends_of(
    graph: Graph, tensor: Output, name: str, context: isl.Context, dense: bool = False
) -> list[isl.Map]:
    """Return the maps from x[q] and from each reader of x[q] to name[q].

    As validity constraints, they require name[q] to run after x[q] and after all of its readers.
    """
    points = sets.points(graph, tensor[0], context, dense=dense)
    own = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
    edges = [edge for edge in graph.edges if edge.tensor == tensor]
    reads = maps(sets.reads(graph, context, edges=edges, dense=dense))
    return [each.set_tuple_name(OUT, name) for each in (own, *reads)]


def donations(schedule: Schedule) -> tuple[Edge, ...]:
    """Return the edges whose sink uses its input last, so that it may overwrite the input.

    The test is exact, based on the equality of isl maps: at every point p of the edge, the last use
    of x[φ(p)] is θ(sink[p]). Only single points are donated, because slices are copied when they
    are stacked. Results are never donated, and a tensor is donated to an operation at most once.
    """
    graph = schedule.graph
    return tuple(
        edge
        for edge in graph.edges
        if edge.tensor not in graph.results
        and not any(isinstance(part, Slice) for part in edge.index)
        and _last_user(schedule, edge)
    )


def _last_user(schedule: Schedule, edge: Edge) -> bool:
    read = schedule.reads.get(edge)
    others = (e for e in schedule.reads if e.tensor == edge.tensor and e.sink == edge.sink)
    if read is None or any(
        not schedule.reads[e].is_disjoint(read) for e in others if e is not edge
    ):
        return False
    own = schedule.when[edge.sink].intersect_domain(read.domain())
    return read.apply_range(schedule.last[edge.tensor]).is_equal(own)


def order_violations(plan: MemoryPlan) -> isl.UnionMap:
    """Return the pairs of points that the plan executes in the wrong order.

    An empty result proves, for all bounds, that every value is computed before it is read, and
    deallocated after all its readers have run. Offloads and fetches are not covered:
    `run.naive.check` tests them for given bounds.
    """
    graph, context = plan.graph, plan.times.get_ctx()
    must = [sets.reads(graph, context).reverse()]
    for times in maps(plan.times):
        name = times.get_tuple_name(IN)
        statement = plan.statements[name]
        if statement.kind == "free":
            ends = union(ends_of(graph, (statement.op, statement.output), name, context))
            must.append(ends.intersect_range(isl.UnionSet.from_set(times.domain())))
    after = functools.reduce(isl.UnionMap.union, must)
    return violations(after.intersect_params(sets.context(graph, 1, context)), plan.times)


unproved = order_violations  # former name, which can still be imported


def _pieces(times: isl.PwMultiAff, points: isl.Set) -> list[isl.Map]:
    """Return the affine pieces of a function of `points`, with simplified conditions."""
    pieces: list[isl.Map] = []

    def add(where: isl.Set, values: isl.MultiAff) -> None:
        where = points if points.is_subset(where) else where.gist(points).intersect(points)
        pieces.append(isl.Map.from_multi_aff(values).intersect_domain(where.coalesce()))

    times.coalesce().foreach_piece(add)
    return pieces


def _unique_names(name: str) -> Iterable[str]:
    return itertools.chain([name], (f"{name}_{k}" for k in itertools.count(1)))
