"""Tile: a block of m points of d in each run, the middle between looping and vectorizing.  §5.3

    total[t] = total[t - 1] + d[t]    ↦    total[s] = total[s - m] + Σ_{k<m} d[s + k], s = 0, m, …

m = 1 interleaves most and keeps least; m = T is vectorizing. What learns from a block may run as
soon as acting is through with it, so the peak of a window of n steps is m + n - 1 points.

Every operation that is tiled exists at the first points of blocks only, t mod m = 0, and its other
indices stay as they were. So the scheduler may first place all points and then take the stride
("dense, then strided"), which keeps acting and learning at the same pace.

Blocks end in sums and in loops of which only the last state is read. The last block may be short:
its missing points are zeros, and add nothing.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.expr import TRUE, Expr, Slice, Sym
from mmrl.pdg.graph import ArrayType, Edge, Graph, Op
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import ZERO, Access, Block, access
from mmrl.pdg.passes.compose import FAR, branches
from mmrl.pdg.passes.cycles import cycles, trivial
from mmrl.pdg.passes.loops import Loop, analyze
from mmrl.pdg.passes.recurrence import recognize
from mmrl.pdg.passes.values import Refusal
from mmrl.pdg.passes.vectorize import movable

Made = tuple[Op, list[Edge]]


def tile(
    graph: Graph,
    name: str,
    size: int | None = None,
    *,
    budget: int | None = None,
    bounds: Mapping[str, int] | None = None,
    only: Collection[str] | None = None,
) -> tuple[Graph, list[str]]:
    """The graph with all operations tiled that can be, `size` points of `name` at a time.

    Or give a `budget` in bytes for the largest of them, and the `bounds` that sizes depend on: m is
    then the largest power of two that keeps to it. `only` limits it to some operations.

    Raises `ValueError` if not exactly one of `size` and `budget` is given, or a size below 1.
    """
    if (size is None) == (budget is None) or (size is not None and size < 1):
        raise ValueError(f"Give `size`, at least 1, or `budget`; got {size} and {budget}.")
    bound = move.graph_dims(graph).get(name)
    if bound is None:
        raise ValueError(f"`{name}` is no dimension of the program.")
    if size is None:
        size = _size(graph, name, budget or 0, bounds or {})
    block = Block(name, bound, size)
    loops, sums = _loops(graph, block, only), _sums(graph, block, only)
    moved, loops, sums, words = _choose(graph, block, only, loops, sums)
    if not moved:
        return graph, ["nothing tiled", *words]
    ends = [loop.carried[0] for loop in loops]
    words.insert(0, f"tiled by {size} along {name}: {', '.join([*moved, *ends, *sums])}")
    return _build(graph, block, moved, loops, sums), words


def _size(graph: Graph, name: str, budget: int, bounds: Mapping[str, int]) -> int:
    """The largest power of two such that a block of the largest operation fits the budget."""
    able, _ = movable(graph, Block(name, move.graph_dims(graph)[name]))
    missing = set(graph.bounds) - set(bounds)
    if missing:
        raise ValueError(f"`bounds` must say how large {', '.join(sorted(missing))} are.")
    largest = max((_bytes(graph.ops[op], bounds) for op in able), default=1)
    return 2 ** int(math.log2(max(1, budget // max(1, largest))))


def _bytes(op: Op, bounds: Mapping[str, int]) -> int:
    leaves = jax.tree.leaves(op.types(bounds))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def _loops(graph: Graph, block: Block, only: Collection[str] | None) -> list[Loop]:
    """Forward loops of which only the last state is read."""
    found = []
    for cycle in cycles(graph, block.name):
        if trivial(graph, cycle, block.name) or (
            only is not None and not set(cycle.ops) <= set(only)
        ):
            continue
        try:
            loop = analyze(graph, cycle, Block(block.name, block.bound))
        except Refusal:
            continue
        if loop.final and loop.way > 0:
            found.append(loop)
    return found


def _sums(graph: Graph, block: Block, only: Collection[str] | None) -> list[str]:
    """Operations that add up all of d."""
    found = []
    for op in graph.ops.values():
        edges = graph.inputs(op.name)
        if op.kind != "sum" or op.params.get("axis") != 0 or len(edges) != 1:
            continue
        (edge,) = edges
        parts = [part for part in edge.index if isinstance(part, Slice)]
        whole = len(parts) == 1 and ZERO.same(parts[0].lo) and block.bound.same(parts[0].hi)
        along = graph.ops[edge.source].domain.names
        here = whole and along[edge.index.index(parts[0])] == block.name
        if here and (only is None or op.name in only):
            found.append(op.name)
    return found


def _choose(
    graph: Graph, block: Block, only: Collection[str] | None, loops: list[Loop], sums: list[str]
) -> tuple[list[str], list[Loop], list[str], list[str]]:
    """The largest set of operations that can be tiled together with the ends they flow into."""
    moved, words = movable(graph, block, only)
    while True:
        kept = [loop for loop in loops if _plans(graph, loop, block, moved) is not None]
        ended = [s for s in sums if graph.inputs(s)[0].source in moved]
        ends = {op for loop in kept for op in loop.body.ops} | set(ended)
        loose = [op for op in moved if not _stays_inside(graph, op, moved, ends)]
        if not loose and len(kept) == len(loops) and len(ended) == len(sums):
            taken = {edge.source for loop in kept for edge in loop.body.outside}
            return moved, [k for k in kept if taken & set(moved)], ended, words
        words += [f"{op} stays: it is read point by point" for op in loose]
        loops, sums = kept, ended
        able, more = movable(graph, block, [op for op in moved if op not in loose])
        words += more
        moved = able


def _stays_inside(graph: Graph, op: str, moved: Collection[str], ends: Collection[str]) -> bool:
    asked = any(op == name for name, _ in graph.results)
    return not asked and all(e.sink in moved or e.sink in ends for e in graph.readers(op))


def _plans(graph: Graph, loop: Loop, block: Block, moved: Collection[str]) -> list[Access] | None:
    """How a block of a loop reads what is outside; None if some of it cannot be read by blocks."""
    plans = [
        access(e, graph.ops[e.sink], graph.ops[e.source], block, moved, True)
        for e in loop.body.outside
    ]
    whole = [plan for plan in plans if plan is not None]
    return whole if len(whole) == len(plans) else None


def _build(
    graph: Graph, block: Block, moved: list[str], loops: list[Loop], sums: list[str]
) -> Graph:
    made: list[Made] = []
    place: dict[tuple[str, int], tuple[str, int]] = {}
    gone = set(moved)
    for name in moved:
        new, edges = move.moved_op(graph, block, moved, name)
        made.append((new, edges))
        place |= {(name, k): (new.name, k) for k in range(len(new.outputs))}
    for loop in loops:
        gone |= set(loop.body.ops)
        plans = _plans(graph, loop, block, moved) or []
        made += _tiled_loop(graph, loop, plans, block)
        place[loop.carried] = (loop.carried[0], 0)
    trimmed, later = graph, list[Edge]()
    for name in sums:
        parts, edge = _tiled_sum(graph, name, block)
        made += parts
        later.append(edge)
        op = graph.ops[name]
        same = dataclasses.replace(op, kind="read", run=lambda env, x: (x,), params={})
        edges = tuple(e for e in trimmed.edges if e.sink != name)
        trimmed = trimmed.replace(ops={**trimmed.ops, name: same}, edges=edges)
    result = move.rewire(trimmed, block, gone, made, place)
    ends = {loop.carried[0] for loop in loops}
    new = {op.name for op, _ in made}
    edges = [
        _read_end(result, e, block) if e.source in ends and e.sink not in new else e
        for e in result.edges
    ]
    return result.replace(edges=(*edges, *later))


def _read_end(graph: Graph, edge: Edge, block: Block) -> Edge:
    """The last state of a loop is where the last block begins."""
    dims = graph.ops[edge.source].domain.names
    index = tuple(
        _last(block) if dim == block.name else part
        for dim, part in zip(dims, edge.index, strict=True)
    )
    return dataclasses.replace(edge, index=index)


def _last(block: Block) -> Expr:
    return (block.bound - 1) // block.size * block.size


def _chain(
    op: Op, block: Block, begin: Callable, go_on: Callable, edges: list[Edge], kind: ArrayType | Any
) -> list[Made]:
    """`op` as a state that goes from block to block: the first block, the next ones, a merge."""
    name, symbol, size = op.name, block.symbol, block.size
    domain = move.block_domain(op.domain.box(), block)
    others = [dim.symbol for dim in op.domain]
    here = tuple(others)
    back = tuple(s - size if s.same(symbol) else s for s in others)
    first, further = f"{name}_first", f"{name}_next"

    def reads(sink: str, before: int) -> list[Edge]:
        return [
            dataclasses.replace(e, sink=sink, input=k + before, when=TRUE)
            for k, e in enumerate(edges)
        ]

    params = {"over": block.name, "block": size}
    carry = Edge(further, name, back)
    return [
        (Op(first, "fn", domain.restrict(symbol == 0), (kind,), begin, params), reads(first, 0)),
        (
            Op(further, "fn", domain.restrict(symbol >= size), (kind,), go_on, params),
            [carry, *reads(further, 1)],
        ),
        (
            Op(name, "merge", domain, (kind,), None, params),
            [
                Edge(name, first, here, symbol == 0),
                Edge(name, further, here, symbol >= size),
            ],
        ),
    ]


def _tiled_loop(graph: Graph, loop: Loop, plans: list[Access], block: Block) -> list[Made]:
    op = graph.ops[loop.carried[0]]
    edges = [
        dataclasses.replace(edge, index=plan.index)
        for edge, plan in zip(loop.body.outside, plans, strict=True)
    ]
    kind = op.outputs[loop.carried[1]]
    return _chain(
        op,
        block,
        _loop_run(loop, plans, block, True),
        _loop_run(loop, plans, block, False),
        edges,
        kind,
    )


def _loop_run(loop: Loop, plans: list[Access], block: Block, first: bool) -> Callable:
    """The steps of one block, from the state before it to the state after its last point."""
    name, carried = block.name, loop.carried
    local = dataclasses.replace(loop, plans=plans, block=block)
    edges = [e for op in loop.body.ops for e in loop.body.graph.inputs(op)]
    begin, end = (
        branches(edges, Sym("_far"), name, {"_far": limits}) for limits in ((0, 0), (1, FAR))
    )

    def run(env: Mapping[str, Any], *given: Any) -> tuple[Any, ...]:
        inputs = given if first else given[1:]
        start = {**env}
        at = local.steps(inputs, env, start)
        points = env[name] + jnp.arange(block.count(env))

        def step(x: Any, point: Any, walked: Any) -> Any:
            new = at(point, x, walked, end)[carried]
            real = point < block.bound.evaluate(env)
            return jax.tree.map(lambda n, o: jax.lax.select_n(real, o, n), new, x)

        inside = (points, at.walked)
        if first:
            now, inside = (
                jax.tree.map(lambda x, take=take: x[take], inside) for take in (0, slice(1, None))
            )
            x = at(now[0], at.nothing, now[1], begin)[carried]
        else:
            x = given[0]
        one = jax.tree.map(lambda z: jax.ShapeDtypeStruct(z.shape[1:], z.dtype), inside)
        try:
            return (recognize(step, x, *one).last(x, tuple(inside)),)
        except Refusal:
            return (jax.lax.scan(lambda x, z: (step(x, *z), None), x, tuple(inside))[0],)

    return run


def _tiled_sum(graph: Graph, name: str, block: Block) -> tuple[list[Made], Edge]:
    """A sum over d as a sum of blocks; and the edge by which its operation reads the last state."""
    op, (edge,) = graph.ops[name], graph.inputs(name)
    source = graph.ops[edge.source].domain
    dims = source.union(op.domain)
    add = dataclasses.replace(op, name=f"{name}_part", domain=dims)
    index = tuple(
        block.symbol if dim == block.name else part
        for dim, part in zip(source.names, edge.index, strict=True)
    )
    inner = op.run
    assert inner is not None

    def further(env: Mapping[str, Any], before: Any, *inputs: Any) -> tuple[Any, ...]:
        return (jax.tree.map(jnp.add, before, inner(env, *inputs)[0]),)

    made = _chain(
        add, block, inner, further, [dataclasses.replace(edge, index=index)], op.outputs[0]
    )
    here = tuple(_last(block) if d.name == block.name else d.symbol for d in dims)
    return made, Edge(name, add.name, here)
