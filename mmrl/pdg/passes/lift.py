"""Lift: a loop over d that is a recurrence of a known kind becomes one scan over all of d.

    for t in range(T): g[t] = r[t] + γ g[t + 1]      ↦      g = scan(Affine, (γ, r))

The loop must carry one tensor from one point of d to the next, and its body, whatever operations
it is made of, must be a step that `recognize` knows. Acting is not: what the environment answers
depends on the action, which depends on the memory by way of a choice. Lifting has a price: every
reader now waits for all of d.

A sum of all that follows is first written as such a loop, by `unfold`:

    g[t] = Σ_k γᵏ x[t + k]      ↦      g[T - 1] = x[T - 1],  g[t] = x[t] + γ g[t + 1]

The left side reads T - t points at each t, O(T²) in all; the right side reads two. It is right
because the fold is a homomorphism of lists: a return is a monoid. (The paper lifts sums, prefix
sums and sliding sums that match a pattern, §5.2, and names discounted ones as still to do.)
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.expr import TRUE, Expr, Slice, structure
from mmrl.pdg.build.graph import Edge, Graph, Op
from mmrl.pdg.clean import Made, phi, replaced
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import Block, cycles
from mmrl.pdg.passes.loops import MARK, MATRIX, Carried, analyze, type_of
from mmrl.pdg.passes.steps import Declared, Refusal

Combine = Callable[[Any, Any, Mapping[str, Any]], Any]
FOLDS: dict[str, Combine] = {
    "sum": lambda x, rest, params: x + rest,
    "max": lambda x, rest, params: jnp.maximum(x, rest),
    "discounted_sum": lambda x, rest, params: x + params["gamma"] * rest,
}


def unfold(graph: Graph, block: Block) -> tuple[Graph, list[str]]:
    """The graph in which folds of x[…, d:D] are loops over d, and the names of these folds."""
    found = [op.name for op in graph.ops.values() if _is_suffix_fold(graph, op, block)]
    return replaced(graph, {name: _loop(graph, name, block) for name in found}), found


def _is_suffix_fold(graph: Graph, op: Op, block: Block) -> bool:
    edges = graph.inputs(op.name)
    if op.kind not in FOLDS or op.params.get("axis", 0) != 0 or len(edges) != 1:
        return False
    source = graph.ops[edges[0].source]
    total = TRUE.same(op.domain.when) and TRUE.same(source.domain.when)
    suffix = structure(edges[0].slices) == structure((Slice(block.symbol, block.bound),))
    # A sum of flags is a number: there one fold is not the type of the other.
    same = source.outputs[edges[0].output] == op.outputs[0]
    return total and same and suffix and block.name in op.domain.names


def _loop(graph: Graph, name: str, block: Block) -> list[Made]:
    op, (edge,) = graph.ops[name], graph.inputs(name)
    symbol, end = block.symbol, block.bound - 1
    here: tuple[Expr, ...] = tuple(
        symbol if isinstance(part, Slice) else part for part in edge.index
    )
    after = tuple(s + 1 if s.same(symbol) else s for s in op.domain.symbols)
    earlier: Any = symbol < end
    last: Any = symbol == end
    more, fold, params = f"{name}_more", FOLDS[op.kind], op.params

    def run(env: Mapping[str, Any], x: Any, rest: Any) -> tuple[Any, ...]:
        return (fold(x, rest, params),)

    step = Op(more, "fn", op.domain.restrict(earlier), op.outputs, run, params)
    x = dataclasses.replace(edge, index=here)
    choices = [dataclasses.replace(x, when=last), Edge(name, more, op.domain.symbols, earlier)]
    merge = Op(name, "merge", op.domain, op.outputs)
    return [(step, [x, Edge(more, name, after, input=1)]), (merge, choices)]


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
    """The graph with loops over `name` lifted, and for each loop what was done, or why not.

    "auto" lifts a loop only where nobody has to wait longer for it and no more has to be kept: one
    that runs backward, or one whose readers want all of d. "always" lifts every loop that can be,
    which suits a parallel device.

    Raises `ValueError` for a dimension that is not there or another `when`.
    """
    if when not in CHOICES:
        raise ValueError(f"`when` must be one of {', '.join(CHOICES)}; got {when!r}.")
    block = move.whole(graph, name)
    graph, folds = unfold(graph, block)
    words = [f"{fold} reads itself at {name} + 1, in place of all that follows" for fold in folds]
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
    """Whether a loop is a sum of which only the end is read."""
    try:
        return loop.final and set(forms(loop, matrix=0)) == {"sum"}
    except Refusal:
        return False


def _check_cost(loop: Carried) -> None:
    """Refuse to lift a forward loop of which somebody reads less than all of d at once."""
    if loop.way < 0:
        return
    name, end = loop.block.name, loop.block.bound - 1
    for edge in loop.readers:
        part = phi(loop.graph, edge)[name]
        if part.same(end):
            reason = f"{edge.sink} reads only {edge.source}[{part}], and what leads there would be"
            raise Refusal("cost", f"{reason} kept for all of {name} at once")
        if not (isinstance(part, Slice) and part.hi.same(loop.block.bound)):
            reason = f"{edge.sink} reads {edge.source}[{part}] as it goes, and would have to wait"
            raise Refusal("cost", f"{reason} for all of {name}")
    if any(op in loop.ops for op, _ in loop.graph.results):
        raise Refusal("cost", "its points are results, which could come one by one")


def forms(loop: Carried, **how: Any) -> tuple[str, ...]:
    """The forms of the scan, tried on small shapes. Refuses a step that is no recurrence."""
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
    """The graph in which one operation stands for the loop."""
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
