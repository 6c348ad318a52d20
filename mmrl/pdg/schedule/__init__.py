"""When everything runs: θ, from the points of all operations to times.  §6.1

Two kinds of constraint determine the schedule together. *Validity* requires that one point comes
before another; it makes a schedule legal. *Proximity* asks that one point follows another soon;
only proximity decides whether acting and learning share a loop. Taken from all dependences,
proximity pulls a window of n steps in n directions, and interleaves only small n; taken from the
last element of each slice, it interleaves every n. Monte-Carlo returns interleave under neither:
`explain` (in `waits`) shows the dependence that forbids it.

This package computes with isl's maps, which `sets` makes: `frees` adds what happens to memory, and
`code` makes loops of both.
"""

import dataclasses
import functools
from typing import Literal, get_args

import islpy as isl

from mmrl.pdg.build import sets
from mmrl.pdg.build.expr import TRUE, Const, structure
from mmrl.pdg.build.graph import Edge, Graph, Output
from mmrl.pdg.build.sets import (
    IN,
    OUT,
    maps,
    refuse_own_values,
    solve,
    union,
)
from mmrl.pdg.schedule.waits import Certificate as Certificate
from mmrl.pdg.schedule.waits import Wait as Wait
from mmrl.pdg.schedule.waits import explain as explain

Proximity = Literal["none", "all", "upper"]


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """θ(p) of every operation: an isl map to times [c0, c1, …], compared lexicographically."""

    graph: Graph
    times: isl.UnionMap
    depth: int  # how many numbers a time has

    @functools.cached_property
    def when(self) -> dict[str, isl.Map]:
        """θ of each operation: op[p] -> time."""
        return {each.get_tuple_name(IN): each for each in maps(self.times)}

    @functools.cached_property
    def reads(self) -> dict[Edge, isl.Map]:
        """sink[p] -> source[φ(p)] of each edge, less those that no point reads along."""
        points = {name: times.domain() for name, times in self.when.items()}
        found = {e: sets.read(self.graph, e, points[e.source]) for e in self.graph.edges}
        return {edge: read for edge, read in found.items() if not read.is_empty()}

    def uses(self, tensor: Output) -> dict[str, isl.Map]:
        """x[q] -> the times of its uses, by the operation that makes it and those that read it."""
        found = {tensor[0]: self.when[tensor[0]]}
        for edge, read in self.reads.items():
            if edge.tensor == tensor:
                times = read.reverse().apply_range(self.when[edge.sink])
                found[edge.sink] = found[edge.sink].union(times) if edge.sink in found else times
        return found

    @functools.cached_property
    def last(self) -> dict[Output, isl.Map]:
        """Return x[q] -> the time of its last use, for every tensor; all memory follows from it.

        Only true, strided points count as uses: a tile that never runs keeps no value alive.
        """
        tensors = ((name, k) for name, op in self.graph.ops.items() for k in range(len(op.outputs)))
        return {x: functools.reduce(isl.Map.union, self.uses(x).values()).lexmax() for x in tensors}

    def __str__(self) -> str:
        return "\n".join(sorted(str(each) for each in maps(self.times)))


def schedule(graph: Graph, proximity: Proximity = "upper") -> Schedule:
    """A legal θ for all bounds at once, from isl's solver; two points never share a time.

    Operations on strided points are scheduled as if they ran at every step, and then keep only the
    points of their stride: the solver finds no schedule of several rates. That is legal, because
    the dependences of the strided points are among the dense ones.
    """
    isl_context = sets.new_context()
    refuse_own_values(graph, isl_context)
    must = sets.reads(graph, isl_context, dense=True).reverse()
    near = nearness(graph, proximity, isl_context)
    times = solve(graph, sets.domains(graph, isl_context, dense=True), must, near)
    times = times.intersect_domain(sets.domains(graph, isl_context))
    depth = max(each.dim(OUT) for each in maps(times))
    return apart(Schedule(graph, union(lengthened(each, depth) for each in maps(times)), depth))


def apart(schedule: Schedule) -> Schedule:
    """No two points at one time: those that isl leaves in either order get a last number.

    Without it "the last use" of a value might be two operations, and neither could take its memory.
    """
    if schedule.times.is_injective():
        return schedule
    order = {name: k for k, name in enumerate(schedule.graph.ops)}
    times = union(
        lengthened(each, schedule.depth, order[each.get_tuple_name(IN)])
        for each in maps(schedule.times)
    )
    return Schedule(schedule.graph, times, schedule.depth + 1)


def check_proximity(proximity: Proximity) -> Proximity:
    """Return `proximity`; raise `ValueError` for an unknown one."""
    if proximity not in get_args(Proximity):
        raise ValueError(f'`proximity` must be "none", "all" or "upper", got {proximity!r}')
    return proximity


def nearness(graph: Graph, proximity: Proximity, isl_context: isl.Context) -> isl.UnionMap | None:
    """Return x[q] -> the points that should run soon after it; None without such a wish.

    "upper" keeps of each slice the last element, the one its reader waits for, and drops constant
    arguments of min and max: r[t : min(t + n, T)] counts as r[t + n - 1]. If one operation reads
    another several times, as fused ones do, only the latest read counts; the others would pull the
    window in as many directions as all of its elements. From tile to tile there is no proximity: to
    the solver, which sees all steps, they would seem as far apart as tiles are wide, and it would
    pull the parts of a tile asunder to make up for it.
    """
    if check_proximity(proximity) == "none":
        return None
    edges = tuple(edge for edge in graph.edges if not _between_tiles(graph, edge))
    if proximity == "upper":
        edges = tuple(
            dataclasses.replace(edge, index=tuple(part.upper() for part in edge.index))
            for edge in edges
        )
        edges = tuple(edge for edge in edges if not any(_later(edge, other) for other in edges))
    return sets.reads(graph, isl_context, edges=edges, dense=True).reverse()


def _later(edge: Edge, other: Edge) -> bool:
    """Does `other` lead between the same operations, and surely to a later point?"""
    if edge.sink != other.sink or edge.source != other.source or not edge.when.same(other.when):
        return False
    ahead = [b - a for a, b in zip(edge.index, other.index, strict=True)]
    moved = next((step for step in ahead if not Const(0).same(step)), Const(0))
    return isinstance(moved, Const) and moved.value > 0


def _between_tiles(graph: Graph, edge: Edge) -> bool:
    """From one strided point to another?"""
    sink, source = graph.ops[edge.sink].domain, graph.ops[edge.source].domain
    strided = all(not TRUE.same(d.when) and d.dense() != d for d in (sink, source))
    return strided and structure(edge.index) != structure(source.symbols)


def unordered(dependences: isl.UnionMap, times: isl.UnionMap) -> isl.UnionMap:
    """The pairs x[q] -> y[p], "x[q] comes first", that `times` puts in another order.

    Empty is a proof, for all bounds at once.
    """
    when = {each.get_tuple_name(IN): each for each in maps(times)}
    wrong = dependences.subtract(dependences)
    for pairs in maps(dependences):
        first, then = when[pairs.get_tuple_name(IN)], when[pairs.get_tuple_name(OUT)]
        wrong = wrong.union(isl.UnionMap.from_map(pairs.subtract(first.lex_lt_map(then))))
    return wrong


def iteration(schedule: Schedule) -> isl.Map:
    """[c0, c1, …] -> [c0, …, ck] where ck counts the innermost loop: equal within one iteration."""
    loops = [k for k in range(schedule.depth) if not constant(schedule.times, k)]
    kept = 1 + max(loops, default=-1)
    time = [f"c{k}" for k in range(schedule.depth)]
    text = f"{{ [{', '.join(time)}] -> [{', '.join(time[:kept])}] }}"
    return isl.Map(text, context=schedule.times.get_ctx())


def constant(times: isl.UnionMap, k: int) -> bool:
    """Does the k-th number of a time only order statements, the same at all points of each?"""
    return all(each.plain_get_val_if_fixed(OUT, k).is_int() for each in maps(times))


def lengthened(times: isl.Map, depth: int, last: int | None = None) -> isl.Map:
    """Times of `depth` numbers, filled up with zeros, and one more number `last` if given."""
    numbers = [0] * (depth - times.dim(OUT)) + ([] if last is None else [last])
    for number in numbers:
        times = times.add_dims(OUT, 1)
        times = times.fix_val(OUT, times.dim(OUT) - 1, number)
    return times
