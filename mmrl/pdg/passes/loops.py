"""Loops in a graph: a cycle of operations that carries one tensor from a point of d to the next."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.expr import TRUE
from mmrl.pdg.graph import Edge, Graph, Op, Output, components
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import ZERO, Access, Block, Cycle, access, arrive, shift
from mmrl.pdg.passes.steps import Refusal
from mmrl.pdg.sets import always, never

MARK = "op_"
At = Callable[..., dict[Output, Any]]


@dataclasses.dataclass
class Carried:
    """A cycle that carries one tensor along d, by one step: `way` is +1 forward, -1 backward.

    `ops` are in an order in which they can run at one point. They read each other along `inside`
    there and along `back` at the point before, and everything else along `outside`, as `readings`
    says. `later` has the branches that are taken at all points but the first, or at none of them.
    """

    graph: Graph
    block: Block
    ops: tuple[str, ...]
    inside: Collection[Edge]
    back: Collection[Edge]
    outside: tuple[Edge, ...]
    readings: list[Access]
    carried: Output
    way: int
    later: dict[Edge, bool]

    @property
    def reads(self) -> list[Edge]:
        """All that an operation in the place of the loop reads."""
        return move.numbered(move.replan(self.outside, self.readings))

    @property
    def readers(self) -> list[Edge]:
        """The reads of these operations by those outside."""
        return [e for e in self.graph.edges if e.source in self.ops and e.sink not in self.ops]

    @property
    def needed(self) -> list[Output]:
        """All that is read from outside of the loop."""
        return list(dict.fromkeys((e.source, e.output) for e in self.readers))

    @property
    def final(self) -> bool:
        """Whether all that anybody reads is where the loop ends."""
        if self.needed != [self.carried] or move.asked(self.graph, self.ops):
            return False
        place = self.graph.ops[self.carried[0]].domain.names.index(self.block.name)
        end = self.block.bound - 1 if self.way > 0 else ZERO
        return all(edge.index[place].same(end) for edge in self.readers)

    @property
    def before(self) -> Edge | None:
        """The edge read at the first point in place of the state before it, if no more differs."""
        first = [edge for edge, taken in self.later.items() if not taken]
        others = [edge for edge, taken in self.later.items() if taken]
        alone = len(first) == 1 and first[0] in self.outside and others == list(self.back)
        return first[0] if alone and first[0].sink == others[0].sink else None

    def enter(self, at: At, env: Mapping[str, Any], points: Any) -> tuple[Any, Any]:
        """The state to go on from, and the points that are left, in the order of the loop.

        `points` are what `at` takes at each. A first point that has a definition of its own is
        computed here, so that the branch that it takes is nowhere in the step.
        """
        ahead = points if self.way > 0 else jax.tree.map(lambda x: x[::-1], points)
        point, here = jax.tree.map(lambda x: x[0], ahead)
        if edge := self.before:
            known = {edge: not taken for edge, taken in self.later.items()}
            return at(point, self.nothing(env), here, known)[edge.sink, 0], ahead
        first = at(point, self.nothing(env), here)[self.carried]
        return first, jax.tree.map(lambda x: x[1:], ahead)

    def nothing(self, env: Mapping[str, Any]) -> Any:
        """A state of zeros, for where there is none before."""
        bounds = {name: value for name, value in env.items() if isinstance(value, int)}
        like = type_of(self.graph.ops[self.carried[0]], self.carried[1], bounds)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)

    def begin(
        self, inputs: Sequence[Any], env: Mapping[str, Any], start: Mapping[str, Any]
    ) -> tuple[At, list[Any]]:
        """`at(point, x, here, known)`, one pass through the body, and what it walks along.

        `start` is the point at which the inputs arrived. `at` gives all outputs of all operations;
        x is the state before, and `known` says of some branches whether they are taken.
        """
        walked, reads = arrive(self.readings, inputs, start)

        def at(
            point: Any, x: Any, here: list[Any], known: Mapping[Edge, bool] | None = None
        ) -> dict[Output, Any]:
            spot = {**env, self.block.name: point}
            arrived = dict(zip(self.outside, reads(spot, here), strict=True))
            return self._body(spot, arrived, x, known or {})

        return at, walked

    def _body(
        self,
        env: Mapping[str, Any],
        arrived: Mapping[Edge, Any],
        x: Any,
        known: Mapping[Edge, bool],
    ) -> dict[Output, Any]:
        values: dict[Output, Any] = {}

        def read(edge: Edge) -> Any:
            if edge in self.back:
                return x
            return values[edge.source, edge.output] if edge in self.inside else arrived[edge]

        for name in self.ops:
            op, edges = self.graph.ops[name], self.graph.inputs(name)
            if op.run is None:
                sure = [edge for edge in edges if known.get(edge) is True]
                taken = sure or [edge for edge in edges if known.get(edge) is not False]
                conditions = [edge.when.evaluate(env) for edge in taken]
                results = (move.choose(conditions, [read(edge) for edge in taken]),)
            else:
                with jax.named_scope(MARK + name):  # a refusal shows in which operation it arose
                    results = op.run(env, *(read(edge) for edge in edges))
            values |= {(name, k): value for k, value in enumerate(results)}
        return values


def analyze(graph: Graph, cycle: Cycle, block: Block) -> Carried:
    """The cycle as a loop that carries one tensor. Raises `Refusal` if it is not one."""
    for op in cycle.ops:
        if block.name not in graph.ops[op].domain.names:
            raise Refusal("domain", f"{op} is not over {block.name}")
        if graph.ops[op].kind == "host":
            raise Refusal("host", f"{op} calls the host, at one point after the other")
    tensor, away, back = _carried(graph, cycle, block)
    inside = [edge for edge in cycle.edges if edge not in back]
    order = [name for group in components(inside) for name in group]
    order += [name for name in cycle.ops if name not in order]
    outside = [e for op in order for e in graph.inputs(op) if e not in inside and e not in back]
    readings = []
    for edge in outside:
        reading = access(graph, edge, block, (), True)
        foreign = edge.when.symbols() & set(move.graph_dims(graph)) - {block.name}
        if reading is None or foreign or edge.source in cycle.ops:
            raise Refusal("read", f"{edge} cannot be read for all of {block.name} at once")
        readings.append(reading)
    later = _later(graph, cycle.edges + tuple(outside), block, -away)
    return Carried(
        graph, block, tuple(order), inside, back, tuple(outside), readings, tensor, -away, later
    )


def _carried(graph: Graph, cycle: Cycle, block: Block) -> tuple[Output, int, list[Edge]]:
    """Values that a cycle hands to another point of d, how far away, and along which edges."""
    back, distances = [], set()
    for edge in cycle.edges:
        away = _distance(graph, edge, block.name)
        if away is None:
            raise Refusal("read", f"{edge} leads elsewhere than to the point before")
        if away:
            back.append(edge)
            distances.add(away)
    tensors = sorted({(edge.source, edge.output) for edge in back})
    if len(tensors) > 1:
        names = [f"{op}.{k}" if len(graph.ops[op].outputs) > 1 else op for op, k in tensors]
        raise Refusal("carry", f"it carries {' and '.join(names)}, not one tensor")
    if len(distances) > 1 or not distances <= {-1, 1}:
        raise Refusal("read", f"it reaches {', '.join(map(str, sorted(distances)))} steps away")
    return tensors[0], distances.pop(), back


def _distance(graph: Graph, edge: Edge, name: str) -> int | None:
    """How far along d an edge inside a cycle leads, if it leads nowhere else."""
    names = graph.ops[edge.source].domain.names
    steps = {dim: shift(part, dim) for dim, part in zip(names, edge.index, strict=True)}
    away = steps.pop(name)
    return away if set(steps.values()) <= {0} else None


def _later(graph: Graph, edges: Sequence[Edge], block: Block, way: int) -> dict[Edge, bool]:
    others: Any = block.symbol != (ZERO if way > 0 else block.bound - 1)
    verdicts = {}
    for edge in edges:
        if TRUE.same(edge.when):
            continue
        domain = graph.ops[edge.sink].domain.restrict(others)
        if always(edge.when, domain):
            verdicts[edge] = True
        elif never(edge.when, domain):
            verdicts[edge] = False
    return verdicts


def type_of(op: Op, output: int, bounds: Mapping[str, int]) -> Any:
    kind = op.types(bounds)[output]
    if kind is None:
        raise Refusal("type", f"the type of {op.name} is not declared")
    return kind
