"""The meaning of a program: every point once, in any legal order, everything kept.

No schedule, no passes, nothing freed. Whatever the compiler does must give the same numbers as
this, and this must give the same bits in every order, since a point depends only on what it reads.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.pdg.domain import Point, reads
from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.validate import fitting

Instance = tuple[str, Point]  # an operation at a point


def execute(
    graph: Graph, bounds: Mapping[str, int], *, seed: int = 0, jit: bool = False
) -> dict[tuple[str, int], dict[Point, Any]]:
    """The values of the graph's results: {(operation, output): {point: value}}.

    `seed` picks the order, and nothing else should depend on it. `jit` compiles each operation
    once, which pays for many points. Raises `ValueError` if a point waits for itself, or
    for wrong bounds (`validate.fitting`).
    """
    sizes = fitting(graph, bounds)
    values: dict[Instance, tuple[Any, ...]] = {}
    runs = {name: _thunk(op, sizes, jit) for name, op in graph.ops.items() if op.run is not None}
    for name, point in legal_order(graph, sizes, seed):
        op = graph.ops[name]
        arguments = [
            take(graph, edge, point, sizes, values)
            for edge in graph.inputs(name)
            if bool(edge.when.evaluate(op.domain.env(point, sizes)))
        ]
        if op.run is None:
            values[name, point] = (arguments[0],)
        else:
            counters = dict(zip(op.domain.names, point, strict=True))
            values[name, point] = runs[name](counters, *arguments)
    return {
        (name, output): {p: values[name, p][output] for p in graph.ops[name].domain.points(sizes)}
        for name, output in graph.results
    }


def needs(graph: Graph, name: str, point: Point, bounds: Mapping[str, int]) -> list[Instance]:
    """The points that must be computed before an operation at a point."""
    env = graph.ops[name].domain.env(point, bounds)
    found: list[Instance] = []
    for edge in graph.inputs(name):
        if bool(edge.when.evaluate(env)):
            found += [(edge.source, at) for at in reads(edge.index, env)]
    return found


def legal_order(graph: Graph, bounds: Mapping[str, int], seed: int) -> list[Instance]:
    """All instances, each after what it needs, in an order drawn from `seed`."""
    generator = random.Random(seed)
    waiting: dict[Instance, int] = {}
    readers: dict[Instance, list[Instance]] = defaultdict(list)
    for op in graph.ops.values():
        for point in op.domain.points(bounds):
            sources = set(needs(graph, op.name, point, bounds))
            waiting[op.name, point] = len(sources)
            for source in sources:
                readers[source].append((op.name, point))
    missing = sorted(set(readers) - set(waiting))
    if missing:
        raise ValueError(
            f"{missing[:3]} are read but not computed: are the bounds {dict(bounds)} too small?"
        )
    ready = [instance for instance, count in waiting.items() if count == 0]
    order: list[Instance] = []
    while ready:
        place = generator.randrange(len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        order.append(ready.pop())
        for reader in readers[order[-1]]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if len(order) < len(waiting):
        stuck = sorted(set(waiting) - set(order))
        raise ValueError(f"{stuck[0]} waits for itself: the program has a cycle")
    return order


def take(
    graph: Graph,
    edge: Edge,
    point: Point,
    bounds: Mapping[str, int],
    values: Mapping[Instance, tuple[Any, ...]],
) -> Any:
    """An argument as it is read: a value, or those of a slice, stacked and padded with zeros."""
    domain = graph.ops[edge.sink].domain
    env = domain.env(point, bounds)
    found = [values[edge.source, at][edge.output] for at in reads(edge.index, env)]
    if not edge.slices:
        return found[0]
    widths = [part.width() for part in edge.slices]
    room = [domain.largest(width, bounds) for width in widths]
    counts = [max(0, int(width.evaluate(env))) for width in widths]

    def pad(kind: Any, *leaves: Any) -> jax.Array:
        # With numpy: JAX would compile one program for each length.
        block = np.zeros((*room, *kind.shape), kind.dtype)
        if leaves:
            part = np.stack([np.asarray(leaf) for leaf in leaves])
            block[tuple(map(slice, counts))] = part.reshape((*counts, *kind.shape))
        return jnp.asarray(block)

    kind = graph.ops[edge.source].types(bounds)[edge.output]
    return jax.tree.map(pad, kind, *found)


def _thunk(op: Op, bounds: Mapping[str, int], jit: bool) -> Callable[..., tuple[Any, ...]]:
    run = op.run
    assert run is not None

    def thunk(counters: dict[str, Any], *inputs: Any) -> tuple[Any, ...]:
        return run({**counters, **bounds}, *inputs)

    return jax.jit(thunk) if jit else thunk
