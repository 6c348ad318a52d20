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
from mmrl.pdg.passes.access import ZERO, Access, Block, access
from mmrl.pdg.passes.compose import FAR, Region, Tensor, branches, region
from mmrl.pdg.passes.cycles import Cycle, cycles, shift, trivial
from mmrl.pdg.passes.declared import Declared
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


@dataclasses.dataclass
class Loop:
    """A cycle that carries one tensor along d, by one step: `way` is +1 forward, -1 backward."""

    body: Region
    block: Block
    carried: Tensor
    way: int
    plans: list[Access]
    readers: list[Edge]  # from outside
    forms: tuple[str, ...] = ()

    @property
    def graph(self) -> Graph:
        return self.body.graph

    @property
    def needed(self) -> list[Tensor]:
        """What is read from outside, by an operation or by the user."""
        shown = sorted(move.views(self.graph, self.body.ops))
        asked = [(op, k) for op in shown for k in range(len(self.graph.ops[op].outputs))]
        return list(dict.fromkeys([(e.source, e.output) for e in self.readers] + asked))

    @property
    def final(self) -> bool:
        """Whether all that anybody reads is where the loop ends."""
        if self.needed != [self.carried] or move.views(self.graph, self.body.ops):
            return False
        place = self.graph.ops[self.carried[0]].domain.names.index(self.block.name)
        end = self.block.bound - 1 if self.way > 0 else ZERO
        return all(edge.index[place].same(end) for edge in self.readers) and bool(self.readers)

    def steps(self, inputs: tuple, env: Mapping[str, Any], start: Mapping[str, Any]) -> "Steps":
        """The body of the loop, with what it reads; `start` is the point at which that arrived."""
        ordered = move.inputs_in_order(self.plans, inputs)
        walked = [
            jax.tree.map(lambda x, axis=plan.walks: jnp.moveaxis(x, axis, 0), value)
            if plan.direct(self.block.name)
            else None
            for plan, value in zip(self.plans, ordered, strict=True)
        ]
        bounds = {name: value for name, value in env.items() if isinstance(value, int)}
        like = _type(self.graph.ops[self.carried[0]], self.carried[1], bounds)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        return Steps(self, env, start, ordered, walked, nothing)

    @property
    def title(self) -> str:
        return min(self.needed or [self.carried], key=lambda tensor: tensor != self.carried)[0]


@dataclasses.dataclass(frozen=True)
class Steps:
    """One pass through the body of a loop, wherever it is: `at(point, x, walked, sure)`.

    `walked` holds the inputs that the loop walks along, d first; the others stay in `ordered`.
    `nothing` is a state of zeros, for where there is none before.
    """

    loop: Loop
    env: Mapping[str, Any]
    start: Mapping[str, Any]
    ordered: list[Any]
    walked: list[Any]
    nothing: Any

    def __call__(
        self, point: Any, x: Any, walked: list[Any], sure: Mapping[Edge, bool]
    ) -> dict[Tensor, Any]:
        plans, block = self.loop.plans, self.loop.block
        spot = {**self.env, block.name: point}
        values = [
            w if plan.direct(block.name) else v
            for plan, w, v in zip(plans, walked, self.ordered, strict=True)
        ]
        reads = move.read_all(plans, values, spot, self.start, block)
        return self.loop.body.run(spot, reads, {self.loop.carried: x}, sure)


def analyze(graph: Graph, cycle: Cycle, block: Block) -> Loop:
    """The cycle as a loop that carries one tensor. Raises `Refusal` if it is not one."""
    name = block.name
    for op in cycle.ops:
        if name not in graph.ops[op].domain.names:
            raise Refusal("domain", f"{op} is not over {name}")
    carried, distances = [], set()
    for edge in cycle.edges:
        away = _distance(graph, edge, name)
        if away is None:
            raise Refusal("read", f"{edge} leads elsewhere than to the point before")
        if away:
            carried.append(edge)
            distances.add(away)
    tensors = {(edge.source, edge.output) for edge in carried}
    if len(tensors) > 1:
        both = " and ".join(sorted(op for op, _ in tensors))
        raise Refusal("carry", f"it carries {both}, not one tensor")
    if len(distances) > 1 or not distances <= {-1, 1}:
        raise Refusal("read", f"it reaches {', '.join(map(str, sorted(distances)))} steps away")
    body = region(graph, cycle.ops, cycle.edges, carried)
    plans = []
    for edge in body.outside:
        sink, source = graph.ops[edge.sink], graph.ops[edge.source]
        plan = access(edge, sink, source, block, (), True)
        foreign = edge.when.symbols() & set(move.graph_dims(graph)) - {name}
        if plan is None or foreign or edge.source in cycle.ops:
            raise Refusal("read", f"{edge} cannot be read for all of {name} at once")
        plans.append(plan)
    (tensor,), (away,) = tensors, distances
    readers = [e for e in graph.edges if e.source in cycle.ops and e.sink not in cycle.ops]
    return Loop(body, block, tensor, -away, plans, readers)


def _distance(graph: Graph, edge: Edge, name: str) -> int | None:
    """How far along d an edge inside a cycle leads, if it leads nowhere else."""
    away = 0
    for dim, part in zip(graph.ops[edge.source].domain, edge.index, strict=True):
        step = shift(part, dim.name)
        if step is None or (step and dim.name != name):
            return None
        away = step if dim.name == name else away
    return away


def _check(loop: Loop, matrix: int, monoids: tuple[Declared, ...], extra: Mapping) -> None:
    """Try the scan on small shapes: this is where a step that is no recurrence is refused."""
    graph, block = loop.graph, loop.block
    bounds = dict.fromkeys(graph.bounds, SMALL)
    symbols = {dim: 0 for dim in move.graph_dims(graph) if dim != block.name}
    env = {**extra, **bounds, **symbols}
    types = []
    for edge, plan in zip(loop.body.outside, loop.plans, strict=True):
        source, sink = graph.ops[edge.source], graph.ops[edge.sink]
        kind = _type(source, edge.output, bounds)
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
        op = refusal.inside.removeprefix("op_")
        where = f", in {op}" if op else ""
        raise Refusal(refusal.primitive, refusal.reason + where) from None
    loop.forms = found[0]


def _type(op: Op, output: int, bounds: Mapping[str, int]) -> Any:
    kind = op.types(bounds)[output]
    if kind is None:
        raise Refusal("type", f"the type of {op.name} is not declared")
    return kind


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
