"""Who reads what, once the bounds of a graph are numbers."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtyping import PyTree

from mmrl.pdg.expr import TRUE, Const, Expr, Slice
from mmrl.pdg.graph import Edge, Graph
from mmrl.pdg.runtime.account import Point, Tensor

Index = tuple[int | range, ...]
"""One entry per dimension: a coordinate, or the coordinates of a slice."""


def compiled(expr: Expr, names: Sequence[str]) -> Callable[..., Any]:
    """`expr` as a Python function of the ints `names`: many times faster than to evaluate it."""
    return eval(f"lambda {', '.join(names)}: {expr}", {"min": min, "max": max})


@dataclasses.dataclass(frozen=True)
class Window:
    """All that a slice ever reads: at most `width` values, beginning at one of `lows`.

    `full` says that it always reads that many.
    """

    width: int
    lows: tuple[int, ...]
    full: bool

    def moved(self, shift: int) -> "Window":
        """This access, `shift` further on."""
        return dataclasses.replace(self, lows=tuple(low + shift for low in self.lows))


class Read:
    """An edge at numbers for the bounds."""

    def __init__(self, edge: Edge, graph: Graph, bounds: Mapping[str, int]):
        domain = graph.ops[edge.sink].domain
        self.edge = edge
        self.tensor: Tensor = (edge.source, edge.output)
        self.sliced = tuple(k for k, e in enumerate(edge.index) if isinstance(e, Slice))
        arguments = (*domain.names, *bounds)
        self._bounds, self._numbers = dict(bounds), tuple(bounds.values())
        self._when = None if TRUE.same(edge.when) else compiled(edge.when, arguments)
        ends = extents(graph, edge.source, bounds)
        self._index = [_entry(e, arguments, end) for e, end in zip(edge.index, ends, strict=True)]
        self._domain = domain
        self._windows: tuple[Window, ...] | None = None

    def exists(self, point: Point) -> bool:
        """ψ: does the sink read this edge at `point`?"""
        return self._when is None or bool(self._when(*point, *self._numbers))

    def index(self, point: Point) -> Index:
        """φ: what the sink reads at `point`. A slice ends where the source's domain does."""
        return tuple(entry(*point, *self._numbers) for entry in self._index)

    def of(self, point: Point) -> tuple[Tensor, Any]:
        """The tensor and φ."""
        return self.tensor, self.index(point)

    @property
    def windows(self) -> tuple[Window, ...]:
        """Everything that each slice ever reads."""
        if self._windows is None:
            self._windows = tuple(self._window(k) for k in self.sliced)
        return self._windows

    @property
    def widths(self) -> tuple[int, ...]:
        """The padded length of every slice."""
        return tuple(window.width for window in self.windows)

    def _window(self, k: int) -> Window:
        """Over all points of the sink; of symbols that nothing here mentions, one value will do."""
        conditions = (self.edge.index[k], self.edge.when, self._domain.when)
        used = frozenset().union(*(e.symbols() for e in conditions))
        dims = [
            dim if dim.name in used else dataclasses.replace(dim, bound=Const(1))
            for dim in self._domain
        ]
        points = dataclasses.replace(self._domain, dims=tuple(dims)).points(self._bounds)
        spans = {self._index[k](*p, *self._numbers) for p in points if self.exists(p)}
        part = self.edge.index[k]
        assert isinstance(part, Slice)
        width = self._domain.largest(part.width(), self._bounds)
        lows = tuple(sorted({span.start for span in spans}))
        return Window(width, lows, all(len(span) == width for span in spans))


def _entry(entry: Expr, names: Sequence[str], end: int) -> Callable[..., Any]:
    if not isinstance(entry, Slice):
        return compiled(entry, names)
    low, high = compiled(entry.lo, names), compiled(entry.hi, names)
    return lambda *values: range(low(*values), min(high(*values), end))


def extents(graph: Graph, op: str, bounds: Mapping[str, int]) -> tuple[int, ...]:
    """The number of points of `op` along each of its dimensions."""
    return tuple(int(dim.bound.evaluate(bounds)) for dim in graph.ops[op].domain)


class Accesses:
    """The reads of `graph` at numbers for its bounds; ValueError if those do not fit."""

    def __init__(self, graph: Graph, bounds: Mapping[str, int]):
        self.graph, self.bounds = graph, graph.sizes(bounds)
        self.names = {name: op.domain.names for name, op in graph.ops.items()}
        self.extents = {name: extents(graph, name, bounds) for name in graph.ops}
        self.grids = {tensor: graph.ops[tensor[0]].domain.grid(bounds) for tensor in graph.results}
        self.outputs: dict[str, tuple[Tensor, ...]] = {
            name: tuple((name, k) for k in range(len(op.outputs))) for name, op in graph.ops.items()
        }
        self.tensors = [tensor for outputs in self.outputs.values() for tensor in outputs]
        self.reads: dict[str, list[Read]] = {name: [] for name in graph.ops}
        for edge in sorted(graph.edges, key=lambda edge: edge.input):
            self.reads[edge.sink].append(Read(edge, graph, bounds))
        self.sliced: dict[Tensor, set[int]] = {tensor: set() for tensor in self.tensors}
        for reads in self.reads.values():
            for read in reads:
                self.sliced[read.tensor] |= set(read.sliced)

    def types(self) -> dict[Tensor, PyTree]:
        """The shapes and dtypes of every tensor's value."""
        types = {name: op.types(self.bounds) for name, op in self.graph.ops.items()}
        return {(name, k): types[name][k] for name, k in self.tensors}


def keyed(key: Any) -> dict[str, Any]:
    """The key of random numbers, as operations find it in `env`; nothing if there is none."""
    return {} if key is None else {"key": key}
