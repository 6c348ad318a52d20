"""Lift: a loop over d that is a recurrence of a known kind becomes one scan over all of d.

    for t in range(T): g[t] = r[t] + γ g[t + 1]      ↦      g = scan(Affine, (γ, r))

The loop must carry one tensor from one point of d to the next, and its body, which may have many
operations, must be a step that `recognize` supports. Acting is not: the environment's answer
depends on the action, which depends on the memory by way of a choice. Lifting has a price: every
reader now waits for all of d.

A fold of all that follows, or one on a cycle of all that was before, is first written as such a
loop by `unfold`:

    g[t] = Σ_k γᵏ x[t + k]      ↦      g[T - 1] = x[T - 1],  g[t] = x[t] + γ g[t + 1]

The left side reads T - t points at each t, O(T²) in all; the right side reads two. It is right
because the fold is a homomorphism of lists: a return is a monoid. Other prefixes and windows become
one operation over all of d (`folds`). (The paper lifts sums, prefix sums and sliding sums that
match a pattern, §5.2, and names discounted ones as still to do.)
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from mmrl.pdg.build.expr import TRUE, Slice
from mmrl.pdg.build.graph import Edge, Graph, Op
from mmrl.pdg.clean import Made, phi, replaced
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import ZERO, Block, cycles
from mmrl.pdg.passes.folds import Fold, folds
from mmrl.pdg.passes.loops import MARK, MATRIX, Carried, analyze, type_of
from mmrl.pdg.passes.steps import Declared, Refusal


def unfold(graph: Graph, block: Block) -> tuple[Graph, list[str]]:
    """Return the graph in which folds of x[…, d:D] are loops over d, and the names of these folds.

    A fold of x[…, 0:d + 1] is one too if it is on a cycle, where it cannot be computed at once.
    """
    waits = {op for cycle in cycles(graph, block.name) for op in cycle.ops}
    loops = {}
    for fold in folds(graph, block.name):
        way = _way(graph, fold, block)
        if way < 0 or (way > 0 and fold.op.name in waits):
            loops[fold.op.name] = _loop(fold, block, way)
    return replaced(graph, loops), [*loops]


def _way(graph: Graph, fold: Fold, block: Block) -> int:
    """Return -1 for a fold of all that follows, 1 for one of all before, 0 for others."""
    op, source = fold.op, graph.ops[fold.edge.source]
    total = TRUE.same(op.domain.when) and TRUE.same(source.domain.when)
    # A sum of flags is a number: there one fold is not the type of the other.
    if not total or source.outputs[fold.edge.output] != op.outputs[0]:
        return 0
    ends = {-1: Slice(block.symbol, block.bound), 1: Slice(ZERO, block.symbol + 1)}
    return next((way for way, part in ends.items() if part.same(fold.part)), 0)


def _loop(fold: Fold, block: Block, way: int) -> list[Made]:
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
    made: list[Made] = [
        (step, [dataclasses.replace(x, sink=more), Edge(more, total, before, input=1)]),
        (Op(total, "merge", op.domain, op.outputs), choices),
    ]
    if total == op.name:
        return made
    mean = dataclasses.replace(op, kind="fn", run=finish, params={})
    return [*made, (mean, [Edge(op.name, total, op.domain.symbols)])]


def _at_once(graph: Graph, block: Block, auto: bool) -> tuple[Graph, list[str]]:
    """The graph in which prefixes and windows are folded in one operation over all of d."""
    found = folds(graph, block.name)
    names = [fold.op.name for fold in found if block.name in fold.part.symbols()]
    moved, reasons = move.movable(graph, block, names)
    words, lifted = move.say(reasons), []
    for name in moved:
        try:
            if auto:
                _check_wait(graph, graph.readers(name), [name], block)
            lifted.append(name)
        except Refusal as refusal:
            words.append(f"{name} folds {block.name} point by point: {refusal.reason}")
    graph, views = move.with_views(graph, lifted)
    inside = [views[name] for name in lifted]
    made = {name: move.moved_ops(graph, block, inside, name) for name in inside}
    words += [f"{name} became one fold over {block.name}" for name in lifted]
    return move.rewire(graph, block, made), words


SMALL = 4  # the bounds with which shapes are tried out
CHOICES = ("auto", "always")


@move.along
def lift_loops(
    graph: Graph,
    name: str,
    *,
    when: str = "auto",
    matrix: int = MATRIX,
    monoids: tuple[Declared, ...] = (),
) -> tuple[Graph, list[str]]:
    """Lift loops over `name`; return the graph, and a sentence about each loop.

    "auto" lifts a loop only where no reader waits longer for it and no more has to be kept: one
    that runs backward, or one whose readers want all of d. "always" lifts every loop that can be,
    which suits a parallel device.

    Raises `ValueError` for a dimension that is not there or another `when`.
    """
    if when not in CHOICES:
        raise ValueError(f"`when` must be one of {', '.join(CHOICES)}; got {when!r}.")
    block = move.whole(graph, name)
    graph, loops = unfold(graph, block)
    words = [f"{fold} reads itself at a neighboring {name}, in place of a slice" for fold in loops]
    graph, more = _at_once(graph, block, auto=when == "auto")
    words += more
    for cycle in cycles(graph, name):
        if cycle.trivial:
            continue
        try:
            loop = analyze(graph, cycle, block)
            found = forms(loop, matrix=matrix, monoids=monoids)
            if when == "auto":
                _check_cost(loop)
        except Refusal as refusal:
            words.append(f"{cycle} stay a loop over {name}: {refusal.reason}")
            continue
        graph, names = move.with_views(graph, loop.ops)
        graph = _scanned(analyze(graph, cycle.renamed(names), block), found, matrix, monoids)
        words.append(f"{cycle} became one scan over {name}: {' and '.join(sorted(set(found)))}")
    return graph, words


def adds(loop: Carried) -> bool:
    """True if a loop is a sum and only its end is read."""
    try:
        return loop.final and set(forms(loop, matrix=0)) == {"sum"}
    except Refusal:
        return False


def _check_cost(loop: Carried) -> None:
    """Refuse to lift a forward loop if a reader takes less than all of d at once."""
    if loop.way > 0:
        _check_wait(loop.graph, loop.readers, loop.ops, loop.block)


def _check_wait(graph: Graph, readers: Sequence[Edge], ops: Sequence[str], block: Block) -> None:
    """Refuse if a reader of these operations does not wait for all of d anyway."""
    name, end = block.name, block.bound - 1
    for edge in readers:
        part = phi(graph, edge)[name]
        if part.same(end):
            reason = f"{edge.sink} reads only {edge.source}[{part}], and what leads there would be"
            raise Refusal("cost", f"{reason} kept for all of {name} at once")
        if not (isinstance(part, Slice) and part.hi.same(block.bound)):
            reason = f"{edge.sink} reads {edge.source}[{part}] as it goes, and would have to wait"
            raise Refusal("cost", f"{reason} for all of {name}")
    if any(op in ops for op, _ in graph.results):
        raise Refusal("cost", "its points are results, which could come one by one")


def forms(loop: Carried, **how: Any) -> tuple[str, ...]:
    """Return the forms of the scan, tried on small shapes; refuse other steps."""
    graph = loop.graph
    bounds = dict.fromkeys(graph.bounds, SMALL)
    env = {**dict.fromkeys(move.graph_dims(graph), 0), **bounds}
    types = []
    for edge, reading in zip(loop.outside, loop.readings, strict=True):
        kind = type_of(graph.ops[edge.source], edge.output, bounds)
        slices = [part for part in reading.index if isinstance(part, Slice)]
        lead = [reading.domain.largest(part.width(), bounds) for part in slices]
        types.append(
            jax.tree.map(lambda x, w=lead: jax.ShapeDtypeStruct((*w, *x.shape), x.dtype), kind)
        )
    found: list[tuple[str, ...]] = []
    try:
        jax.eval_shape(lambda *xs: found.append(loop.recurrence(env, xs, **how)[0].forms), *types)
    except Refusal as refusal:
        scopes = [s for s in refusal.inside.split("/") if s.startswith(MARK)]
        where = f", in {scopes[0].removeprefix(MARK)}" if scopes else ""
        raise Refusal(refusal.primitive, refusal.reason + where) from None
    return found[0]


def _scanned(loop: Carried, forms: tuple[str, ...], matrix: int, monoids: tuple) -> Graph:
    """Return the graph with one operation in place of the loop."""
    graph, block = loop.graph, loop.block
    kinds = [graph.ops[op].outputs[k] for op, k in loop.needed]
    outputs = tuple(kinds if loop.final else [move.widen(kind, block) for kind in kinds])
    name = min(loop.needed, key=lambda tensor: tensor != loop.carried)[0]
    domain = move.block_domain(graph.ops[name].domain, block)
    run = functools.partial(loop.everywhere, matrix=matrix, monoids=monoids)
    run, params = loop.end if loop.final else run, {"forms": forms, "over": block.name}
    lifted = Op(name, "scan", domain, outputs, run, params)
    place = {tensor: (name, k) for k, tensor in enumerate(loop.needed)}
    ends = {loop.carried[0]: None} if loop.final else {}
    made = {**dict.fromkeys(loop.ops, ()), name: [(lifted, loop.reads)]}
    return move.rewire(graph, block, made, place, ends)
