"""The meaning of a program: every point once, in any legal order, everything kept.

No schedule, no passes, and no value is freed. Every compiled program must give the same numbers as
this, and this must give the same bits in every order, since a point depends only on what it reads.

`check` tests an order of execution by enumerating one run, without any polyhedra:
the oracle for everything that `mmrl.pdg.schedule` derives by integer sets. It reads only the graph,
the list of events and numbers for the bounds.
"""

import collections
import dataclasses
import functools
import graphlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.pdg.build.graph import Edge, Graph, Op, Output, Point, reads
from mmrl.pdg.clean.validate import Instance, fitting, given, needs
from mmrl.pdg.plan.code import Event


def execute(
    graph: Graph,
    bounds: Mapping[str, int],
    *,
    seed: int = 0,
    jit: bool = False,
    key: Any = None,
    **inputs: Any,
) -> dict[tuple[str, int], dict[Point, Any]]:
    """Return the values of the graph's results: {(operation, output): {point: value}}.

    `seed` determines the order, and only the order. `jit` compiles each operation
    once, which pays for many points. A `key` replaces the program's seed, and `inputs` are by the
    names that `Program.input` gave them. Raises `ValueError` if a point waits for itself, and for
    wrong bounds (`validate.fitting`) or inputs (`validate.given`).
    """
    sizes = fitting(graph, bounds)
    more = given(graph, sizes, key, inputs)
    values: dict[Instance, tuple[Any, ...]] = {}
    numbers = tuple(sizes.items())
    runs = {name: _thunk(op, numbers, jit) for name, op in graph.ops.items() if op.run is not None}
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
            values[name, point] = runs[name](counters, more, *arguments)
    return {
        (name, output): {p: values[name, p][output] for p in graph.ops[name].domain.points(sizes)}
        for name, output in graph.results
    }


def legal_order(graph: Graph, bounds: Mapping[str, int], seed: int) -> list[Instance]:
    """All instances, each after what it needs, in an order drawn from `seed`."""
    generator, ready, order = random.Random(seed), [], []
    waits = {
        (op.name, point): {source for _, source in needs(graph, op.name, point, bounds)}
        for op in graph.ops.values()
        for point in op.domain.points(bounds)
    }
    missing = sorted(set().union(*waits.values()) - set(waits))
    if missing:
        raise ValueError(
            f"{missing[:3]} are read but not computed: are the bounds {dict(bounds)} too small?"
        )
    sorter = graphlib.TopologicalSorter(waits)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        stuck = error.args[1][0]
        raise ValueError(f"{stuck} waits for itself: the program has a cycle") from None
    while sorter:
        ready += sorter.get_ready()
        place = generator.randrange(len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        order.append(ready.pop())
        sorter.done(order[-1])
    return order


def take(
    graph: Graph,
    edge: Edge,
    point: Point,
    bounds: Mapping[str, int],
    values: Mapping[Instance, tuple[Any, ...]],
) -> Any:
    """Return an argument as it is read: a value, or a slice, stacked and padded with zeros."""
    domain = graph.ops[edge.sink].domain
    env = domain.env(point, bounds)
    found = [values[edge.source, at][edge.output] for at in reads(edge.index, env)]
    if not edge.slices:
        return found[0]
    widths = [part.width() for part in edge.slices]
    room = [domain.largest(width, bounds) for width in widths]
    counts = [max(0, int(width.evaluate(env))) for width in widths]
    kind = graph.ops[edge.source].types(bounds)[edge.output]
    return jax.tree.map(functools.partial(_pad, room, counts), kind, *found)


def _pad(room: Sequence[int], counts: Sequence[int], kind: Any, *leaves: Any) -> jax.Array:
    # With numpy: JAX would compile one program for each length.
    block = np.zeros((*room, *kind.shape), kind.dtype)
    if leaves:
        part = np.stack([np.asarray(leaf) for leaf in leaves])
        block[tuple(map(slice, counts))] = part.reshape((*counts, *kind.shape))
    return jnp.asarray(block)


@functools.lru_cache(256)  # so that all orders of one program share what is compiled
def _thunk(
    op: Op, bounds: tuple[tuple[str, int], ...], jit: bool
) -> Callable[..., tuple[Any, ...]]:
    run = op.run
    assert run is not None

    def thunk(counters: dict[str, Any], more: dict[str, Any], *values: Any) -> tuple[Any, ...]:
        return run({**counters, **dict(bounds), **more}, *values)

    return jax.jit(thunk) if jit else thunk


@dataclasses.dataclass(frozen=True)
class Report:
    """Mistakes of one run, and how many points of each tensor were alive at once at most.

    `device` and `host` count points; `timeline` gives, after each event, the points of all tensors
    alive on the device.
    """

    violations: tuple[str, ...]
    device: Mapping[Output, int]
    host: Mapping[Output, int]
    timeline: tuple[int, ...]

    @property
    def ok(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        if self.violations:
            return "\n".join(self.violations)
        most = sorted(self.device.items(), key=lambda item: -item[1])
        alive = [f"{count} of {op}.{output}" for (op, output), count in most if count > 1]
        return f"correct; at most alive: {', '.join([*alive, '1 of each other tensor'])}"


class _Run:
    """The place of every value during the events."""

    def __init__(self, graph: Graph, bounds: Mapping[str, int]):
        self.graph, self.bounds = graph, dict(bounds)
        self.points = {name: set(op.domain.points(bounds)) for name, op in graph.ops.items()}
        self.ran: set[tuple[str, Point]] = set()
        self.place: dict[tuple[Output, Point], str] = {}
        self.live = {"device": collections.Counter[Output](), "host": collections.Counter[Output]()}
        self.peak: dict[str, dict[Output, int]] = {"device": {}, "host": {}}
        self.violations: list[str] = []

    def move(self, tensor: Output, point: Point, place: str) -> None:
        """`place`: "device", "host" or "freed"."""
        before = self.place.get((tensor, point), "nowhere")
        if before in self.live:
            self.live[before][tensor] -= 1
        if place in self.live:
            self.live[place][tensor] += 1
            most = max(self.peak[place].get(tensor, 0), self.live[place][tensor])
            self.peak[place][tensor] = most
        self.place[tensor, point] = place

    def run(self, op: str, point: Point) -> None:
        if point not in self.points.get(op, ()):
            self.violations.append(f"{_at(op, point)} runs but is no point of {op}")
            return
        if (op, point) in self.ran:
            self.violations.append(f"{_at(op, point)} runs twice")
        for edge, (source, at) in needs(self.graph, op, point, self.bounds):
            # A slice may hold points between strides, which have no value.
            if at in self.points[source] or not edge.slices:
                self.read(_at(op, point), edge.tensor, at)
        self.ran.add((op, point))
        for output in range(len(self.graph.ops[op].outputs)):
            self.move((op, output), point, "device")

    def read(self, reader: str, tensor: Output, point: Point) -> None:
        what = _at(tensor[0], point)
        place = self.place.get((tensor, point), "nowhere")
        if place == "nowhere":
            self.violations.append(f"{reader} reads {what} before it is computed")
        elif place != "device":
            where = "on the host" if place == "host" else "freed"
            self.violations.append(f"{reader} reads {what} while it is {where}")

    def manage(self, kind: str, tensor: Output, point: Point) -> None:
        """A free, an offload or a fetch."""
        what, place = _at(tensor[0], point), self.place.get((tensor, point), "nowhere")
        wanted = {"free": ("device", "host"), "offload": ("device",), "fetch": ("host",)}[kind]
        if place not in wanted:
            state = {"device": "on the device", "host": "on the host"}.get(place, place)
            self.violations.append(f"{kind} of {what} while it is {state}")
        if kind == "free" and tensor in self.graph.results:
            self.violations.append(f"free of {what}, which is a result")
        self.move(tensor, point, {"free": "freed", "offload": "host", "fetch": "device"}[kind])

    def finish(self) -> None:
        """Raise unless every point ran, and every value except the results is gone."""
        for op, points in self.points.items():
            for point in sorted(points - {p for name, p in self.ran if name == op}):
                self.violations.append(f"{_at(op, point)} never runs")
        for (tensor, point), place in self.place.items():
            if place != "freed" and tensor not in self.graph.results:
                self.violations.append(
                    f"{_at(tensor[0], point)} is never freed (output {tensor[1]})"
                )


def check(graph: Graph, events: Sequence[Event], **bounds: int) -> Report:
    """Follow the events: order, each point once, no use after free, no leak; and count.

    Frees are wanted of all tensors but the results. `bounds` are the numbers of the run.
    """
    run, timeline = _Run(graph, bounds), []
    for kind, what, point in events:
        if kind == "run":
            run.run(str(what), point)
        else:
            op, output = what
            run.manage(kind, (str(op), int(output)), point)
        timeline.append(run.live["device"].total())
    run.finish()
    device, host = run.peak["device"], run.peak["host"]
    return Report(tuple(run.violations), device, host, tuple(timeline))


def _at(op: str, point: Point) -> str:
    return f"{op}[{', '.join(map(str, point))}]"
