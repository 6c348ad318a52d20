"""Lifting: turn loops over a dimension d into scans over all of d.

    for t in range(T): g[t] = r[t] + γ g[t + 1]      ↦      g = scan(Affine, (γ, r))

The loop must carry one tensor between neighboring points of d. Its body may consist of many
operations, but must be a step that `recognize` supports. Acting cannot be lifted, because the
environment's response depends on an action, which in turn depends on the memory. Lifting has a
cost: every reader has to run after all points of d.

`unfold` first rewrites a fold over all later points as such a loop, and also a fold over all
earlier points if it is part of a cycle:

    g[t] = Σ_k γᵏ x[t + k]      ↦      g[T - 1] = x[T - 1],  g[t] = x[t] + γ g[t + 1]

The left side reads T - t points at each t, O(T²) in total, whereas the right side reads two. They
are equal because the fold is a list homomorphism: returns form a monoid. A fold over other prefixes
or windows becomes one operation over the whole dimension d (`folds`). (The published system lifts
sums, prefix sums and sliding sums that match a pattern, §5.2; in its code, discounted sums are a
TODO.)
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.expr import TRUE, Slice
from mmrl.pdg.build.graph import Domain, Edge, Graph, Op, ragged, split
from mmrl.pdg.clean import NewOp, phi, replace_ops
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import ZERO, Block, cycles
from mmrl.pdg.passes.folds import Fold, folds
from mmrl.pdg.passes.loops import MARK, MATRIX, CarryLoop, analyze, type_of
from mmrl.pdg.passes.steps import DeclaredMonoid, Refusal


def unfold(graph: Graph, block: Block) -> tuple[Graph, list[str]]:
    """Rewrite folds of x[…, d:D] as loops over d; return the graph and the names of the folds.

    A fold of x[…, 0:d + 1] is also rewritten if it is on a cycle, because it cannot be computed
    for all of d at once.
    """
    cyclic = {op for cycle in cycles(graph, block.name) for op in cycle.ops}
    loops = {}
    for fold in folds(graph, block.name):
        way = _way(graph, fold, block)
        if way < 0 or (way > 0 and fold.op.name in cyclic):
            loops[fold.op.name] = _loop(fold, block, way)
    return replace_ops(graph, loops), [*loops]


def _way(graph: Graph, fold: Fold, block: Block) -> int:
    """Return -1 for a fold over all later points, 1 for all earlier points, and 0 otherwise."""
    op, source = fold.op, graph.ops[fold.edge.source]
    total = TRUE.same(op.domain.when) and TRUE.same(source.domain.when)
    # Rewrite only folds whose result has the type of a single point. A sum of bools, for example,
    # is an integer.
    if not total or source.outputs[fold.edge.output] != op.outputs[0]:
        return 0
    ends = {-1: Slice(block.symbol, block.bound), 1: Slice(ZERO, block.symbol + 1)}
    return next((way for way, part in ends.items() if part.same(fold.part)), 0)


def _loop(fold: Fold, block: Block, way: int) -> list[NewOp]:
    op, edge, symbol = fold.op, fold.edge, block.symbol
    total = f"{op.name}_total" if fold.kind == "mean" else op.name
    here = tuple(symbol if isinstance(part, Slice) else part for part in edge.index)
    before = tuple(s - way if s.same(symbol) else s for s in op.domain.symbols)
    first: Any = symbol == (ZERO if way > 0 else block.bound - 1)
    more = f"{op.name}_more"

    def run(env: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, ...]:
        return (fold.join(x, state, 1) if way < 0 else fold.join(state, x, env[block.name]),)

    def finish(env: Mapping[str, Any], x: Any) -> tuple[Any, ...]:
        return (fold.finish(x, fold.part.width().evaluate(env)),)

    step = Op(more, "fn", op.domain.restrict(~first), op.outputs, run, op.params)
    x = dataclasses.replace(edge, sink=total, index=here)
    choices = [dataclasses.replace(x, when=first), Edge(total, more, op.domain.symbols, ~first)]
    operations: list[NewOp] = [
        (step, [dataclasses.replace(x, sink=more), Edge(more, total, before, input=1)]),
        (Op(total, "merge", op.domain, op.outputs), choices),
    ]
    if total == op.name:
        return operations
    mean = dataclasses.replace(op, kind="fn", run=finish, params={})
    return [*operations, (mean, [Edge(op.name, total, op.domain.symbols)])]


def _at_once(graph: Graph, block: Block, auto: bool) -> tuple[Graph, list[str]]:
    """Rewrite each fold over prefixes or windows as one operation over the whole dimension d."""
    candidates = folds(graph, block.name)
    names = [fold.op.name for fold in candidates if block.name in fold.part.symbols()]
    moved, reasons = move.movable(graph, block, names)
    words, lifts = move.sentences(reasons), []
    for name in moved:
        try:
            if auto:
                _check_wait(graph, graph.readers(name), [name], block)
            lifts.append(name)
        except Refusal as refusal:
            words.append(f"{name} folds at each {block.name} separately: {refusal.reason}")
    graph, views = move.with_views(graph, lifts)
    inside = [views[name] for name in lifts]
    replacements = {name: move.moved_ops(graph, block, inside, name) for name in inside}
    words += [f"{name} became one fold over {block.name}" for name in lifts]
    return move.rewire(graph, block, replacements), words


SMALL = 4  # value of all bounds when the form of a loop is inferred
CHOICES = ("auto", "always")


@move.along
def lift_loops(
    graph: Graph,
    name: str,
    *,
    when: str = "auto",
    matrix: int = MATRIX,
    monoids: tuple[DeclaredMonoid, ...] = (),
) -> tuple[Graph, list[str]]:
    """Lift loops over `name`; return the graph, and a sentence about each loop.

    "auto" lifts a loop only if no reader has to run later and no additional values are stored. This
    holds for loops that run backward, except for sums, and for loops whose readers need all of d.
    "always" lifts every possible loop, which suits parallel devices. `matrix` and `monoids` are
    arguments of `recognize`.

    Raises `ValueError` for an unknown dimension, and for any other `when`.

        >>> from mmrl.pdg import Program
        >>> program = Program("t")
        >>> x, (t,) = program.tensor("t", name="x"), program.symbols
        >>> x[0] = 1.0
        >>> x[t + 1] = 0.5 * x[t]
        >>> lift_loops(program.graph(x), "t", when="always")[1]
        ['x, mul became one scan over t: affine']
    """
    if when not in CHOICES:
        raise ValueError(f"`when` must be one of {', '.join(CHOICES)}; got {when!r}.")
    block = move.whole(graph, name)
    graph, loops = unfold(graph, block)
    words = [f"{fold} became a loop over {name}, in place of a fold of a slice" for fold in loops]
    graph, more = _at_once(graph, block, auto=when == "auto")
    words += more
    for cycle in cycles(graph, name):
        if cycle.trivial:
            continue
        try:
            loop = analyze(graph, cycle, block)
            kinds = forms(loop, matrix=matrix, monoids=monoids)
            if when == "auto":
                _check_cost(loop)
            graph = _fill_inputs(loop)
        except Refusal as refusal:
            words.append(f"{cycle} stay a loop over {name}: {refusal.reason}")
            continue
        graph, names = move.with_views(graph, loop.ops)
        graph = _replace_loop(analyze(graph, cycle.rename(names), block), kinds, matrix, monoids)
        words.append(f"{cycle} became one scan over {name}: {' and '.join(sorted(set(kinds)))}")
    return graph, words


def _fill_inputs(loop: CarryLoop) -> Graph:
    """Return the graph with zeros at the points of d where inputs of a loop are undefined."""
    graph, name = loop.graph, loop.block.name
    for edge, reading in zip(loop.outside, loop.readings, strict=True):
        if reading.block_axis is None:
            continue
        source, kind = graph.ops[edge.source], graph.ops[edge.source].outputs[edge.output]
        if ragged(kind):
            reason = f"{edge} exists at only some points of {name}, and its size varies"
            raise Refusal("read", reason)
        when, always = split(source.domain.when, [name])
        new = f"{source.name}_{edge.output}_or_0"
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), kind)
        operations = [
            Op(f"{new}_else", "constant", Domain(), (kind,), functools.partial(_value, zeros)),
            Op(new, "merge", Domain(source.domain.dims, always), (kind,)),
        ]
        symbols = source.domain.symbols
        branches = [Edge(new, source.name, symbols, when, 0, edge.output)]
        branches += [Edge(new, operations[0].name, (), ~when)]
        ops = graph.ops | {op.name: op for op in operations}
        read = dataclasses.replace(edge, source=new, output=0)
        edges = [read if other is edge else other for other in graph.edges]
        edges += branches if new not in graph.ops else []
        graph = graph.replace(ops=ops, edges=tuple(edges))
    return graph


def _value(value: Any, env: Mapping[str, Any]) -> tuple[Any]:
    return (value,)


def is_sum(loop: CarryLoop) -> bool:
    """Return True if a loop is a sum and only its final value is read."""
    try:
        return loop.final and set(forms(loop, matrix=0)) == {"sum"}
    except Refusal:
        return False


def _check_cost(loop: CarryLoop) -> None:
    """Raise `Refusal` for a sum, and for a forward loop unless every reader needs all of d."""
    if loop.way > 0:
        _check_wait(loop.graph, loop.readers, loop.ops, loop.block)
    elif is_sum(loop):
        raise Refusal("cost", "only its sum is read, and vectorizing computes a sum without a scan")


def _check_wait(graph: Graph, readers: Sequence[Edge], ops: Sequence[str], block: Block) -> None:
    """Raise `Refusal` unless every reader of these operations needs all points of d anyway."""
    name, end = block.name, block.bound - 1
    for edge in readers:
        part = phi(graph, edge)[name]
        if part.same(end):
            reason = f"{edge.sink} reads only {edge.source}[{part}], but lifting would store values"
            raise Refusal("cost", f"{reason} for all points of {name}")
        if not (isinstance(part, Slice) and part.hi.same(block.bound)):
            reason = f"{edge.sink} reads {edge.source}[{part}] at each step, but would have to wait"
            raise Refusal("cost", f"{reason} for all points of {name}")
    if any(op in ops for op, _ in graph.results):
        reason = "its points are results of the program, and a loop makes each available sooner"
        raise Refusal("cost", reason)


def forms(loop: CarryLoop, **how: Any) -> tuple[str, ...]:
    """Return the forms of a loop's scan, inferred from small shapes.

    Raises `Refusal` if the loop cannot become a scan.
    """
    graph = loop.graph
    bounds = dict.fromkeys(graph.bounds, SMALL)
    env = {**dict.fromkeys(move.graph_dims(graph), 0), **bounds}
    types = []
    for edge, reading in zip(loop.outside, loop.readings, strict=True):
        kind = type_of(graph.ops[edge.source], edge.output, bounds)
        slices = [part for part in reading.index if isinstance(part, Slice)]
        lead = [reading.domain.largest(part.width(), bounds) for part in slices]
        lead += [SMALL] * (reading.block_axis is not None)  # the axis of a block
        types.append(
            jax.tree.map(lambda x, w=lead: jax.ShapeDtypeStruct((*w, *x.shape), x.dtype), kind)
        )
    results: list[tuple[str, ...]] = []
    try:
        jax.eval_shape(lambda *xs: results.append(loop.recurrence(env, xs, **how)[0].forms), *types)
    except Refusal as refusal:
        scopes = [s for s in refusal.inside.split("/") if s.startswith(MARK)]
        where = f", in {scopes[0].removeprefix(MARK)}" if scopes else ""
        raise Refusal(refusal.primitive, refusal.reason + where) from None
    return results[0]


def _replace_loop(loop: CarryLoop, forms: tuple[str, ...], matrix: int, monoids: tuple) -> Graph:
    """Return the graph with the loop replaced by a single scan operation."""
    graph, block = loop.graph, loop.block
    kinds = [graph.ops[op].outputs[k] for op, k in loop.exports]
    outputs = tuple(kinds if loop.final else [move.widen(kind, block) for kind in kinds])
    name = min(loop.exports, key=lambda tensor: tensor != loop.carry)[0]
    domain = move.block_domain(graph.ops[name].domain, block)
    run = functools.partial(loop.everywhere, matrix=matrix, monoids=monoids)
    run, params = loop.end if loop.final else run, {"forms": forms, "over": block.name}
    operation = Op(name, "scan", domain, outputs, run, params)
    place = {tensor: (name, k) for k, tensor in enumerate(loop.exports)}
    ends = {loop.carry[0]: None} if loop.final else {}
    replacements = {**dict.fromkeys(loop.ops, ()), name: [(operation, loop.reads)]}
    return move.rewire(graph, block, replacements, place, ends)
