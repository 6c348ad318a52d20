"""Joint schedule of operations and deallocations, which `mmrl.pdg` schedules separately."""

import functools
import itertools
from typing import Any

from mmrl.pdg.build import sets
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.sets import OUT, maps, solve, union
from mmrl.pdg.plan.frees import RUN, MemoryPlan, Statement, ends_of
from mmrl.pdg.schedule import Proximity, nearness, pad_times


def jointly(graph: Graph, proximity: Proximity = "upper") -> MemoryPlan:
    """Schedule operations and deallocations together.

    The constraints follow Figure 8 of the paper: the deallocation of x[q] comes after x[q]
    and all its readers, and as soon after them as possible. The paper (§6) and `plan_memory` fix
    the schedule of operations before they schedule deallocations. Here, an early deallocation may
    also change the order of operations.
    """
    context = sets.new_context()
    inner = {f"free_{op}_{k}": (op, k) for op, k in graph.tensors if (op, k) not in graph.results}
    statements = {name: Statement("run", name) for name in graph.ops}
    statements |= {name: Statement("free", *tensor) for name, tensor in inner.items()}

    def points(dense: bool) -> Any:
        at = (sets.points(graph, op, context, dense=dense) for op, _ in inner.values())
        frees = (each.set_tuple_name(name) for name, each in zip(inner, at, strict=True))
        runs = sets.domains(graph, context, dense=dense)
        return functools.reduce(lambda all_, one: all_.union(type(all_).from_set(one)), frees, runs)

    ends = (ends_of(graph, tensor, name, context, dense=True) for name, tensor in inner.items())
    after = union(itertools.chain.from_iterable(ends))
    must = sets.reads(graph, context, dense=True).reverse()
    near = nearness(graph, proximity, context)
    near = None if near is None else near.union(after)
    times = solve(graph, points(dense=True), must.union(after), near)
    times = times.intersect_domain(points(dense=False))
    depth = max(each.dim(OUT) for each in maps(times))
    places = union(pad_times(each, depth, RUN) for each in maps(times))
    return MemoryPlan(graph, statements, places, depth + 1)
