"""Turn a loop over a dimension d into an axis of arrays, for vectorizing and tiling.  §5.2

A *moved* operation computes a block of points at once: it applies `vmap` to its old `run`, with the
symbol of d as the batched argument. One rule therefore covers all operations. An operation that is
not moved extracts its old inputs from the larger arrays inside its own `run`.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.expr import TRUE, Expr, Slice, max_
from mmrl.pdg.build.graph import (
    ArrayType,
    Domain,
    Edge,
    Graph,
    Op,
    Output,
    array_type,
    conjuncts,
    ragged,
    split,
)
from mmrl.pdg.build.indexing import roomy, stays
from mmrl.pdg.build.ops import WITH_MASK
from mmrl.pdg.build.sets import always
from mmrl.pdg.clean import NewOp, phi, redirect, replace_ops
from mmrl.pdg.passes.access import (
    NEAR,
    ZERO,
    Access,
    Block,
    Step,
    access,
    cycles,
    scan_inputs,
    shift,
)
from mmrl.pdg.passes.folds import Fold, fold_of


def pointwise_sources(graph: Graph, moved: Collection[str]) -> set[str]:
    """Return the operations in `moved` whose individual points are still read.

    These are results, and sources of branching definitions that are not moved. A branching
    definition only copies, so it cannot extract a point from an array.
    """
    copies = {e.source for e in graph.edges if e.sink not in moved and _copies(graph, e)}
    return (copies | {op for op, _ in graph.results}) & set(moved)


def with_views(graph: Graph, moved: Collection[str]) -> tuple[Graph, dict[str, str]]:
    """Rename the moved operations whose points are still read, and replace them with views.

    An operation x in `pointwise_sources` is renamed to `all_x`, and x becomes a view of its points.
    Also returns a map from each operation in `moved` to its new name.
    """
    names = {op: f"all_{op}" if op in pointwise_sources(graph, moved) else op for op in moved}
    place = {}
    replacements: dict[str, list[NewOp]] = {}
    for name in [name for name, new in names.items() if new != name]:
        op, outputs = graph.ops[name], range(len(graph.ops[name].outputs))
        view = Op(name, "view", op.domain, op.outputs, lambda env, *values: values)
        copies = [Edge(name, names[name], op.domain.symbols, TRUE, k, k) for k in outputs]
        own = dataclasses.replace(op, name=names[name])
        replacements[name] = [(own, graph.inputs(name)), (view, copies)]
        place |= {(name, k): (names[name], k) for k in outputs}

    def reads(edge: Edge) -> Edge:
        copies = edge.sink in graph.ops.keys() - set(moved) and _copies(graph, edge)
        return edge if copies else redirect(edge, place)

    return replace_ops(graph, replacements, reads), names


def _copies(graph: Graph, edge: Edge) -> bool:
    return graph.ops[edge.sink].run is None


def rewire(
    graph: Graph,
    block: Block,
    replacements: Mapping[str, Sequence[NewOp]],
    place: Mapping[Output, Output] | None = None,
    ends: Mapping[str, Expr | None] | None = None,
) -> Graph:
    """Replace the operations in `replacements`, and adapt their readers.

    `place` maps old outputs to new ones if their names differ. `ends` maps each operation that is
    read only at the last point of d to the index along d at which this value is now stored, or to
    None if the new tensor does not have the dimension d.
    """
    new = dict(replacements)
    for name in graph.ops.keys() - replacements.keys():
        reads = graph.inputs(name)
        readings = [_reading(graph, edge, block, replacements, ends or {}) for edge in reads]
        new[name] = [(_reader(graph.ops[name], readings), replan(reads, readings))]
    return replace_ops(graph, new, lambda edge: redirect(edge, place or {}))


def can_move(graph: Graph, block: Block, moved: Collection[str], name: str) -> str | None:
    """Return the reason why an operation cannot be moved together with `moved`, or None."""
    op = graph.ops[name]
    domain = block_domain(op.domain, block)
    for edge in graph.inputs(name):
        if running_fold(graph, op, block, moved):
            edge = _at_point(edge, block)
        reading, text = access(graph, edge, block, moved, True), ", ".join(map(str, edge.index))
        if reading is None:
            return f"it reads {edge.source}[{text}], which {_away(block, edge.source in moved)}"
        partial = block.size is not None and block.name in op.domain.when.symbols()
        if partial and not all(always(part.lo <= part.hi, domain) for part in _slices(reading)):
            return f"it reads {edge.source}[{text}], which is out of range in some blocks"
        if _may_read_outside(graph, edge, reading, block, moved):
            return f"it reads {edge.source}[{text}], which does not exist in some blocks"
    others = _branch_dims(graph, name) - {block.name}
    if others and block.name in _branch_dims(graph, name):
        own = ", ".join(sorted(others))
        return f"its branch depends on both {block.name} and {own}"
    return None


def _away(block: Block, tiled: bool) -> str:
    if block.size is None or not tiled:
        return f"no block of {block.name} contains"
    return f"may be more than {NEAR} blocks of {block.name} away"


def _may_read_outside(
    graph: Graph, edge: Edge, reading: Access, block: Block, moved: Collection[str]
) -> bool:
    """Return True if a block may read points that do not exist.

    This can only happen if a condition of the reader contains both d and another dimension.
    """
    sink, source = graph.ops[edge.sink].domain, graph.ops[edge.source].domain
    others = set(sink.names) - {block.name}
    mixed = (p.symbols() for p in conjuncts(sink.when) if block.name in p.symbols())
    if not any(others & symbols for symbols in mixed):
        return False
    source = block_domain(source, block) if edge.source in moved else source
    inside, domain = stays(source, reading.index), block_domain(sink, block)
    return not always(inside, roomy(domain, inside))


def _slices(reading: Access) -> list[Slice]:
    return [part for part in reading.index if isinstance(part, Slice)]


def _branch_dims(graph: Graph, name: str) -> set[str]:
    """Return the dimensions in the conditions of a branching definition."""
    symbols = {symbol for edge in graph.inputs(name) for symbol in edge.when.symbols()}
    return symbols & set(graph.ops[name].domain.names)


def graph_dims(graph: Graph) -> dict[str, Expr]:
    """Return the bounds of all dimensions in the graph, by name."""
    return {dim.name: dim.bound for op in graph.ops.values() for dim in op.domain}


def along(change: Callable[..., tuple[Graph, list[str]]]) -> Callable[..., Any]:
    """Decorate a pass along a dimension, so that it accepts a name or a symbol.

    Errors inside the pass get a note with the name of the pass and of the dimension.
    """

    @functools.wraps(change)
    def run(graph: Any, name: Any, *args: Any, **more: Any) -> tuple[Graph, list[str]]:
        if not isinstance(graph, Graph):
            raise ValueError(
                f"`graph` must be a Graph, got a {type(graph).__name__}: `Program.graph` builds one"
            )
        try:
            return change(graph, str(name), *args, **more)
        except Exception as error:
            error.add_note(f"in `{change.__name__}` along {name}")
            raise

    return run


def whole(graph: Graph, name: str) -> Block:
    """Return the block of all points of a dimension. Raises `ValueError` for an unknown one."""
    dims = graph_dims(graph)
    if name not in dims:
        raise ValueError(
            f"`{name}` is not a dimension of the program, which has {', '.join(dims)}."
        )
    return Block(name, dims[name])


def widen(output: Any, block: Block) -> Any:
    """Return the type of a block of outputs: a leading axis, and the largest sizes along d."""

    def largest(size: int | Expr) -> Any:
        if not isinstance(size, Expr) or block.name not in size.symbols():
            return size
        return max_(*(size.substitute({block.name: end}) for end in (0, block.bound - 1)))

    def one(leaf: ArrayType) -> ArrayType:
        return array_type((block.length, *map(largest, leaf.shape)), leaf.dtype)

    return jax.tree.map(one, output, is_leaf=lambda leaf: isinstance(leaf, ArrayType))


def choose(conditions: Sequence[Expr], env: Mapping[str, Any], *values: Any) -> tuple[Any]:
    """Return the first value whose condition holds, or the last value if none of them holds."""
    result = values[-1]
    for condition, value in zip(conditions[-2::-1], values[-2::-1], strict=True):
        holds = jnp.asarray(condition.evaluate(env))
        result = jax.tree.map(lambda x, y, c=holds: jax.lax.select_n(c, y, x), value, result)
    return (result,)


def block_domain(domain: Domain, block: Block) -> Domain:
    """Return the domain of blocks: without d, or restricted to the first point of each tile.

    Conditions on d are omitted, because a tile whose first point does not satisfy them may contain
    other points that do.
    """
    _, when = split(domain.when, [block.name])
    if block.size is not None:
        return Domain(domain.dims, when & ((block.symbol % block.size) == 0))
    return Domain(tuple(dim for dim in domain if dim.name != block.name), when)


def moved_ops(graph: Graph, block: Block, moved: Collection[str], name: str) -> list[NewOp]:
    """Return the operations that compute blocks of an operation's points.

    A branching definition becomes a selection between its branches at each point. If its conditions
    depend on other dimensions, it remains a branching definition, in which all points of a block
    take the same branch.
    """
    op, reads = graph.ops[name], graph.inputs(name)
    if fold := running_fold(graph, op, block, moved):
        return _running_ops(graph, block, moved, *fold)
    if op.run is not None or not _branch_dims(graph, name) - {block.name}:
        return [_block_op(graph, block, moved, op, reads)]
    domain, operations, edges = block_domain(op.domain, block), [], []
    for edge in reads:
        reading = access(graph, edge, block, moved, True)
        if reading is not None and reading.copies:
            edges.append(dataclasses.replace(edge, index=reading.index))
            continue
        # A merge cannot extract or repeat values, so a separate operation does this.
        part = f"{name}_{edge.source}"
        while part in graph.ops or part in [new.name for new, _ in operations]:
            part += "_"
        here = Op(part, "read", op.domain.restrict(edge.when), op.outputs, lambda env, x: (x,))
        operations.append(_block_op(graph, block, moved, here, [edge]))
        edges.append(Edge(name, part, domain.symbols, edge.when))
    outputs = tuple(widen(output, block) for output in op.outputs)
    return [*operations, (dataclasses.replace(op, domain=domain, outputs=outputs), edges)]


def _block_op(
    graph: Graph, block: Block, moved: Collection[str], op: Op, reads: Sequence[Edge]
) -> NewOp:
    accesses = readings(graph, reads, block, moved)
    assert accesses is not None, f"{op.name} cannot be moved: see `can_move`"
    kind, run, own = _kind(op, accesses), op.run, op.params
    if any(reading.more for reading in accesses):  # several tiles are several inputs, unlike before
        kind, own = "fn", {name: value for name, value in own.items() if name == "ends"}
    partial = any(block.name in part.symbols() for part in conjuncts(op.domain.when))
    if partial:
        kind = "fn"  # the result is zero at points that do not exist
    if run is None:
        kind, run = "choice", functools.partial(choose, [edge.when for edge in reads])
    domain, outputs = block_domain(op.domain, block), [widen(kind, block) for kind in op.outputs]
    aligned = op.params.get("aligned", range(len(accesses)))
    places = list(itertools.accumulate((len(each.indices) for each in accesses), initial=0))
    aligned = tuple(places[k] for k in aligned if accesses[k].copies and not partial)
    params = {**own, "over": block.name, "block": block.size, "aligned": aligned}
    fold = fold_of(graph, op)
    if fold is not None and len(accesses[0].steps) == 1 and block.name in fold.part.symbols():
        work = _fold_run(fold, accesses[0], block, op.domain)
    else:
        work = _block_run(run, accesses, block, op.domain)
    return Op(op.name, kind, domain, tuple(outputs), work, params), as_inputs(
        replan(reads, accesses)
    )


def readings(
    graph: Graph, reads: Sequence[Edge], block: Block, moved: Collection[str]
) -> list[Access] | None:
    """Return how a moved operation reads its inputs, or None if any of the reads is impossible."""
    results = [access(graph, edge, block, moved, True) for edge in reads]
    accesses = [reading for reading in results if reading is not None]
    return accesses if len(accesses) == len(results) else None


def as_inputs(reads: Sequence[Edge]) -> list[Edge]:
    """Turn the edges into unconditional arguments that are numbered from 0."""
    return [dataclasses.replace(edge, input=k, when=TRUE) for k, edge in enumerate(reads)]


def replan(reads: Sequence[Edge], readings: Sequence[Access]) -> list[Edge]:
    """Replace each edge with one edge per index φ of its reading."""
    return [
        dataclasses.replace(edge, index=index)
        for edge, reading in zip(reads, readings, strict=True)
        for index in reading.indices
    ]


def _block_run(
    run: Callable, readings: list[Access], block: Block, domain: Domain
) -> Callable[..., tuple[Any, ...]]:
    """Return a function that calls `run` at every point of a block.

    Its results are zero at points outside the domain.
    """

    def run_block(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        start = block.begin(env)
        xs, reads = scan_inputs(readings, inputs, start)

        def one(step: Any, here: list[Any]) -> tuple[Any, ...]:
            point = {**env, block.name: start[block.name] + step}
            results = tuple(run(point, *reads(point, here)))
            inside = _inside(point, block, domain)
            if inside is None:
                return results
            return jax.tree.map(lambda x: jnp.where(inside, x, jnp.zeros_like(x)), results)

        return jax.vmap(one)(jnp.arange(block.length.evaluate(env)), xs)

    return run_block


def _fold_run(
    fold: Fold, reading: Access, block: Block, domain: Domain
) -> Callable[..., tuple[Any, ...]]:
    """Return a function that computes a fold at each point of a block, sharing partial folds."""
    row = Access((), domain, (Step(block.symbol, block.start),), scan_axis=0)
    rows = _block_run(lambda env, row: (row,), [row], block, domain)

    def run_block(env: Mapping[str, Any], *tiles: Any) -> tuple[Any, ...]:
        start = block.begin(env)
        points = start[block.name] + jnp.arange(block.length.evaluate(env))
        base, here = reading.steps[0].base.evaluate(start), {**env, block.name: points}
        ends = (fold.part.lo.evaluate(here), fold.part.hi.evaluate(here))
        low, high = (jnp.broadcast_to(end - base, points.shape) for end in ends)
        bounds = {name: n for name, n in env.items() if isinstance(n, int)}
        width = domain.largest(fold.part.width(), bounds)
        return rows(env, fold.ranges(reading.order(*tiles), low, high, width))

    return run_block


def running_fold(
    graph: Graph, op: Op, block: Block, moved: Collection[str]
) -> tuple[Fold, int] | None:
    """Return a running fold, whose value each tile passes to the next, and its direction, or None.

    The direction is 1 for prefixes such as 0:t + 1, and -1 for suffixes such as t:T of tiled
    values. A suffix of values that are not tiled is not a running fold: each tile reads its slices
    directly, so that no tile has to wait for the last one.
    """
    fold = fold_of(graph, op) if block.size is not None else None
    if fold is None or fold.name != block.name or ragged(op.outputs):
        return None
    source, part = graph.ops[fold.edge.source], fold.part
    others = [index for index in fold.edge.index if index is not part]
    partial = (*others, op.domain.when, source.domain.when)
    if any(block.name in expr.symbols() for expr in partial):
        return None
    if ZERO.same(part.lo) and shift(part.hi, block.name) in (0, 1):
        return fold, 1
    later = shift(part.lo, block.name) in (0, 1) and part.hi.same(block.bound)
    return (fold, -1) if later and source.name in moved else None


def _at_point(edge: Edge, block: Block) -> Edge:
    """Return an edge that reads the current point instead of a slice."""
    index = (block.symbol if isinstance(part, Slice) else part for part in edge.index)
    return dataclasses.replace(edge, index=tuple(index))


def _running_ops(
    graph: Graph, block: Block, moved: Collection[str], fold: Fold, way: int
) -> list[NewOp]:
    """Return the operations that compute a running fold in tiles.

    A tile has a second output, the fold of all tiles up to and including it, which the next tile
    reads.
    """
    op, symbol, size = fold.op, block.symbol, block.size
    assert size is not None
    edges = [_at_point(fold.edge, block)]
    accesses = readings(graph, edges, block, moved)
    assert accesses is not None, f"{op.name} cannot be moved: see `can_move`"
    domain, params = block_domain(op.domain, block), {"over": block.name, "block": size}
    first: Any = symbol == 0 if way > 0 else symbol >= block.bound - size
    later: Any = symbol >= size if way > 0 else symbol < block.bound - size
    empty, before = f"{op.name}_empty", f"{op.name}_before"
    there = tuple(s - way * size if s.same(symbol) else s for s in domain.symbols)

    def nothing(env: Mapping[str, Any]) -> tuple[Any]:
        bounds = {name: n for name, n in env.items() if isinstance(n, int)}
        (like,) = jax.tree.leaves(op.types(bounds))
        zeros = jnp.zeros(like.shape, like.dtype)
        return (jnp.full_like(zeros, fold.empty(zeros)),)

    tiles = (widen(op.outputs[0], block), op.outputs[0])
    return [
        (Op(empty, "fn", domain.restrict(first), op.outputs, nothing, params), []),
        (
            Op(before, "merge", domain, op.outputs, None, params),
            [Edge(before, empty, domain.symbols, first), Edge(before, op.name, there, later, 0, 1)],
        ),
        (
            Op(op.name, "fn", domain, tiles, _running_run(fold, accesses[0], block, way), params),
            as_inputs([*replan(edges, accesses), Edge(op.name, before, domain.symbols)]),
        ),
    ]


def _running_run(fold: Fold, reading: Access, block: Block, way: int) -> Callable[..., Any]:
    """Return a function that computes the folds at all points of a tile, and the next state.

    Its arguments are the values at these points and the current state: the fold of all earlier
    points, or of all later points if `way` is -1.
    """
    size, part = block.size, fold.part
    ahead = shift(part.hi if way > 0 else part.lo, block.name)
    assert size is not None and ahead is not None, f"{fold.op.name}: see `running_fold`"

    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, Any]:
        start, k = block.begin(env)[block.name], jnp.arange(size)
        value, state = reading.order(*inputs[:-1]), inputs[-1]
        row = jnp.asarray(state)[None]
        column = (-1, *[1] * (value.ndim - 1))
        count = jnp.minimum(block.bound.evaluate(env) - start, size)
        real = (k < count).reshape(column)
        x = jnp.where(real, value, jnp.zeros((), value.dtype))
        low, high = (jnp.zeros_like(k), k + ahead) if way > 0 else (k + ahead, count + 0 * k)
        folds, every = fold.parts(x, low, high, size), fold.all(x, count)
        if way > 0:
            results, after = fold.join(row, folds, start), fold.join(state, every, start)
        else:
            width = jnp.maximum(high - low, 0).reshape(column)
            results, after = fold.join(folds, row, width), fold.join(every, state, count)
        number = part.width().evaluate({**env, block.name: start + k})
        results = fold.finish(results, number.reshape(column))
        return jnp.where(real, results, jnp.zeros_like(results)), after

    return run


def _inside(point: Mapping[str, Any], block: Block, domain: Domain) -> Any:
    """Return True (or a tracer) if a point of a block exists, or None if all its points exist."""
    conditions = [part for part in conjuncts(domain.when) if block.name in part.symbols()]
    bound = block.bound.evaluate(point)
    if block.size is not None and not (isinstance(bound, int) and bound % block.size == 0):
        conditions.append(block.symbol < block.bound)
    if not conditions:
        return None
    return jnp.stack([jnp.asarray(part.evaluate(point)) for part in conditions]).all()


def _reading(
    graph: Graph, edge: Edge, block: Block, moved: Collection[str], ends: Mapping[str, Expr | None]
) -> Access:
    """Return how an operation that is not moved reads an edge."""
    if edge.source in ends:
        parts = (phi(graph, edge) | {block.name: ends[edge.source]}).values()
        index = tuple(part for part in parts if part is not None)
        return Access(index, graph.ops[edge.sink].domain)
    reading = access(graph, edge, block, moved, False)
    assert reading is not None, f"{edge} reads single points of a moved operation"
    return reading


def _reader(op: Op, readings: list[Access]) -> Op:
    """Adapt an operation that is not moved, so that it extracts its inputs from arrays."""
    inner = op.run
    if inner is None or all(reading.still for reading in readings):
        return op

    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        reads = zip(readings, inputs, strict=True)
        return inner(env, *(each.read(each.order(value), env, env) for each, value in reads))

    return dataclasses.replace(op, kind=_kind(op, readings), run=run)


def _kind(op: Op, readings: Sequence[Access]) -> str:
    """Return the kind of an operation, or "fn" if its `axis` would refer to a different axis.

    This happens if the leading axis of a new input does not come from the input's first slice.
    """
    return "fn" if op.kind in WITH_MASK and any(reading.mixes for reading in readings) else op.kind


Reason = tuple[tuple[str, ...], str]  # operations, and the reason why they are not moved


def movable(
    graph: Graph, block: Block, only: Collection[str] | None = None
) -> tuple[list[str], list[Reason]]:
    """Return the operations that can leave the loop over d, and reasons why others cannot.

    `only` limits the search to the given operations.
    """
    name = block.name
    ops = [op for op in graph.ops.values() if op.kind != "view"]  # views read individual points
    moved = {op.name for op in ops if name in op.domain.names}
    reasons, groups = [], []
    if only is not None:
        moved &= set(only)
    for cycle in cycles(graph, name):
        members = tuple(op for op in cycle.ops if name in graph.ops[op].domain.names)
        if cycle.trivial:
            groups.append(set(members))
            continue
        if moved & set(members):
            reasons.append((members, f"a cycle through different points of {name}"))
        moved -= set(members)
    progress = True
    while progress:
        progress = False
        for op in [op for op in graph.ops if op in moved]:
            reason = can_move(graph, block, moved, op)
            if reason or any(op in group and not group <= moved for group in groups):
                reasons.append(((op,), reason or "another operation of its cycle cannot be moved"))
                moved.discard(op)
                progress = True
    return [op for op in graph.ops if op in moved], reasons


def sentences(reasons: Collection[Reason]) -> list[str]:
    """Return a sentence for each reason."""
    return [f"{', '.join(ops)} stay{'s' * (len(ops) == 1)} in loops: {why}" for ops, why in reasons]
