"""What the explorers of dependence graphs must compute: by `mmrl.pdg`, and point by point."""

import re
from collections.abc import Iterator
from typing import Any

from mmrl.course.widgets import graphs
from mmrl.pdg.build import sets
from mmrl.pdg.build.expr import Expr, Slice, Sym, as_expr, max_, min_
from mmrl.pdg.build.graph import Dim, Domain, Graph, reads
from mmrl.pdg.plan.code import generate, trace
from mmrl.pdg.plan.frees import plan_memory
from mmrl.pdg.run.naive import check
from mmrl.pdg.schedule import schedule
from tests.helpers.pdg_graphs import tile_graph

t, T, n, k = (Sym(name) for name in "tTnk")
PATTERNS: dict[str, Expr] = {
    "t": t,
    "t+3": t + 3,
    "t-1": t - 1,
    "0:T": Slice(as_expr(0), T),
    "t:T": Slice(t, T),
    "0:t+1": Slice(as_expr(0), t + 1),
    "t:min(t+n,T)": Slice(t, min_(t + n, T)),
    "max(0,t-n):t+1": Slice(max_(as_expr(0), t - n), t + 1),
    "t//2": t // 2,
    "t%8": t % 8,
    "T-1-t": T - 1 - t,
}


def patterns() -> Iterator[dict[str, Any]]:
    """Rows, columns by the symbolic inverse of `build.sets`, and lives by following every event."""
    elements = Domain((Dim(k, T),))
    for name, phi in PATTERNS.items():
        exists = n >= 1 if isinstance(phi, Slice) else (n >= 1) & (phi >= 0) & (phi < T)
        result = sets.invert(Domain.of("t"), elements, [phi], exists)
        for bounds in ({"T": 4, "n": 1}, {"T": 12, "n": 4}, {"T": 19, "n": 8}, {"T": 24, "n": 3}):
            steps = range(bounds["T"])
            rows = [[q for (q,) in reads([phi], {"t": at, **bounds}) if q in steps] for at in steps]
            columns = []
            for q in steps:
                env = {"k": q, **bounds}
                box = [p for (p,) in reads(result.index, env)] if result.when.evaluate(env) else []
                columns.append(box if result.exact else [p for p in box if q in rows[p]])
            history = follow(rows)
            settings = {"name": name, "inverse": str(result.index[0]), "exact": result.exact}
            yield settings | bounds | {"rows": rows, "columns": columns, "kept": history}


def follow(rows: list[list[int]]) -> list[list[int]]:
    """What a store holds while each reader runs, if x[0], x[1], … are made when they must be."""
    store, count, sizes = set(), 0, []
    for at, row in enumerate(rows):
        while row and count <= max(row):
            store.add(count)
            count += 1
        store = {q for q in store if any(q in later for later in rows[at:])}
        sizes.append(sorted(store))
    return sizes


def order(graph: Graph, events: str) -> list[tuple[str, str, tuple[int, ...]]]:
    """The runs of a text like "obs0 act0 -obs0", at i = 0."""
    runs = []
    for name, step in re.findall(r"(?:^| )([a-z_]+)(\d*)", events):
        at = {"i": 0, "t": int(step or 0)}
        runs.append(("run", name, tuple(at[dim] for dim in graph.ops[name].domain.names)))
    return runs


def schedules() -> Iterator[dict[str, Any]]:
    """Observations alive while each operation runs: made, and still to be read by it or later."""
    examples, bounds = graphs.schedules(), {"I": 1, "T": graphs.STEPS}
    for n in graphs.WINDOWS:
        graph = graphs.reinforce(n)
        edges = [edge for edge in graph.edges if edge.source == "obs"]
        for proximity in ("none", "all", "upper"):
            events = examples["programs"][examples["of"][f"{n} {proximity}"]]["events"]
            runs, times, last = order(graph, events), {}, {}
            for j, (_, name, point) in enumerate(runs):
                if name == "obs":
                    times[point] = j
                env = graph.ops[name].domain.env(point, bounds)
                last |= {q: j for e in edges if e.sink == name for q in reads(e.index, env)}
            alive = [
                sorted(q[1] for q in times if times[q] <= j <= last[q]) for j in range(len(runs))
            ]
            names = [name for _, name, _ in runs]
            lead = names[: names.index("grad")].count("step")
            yield {"events": events, "alive": alive, "lead": lead, "peak": most(n, proximity)}


def most(n: int | None, proximity: str) -> int:
    """Windows interleave by their upper bounds; by all they read, only if they are short."""
    together = n is not None and (proximity == "upper" or (proximity == "all" and n <= 3))
    return n if n and together else graphs.STEPS


def tiles() -> Iterator[dict[str, Any]]:
    """Launches and peaks of tiled programs, as they are scheduled for all T and then enumerated."""
    for n, m in ((1, 1), (3, 4), (5, 2), (None, 4)):
        graph = tile_graph(n, m)
        tree = generate(plan_memory(schedule(graph)))
        for steps in (8, 14, 33):
            events = trace(tree, I=1, T=steps)
            report = check(graph, events, I=1, T=steps)
            assert report.ok, str(report)
            launches = sum(what == "d" for _, what, _ in events)
            yield dict(n=n, m=m, T=steps, launches=launches, peak=report.device["o", 0])


VECTORS = {"patterns": patterns, "schedules": schedules, "tiles": tiles}
