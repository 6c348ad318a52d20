"""What the explorers of compiled programs must show: told by executing what they print."""

import sys
from collections.abc import Iterator
from typing import Any

from mmrl.course.widgets import programs
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.run.naive import check

Event = tuple[int, str, str, int | None]  # line, "run" or "free", the name in the code, t


def events_of(code: str, graph: Graph) -> list[Event]:
    """What a program as text does, and on which line, by executing it."""
    events: list[Event] = []

    class Name:
        """An operation that runs when called, and whose tensors can be deleted."""

        def __init__(self, name: str, point: Any = ()):
            self.name, self.point, self.dims = name, point, graph.ops[name].domain.names

        def note(self, kind: str, name: str, point: Any) -> None:
            line = sys._getframe(2).f_lineno - 1
            points = point if isinstance(point, tuple) else (point,)
            events.append((line, kind, name, dict(zip(self.dims, points, strict=True)).get("t")))

        def __call__(self, *point: int) -> None:
            self.note("run", self.name, point)

        def __getitem__(self, point: Any) -> "Name":
            return Name(self.name, point)

        def __delitem__(self, point: Any) -> None:
            if len(graph.ops[self.name].outputs) > 1:  # del step[i, t][1]: the output is last
                self.note("free", f"{self.name}[{point}]", self.point)
            else:
                self.note("free", self.name, point)

    exec(code, {name: Name(name) for name in graph.ops} | programs.BOUNDS)
    return events


def point(example: dict[str, Any], event: list[Any]) -> tuple[str, str, int | None]:
    """An event as it travels to the browser, in the words of `events_of`."""
    what, t, *_ = event
    return (
        ("run", what, t) if isinstance(what, str) else ("free", example["tensors"][what]["name"], t)
    )


def debugger_views() -> Iterator[dict[str, Any]]:
    """Peaks, the number of points and the points themselves that are alive after every event."""
    for name in programs.PROGRAMS:
        program, example = programs.compile_named(name), programs.programs()[name]
        events = program.trace(**programs.BOUNDS)
        report = check(program.graph, events, **programs.BOUNDS)
        assert report.ok, str(report)
        tensors = [
            (op.name, k) for op in program.graph.ops.values() for k in range(len(op.outputs))
        ]
        here: set[str] = set()
        alive = []
        for kind, what, at in events:
            moves = [(op, k) for op, k in tensors if what in (op, (op, k))]
            names = program.graph.ops[moves[0][0]].domain.names
            t = dict(zip(names, at, strict=True)).get("t", "null")
            cells = {f"{tensors.index(tensor)} {t}" for tensor in moves}
            here = here | cells if kind == "run" else here - cells
            alive.append(sorted(here))
        peaks = [report.device[tensor] for tensor in tensors]
        timeline = list(report.timeline)
        yield {"program": example, "peaks": peaks, "timeline": timeline, "alive": alive}


def compiler_stages() -> Iterator[dict[str, Any]]:
    """All stages of all ways, with their edges as the compiler prints them."""
    for returns, example in programs.graphs().items():
        for route in ("tile", "vectorize"):
            ways = [*example["before"], *example[route]]
            for stage, result in zip(programs.evolution(returns, route), ways, strict=True):
                edges = [str(edge) for edge in stage.graph.edges]
                yield {"name": stage.name, "stage": result, "edges": edges}
                for op in stage.graph.ops.values():  # what is fused into one is on one side
                    inside = op.params.get("ops", [op.name])
                    acting = {programs.SIDES.get(name, "learning") for name in inside}
                    assert len(acting) == 1, op.name


VECTORS = {"debugged": debugger_views, "evolved": compiler_stages}
