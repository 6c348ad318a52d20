"""Several operations run as one: the body of a loop, or a fused region."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax

from mmrl.pdg.expr import TRUE, And, Compare, Const, Expr, Not, Or
from mmrl.pdg.graph import Edge, Graph
from mmrl.pdg.passes.cycles import components
from mmrl.pdg.passes.move import choose

Tensor = tuple[str, int]  # an operation, and which of its outputs
FAR = 1 << 30
MARK = "op_"


@dataclasses.dataclass(frozen=True)
class Region:
    """Operations in an order in which they can run at one point, and what they read from outside.

    `inside` are the edges between them at that point, `carried` those that lead to another one.
    """

    graph: Graph
    ops: tuple[str, ...]
    inside: frozenset[Edge]
    carried: frozenset[Edge]
    outside: tuple[Edge, ...]

    def run(
        self,
        env: Mapping[str, Any],
        inputs: Sequence[Any],
        carry: Mapping[Tensor, Any],
        known: Mapping[Edge, bool] | None = None,
    ) -> dict[Tensor, Any]:
        """All outputs of all operations. `inputs` are in the order of `outside`.

        `known` says of some branches whether they are taken; the others are decided by `env`.
        """
        arrived = dict(zip(self.outside, inputs, strict=True))
        values: dict[Tensor, Any] = {}

        def read(edge: Edge) -> Any:
            tensor = (edge.source, edge.output)
            if edge in self.carried:
                return carry[tensor]
            return values[tensor] if edge in self.inside else arrived[edge]

        for name in self.ops:
            op, edges = self.graph.ops[name], self.graph.inputs(name)
            if op.run is None:
                edges = [e for e in edges if (known or {}).get(e, True)]
                taken = [e for e in edges if (known or {}).get(e, False)] or edges
                conditions = [edge.when.evaluate(env) for edge in taken]
                results = (choose(conditions, [read(edge) for edge in taken]),)
            else:
                with jax.named_scope(MARK + name):  # a refusal shows in which operation it arose
                    results = op.run(env, *(read(edge) for edge in edges))
            values |= {(name, i): value for i, value in enumerate(results)}
        return values


def region(
    graph: Graph, names: Collection[str], inside: Collection[Edge], carried: Collection[Edge]
) -> Region:
    """The region of these operations, in order."""
    near = [edge for edge in inside if edge not in carried]
    order = [name for part in components(list(names), near) for name in sorted(part)]
    outside = [
        edge
        for name in order
        for edge in graph.inputs(name)
        if edge not in near and edge not in carried
    ]
    return Region(graph, tuple(order), frozenset(near), frozenset(carried), tuple(outside))


def decide(when: Expr, limits: Mapping[str, tuple[int, int]]) -> bool | None:
    """Whether a condition holds everywhere (True), nowhere (False), or here and there (None)."""
    if isinstance(when, Const):
        return bool(when.value)
    if isinstance(when, Not):
        inner = decide(when.term, limits)
        return None if inner is None else not inner
    if isinstance(when, And | Or):
        sides = (decide(when.left, limits), decide(when.right, limits))
        strong = isinstance(when, Or)
        if strong in sides:
            return strong
        return None if None in sides else not strong
    if not isinstance(when, Compare):
        return None
    difference = when.left - when.right
    everywhere = {name: (-FAR, FAR) for name in difference.symbols()} | dict(limits)
    lo, hi = difference.interval(everywhere)
    verdicts = {
        "<": (hi < 0, lo >= 0),
        "<=": (hi <= 0, lo > 0),
        ">": (lo > 0, hi <= 0),
        ">=": (lo >= 0, hi < 0),
        "==": (lo == hi == 0, lo > 0 or hi < 0),
        "!=": (lo > 0 or hi < 0, lo == hi == 0),
    }
    always, never = verdicts[when.op]
    return True if always else False if never else None


def branches(edges: Sequence[Edge], point: Expr, name: str, limits: Any) -> dict[Edge, bool]:
    """Which branches are surely taken, or surely not, where d is `point` within `limits`."""
    verdicts = {
        edge: decide(edge.when.substitute({name: point}), limits)
        for edge in edges
        if not TRUE.same(edge.when)
    }
    return {edge: verdict for edge, verdict in verdicts.items() if verdict is not None}
