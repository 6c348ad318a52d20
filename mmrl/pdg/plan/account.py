"""Account for live bytes by tensor and place: every interpreted program keeps such an account.

A tensor's value at a point lives in *buffers*, each with a key that identifies its memory. Two
tensors may hold the same buffer (a merge does not copy); its bytes then count once, for the tensor
that held it first, and pass to the next holder when that one releases it.

`ReadTable` lists the reads of a graph, once its bounds are numbers.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from mmrl.pdg.build.expr import TRUE, Const, Expr, Slice
from mmrl.pdg.build.graph import Edge, Graph, Output, Point

"""One output of an operation: (name, output)."""
Buffer = tuple[Hashable, int]
"""A key for a piece of memory, and its size in bytes."""

DEVICE, HOST = "device", "host"


@dataclasses.dataclass
class _Held:
    size: int
    place: str
    holders: list[tuple[Output, Point]]


class Account:
    """Live bytes of each tensor after every event, on the device and on the host apart.

    `reserved` is the memory that stores have taken beforehand, whether or not it holds a value: a
    ring of n slots reserves n slots, and only those in use are live.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, _Held] = {}
        self._keys: dict[tuple[Output, Point, str], list[Hashable]] = {}
        self._live: Counter[tuple[Output | None, str]] = Counter()
        self._peak: Counter[tuple[Output | None, str]] = Counter()
        self._changes: list[tuple[int, Output, str, int]] = []
        self._reserved: Counter[str] = Counter()
        self._reserved_peak: Counter[str] = Counter()
        self.events: list[tuple] = []

    def hold(
        self, tensor: Output, point: Point, buffers: Iterable[Buffer], place: str = DEVICE
    ) -> None:
        """From now on the value of `tensor` at `point` is in these buffers."""
        keys = self._keys.setdefault((tensor, point, place), [])
        for key, size in buffers:
            keys.append(key)
            held = self._held.get(key)
            if held is None:
                self._held[key] = _Held(size, place, [(tensor, point)])
                self._change(tensor, place, size)
            else:
                held.holders.append((tensor, point))

    def drop(self, tensor: Output, point: Point, place: str = DEVICE) -> None:
        """The value of `tensor` at `point` is not needed any more: give back what only it held.

        Raises ValueError if it is not held there.
        """
        if (tensor, point, place) not in self._keys:
            raise ValueError(f"{tensor[0]}{list(point)} has no value on the {place} to free.")
        for key in self._keys.pop((tensor, point, place)):
            held = self._held[key]
            first = held.holders[0]
            held.holders.remove((tensor, point))
            if held.holders and held.holders[0][0] == first[0]:
                continue
            self._change(first[0], place, -held.size)
            if held.holders:
                self._change(held.holders[0][0], place, held.size)
            else:
                del self._held[key]

    def alone(self, tensor: Output, point: Point, place: str = DEVICE) -> bool:
        """True if no other value shares the memory of this one."""
        keys = self._keys[tensor, point, place]
        return all(len(self._held[key].holders) == 1 for key in keys)

    def reserve(self, size: int, place: str = DEVICE) -> None:
        """A store takes `size` bytes beforehand, or gives them back if negative."""
        self._reserved[place] += size
        self._reserved_peak[place] = max(self._reserved_peak[place], self._reserved[place])

    def tick(self, event: tuple) -> None:
        """Everything held and dropped since the last call happened in `event`."""
        self.events.append(event)

    def _change(self, tensor: Output, place: str, size: int) -> None:
        self._changes.append((len(self.events), tensor, place, size))
        for key in ((tensor, place), (None, place)):
            self._live[key] += size
            self._peak[key] = max(self._peak[key], self._live[key])

    def live(self, tensor: Output | None = None, place: str = DEVICE) -> int:
        """Bytes held now, by one tensor or by all."""
        return self._live[tensor, place]

    def peak(self, tensor: Output | None = None, place: str = DEVICE) -> int:
        """The most bytes ever held at once, by one tensor or by all."""
        return self._peak[tensor, place]

    def reserved(self, place: str = DEVICE) -> int:
        """The most bytes that stores ever reserved at once."""
        return self._reserved_peak[place]

    def tensors(self) -> list[Output]:
        """Every tensor that ever held a byte, by first appearance."""
        return list(dict.fromkeys(tensor for _, tensor, _, _ in self._changes))

    def timeline(self, tensor: Output | None = None, place: str = DEVICE) -> np.ndarray:
        """Live bytes after each of `events`, of one tensor or of all."""
        steps = np.zeros(len(self.events) + 1, np.int64)
        for event, changed, where, size in self._changes:
            if where == place and tensor in (None, changed):
                steps[event] += size
        return np.cumsum(steps)[: len(self.events)]

    def leaks(self) -> list[tuple[Output, Point, str]]:
        """Tensors that are still held, and where."""
        return list(self._keys)


def nbytes(value: PyTree) -> int:
    """Bytes of all leaves, which may be types."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(value))


Index = tuple[int | range, ...]
"""One entry per dimension: a coordinate, or the coordinates of a slice."""


def compiled(expr: Expr, names: Sequence[str]) -> Callable[..., Any]:
    """`expr` as a Python function of the ints `names`: many times faster than to evaluate it."""
    return eval(f"lambda {', '.join(names)}: {expr}", {"min": min, "max": max})


@dataclasses.dataclass(frozen=True)
class Window:
    """The values that a slice reads: at most `width`, beginning at one of `lows`.

    With `full` it always reads `width` values.
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
        self.tensor: Output = (edge.source, edge.output)
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

    def of(self, point: Point) -> tuple[Output, Any]:
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
        """Iterate over all points of the sink; symbols that do not occur here take one value."""
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


class ReadTable:
    """The reads of `graph` at numbers for its bounds; ValueError if those do not fit."""

    def __init__(self, graph: Graph, bounds: Mapping[str, int]):
        self.graph, self.bounds = graph, graph.sizes(bounds)
        self.names = {name: op.domain.names for name, op in graph.ops.items()}
        self.extents = {name: extents(graph, name, bounds) for name in graph.ops}
        self.grids = {tensor: graph.ops[tensor[0]].domain.grid(bounds) for tensor in graph.results}
        self.outputs: dict[str, tuple[Output, ...]] = {
            name: tuple((name, k) for k in range(len(op.outputs))) for name, op in graph.ops.items()
        }
        self.tensors = [tensor for outputs in self.outputs.values() for tensor in outputs]
        self.reads: dict[str, list[Read]] = {name: [] for name in graph.ops}
        for edge in sorted(graph.edges, key=lambda edge: edge.input):
            self.reads[edge.sink].append(Read(edge, graph, bounds))
        self.sliced: dict[Output, set[int]] = {tensor: set() for tensor in self.tensors}
        for reads in self.reads.values():
            for read in reads:
                self.sliced[read.tensor] |= set(read.sliced)

    def types(self) -> dict[Output, PyTree]:
        """The shapes and dtypes of every tensor's value."""
        types = {name: op.types(self.bounds) for name, op in self.graph.ops.items()}
        return {(name, k): types[name][k] for name, k in self.tensors}
