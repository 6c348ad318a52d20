"""Moving a dimension from the loops into the arrays: what vectorizing and tiling share.

An operation that is moved computes a block of points in one run: the old `run` under `vmap`, with
the symbol of d as its batched argument, so the rule is one for all operations. Those that are not
moved read what they did before out of the larger array, inside their own run.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.domain import Domain, conjuncts
from mmrl.pdg.expr import TRUE, Expr, Sym, max_, min_
from mmrl.pdg.graph import ArrayType, Edge, Graph, Op
from mmrl.pdg.passes.access import Access, Block, access

Read = tuple[Edge, Access]


def move(graph: Graph, block: Block, moved: Collection[str]) -> Graph:
    """The graph in which the operations in `moved` compute a block of d in each run."""
    made, place = [], {}
    for name in moved:
        made.append(moved_op(graph, block, moved, name))
        outputs = range(len(graph.ops[name].outputs))
        place |= {(name, k): (made[-1][0].name, k) for k in outputs}
    return rewire(graph, block, moved, made, place)


def moved_op(
    graph: Graph, block: Block, moved: Collection[str], name: str
) -> tuple[Op, list[Edge]]:
    """One operation over a block, and what it reads."""
    op = graph.ops[name]
    reads = [(edge, _plan(graph, edge, block, moved)) for edge in graph.inputs(name)]
    stays = op.run is None and _merge_stays([edge for edge, _ in reads], block, moved)
    return _block_op(op, title(graph, name, moved), reads, block, stays)


def rewire(
    graph: Graph,
    block: Block,
    moved: Collection[str],
    made: list[tuple[Op, list[Edge]]],
    place: Mapping[tuple[str, int], tuple[str, int]],
    last: bool = False,
) -> Graph:
    """The graph with the operations in `moved` replaced by those in `made`.

    `place` says which output of a new operation holds a block of what output of an old one, or
    with `last` the only point of d that anyone reads.
    Results, and what branching definitions read, stay as views: single points under the old names.
    """
    ops: dict[str, Op] = {}
    edges: list[Edge] = []

    def add(op: Op, reads: list[Edge]) -> None:
        ops[op.name] = op
        edges.extend(reads)

    for name, op in graph.ops.items():
        if name not in moved:
            plans = [_reading(graph, edge, block, moved, last) for edge in graph.inputs(name)]
            reads = zip(graph.inputs(name), plans, strict=True)
            add(
                _reader(op, plans),
                [dataclasses.replace(edge, index=plan.index) for edge, plan in reads],
            )
            continue
        for new, reads in made:
            if new.name not in ops:
                add(new, [dataclasses.replace(edge, sink=new.name) for edge in reads])
        if name in views(graph, moved):
            add(_view(graph, name, block), _view_edges(graph, name, block))

    def resource(edge: Edge) -> Edge:
        sees = edge.sink in graph.ops and edge.sink not in moved and _copies(graph, edge.sink)
        if edge.source not in moved or sees:
            return edge
        source, output = place[edge.source, edge.output]
        return dataclasses.replace(edge, source=source, output=output)

    return graph.replace(ops=ops, edges=tuple(map(resource, edges)))


def views(graph: Graph, moved: Collection[str]) -> set[str]:
    """The moved operations of which single points stay in demand."""
    asked = {op for op, _ in graph.results}
    asked |= {e.source for e in graph.edges if e.sink not in moved and _copies(graph, e.sink)}
    return asked & set(moved)


def title(graph: Graph, name: str, moved: Collection[str]) -> str:
    """What a moved operation is called: as before, unless a view has its name."""
    return f"all_{name}" if name in views(graph, moved) else name


def _copies(graph: Graph, name: str) -> bool:
    """A branching definition copies and cannot pick: what it reads must be single points."""
    return graph.ops[name].run is None


def can_move(graph: Graph, block: Block, moved: Collection[str], name: str) -> str | None:
    """Why this operation cannot be moved together with the rest of `moved`; None if it can."""
    op, edges = graph.ops[name], graph.inputs(name)
    for edge in edges:
        source = graph.ops[edge.source]
        plan = access(edge, op, source, block, moved, True)
        if plan is None:
            at = ", ".join(map(str, edge.index))
            return f"it reads {edge.source}[{at}], which no block of {block.name} holds"
    if op.run is None and not _merge_stays(edges, block, moved):
        for edge in edges:
            foreign = edge.when.symbols() & set(graph_dims(graph)) - {block.name}
            if foreign:
                return f"which branch it takes depends on {', '.join(sorted(foreign))} too"
    return None


def graph_dims(graph: Graph) -> dict[str, Expr]:
    """Every dimension of the program and its bound."""
    return {dim.name: dim.bound for op in graph.ops.values() for dim in op.domain}


def widen(outputs: tuple[Any, ...], block: Block) -> tuple[Any, ...]:
    """The types of a block of such outputs: a leading axis; what depends on d, at its largest."""
    last = block.bound - 1
    lead = block.bound if block.size is None else min_(block.size, block.bound)

    def largest(size: Any) -> Any:
        if not isinstance(size, Expr) or block.name not in size.symbols():
            return size
        return max_(*(size.substitute({block.name: end}) for end in (0, last)))

    def one(leaf: Any) -> Any:
        return ArrayType((lead, *map(largest, leaf.shape)), leaf.dtype)

    return jax.tree.map(one, outputs, is_leaf=lambda leaf: isinstance(leaf, ArrayType))


def choose(conditions: list[Any], values: list[Any]) -> Any:
    """The value whose condition holds, of pytrees that are all at hand."""
    result = values[-1]
    for condition, value in zip(conditions[-2::-1], values[-2::-1], strict=True):
        holds = jnp.asarray(condition)
        result = jax.tree.map(lambda x, y, c=holds: jax.lax.select_n(c, y, x), value, result)
    return result


def _plan(graph: Graph, edge: Edge, block: Block, moved: Collection[str]) -> Access:
    plan = access(edge, graph.ops[edge.sink], graph.ops[edge.source], block, moved, True)
    if plan is None:
        raise ValueError(f"`{edge.sink}` cannot be moved: see `can_move`")
    return plan


def _reading(graph: Graph, edge: Edge, block: Block, moved: Collection[str], last: bool) -> Access:
    """How an operation that stays reads; a branching definition reads a view, as before."""
    sink, source = graph.ops[edge.sink], graph.ops[edge.source]
    if last and edge.source in moved:
        pairs = zip(source.domain.names, edge.index, strict=True)
        return Access(tuple(part for dim, part in pairs if dim != block.name), (), sink.domain)
    plan = None if sink.run is None else access(edge, sink, source, block, moved, False)
    return plan or Access(edge.index, (), sink.domain)


def _merge_stays(edges: Sequence[Edge], block: Block, moved: Collection[str]) -> bool:
    """Whether the branch is the same for all of a block, and every branch is there as a block."""
    return all(
        block.name not in edge.when.symbols()
        and edge.source in moved
        and any(block.symbol.same(part) for part in edge.index)
        for edge in edges
    )


def _block_op(
    op: Op, name: str, reads: list[Read], block: Block, stays: bool
) -> tuple[Op, list[Edge]]:
    """The operation over a block, and its edges; a branching definition becomes a choice."""
    outputs, domain = widen(op.outputs, block), block_domain(op.domain, block)
    params = {**op.params, "over": block.name, "block": block.size}
    plans = [plan for _, plan in reads]
    edges = [dataclasses.replace(edge, index=plan.index) for edge, plan in reads]
    run, kind = op.run, op.kind
    if stays:
        return Op(name, kind, domain, outputs, None, params), edges
    if run is None:
        kind, run = "choice", _choice([edge.when for edge in edges])
        edges = [dataclasses.replace(edge, input=k, when=TRUE) for k, edge in enumerate(edges)]
    return Op(name, kind, domain, outputs, block_run(run, plans, block, op.domain), params), edges


def _choice(conditions: list[Expr]) -> Callable[..., tuple[Any, ...]]:
    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        return (choose([when.evaluate(env) for when in conditions], list(inputs)),)

    return run


def block_run(
    run: Callable, plans: list[Access], block: Block, domain: Domain
) -> Callable[..., tuple[Any, ...]]:
    """`run` at every point of a block; zeros at points that are not in the domain."""

    def whole(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        start = env if block.size is not None else {**env, block.name: 0}

        def one(step: Any, *values: Any) -> tuple[Any, ...]:
            point = {**env, block.name: start[block.name] + step}
            results = run(point, *read_all(plans, values, point, start, block))
            inside = _inside(point, block, domain)
            if inside is None:
                return tuple(results)
            return jax.tree.map(lambda x: jnp.where(inside, x, jnp.zeros_like(x)), tuple(results))

        steps = jnp.arange(block.count(env))
        return jax.vmap(one, (0, *axes(plans, block)))(steps, *inputs_in_order(plans, inputs))

    return whole


def inputs_in_order(plans: list[Access], inputs: tuple[Any, ...]) -> list[Any]:
    return [plan.order(value) for plan, value in zip(plans, inputs, strict=True)]


def axes(plans: list[Access], block: Block) -> list[int | None]:
    """Which axis of each input `vmap` walks along."""
    return [plan.walks if plan.direct(block.name) else None for plan in plans]


def read_all(plans: list[Access], values: Any, point: Any, start: Any, block: Block) -> list[Any]:
    """What the old run gets: walked along, or taken out of what arrived (axes in order)."""
    return [
        value
        if plan.direct(block.name)
        else dataclasses.replace(plan, stored=None).read(value, point, start)
        for plan, value in zip(plans, values, strict=True)
    ]


def _inside(point: Mapping[str, Any], block: Block, domain: Domain) -> Any:
    """Whether a point of the block exists, where that is not sure."""
    conditions = [part for part in conjuncts(domain.when) if block.name in part.symbols()]
    if block.size is not None:
        conditions.append(Sym(block.name) < block.bound)
    if not conditions:
        return None
    inside = jnp.asarray(True)
    for part in conditions:
        inside = inside & part.evaluate(point)
    return inside


def block_domain(domain: Domain, block: Block) -> Domain:
    if block.size is not None:
        return domain.restrict((block.symbol % block.size) == 0)
    when = TRUE
    for part in conjuncts(domain.when):
        if block.name not in part.symbols():
            when = when & part
    return Domain(tuple(dim for dim in domain if dim.name != block.name), when)


def _reader(op: Op, plans: list[Access]) -> Op:
    """An operation that stays, reading from arrays that hold more than it asks for."""
    if op.run is None or all(plan.still and plan.stored is None for plan in plans):
        return op
    inner = op.run

    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        reads = zip(plans, inputs, strict=True)
        return inner(env, *(plan.read(value, env, env) for plan, value in reads))

    return dataclasses.replace(op, run=run)


def _view(graph: Graph, name: str, block: Block) -> Op:
    """Single points of a moved operation, under the name they had."""
    op = graph.ops[name]

    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        place = env[block.name] if block.size is None else env[block.name] % block.size
        return tuple(
            jax.tree.map(lambda x: jnp.take(x, jnp.asarray(place), 0, mode="clip"), value)
            for value in inputs
        )

    return Op(name, "view", op.domain, op.outputs, run, {})


def _view_edges(graph: Graph, name: str, block: Block) -> list[Edge]:
    op = graph.ops[name]
    index = []
    for dim in op.domain:
        if dim.name != block.name:
            index.append(dim.symbol)
        elif block.size is not None:
            index.append((dim.symbol // block.size) * block.size)
    outputs = range(len(op.outputs))
    return [Edge(name, name, tuple(index), TRUE, k, k) for k in outputs]
