"""Is an order of execution right? Told by enumerating one run, without any polyhedra.

The oracle for everything that `schedule.py`, `frees.py` and `generate.py` derive by integer sets:
it reads only the graph, the list of events and numbers for the bounds.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from mmrl.pdg.domain import Point, reads
from mmrl.pdg.graph import Edge, Graph
from mmrl.pdg.syntax import Event, Tensor


@dataclasses.dataclass(frozen=True)
class Report:
    """Mistakes of one run, and how many points of each tensor were alive at once at most.

    `device` and `host` count points; `timeline` gives, after each event, the points of all tensors
    alive on the device.
    """

    violations: tuple[str, ...]
    device: Mapping[Tensor, int]
    host: Mapping[Tensor, int]
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
    """Where every value is, as the events go by."""

    def __init__(self, graph: Graph, bounds: Mapping[str, int]):
        self.graph, self.bounds = graph, dict(bounds)
        self.points = {name: set(op.domain.points(bounds)) for name, op in graph.ops.items()}
        self.edges = {name: graph.inputs(name) for name in graph.ops}
        self.ran: set[tuple[str, Point]] = set()
        self.place: dict[tuple[Tensor, Point], str] = {}
        self.live = {"device": collections.Counter[Tensor](), "host": collections.Counter[Tensor]()}
        self.peak: dict[str, dict[Tensor, int]] = {"device": {}, "host": {}}
        self.violations: list[str] = []

    def move(self, tensor: Tensor, point: Point, place: str) -> None:
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
        for edge in self.edges[op]:
            for read in self.reads(edge, point):
                self.read(_at(op, point), edge.tensor, read)
        self.ran.add((op, point))
        for output in range(len(self.graph.ops[op].outputs)):
            self.move((op, output), point, "device")

    def reads(self, edge: Edge, point: Point) -> Iterator[Point]:
        """Which points of its source the edge reads at this point of its sink."""
        env = self.graph.ops[edge.sink].domain.env(point, self.bounds)
        if edge.when.evaluate(env):
            # A slice may hold points between strides: nothing is there to read.
            yield from (
                q
                for q in reads(edge.index, env)
                if q in self.points[edge.source] or not edge.slices
            )

    def read(self, reader: str, tensor: Tensor, point: Point) -> None:
        what = _at(tensor[0], point)
        place = self.place.get((tensor, point), "nowhere")
        if place == "nowhere":
            self.violations.append(f"{reader} reads {what} before it is computed")
        elif place != "device":
            where = "on the host" if place == "host" else "freed"
            self.violations.append(f"{reader} reads {what} while it is {where}")

    def manage(self, kind: str, tensor: Tensor, point: Point) -> None:
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
        """Every point ran, and what nobody asked for is gone."""
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
