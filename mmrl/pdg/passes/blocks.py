"""Blocks in which a tiled dimension ends: partial sums, and the states of a loop block by block."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.expr import TRUE, Expr, Sym
from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import Access, Block, access
from mmrl.pdg.passes.compose import FAR, branches
from mmrl.pdg.passes.loops import Loop
from mmrl.pdg.passes.recurrence import recognize
from mmrl.pdg.passes.values import Refusal

Made = tuple[Op, list[Edge]]


def block_plans(
    graph: Graph, loop: Loop, block: Block, moved: Collection[str]
) -> list[Access] | None:
    """How a block of a loop reads what is outside; None if some of it cannot be read by blocks."""
    plans = [
        access(e, graph.ops[e.sink], graph.ops[e.source], block, moved, True)
        for e in loop.body.outside
    ]
    whole = [plan for plan in plans if plan is not None]
    return whole if len(whole) == len(plans) else None


def build(
    graph: Graph, block: Block, moved: list[str], loops: list[Loop], sums: list[str]
) -> Graph:
    """The graph in which `moved`, and the loops and sums they flow into, go by blocks."""
    made: list[Made] = []
    place: dict[tuple[str, int], tuple[str, int]] = {}
    gone = set(moved)
    for name in moved:
        new, edges = move.moved_op(graph, block, moved, name)
        made.append((new, edges))
        place |= {(name, k): (new.name, k) for k in range(len(new.outputs))}
    for loop in loops:
        gone |= set(loop.body.ops)
        plans = block_plans(graph, loop, block, moved) or []
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
    op: Op,
    block: Block,
    runs: tuple[Callable, Callable],
    edges: tuple[list[Edge], list[Edge]],
    kind: Any,
) -> list[Made]:
    """`op` as a state that goes from block to block: the first block, the next ones, a merge."""
    name, symbol, size = op.name, block.symbol, block.size
    domain = move.block_domain(op.domain.box(), block)
    others = [dim.symbol for dim in op.domain]
    here = tuple(others)
    back = tuple(s - size if s.same(symbol) else s for s in others)
    first, further = f"{name}_first", f"{name}_next"

    def reads(sink: str, later: int) -> list[Edge]:
        return [
            dataclasses.replace(e, sink=sink, input=k + later, when=TRUE)
            for k, e in enumerate(edges[later])
        ]

    params = {"over": block.name, "block": size}
    carry = Edge(further, name, back)
    return [
        (Op(first, "fn", domain.restrict(symbol == 0), (kind,), runs[0], params), reads(first, 0)),
        (
            Op(further, "fn", domain.restrict(symbol >= size), (kind,), runs[1], params),
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
    # What only the first point reads, such as a zero to begin with, the further blocks do without.
    unread = [edge for edge, taken in _sure(loop, 1, FAR).items() if not taken]
    kept = [k for k, edge in enumerate(loop.body.outside) if edge not in unread]
    everything = list(range(len(edges)))
    runs = (
        _loop_run(loop, plans, block, everything, True),
        _loop_run(loop, plans, block, kept, False),
    )
    return _chain(op, block, runs, (edges, [edges[k] for k in kept]), op.outputs[loop.carried[1]])


def _sure(loop: Loop, nearest: int, farthest: int) -> dict[Edge, bool]:
    """The branches that are surely taken, or not, so many points from the first one."""
    edges = [edge for op in loop.body.ops for edge in loop.body.graph.inputs(op)]
    return branches(edges, Sym("_far"), loop.block.name, {"_far": (nearest, farthest)})


def _loop_run(
    loop: Loop, plans: list[Access], block: Block, kept: list[int], first: bool
) -> Callable:
    """The steps of one block, from the state before it to the state after its last point.

    `kept` says which of the inputs arrive.
    """
    name, carried = block.name, loop.carried
    local = dataclasses.replace(loop, plans=plans, block=block)
    begin, end = _sure(loop, 0, 0), _sure(loop, 1, FAR)

    def run(env: Mapping[str, Any], *given: Any) -> tuple[Any, ...]:
        arrived = dict(zip(kept, given if first else given[1:], strict=True))
        at = local.steps(tuple(arrived.get(k) for k in range(len(plans))), env, env)
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

    reads = [dataclasses.replace(edge, index=index)]
    made = _chain(add, block, (inner, further), (reads, reads), op.outputs[0])
    here = tuple(_last(block) if d.name == block.name else d.symbol for d in dims)
    return made, Edge(name, add.name, here)
