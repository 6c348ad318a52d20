"""Account of the live bytes of each tensor, on the device and on the host.

The interpreter keeps such an account. The value of a tensor at a point is stored in *buffers*, and
a key identifies the memory of each buffer. Two tensors may share a buffer, because a merge does not
copy. The bytes of the buffer are then counted once: for the tensor that stored it first and, after
this tensor has released it, for the next one.

`ReadTable` lists the reads of a graph for given bounds.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from mmrl.pdg.build.expr import TRUE, Const, Expr, Slice
from mmrl.pdg.build.graph import Edge, Graph, Output, Point

Buffer = tuple[Hashable, int]
"""Key of a block of memory, and its size in bytes."""

DEVICE, HOST = "device", "host"


@dataclasses.dataclass
class _Memory:
    """Memory of a buffer, and the values that are stored there."""

    size: int
    place: str
    holders: list[tuple[Output, Point]]


class Account:
    """Live bytes of each tensor after every event, separately for the device and the host.

    `reserved_bytes` counts all memory that stores have allocated, whether or not it is in use. A
    ring of n slots reserves n slots, but only occupied slots are live.
    """

    def __init__(self) -> None:
        self._memory: dict[Hashable, _Memory] = {}
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
        """Record that the value of `tensor` at `point` is now stored in these buffers."""
        keys = self._keys.setdefault((tensor, point, place), [])
        for key, size in buffers:
            keys.append(key)
            memory = self._memory.get(key)
            if memory is None:
                self._memory[key] = _Memory(size, place, [(tensor, point)])
                self._change(tensor, place, size)
            else:
                memory.holders.append((tensor, point))

    def drop(self, tensor: Output, point: Point, place: str = DEVICE) -> None:
        """Release the value of `tensor` at `point`, and the buffers that no other value uses.

        Raises `ValueError` if there is no such value in this memory.
        """
        if (tensor, point, place) not in self._keys:
            raise ValueError(
                f"`tensor` and `point` must refer to a stored value; got "
                f"{tensor[0]}{list(point)}, which has no value on the {place}."
            )
        for key in self._keys.pop((tensor, point, place)):
            memory = self._memory[key]
            first = memory.holders[0]
            memory.holders.remove((tensor, point))
            if memory.holders and memory.holders[0][0] == first[0]:
                continue
            self._change(first[0], place, -memory.size)
            if memory.holders:
                self._change(memory.holders[0][0], place, memory.size)
            else:
                del self._memory[key]

    def is_sole_holder(self, tensor: Output, point: Point, place: str = DEVICE) -> bool:
        """Return True if no other value shares the memory of this one."""
        keys = self._keys[tensor, point, place]
        return all(len(self._memory[key].holders) == 1 for key in keys)

    def reserve(self, size: int, place: str = DEVICE) -> None:
        """Reserve `size` bytes for a store, or release them if `size` is negative."""
        self._reserved[place] += size
        self._reserved_peak[place] = max(self._reserved_peak[place], self._reserved[place])

    def tick(self, event: tuple) -> None:
        """Append `event` to `events`, and attribute all changes since the last call to it."""
        self.events.append(event)

    def _change(self, tensor: Output, place: str, size: int) -> None:
        self._changes.append((len(self.events), tensor, place, size))
        for key in ((tensor, place), (None, place)):
            self._live[key] += size
            self._peak[key] = max(self._peak[key], self._live[key])

    def live(self, tensor: Output | None = None, place: str = DEVICE) -> int:
        """Return the bytes that are live now, for one tensor or for all tensors."""
        return self._live[tensor, place]

    def peak(self, tensor: Output | None = None, place: str = DEVICE) -> int:
        """Return the peak of the live bytes, for one tensor or for all tensors."""
        return self._peak[tensor, place]

    def reserved_bytes(self, place: str = DEVICE) -> int:
        """Return the peak of the bytes reserved by all stores."""
        return self._reserved_peak[place]

    def tensors(self) -> list[Output]:
        """Return all tensors that ever used memory, in order of first use."""
        return list(dict.fromkeys(tensor for _, tensor, _, _ in self._changes))

    def timeline(self, tensor: Output | None = None, place: str = DEVICE) -> np.ndarray:
        """Return the live bytes after each of `events`, for one tensor or for all tensors."""
        steps = np.zeros(len(self.events) + 1, np.int64)
        for event, owner, where, size in self._changes:
            if where == place and tensor in (None, owner):
                steps[event] += size
        return np.cumsum(steps)[: len(self.events)]

    def leaks(self) -> list[tuple[Output, Point, str]]:
        """Return the values that are still live, as (tensor, point, "device" or "host")."""
        return list(self._keys)


def nbytes(value: PyTree) -> int:
    """Return the total bytes of a pytree of arrays or of their types."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(value))


Index = tuple[int | range, ...]
"""Entry per dimension: a coordinate, or the coordinates of a slice."""


def compile_expr(expr: Expr, names: Sequence[str]) -> Callable[..., Any]:
    """Compile `expr` to a Python function of integers, which is much faster than `evaluate`."""
    return eval(f"lambda {', '.join(names)}: {expr}", {"min": min, "max": max})


@dataclasses.dataclass(frozen=True)
class Window:
    """Ranges that a slice reads in a run: up to `width` values from any start in `lows`.

    If `full` is true, the slice always reads exactly `width` values.
    """

    width: int
    lows: tuple[int, ...]
    full: bool

    def shift(self, by: int) -> "Window":
        """Return the window shifted by a number of coordinates."""
        return dataclasses.replace(self, lows=tuple(low + by for low in self.lows))


class Read:
    """Edge of a graph with given bounds."""

    def __init__(self, edge: Edge, graph: Graph, bounds: Mapping[str, int]):
        domain = graph.ops[edge.sink].domain
        self.edge = edge
        self.tensor: Output = (edge.source, edge.output)
        self.sliced = tuple(k for k, e in enumerate(edge.index) if isinstance(e, Slice))
        arguments = (*domain.names, *bounds)
        self._bounds, self._numbers = dict(bounds), tuple(bounds.values())
        self._when = None if TRUE.same(edge.when) else compile_expr(edge.when, arguments)
        ends = extents(graph, edge.source, bounds)
        self._index = [_entry(e, arguments, end) for e, end in zip(edge.index, ends, strict=True)]
        self._domain = domain
        self._windows: tuple[Window, ...] | None = None

    def exists(self, point: Point) -> bool:
        """Return ψ: True if the sink reads along this edge at `point`."""
        return self._when is None or bool(self._when(*point, *self._numbers))

    def index(self, point: Point) -> Index:
        """Return φ: the index that the sink reads at `point`, with slices cut at the bounds."""
        return tuple(entry(*point, *self._numbers) for entry in self._index)

    def of(self, point: Point) -> tuple[Output, Any]:
        """Return the tensor that is read, and its index at `point`."""
        return self.tensor, self.index(point)

    @property
    def windows(self) -> tuple[Window, ...]:
        """Window of each slice, which describes all ranges that it reads in a run."""
        if self._windows is None:
            self._windows = tuple(self._window(k) for k in self.sliced)
        return self._windows

    @property
    def widths(self) -> tuple[int, ...]:
        """Padded length of each slice."""
        return tuple(window.width for window in self.windows)

    def _window(self, k: int) -> Window:
        """Compute the window of slice k by enumerating the sink's points.

        Dimensions that do not affect the slice are not enumerated.
        """
        conditions = (self.edge.index[k], self.edge.when, self._domain.when)
        symbols = frozenset().union(*(e.symbols() for e in conditions))
        dims = [
            dim if dim.name in symbols else dataclasses.replace(dim, bound=Const(1))
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
        return compile_expr(entry, names)
    low, high = compile_expr(entry.lo, names), compile_expr(entry.hi, names)
    return lambda *values: range(low(*values), min(high(*values), end))


def extents(graph: Graph, op: str, bounds: Mapping[str, int]) -> tuple[int, ...]:
    """Return the bounds of the dimensions of `op` as integers."""
    return tuple(int(dim.bound.evaluate(bounds)) for dim in graph.ops[op].domain)


class ReadTable:
    """Table of the reads of a graph with given bounds.

    Raises `ValueError` if bounds are missing, unknown or smaller than 1 (`Graph.sizes`).
    """

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

    @functools.cached_property
    def types(self) -> dict[Output, PyTree]:
        """Types of the values of all tensors."""
        types = {name: op.types(self.bounds) for name, op in self.graph.ops.items()}
        return {(name, k): types[name][k] for name, k in self.tensors}
