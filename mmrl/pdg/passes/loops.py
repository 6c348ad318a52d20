"""Loops in a graph: a cycle of operations that carries one tensor from a point of d to the next."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import ZERO, Access, Block, access
from mmrl.pdg.passes.compose import Region, Tensor, region
from mmrl.pdg.passes.cycles import Cycle, shift
from mmrl.pdg.passes.values import Refusal


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
            jax.tree.map(lambda x, axis=plan.walks or 0: jnp.moveaxis(x, axis, 0), value)
            if plan.direct(self.block.name)
            else None
            for plan, value in zip(self.plans, ordered, strict=True)
        ]
        bounds = {name: value for name, value in env.items() if isinstance(value, int)}
        like = type_of(self.graph.ops[self.carried[0]], self.carried[1], bounds)
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


def type_of(op: Op, output: int, bounds: Mapping[str, int]) -> Any:
    kind = op.types(bounds)[output]
    if kind is None:
        raise Refusal("type", f"the type of {op.name} is not declared")
    return kind
