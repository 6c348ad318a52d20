"""Plans for memory: what is freed, offloaded, fetched and donated, and when.  §6.2

θ is frozen first, as in the paper (§6, the first of two rounds). In the second round the paper adds
memory operations to the graph and searches for their times with a polyhedral scheduler. Here no
second search is needed: with θ known, the last use of x[q] is the lexicographic maximum of θ over
the points that read x[q], and x[q] itself, and its free goes right after. Only true, strided
points count as uses: a tile that never runs keeps no value alive.
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
from mmrl.pdg.plan.swap import either, phases
from mmrl.pdg.schedule import Schedule, lengthened, unordered

# The kinds of events at one time of θ, in this order: the last number of a time in a plan.
FETCH, RUN, OFFLOAD, FREE = range(4)


@dataclasses.dataclass(frozen=True)
class Statement:
    """The meaning of a name in a plan. `kind` is "run", "free", "offload" or "fetch"."""

    kind: str
    op: str
    output: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryPlan:
    """When every statement happens: operations, and what is done with their memory."""

    graph: Graph
    statements: Mapping[str, Statement]
    times: isl.UnionMap
    depth: int  # how many numbers a time has


def plan_memory(
    schedule: Schedule, swap: Sequence[Output] = (), *, frees: bool = True
) -> MemoryPlan:
    """Free every tensor except the results right after its last use, and swap those in `swap`.

    A swapped tensor waits on the host between uses in different iterations of a loop: from right
    after the earlier to right before the later. Without `frees` everything is kept.
    """
    graph, depth = schedule.graph, schedule.depth
    statements = {name: Statement("run", name) for name in graph.ops}
    placed = [lengthened(each, depth, RUN) for each in maps(schedule.times)]

    def add(statement: Statement, when: isl.Map, place: int) -> None:
        # A name for each affine piece: isl would join them to points like `c0 if … else c0 - 1`.
        name = f"{statement.kind}_{statement.op}_{statement.output}"
        points = sets.points(graph, statement.op, schedule.times.get_ctx())
        for piece in _pieces(when, points):
            new = next(each for each in _numbered(name) if each not in statements)
            statements[new] = statement
            placed.append(lengthened(piece, depth, place).set_tuple_name(IN, new))

    for op, output in graph.tensors:
        if frees and (op, output) not in graph.results:
            add(Statement("free", op, output), schedule.last[op, output], FREE)
    for op, output in swap:
        stays = phases(schedule, (op, output))
        for k, stay in enumerate(stays[:-1]):
            again = either(stays[k + 1 :]).domain()
            add(Statement("offload", op, output), stay.intersect_domain(again).lexmax(), OFFLOAD)
        for stay in stays[1:]:
            add(Statement("fetch", op, output), stay.lexmin(), FETCH)
    return MemoryPlan(graph, statements, union(placed), depth + 1)


def ends_of(
    graph: Graph, tensor: Output, name: str, context: isl.Context, dense: bool = False
) -> list[isl.Map]:
    """x[q] and its readers -> name[q], which is to come after all of them."""
    made = sets.points(graph, tensor[0], context, dense=dense)
    own = isl.Map.identity(made.get_space().map_from_set()).intersect_domain(made)
    edges = [edge for edge in graph.edges if edge.tensor == tensor]
    reads = maps(sets.reads(graph, context, edges=edges, dense=dense))
    return [each.set_tuple_name(OUT, name) for each in (own, *reads)]


def donations(schedule: Schedule) -> tuple[Edge, ...]:
    """Return the edges whose sink may overwrite its input, because no later point needs it.

    Exact, by equality of isl maps: at every point p of the edge, the last use of x[φ(p)] is
    θ(sink[p]). Only single points are donated (a slice is copied when it is stacked), never a
    result, and never one tensor twice to the same operation.
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


def unproved(plan: MemoryPlan) -> isl.UnionMap:
    """The pairs that the plan leaves in the wrong order; empty is a proof for all bounds at once.

    Checked are a value before its readers, and all of these before its free. (Offloads and fetches
    are left to `check.check`.)
    """
    graph, context = plan.graph, plan.times.get_ctx()
    must = [sets.reads(graph, context).reverse()]
    for times in maps(plan.times):
        name = times.get_tuple_name(IN)
        statement = plan.statements[name]
        if statement.kind == "free":
            ends = union(ends_of(graph, (statement.op, statement.output), name, context))
            must.append(ends.intersect_range(isl.UnionSet.from_set(times.domain())))
    return unordered(functools.reduce(isl.UnionMap.union, must), plan.times)


def _pieces(times: isl.Map, points: isl.Set) -> list[isl.Map]:
    """A function of `points`, cut where it stops being affine, with short conditions."""
    found: list[isl.Map] = []

    def add(where: isl.Set, values: isl.MultiAff) -> None:
        where = points if points.is_subset(where) else where.gist(points).intersect(points)
        found.append(isl.Map.from_multi_aff(values).intersect_domain(where.coalesce()))

    isl.PwMultiAff.from_map(times.coalesce()).coalesce().foreach_piece(add)
    return found


def _numbered(name: str) -> Iterable[str]:
    return itertools.chain([name], (f"{name}_{k}" for k in itertools.count(1)))
