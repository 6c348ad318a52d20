"""Reference execution of a program: every point once, in any valid order, without freeing memory.

The reference uses no schedule and no passes. Every compiled program must compute the same numbers
as the reference, and the reference must return bitwise equal results for every order, because a
point depends only on the values that it reads.

`check` tests an order of execution by enumerating one run, without polyhedra. It uses only the
graph, the list of events and the given bounds, so it is an independent oracle for everything that
`mmrl.pdg.schedule` derives from integer sets.
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
from mmrl.pdg.clean.validate import Instance, check_bounds, needs, run_env
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

    `seed` determines only the order of execution. `jit` compiles each operation once, which saves
    time if there are many points. A `key` replaces the program's seed, and `inputs` have the names
    passed to `Program.input`. Raises `ValueError` if a point depends on itself, for invalid bounds
    (`validate.check_bounds`), and for invalid inputs (`validate.run_env`).

        >>> from mmrl.pdg import Program
        >>> program = Program("t")
        >>> x, (t,) = program.tensor("t", name="x"), program.symbols
        >>> x[0] = 1.0
        >>> x[t + 1] = 0.5 * x[t]
        >>> float(execute(program.graph(x), {"T": 3})["x", 0][(2,)])
        0.25
    """
    sizes = check_bounds(graph, bounds)
    more = run_env(graph, sizes, key, inputs)
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
    """Return all pairs (operation, point) in a random valid order that depends on `seed`.

    >>> from mmrl.pdg import Program
    >>> p = Program("t")
    >>> sorted(legal_order(p.graph(p.value(p.symbols[0])), {"T": 2}, seed=0))
    [('value', (0,)), ('value', (1,))]
    """
    generator, ready, order = random.Random(seed), [], []
    dependences = {
        (op.name, point): {source for _, source in needs(graph, op.name, point, bounds)}
        for op in graph.ops.values()
        for point in op.domain.points(bounds)
    }
    missing = sorted(set().union(*dependences.values()) - set(dependences))
    if missing:
        raise ValueError(
            f"`bounds` must be large enough, got {dict(bounds)}: {missing[:3]} are read but not "
            "computed"
        )
    sorter = graphlib.TopologicalSorter(dependences)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        instance = error.args[1][0]
        raise ValueError(
            f"`graph` must not have a cycle, but {instance} depends on itself; see `validate`"
        ) from None
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
    """Return the value that an edge reads at a point; slices are stacked and padded with zeros."""
    domain = graph.ops[edge.sink].domain
    env = domain.env(point, bounds)
    entries = [values[edge.source, at][edge.output] for at in reads(edge.index, env)]
    if not edge.slices:
        return entries[0]
    widths = [part.width() for part in edge.slices]
    room = [domain.largest(width, bounds) for width in widths]
    counts = [max(0, int(width.evaluate(env))) for width in widths]
    kind = graph.ops[edge.source].types(bounds)[edge.output]
    return jax.tree.map(functools.partial(_pad, room, counts), kind, *entries)


def _pad(room: Sequence[int], counts: Sequence[int], kind: Any, *leaves: Any) -> jax.Array:
    # Use NumPy, because JAX would compile a new program for each length.
    block = np.zeros((*room, *kind.shape), kind.dtype)
    if leaves:
        part = np.stack([np.asarray(leaf) for leaf in leaves])
        block[tuple(map(slice, counts))] = part.reshape((*counts, *kind.shape))
    return jnp.asarray(block)


@functools.lru_cache(256)  # share compiled operations between all orders of a program
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
    """Violations in one run, and the maximum number of points of each tensor alive at once.

    `device` and `host` contain these numbers by tensor. `timeline` contains the number of all
    points alive on the device after each event.
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
    """Location of every value ("device", "host" or "freed") during a run."""

    def __init__(self, graph: Graph, bounds: Mapping[str, int]):
        self.graph, self.bounds = graph, dict(bounds)
        self.points = {name: set(op.domain.points(bounds)) for name, op in graph.ops.items()}
        self.executions: set[tuple[str, Point]] = set()
        self.place: dict[tuple[Output, Point], str] = {}
        self.live = {"device": collections.Counter[Output](), "host": collections.Counter[Output]()}
        self.peak: dict[str, dict[Output, int]] = {"device": {}, "host": {}}
        self.violations: list[str] = []

    def move(self, tensor: Output, point: Point, place: str) -> None:
        """Record that a value moves to `place`: "device", "host" or "freed"."""
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
            self.violations.append(f"{_at(op, point)} runs but is not a point of {op}")
            return
        if (op, point) in self.executions:
            self.violations.append(f"{_at(op, point)} runs twice")
        for edge, (source, at) in needs(self.graph, op, point, self.bounds):
            # A slice may contain points between strides, which have no value.
            if at in self.points[source] or not edge.slices:
                self.read(_at(op, point), edge.tensor, at)
        self.executions.add((op, point))
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
        """Record a deallocation ("free"), an offload or a fetch, and report it if it is invalid."""
        what, place = _at(tensor[0], point), self.place.get((tensor, point), "nowhere")
        places = {"free": ("device", "host"), "offload": ("device",), "fetch": ("host",)}[kind]
        if place not in places:
            state = {"device": "on the device", "host": "on the host"}.get(place, place)
            self.violations.append(f"{kind} of {what} while it is {state}")
        if kind == "free" and tensor in self.graph.results:
            self.violations.append(f"free of {what}, which is a result")
        self.move(tensor, point, {"free": "freed", "offload": "host", "fetch": "device"}[kind])

    def finish(self) -> None:
        """Report points that never ran, and values other than results that were never freed."""
        for op, points in self.points.items():
            for point in sorted(points - {p for name, p in self.executions if name == op}):
                self.violations.append(f"{_at(op, point)} never runs")
        for (tensor, point), place in self.place.items():
            if place != "freed" and tensor not in self.graph.results:
                self.violations.append(
                    f"{_at(tensor[0], point)} is never freed (output {tensor[1]})"
                )


def check(graph: Graph, events: Sequence[Event], **bounds: int) -> Report:
    """Check the events of a run, report violations of order or memory, and count live points.

    Every point must run once, after its inputs. A value must not be used after it is freed, and all
    values except for results must be freed. `bounds` are the bounds of the run.

        >>> from mmrl.pdg import Program
        >>> p = Program("t")
        >>> print(check(p.graph(p.value(p.symbols[0])), [("run", "value", (0,))], T=2))
        value[1] never runs
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
