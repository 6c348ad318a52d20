"""Plans for memory: what is freed, offloaded, fetched and donated, and when.  §6.2

θ is frozen first, as in the paper (§6, the first of two rounds). In the second round the paper adds
memory operations to the graph and searches for their times with a polyhedral scheduler. Here no
second search is needed: with θ known, the last use of x[q] is the lexicographic maximum of θ over
the points that read x[q], and x[q] itself, and its free goes right after. Uses are those of the
true, strided points: a tile that never runs keeps nothing alive.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import islpy as isl

from mmrl.pdg.build import sets
from mmrl.pdg.build.expr import Slice
from mmrl.pdg.build.graph import Edge, Graph, Output
from mmrl.pdg.build.sets import IN, OUT, maps, union
from mmrl.pdg.schedule import Schedule, iteration, lengthened, unordered

# What happens around one time of θ, in this order: the last number of a time in a plan.
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
    """Free every tensor but the results right after its last use, and swap those of `swap`.

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

    for op, output in tensors(graph):
        if frees and (op, output) not in graph.results:
            add(Statement("free", op, output), schedule.last[op, output], FREE)
    for op, output in swap:
        stays = phases(schedule, (op, output))
        for k, stay in enumerate(stays[:-1]):
            again = _either(stays[k + 1 :]).domain()
            add(Statement("offload", op, output), stay.intersect_domain(again).lexmax(), OFFLOAD)
        for stay in stays[1:]:
            add(Statement("fetch", op, output), stay.lexmin(), FETCH)
    return MemoryPlan(graph, statements, union(placed), depth + 1)


@dataclasses.dataclass(frozen=True)
class Swap:
    """Which tensors wait on the host between their uses, which of their values, and until when.

    Of the `tensors` (None: all), values of at least `size` bytes that nobody uses while more than
    `idle` operations run. A value is fetched `ahead` operations before its use. These numbers count
    where a run is followed, by the interpreter and by `check`; a text shows every move.
    """

    tensors: Sequence[Output] | None = None
    size: int = 0
    idle: int = 0
    ahead: int = 0

    def of(self, graph: Graph) -> tuple[Output, ...]:
        """The tensors to swap. Raises `ValueError` for what is no tensor, or one twice."""
        swap = tensors(graph) if self.tensors is None else self.tensors
        if wrong := [tensor for tensor in swap if tensor not in tensors(graph)]:
            raise ValueError(
                f"`swap` must name tensors (operation, output) of the graph; got {wrong}."
            )
        if len(set(swap)) < len(swap):
            raise ValueError(f"`swap` must name every tensor once; got {list(swap)}.")
        if wrong := [n for n in (self.size, self.idle, self.ahead) if n < 0]:
            raise ValueError(f"`size`, `idle` and `ahead` of a swap begin at 0, got {wrong[0]}.")
        return tuple(swap)

    def among(self, events: Sequence[Any], sizes: Mapping[Output, int]) -> list[Any]:
        """The events of a run without moves that are not worth it, and with fetches ahead of use.

        `sizes` has the bytes of a value of each tensor.
        """
        after, left, placed = 0, {}, []
        for event in events:
            kind, tensor, point = event
            if kind == "offload":
                left[tensor, point] = len(placed)
            elif kind == "fetch":
                place = left.pop((tensor, point))
                waits = after - placed[place][0]
                if waits <= max(self.idle, self.ahead) or sizes[tensor] < self.size:
                    placed[place] = None
                    continue
            early = self.ahead if kind == "fetch" else 0
            order = {"fetch": 1, "run": 2}.get(kind, 0)
            placed.append((after - early, order, event))
            after += kind == "run"
        kept = sorted((each for each in placed if each), key=lambda each: each[:2])
        return [event for _, _, event in kept]


def tensors(graph: Graph) -> list[Output]:
    return [(name, k) for name, op in graph.ops.items() for k in range(len(op.outputs))]


def ends_of(
    graph: Graph, tensor: Output, name: str, context: isl.Context, dense: bool = False
) -> list[isl.Map]:
    """x[q] and its readers -> name[q], which is to come after all of them."""
    made = sets.points(graph, tensor[0], context, dense=dense)
    own = isl.Map.identity(made.get_space().map_from_set()).intersect_domain(made)
    edges = [edge for edge in graph.edges if edge.tensor == tensor]
    reads = maps(sets.reads(graph, context, edges=edges, dense=dense))
    return [each.set_tuple_name(OUT, name) for each in (own, *reads)]


def phases(schedule: Schedule, tensor: Output) -> list[isl.Map]:
    """Groups of uses, x[q] -> times, such that between two groups a loop has moved on.

    Uses by two operations belong together if for some point of the tensor they fall into the same
    iteration of the innermost loop, or if their order is not the same for all points.
    """
    within = iteration(schedule)
    groups = list(schedule.uses(tensor).values())

    def leaves(a: isl.Map, b: isl.Map) -> bool:
        late, early = a.lexmax().apply_range(within), b.lexmin().apply_range(within)
        same = isl.Map.identity(late.get_space().domain().map_from_set())
        return late.lex_ge_map(early).intersect(same).is_empty()

    def tangled() -> tuple[isl.Map, isl.Map] | None:
        pairs = itertools.combinations(groups, 2)
        return next((pair for pair in pairs if leaves(*pair) == leaves(*reversed(pair))), None)

    while pair := tangled():
        groups = [each for each in groups if each not in pair] + [pair[0].union(pair[1])]
    return sorted(groups, key=functools.cmp_to_key(lambda a, b: -1 if leaves(a, b) else 1))


def donations(schedule: Schedule) -> tuple[Edge, ...]:
    """The edges whose sink may take over the memory of what it reads: nobody needs it afterwards.

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


def _either(several: Iterable[isl.Map]) -> isl.Map:
    """The union of maps from the points of one tensor to times."""
    return functools.reduce(isl.Map.union, several)


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
