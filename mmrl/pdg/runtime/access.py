"""Who reads what, once the bounds of a graph are numbers."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
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
        """The same, `shift` further on."""
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

    def at(self, point: Point) -> Point:
        """φ, if no part of it is a slice."""
        return tuple(entry(*point, *self._numbers) for entry in self._index)

    def index(self, point: Point) -> Index:
        """φ: what the sink reads at `point`. A slice ends where the source's domain does."""
        return tuple(entry(*point, *self._numbers) for entry in self._index)

    @property
    def windows(self) -> tuple[Window, ...]:
        """Of every slice, all that it ever reads."""
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
    """The reads of `graph` at numbers for its bounds.

    Raises ValueError if `bounds` lacks one of them.
    """

    def __init__(self, graph: Graph, bounds: Mapping[str, int]):
        missing = [name for name in graph.bounds if name not in bounds]
        if missing:
            raise ValueError(f"`bounds` must have a number for {missing}, got {dict(bounds)}.")
        self.graph, self.bounds = graph, dict(bounds)
        self.names = {name: op.domain.names for name, op in graph.ops.items()}
        self.extents = {name: extents(graph, name, bounds) for name in graph.ops}
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

    def types(self, inputs: Mapping[str, Any]) -> dict[Tensor, PyTree]:
        """The shapes and dtypes of every tensor's value, from what the operations return."""
        types: dict[Tensor, PyTree] = {}
        waiting = list(self.graph.ops)
        while waiting:
            ready = {name for name in waiting if self._infer(name, types, inputs)}
            if not ready:
                raise ValueError(
                    f"{', '.join(waiting)} read only each other, so their shapes are unknown."
                )
            waiting = [name for name in waiting if name not in ready]
        return types

    def _infer(self, name: str, types: dict[Tensor, PyTree], inputs: Mapping[str, Any]) -> bool:
        """Add the types of one operation's outputs, if those of its inputs are there."""
        run, reads = self.graph.ops[name].run, self.reads[name]
        values = [_widened(types[r.tensor], r.widths) for r in reads if r.tensor in types]
        if run is None:
            if values:
                types[name, 0] = values[0]
            return bool(values)
        if len(values) < len(reads):
            return False
        point = dict.fromkeys(self.names[name], jnp.zeros((), jnp.int32))

        def call(point: dict, inputs: Mapping, *values: PyTree) -> tuple:
            return tuple(run({**self.bounds, **inputs, **point}, *values))

        outputs = jax.eval_shape(call, point, dict(inputs), *values)
        types |= {(name, k): output for k, output in enumerate(outputs)}
        return True


def _widened(example: PyTree, widths: tuple[int, ...]) -> PyTree:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(widths + x.shape, x.dtype), example)
