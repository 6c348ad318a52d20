"""Lift: a loop over d that is a recurrence of a known kind becomes one scan over all of d.

    for t in range(T): g[t] = r[t] + γ g[t + 1]      ↦      g = scan(Affine, (γ, r))

The loop must carry one tensor from one point of d to the next, and its body, whatever operations
it is made of, must be a step that `recognize` knows. Acting is not: what the environment answers
depends on the action, which depends on the memory by way of a choice.

The paper lifts sums, prefix sums and sliding sums that match a pattern (§5.2); its code names
discounted sums as still to do. Lifting has a price: every reader now waits for all of d.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.expr import TRUE, Slice, Sym
from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import Block
from mmrl.pdg.passes.compose import FAR, MARK, branches
from mmrl.pdg.passes.cycles import cycles, trivial
from mmrl.pdg.passes.declared import Declared
from mmrl.pdg.passes.loops import Loop, analyze, type_of
from mmrl.pdg.passes.recurrence import MATRIX, recognize
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
    env: Mapping[str, Any] | None = None,
) -> tuple[Graph, list[str]]:
    """The graph with loops over `name` lifted, and for each loop what was done, or why not.

    "auto" lifts a loop only where nobody has to wait longer for it: one that runs backward, or one
    whose readers want all of d. "always" lifts every loop that can be, which suits a parallel
    device. `env` has what operations find there besides symbols and bounds, such as a key.

    Raises `ValueError` for a dimension that is not there or another `when`.
    """
    if when not in CHOICES:
        raise ValueError(f"`when` must be one of {', '.join(CHOICES)}; got {when!r}.")
    dims = move.graph_dims(graph)
    if name not in dims:
        raise ValueError(f"`{name}` is no dimension of the program: it has {', '.join(dims)}.")
    words = []
    for cycle in cycles(graph, name):
        if trivial(graph, cycle, name):
            continue
        try:
            loop = analyze(graph, cycle, Block(name, dims[name]))
            _check(loop, matrix, monoids, env or {})
            if when == "auto":
                _check_cost(loop)
        except Refusal as refusal:
            words.append(f"{cycle} stay a loop over {name}: {refusal.reason}")
            continue
        graph = _replace(loop, matrix, monoids)
        kinds = " and ".join(sorted(set(loop.forms)))
        words.append(f"{cycle} became one scan over {name}: {kinds}")
    return graph, words


def _check(loop: Loop, matrix: int, monoids: tuple[Declared, ...], extra: Mapping) -> None:
    """Try the scan on small shapes: this is where a step that is no recurrence is refused."""
    graph, block = loop.graph, loop.block
    bounds = dict.fromkeys(graph.bounds, SMALL)
    symbols = {dim: 0 for dim in move.graph_dims(graph) if dim != block.name}
    env = {**extra, **bounds, **symbols}
    types = []
    for edge, plan in zip(loop.body.outside, loop.plans, strict=True):
        source, sink = graph.ops[edge.source], graph.ops[edge.sink]
        kind = type_of(source, edge.output, bounds)
        widths = [
            sink.domain.largest(part.width(), bounds)
            for part in plan.index
            if isinstance(part, Slice)
        ]
        types.append(
            jax.tree.map(lambda x, w=widths: jax.ShapeDtypeStruct((*w, *x.shape), x.dtype), kind)
        )
    found: list[tuple[str, ...]] = []
    run = scan_run(loop, matrix, monoids, found)
    try:
        jax.eval_shape(lambda *inputs: run(env, *inputs), *types)
    except Refusal as refusal:
        scopes = [s for s in refusal.inside.split("/") if s.startswith(MARK)]
        where = f", in {scopes[0].removeprefix(MARK)}" if scopes else ""
        raise Refusal(refusal.primitive, refusal.reason + where) from None
    loop.forms = found[0]


def _check_cost(loop: Loop) -> None:
    """Lifting a forward loop would make those wait who read it as it goes."""
    if loop.way < 0:
        return
    graph, name = loop.graph, loop.block.name
    for edge in loop.readers:
        dims = graph.ops[edge.source].domain.names
        part = edge.index[dims.index(name)]
        if not (isinstance(part, Slice) and part.hi.same(loop.block.bound)):
            reason = f"{edge.sink} reads {edge.source}[{part}] as it goes, and would have to wait"
            raise Refusal("cost", f"{reason} for all of {name}")
    if any(op in loop.body.ops for op, _ in graph.results):
        raise Refusal("cost", "its points are results, which could come one by one")


def scan_run(loop: Loop, matrix: int, monoids: tuple[Declared, ...], found: list | None = None):
    """`run` of the lifted loop: everything in `loop.needed`, stacked over d.

    The first point, which has a definition of its own, is computed apart. So the branch that it
    takes is nowhere in the step, and what is a sum stays a sum.
    """
    block, body, way = loop.block, loop.body, loop.way
    name = block.name

    def known(away: int, limits: tuple[int, int]) -> dict[Edge, bool]:
        far = Sym("_far")
        point = far if way > 0 else block.bound - 1 - far
        edges = [edge for op in body.ops for edge in body.graph.inputs(op)]
        return branches(edges, point, name, {"_far": limits})

    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        at = loop.steps(inputs, env, {**env, name: 0})
        length, nothing, walked = block.count(env), at.nothing, at.walked
        begin, end = known(0, (0, 0)), known(1, (1, FAR))
        points = jnp.arange(length)
        place = 0 if way > 0 else length - 1
        rest = slice(1, None) if way > 0 else slice(None, -1)
        first = at(jnp.asarray(place), nothing, _take(walked, place), begin)[loop.carried]

        def step(x: Any, point: Any, walked: Any) -> Any:
            return at(point, x, walked, end)[loop.carried]

        later = jax.tree.map(lambda x: x[rest], (points, walked))
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), later)
        recurrence = recognize(step, first, *one, monoids=monoids, matrix=matrix)
        if found is not None:
            found.append(recurrence.forms)
        if loop.final:
            ahead = later if way > 0 else jax.tree.map(lambda x: x[::-1], later)
            return (recurrence.last(first, tuple(ahead)),)
        xs = recurrence(first, tuple(later), reverse=way < 0)
        xs = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y][::way]), first, xs)
        if loop.needed == [loop.carried]:
            return (xs,)
        before = jax.tree.map(
            lambda e, x: jnp.concatenate([e[None], x[:-1]] if way > 0 else [x[1:], e[None]]),
            nothing,
            xs,
        )
        everything = jax.vmap(lambda p, x, w: at(p, x, w, {}))(points, before, walked)
        everything[loop.carried] = xs
        return tuple(everything[tensor] for tensor in loop.needed)

    return run


def _take(tree: Any, place: int) -> Any:
    return jax.tree.map(lambda x: x[place], tree)


def _replace(loop: Loop, matrix: int, monoids: tuple[Declared, ...]) -> Graph:
    """The graph in which one operation stands for the loop."""
    graph, body, block = loop.graph, loop.body, loop.block
    domain = move.block_domain(graph.ops[loop.title].domain, block)
    outputs = tuple(
        graph.ops[op].outputs[output]
        if loop.final
        else move.widen((graph.ops[op].outputs[output],), block)[0]
        for op, output in loop.needed
    )
    run = scan_run(loop, matrix, monoids)
    name = move.title(graph, loop.title, body.ops)
    lifted = Op(name, "scan", domain, outputs, run, {"forms": loop.forms, "over": block.name})
    edges = [
        dataclasses.replace(edge, sink=name, index=plan.index, input=k, when=TRUE)
        for k, (edge, plan) in enumerate(zip(body.outside, loop.plans, strict=True))
    ]
    place = {tensor: (lifted.name, k) for k, tensor in enumerate(loop.needed)}
    return move.rewire(graph, block, body.ops, [(lifted, edges)], place, loop.final)
