"""Blocks in which a tiled dimension ends: partial sums, and the states of a loop block by block."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import Block, access
from mmrl.pdg.passes.loops import Loop
from mmrl.pdg.passes.move import Made
from mmrl.pdg.passes.recurrence import last


def tiled(loop: Loop, block: Block, moved: Collection[str]) -> Loop | None:
    """The loop with reads by blocks; None if some of what it reads cannot be read so."""
    plans = [access(loop.graph, edge, block, moved, True) for edge in loop.outside]
    known = [plan for plan in plans if plan is not None]
    return dataclasses.replace(loop, plans=known, block=block) if len(known) == len(plans) else None


def build(
    graph: Graph, block: Block, moved: list[str], loops: list[Loop], sums: list[str]
) -> Graph:
    """The graph in which `moved`, and the loops and sums they flow into, go by blocks."""
    end = (block.bound - 1) // block.size * block.size  # where the last block begins
    made = [new for name in moved for new in move.moved_ops(graph, block, moved, name)]
    for loop in loops:
        made += _tiled_loop(loop)
    for name in sums:
        made += _tiled_sum(graph, name, block, end)
    gone = {*moved, *(op for loop in loops for op in loop.ops), *sums}
    ends = {loop.carried[0]: end for loop in loops}
    place = {loop.carried: (loop.carried[0], 0) for loop in loops}
    return move.rewire(graph, block, gone, made, place, ends)


def _chain(op: Op, block: Block, run: Callable, edges: list[Edge], kind: Any) -> list[Made]:
    """`op` as a state that goes from block to block: the first block, the next ones, a merge.

    `run(env, before, *inputs)` is the state after a block; before the first it is None.
    """
    name, symbol, size = op.name, block.symbol, block.size
    domain = move.block_domain(op.domain.box(), block)
    here = op.domain.symbols
    back = tuple(s - size if s.same(symbol) else s for s in here)
    params = {"over": block.name, "block": size}

    def begin(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        return run(env, None, *inputs)

    def part(suffix: str, when: Any, run: Callable, reads: list[Edge]) -> Made:
        new = Op(name + suffix, "fn", domain.restrict(when), (kind,), run, params)
        return new, move.numbered(reads)

    starts: Any = symbol == 0
    goes_on = symbol >= size
    choices = [Edge(name, f"{name}_first", here, starts), Edge(name, f"{name}_next", here, goes_on)]
    return [
        part("_first", starts, begin, edges),
        part("_next", goes_on, run, [Edge(name, name, back), *edges]),
        (Op(name, "merge", domain, (kind,), None, params), choices),
    ]


def _tiled_loop(loop: Loop) -> list[Made]:
    """The steps of one block, from the state before it to the state after its last point."""
    block, carried = loop.block, loop.carried

    def run(env: Mapping[str, Any], before: Any, *inputs: Any) -> tuple[Any, ...]:
        at, walked = loop.begin(inputs, env, env)
        bound = block.bound.evaluate(env)
        full = isinstance(bound, int) and bound % block.length.evaluate(env) == 0

        def step(x: Any, point: Any, here: list[Any]) -> Any:
            new = at(point, x, here, loop.later)[carried]
            if full:  # no block has missing points
                return new
            real = point < bound
            return jax.tree.map(lambda n, o: jax.lax.select_n(real, o, n), new, x)

        x, inside = before, (env[block.name] + jnp.arange(block.length.evaluate(env)), walked)
        if before is None:  # the first point has a definition of its own
            point, here = jax.tree.map(lambda z: z[0], inside)
            x = at(point, loop.nothing(env), here)[carried]
            inside = jax.tree.map(lambda z: z[1:], inside)
        return (last(step, x, inside),)

    op = loop.graph.ops[carried[0]]
    return _chain(op, block, run, loop.reads, op.outputs[carried[1]])


def _tiled_sum(graph: Graph, name: str, block: Block, end: Any) -> list[Made]:
    """A sum over d as a sum of blocks, and the operation that reads the last of them."""
    op, (edge,) = graph.ops[name], graph.inputs(name)
    source = graph.ops[edge.source].domain
    domain = source.union(op.domain)
    inner = op.run
    assert inner is not None

    def run(env: Mapping[str, Any], before: Any, *inputs: Any) -> tuple[Any, ...]:
        new = inner(env, *inputs)[0]
        return (new if before is None else jax.tree.map(jnp.add, before, new),)

    parts = dataclasses.replace(op, name=f"{name}_part", domain=domain)
    by_block = tuple(
        block.symbol if dim == block.name else part
        for dim, part in zip(source.names, edge.index, strict=True)
    )
    reads = [dataclasses.replace(edge, index=by_block)]
    made = _chain(parts, block, run, reads, op.outputs[0])
    here = tuple(end if dim.name == block.name else dim.symbol for dim in domain)
    read = dataclasses.replace(op, kind="read", run=lambda env, x: (x,), params={})
    return [*made, (read, [Edge(name, parts.name, here)])]
