"""Vectorizing and tiling a dimension d: one run computes many points.  §5.2 (Alg. 2), §5.3

    for t in range(T): y[t] = f(x[t])      ↦      y = f(x), all of t at once

Fewer and larger operations need more memory: all points of d are alive at once, and a vectorized
operation cannot be interleaved with the producers of its inputs. Operations on a cycle through
different points of d, such as acting along t, stay in loops, except for sums. Operations on a cycle
at one point of d, such as acting along a batch b, are vectorized either together or not at all.

Tiling is a compromise between looping and vectorizing:

    total[t] = total[t - 1] + d[t]    ↦    total[s] = total[s - m] + Σ_{k<m} d[s + k], s = 0, m, …

m = 1 interleaves most and stores the fewest values, and m = T is vectorizing. Learning from a block
can start as soon as acting has computed the block, so a window of n steps has at most m + n - 1
points alive.

A tiled operation exists only at the first points of blocks, t mod m = 0; its other dimensions do
not change. The scheduler can therefore schedule all points first and then select the strided ones
("dense, then strided"), which keeps acting and learning at the same pace.

The following operations can read blocks: other tiled operations, folds over all of d (sums, means,
maxima, minima), and loops whose last state is the only state that is read. Windows such as
t:min_(t + n, T) and shifts such as t + 1 read a few neighboring blocks. A fold of 0:t + 1 or t:T
passes the fold of all blocks before it, or after it, from block to block. If the last block is
short, its missing points are zeros, which do not affect loops and folds.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp

from mmrl.pdg.build.expr import Slice
from mmrl.pdg.build.graph import Edge, Graph, Op
from mmrl.pdg.clean import NewOp, phi
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import ZERO, Block, cycles
from mmrl.pdg.passes.folds import Fold, folds
from mmrl.pdg.passes.fuse import join, straight
from mmrl.pdg.passes.lift import is_sum
from mmrl.pdg.passes.loops import CarryLoop, analyze
from mmrl.pdg.passes.move import Reason, movable, sentences, whole
from mmrl.pdg.passes.steps import Refusal


@move.along
def vectorize(graph: Graph, name: str) -> tuple[Graph, list[str]]:
    """Vectorize all possible operations over `name`; return the graph and a report.

    Each sum over the dimension becomes one operation. Raises `ValueError` for an unknown dimension.

        >>> from mmrl.pdg import Program
        >>> program = Program("i")
        >>> x, (i,) = program.tensor("i", name="x"), program.symbols
        >>> x[i] = 2.0
        >>> vectorize(program.graph(x), "i")[1]
        ['vectorized over i: x']
    """
    block = whole(graph, name)
    moved, reasons = movable(graph, block)
    if not moved:
        return graph, sentences(reasons)
    graph, names = move.with_views(graph, moved)
    inside = [names[op] for op in moved]
    loops = [tile_loop(loop, block, inside) for loop in _loops(graph, name) if is_sum(loop)]
    sums = [loop for loop in loops if loop and _sources(loop, name) <= set(inside)]
    ends = [op for loop in sums for op in loop.ops]
    words = [f"vectorized over {name}: {', '.join([*moved, *ends])}"]
    words += sentences([(ops, why) for ops, why in reasons if not set(ops) <= set(ends)])
    return build(graph, block, inside, sums, []), words


def _with_terms(
    graph: Graph, loop: CarryLoop, moved: list[str]
) -> tuple[Graph, CarryLoop, list[str]]:
    """Fuse a sum with the operation that computes its terms, if only the sum reads them.

    The gradient of a parameter is then computed for a complete block, never for a single point.
    """
    name = loop.block.name
    for edge in loop.outside:
        if edge.source in moved and straight(graph, edge) and graph.readers(edge.source) == (edge,):
            fusion, remaining = join(graph, edge.source, edge.sink)[1], [*moved]
            remaining.remove(edge.source)
            cycle = next(each for each in cycles(fusion, name) if edge.sink in each.ops)
            loop_sum = analyze(fusion, cycle, whole(fusion, name))
            if is_sum(loop_sum) and (new := tile_loop(loop_sum, loop.block, remaining)):
                return fusion, new, remaining
    return graph, loop, moved


def _sources(loop: CarryLoop, name: str) -> set[str]:
    """Return the operations over d that a loop reads from outside."""
    domains = {edge.source: loop.graph.ops[edge.source].domain for edge in loop.outside}
    return {source for source, domain in domains.items() if name in domain.names}


def tile_loop(loop: CarryLoop, block: Block, moved: Collection[str]) -> CarryLoop | None:
    """Return the loop with its inputs read in blocks, or None if this is impossible."""
    accesses = move.readings(loop.graph, loop.outside, block, moved)
    if accesses is None or (loop.before and accesses[loop.outside.index(loop.before)].more):
        return None
    return dataclasses.replace(loop, readings=accesses, block=block)


def build(
    graph: Graph, block: Block, moved: list[str], loops: list[CarryLoop], sums: list[Fold]
) -> Graph:
    """Return the graph that computes `moved` and the given loops and folds in blocks."""
    before, loops = loops, []
    for loop in before:
        graph, loop, moved = _with_terms(graph, loop, moved)
        loops.append(loop)
    # First point of the last block. If one block covers all points, it has no index along d.
    end = None if block.size is None else (block.bound - 1) // block.size * block.size
    replacements: dict[str, Sequence[NewOp]]
    replacements = {name: move.moved_ops(graph, block, moved, name) for name in moved}
    for loop in loops:
        replacements |= {**dict.fromkeys(loop.ops, ()), loop.carry[0]: _tiled_loop(loop)}
    replacements |= {fold.op.name: _tiled_fold(graph, fold, block, end) for fold in sums}
    ends = {loop.carry[0]: end for loop in loops}
    place = {loop.carry: (loop.carry[0], 0) for loop in loops}
    return move.rewire(graph, block, replacements, place, ends)


def _chain(
    op: Op, block: Block, run: Callable, edges: list[Edge], kind: Any, start: Any = None
) -> list[NewOp]:
    """Return the operations that compute the state `op` after each block from the previous state.

    `run(env, *inputs, before=…)` computes the state after a block. `start` is a pair: a function
    that computes the state before the first block, and the edge of its input. Without `start`,
    there is no state before the first block.
    """
    name, symbol, size = op.name, block.symbol, block.size
    domain = move.block_domain(op.domain, block)
    here = op.domain.symbols
    back = tuple(s - size if s.same(symbol) else s for s in here)
    params = {"over": block.name, "block": size}

    def part(suffix: str, when: Any, run: Callable, reads: list[Edge]) -> tuple[NewOp, Edge]:
        new = Op(name + suffix, "fn", domain.restrict(when), (kind,), run, params)
        return (new, move.as_inputs(reads)), Edge(name, new.name, here, when)

    def merge(name: str, *cases: Edge) -> NewOp:
        return Op(name, "merge", domain, (kind,), None, params), list(cases)

    def follow(env: Mapping[str, Any], before: Any, *inputs: Any) -> tuple[Any, ...]:
        return run(env, *inputs, before=before)

    carry = Edge(name, name, back, symbol >= size)
    if start is None:
        first, begins = part("_first", symbol == 0, run, edges)
        more, follows = part("_next", symbol >= size, follow, [carry, *edges])
        return [first, more, merge(name, begins, follows)]
    first, begins = part("_first", symbol == 0, start[0], [start[1]])
    before = merge(f"{name}_before", begins, carry)
    every = Op(name, "fn", domain, (kind,), follow, params)
    return [first, before, (every, move.as_inputs([Edge(name, before[0].name, here), *edges]))]


def _tiled_loop(loop: CarryLoop) -> list[NewOp]:
    """Return the operations that run a loop in blocks, passing its state from block to block."""
    op, block = loop.graph.ops[loop.carry[0]], loop.block
    kind = op.outputs[loop.carry[1]]
    if block.size is None:
        return [
            (Op(op.name, "fn", move.block_domain(op.domain, block), (kind,), loop.end), loop.reads)
        ]
    if (edge := loop.before) is None:
        return _chain(op, block, loop.end, loop.reads, kind)
    k = loop.outside.index(edge)
    (read,) = move.replan([edge], [loop.readings[k]])
    start = functools.partial(loop.start, loop.readings[k]), read
    outside = tuple(other for other in loop.outside if other is not edge)
    readings = [reading for place, reading in enumerate(loop.readings) if place != k]
    rest = dataclasses.replace(loop, outside=outside, readings=readings)
    return _chain(op, block, rest.end, rest.reads, kind, start)


def _tiled_fold(graph: Graph, fold: Fold, block: Block, end: Any) -> list[NewOp]:
    """Return the operations that fold all of d in blocks, and one that reads the result."""
    op, edge = fold.op, fold.edge
    source = graph.ops[edge.source].domain
    domain = source.union(op.domain)

    def run(env: Mapping[str, Any], x: Any, before: Any = None) -> tuple[Any, ...]:
        start = block.begin(env)[block.name]
        high = jnp.minimum(block.bound.evaluate(env) - start, len(x))
        new = fold.all(x, high)
        return (new if before is None else fold.join(before, new, start),)

    def finish(env: Mapping[str, Any], x: Any) -> tuple[Any, ...]:
        return (fold.finish(x, block.bound.evaluate(env)),)

    parts = dataclasses.replace(op, name=f"{op.name}_part", domain=domain)
    by_block = phi(graph, edge) | {block.name: block.symbol}
    reads = [dataclasses.replace(edge, index=tuple(by_block.values()))]
    chain = _chain(parts, block, run, reads, op.outputs[0])
    here = tuple(end if dim.name == block.name else dim.symbol for dim in domain)
    read = dataclasses.replace(op, kind="read", run=finish, params={})
    return [*chain, (read, [Edge(op.name, parts.name, here)])]


@move.along
def tile(
    graph: Graph,
    name: str,
    size: SupportsIndex | None = None,
    *,
    budget: SupportsIndex | None = None,
    bounds: Mapping[str, int] | None = None,
) -> tuple[Graph, list[str]]:
    """Tile all operations that can be tiled, with `size` points of `name` per block.

    Alternatively, pass a `budget` in bytes for a block of the largest operation, and the `bounds`
    that array sizes depend on. The number of points is then the largest power of two within the
    budget, and at least 1.

    Raises `ValueError` unless exactly one of `size` and `budget` is a positive integer.

        >>> from mmrl.pdg import Program
        >>> p = Program("t")
        >>> tile(p.graph(p.value(p.symbols[0])[0 : p.bounds[0]].sum()), "t", 4)[1]
        ['tiled by 4 along t: value, sum']
    """
    argument = size if budget is None else budget
    number = operator.index(argument) if isinstance(argument, SupportsIndex) else 0
    if (size is None) == (budget is None) or number < 1:
        raise ValueError(
            f"Pass either `size`, in points, or `budget`, in bytes, as a positive integer; got "
            f"{size!r} and {budget!r}."
        )
    everything = whole(graph, name)
    count = number if budget is None else _size(graph, everything, number, bounds or {})
    block = dataclasses.replace(everything, size=count)
    moved, loops, sums, reasons = _choose(graph, block)
    if not moved:
        return graph, ["no operation is tiled", *sentences(reasons)]
    ends = [loop.carry[0] for loop in loops]
    inside = {op for loop in loops for op in loop.ops}
    words = sentences([(ops, why) for ops, why in reasons if not inside & set(ops)])
    ends += [fold.op.name for fold in sums]
    words = [f"tiled by {count} along {name}: {', '.join([*moved, *ends])}", *words]
    for op in [op for op in moved if move.running_fold(graph, graph.ops[op], block, moved)]:
        words.append(f"{op} is a running fold, passed from each block of {name} to the next")
    return build(graph, block, moved, loops, sums), words


def _size(graph: Graph, everything: Block, budget: int, bounds: Mapping[str, int]) -> int:
    """Return the largest power of two for which a block of each operation fits in `budget`."""
    able, _ = movable(graph, everything)
    missing = set(graph.bounds) - set(bounds)
    if missing:
        raise ValueError(
            f"`bounds` must have numbers for {', '.join(sorted(missing))}, got {dict(bounds)}."
        )
    largest = max((_bytes(graph.ops[op], bounds) for op in able), default=1)
    return 2 ** int(math.log2(max(1, budget // max(1, largest))))


def _bytes(op: Op, bounds: Mapping[str, int]) -> int:
    leaves = jax.tree.leaves(op.types(bounds))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def _loops(graph: Graph, name: str) -> list[CarryLoop]:
    """Return the loops over a dimension whose last state is the only one that is read."""
    loops = []
    for cycle in cycles(graph, name):
        if cycle.trivial:
            continue
        try:
            loop = analyze(graph, cycle, whole(graph, name))
        except Refusal:
            continue
        if loop.final:
            loops.append(loop)
    return loops


def _choose(
    graph: Graph, block: Block
) -> tuple[list[str], list[CarryLoop], list[Fold], list[Reason]]:
    """Return the largest set of operations that can be tiled, and the loops and folds that read it.

    The last result contains the reasons why other operations are not tiled.
    """
    loops = [loop for loop in _loops(graph, block.name) if loop.way > 0]
    everything = Slice(ZERO, block.bound)
    sums = {f.op.name: f for f in folds(graph, block.name) if f.part.same(everything)}
    moved, reasons = movable(graph, block)
    while True:
        tileable = [loop for loop in loops if tile_loop(loop, block, moved)]
        final = {name: fold for name, fold in sums.items() if fold.edge.source in moved}
        ends = {*final, *(op for loop in tileable for op in loop.ops)}
        loose = [op for op in moved if not _stays_inside(graph, op, moved, ends)]
        if not loose and (tileable, final) == (loops, sums):
            readers = [x for x in tileable if {edge.source for edge in x.outside} & set(moved)]
            blocks = [tile_loop(loop, block, moved) for loop in readers]
            return moved, [loop for loop in blocks if loop is not None], [*final.values()], reasons
        loops, sums = tileable, final
        reasons += [((op,), "it is read point by point") for op in loose]
        moved, more = movable(graph, block, [op for op in moved if op not in loose])
        reasons += more


def _stays_inside(graph: Graph, op: str, moved: Collection[str], ends: Collection[str]) -> bool:
    is_result = any(op == name for name, _ in graph.results)
    return not is_result and all(e.sink in moved or e.sink in ends for e in graph.readers(op))
