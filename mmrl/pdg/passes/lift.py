"""Lift: a loop over d that is a recurrence of a known kind becomes one scan over all of d.

    for t in range(T): g[t] = r[t] + γ g[t + 1]      ↦      g = scan(Affine, (γ, r))

A sum of all that follows, Σ_k γᵏ r[t + k], is first written as such a loop (`suffixes`).

The loop must carry one tensor from one point of d to the next, and its body, whatever operations
it is made of, must be a step that `recognize` knows. Acting is not: what the environment answers
depends on the action, which depends on the memory by way of a choice.

The paper lifts sums, prefix sums and sliding sums that match a pattern (§5.2); its code names
discounted sums as still to do. Lifting has a price: every reader now waits for all of d.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.expr import Slice
from mmrl.pdg.graph import Graph, Op
from mmrl.pdg.passes import move
from mmrl.pdg.passes.cycles import cycles
from mmrl.pdg.passes.declared import Declared
from mmrl.pdg.passes.loops import MARK, Loop, analyze, type_of
from mmrl.pdg.passes.recurrence import MATRIX, last, one, recognize
from mmrl.pdg.passes.suffixes import unfold
from mmrl.pdg.passes.values import Refusal

SMALL = 4  # the bounds with which shapes are tried out
CHOICES = ("auto", "always")


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
            forms = _try(loop, _scan_run(loop, matrix, monoids))
            if when == "auto":
                _check_cost(loop)
        except Refusal as refusal:
            words.append(f"{cycle} stay a loop over {name}: {refusal.reason}")
            continue
        graph, names = move.with_views(graph, loop.ops)
        loop = analyze(graph, cycle.renamed(names), block)
        graph = _replace(loop, _scan_run(loop, matrix, monoids), forms)
        words.append(f"{cycle} became one scan over {name}: {' and '.join(sorted(set(forms)))}")
    return graph, words


def _check_cost(loop: Loop) -> None:
    """Refuse to lift a forward loop of which somebody reads less than all of d at once."""
    if loop.way < 0:
        return
    name, end = loop.block.name, loop.block.bound - 1
    for edge in loop.readers:
        dims = loop.graph.ops[edge.source].domain.names
        part = edge.index[dims.index(name)]
        if part.same(end):
            reason = f"{edge.sink} reads only {edge.source}[{part}], and what leads there would be"
            raise Refusal("cost", f"{reason} kept for all of {name} at once")
        if not (isinstance(part, Slice) and part.hi.same(loop.block.bound)):
            reason = f"{edge.sink} reads {edge.source}[{part}] as it goes, and would have to wait"
            raise Refusal("cost", f"{reason} for all of {name}")
    if any(op in loop.ops for op, _ in loop.graph.results):
        raise Refusal("cost", "its points are results, which could come one by one")


def _try(loop: Loop, run: Callable) -> tuple[str, ...]:
    """The forms of the scan, tried on small shapes: a step that is no recurrence is refused."""
    graph = loop.graph
    bounds = dict.fromkeys(graph.bounds, SMALL)
    env = {**dict.fromkeys(move.graph_dims(graph), 0), **bounds}
    types = []
    for edge, plan in zip(loop.outside, loop.plans, strict=True):
        kind = type_of(graph.ops[edge.source], edge.output, bounds)
        slices = [part for part in plan.index if isinstance(part, Slice)]
        lead = [graph.ops[edge.sink].domain.largest(part.width(), bounds) for part in slices]
        types.append(
            jax.tree.map(lambda x, w=lead: jax.ShapeDtypeStruct((*w, *x.shape), x.dtype), kind)
        )
    found: list[tuple[str, ...]] = []
    try:
        jax.eval_shape(lambda *inputs: run(env, *inputs, found=found), *types)
    except Refusal as refusal:
        scopes = [s for s in refusal.inside.split("/") if s.startswith(MARK)]
        where = f", in {scopes[0].removeprefix(MARK)}" if scopes else ""
        raise Refusal(refusal.primitive, refusal.reason + where) from None
    return found[0]


def _scan_run(loop: Loop, matrix: int, monoids: tuple[Declared, ...]) -> Callable:
    """`run` of the lifted loop: everything in `loop.needed`, stacked over d.

    The first point, which has a definition of its own, is computed apart. So the branch that it
    takes is nowhere in the step, and what is a sum stays a sum.
    """
    carried, way = loop.carried, loop.way

    def run(env: Mapping[str, Any], *inputs: Any, found: list | None = None) -> tuple[Any, ...]:
        at, walked = loop.begin(inputs, env, loop.block.begin(env))
        length, nothing = loop.block.length.evaluate(env), loop.nothing(env)
        points = (jnp.arange(length), walked)
        place = 0 if way > 0 else length - 1
        first = at(place, nothing, jax.tree.map(lambda x: x[place], walked))[carried]
        later = jax.tree.map(lambda x: x[1:] if way > 0 else x[:-1], points)

        def step(x: Any, point: Any, here: list[Any]) -> Any:
            return at(point, x, here, loop.later)[carried]

        recurrence = recognize(step, first, *one(later), monoids=monoids, matrix=matrix)
        if found is not None:
            found.append(recurrence.forms)
        if loop.final:
            ahead = later if way > 0 else jax.tree.map(lambda x: x[::-1], later)
            return (last(step, first, ahead),)

        def join(x: Any, rest: Any) -> Any:  # in the order of time
            return jnp.concatenate([x[None], rest] if way > 0 else [rest, x[None]])

        xs = jax.tree.map(join, first, recurrence(first, later, reverse=way < 0))
        if loop.needed == [carried]:
            return (xs,)
        shifted = jax.tree.map(lambda x: x[:-1] if way > 0 else x[1:], xs)
        everything = jax.vmap(at)(points[0], jax.tree.map(join, nothing, shifted), walked)
        return tuple({**everything, carried: xs}[tensor] for tensor in loop.needed)

    return run


def _replace(loop: Loop, run: Callable, forms: tuple[str, ...]) -> Graph:
    """The graph in which one operation stands for the loop."""
    graph, block = loop.graph, loop.block
    kinds = [graph.ops[op].outputs[k] for op, k in loop.needed]
    outputs = tuple(kinds if loop.final else [move.widen(kind, block) for kind in kinds])
    name = min(loop.needed, key=lambda tensor: tensor != loop.carried)[0]
    domain = move.block_domain(graph.ops[name].domain, block)
    lifted = Op(name, "scan", domain, outputs, run, {"forms": forms, "over": block.name})
    place = {tensor: (name, k) for k, tensor in enumerate(loop.needed)}
    ends = {loop.carried[0]: None} if loop.final else {}
    return move.rewire(graph, block, loop.ops, [(lifted, loop.reads)], place, ends)
