"""Interpreter for schedules, with one call per operation and memory that is actually freed.

The interpreter is slow, because Python calls every operation, but exact. At any time, the stores
contain precisely the values that the schedule keeps in memory, and the account records their bytes.
The array library is interchangeable (`arrays`).

Each tensor has one store, whose type depends on the tensor's readers. A point store is a
dictionary from points to values. A block store keeps the values along one dimension in one array,
so that a slice of the tensor is a slice of this array; a store with fewer slots than points is a
ring buffer. TimeRL has the same two stores (section 7). Slices are padded with zeros to their
maximum width, so that JAX does not compile a new program for each length.
"""

import dataclasses
import functools
import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from mmrl.pdg.build.graph import Graph, Op, Output, Point
from mmrl.pdg.clean.validate import run_env
from mmrl.pdg.plan.account import DEVICE, HOST, Account, Buffer, Index, Read, ReadTable, nbytes
from mmrl.pdg.plan.code import Event
from mmrl.pdg.plan.frees import donations
from mmrl.pdg.plan.layout import blocks
from mmrl.pdg.run.arrays import BACKENDS, Arrays
from mmrl.pdg.run.arrays import HOST_MEMORY as HOST_MEMORY


def _zeros(arrays: Arrays, like: PyTree, widths: tuple[int, ...] = ()) -> PyTree:
    """Return zeros with the shapes and dtypes of `like`, and leading axes of sizes `widths`."""
    return jax.tree.map(lambda x: arrays.asarray(np.zeros(widths + x.shape, x.dtype)), like)


class PointStore:
    """Dictionary from points to values; only reads of slices copy values.

    `example` has the shapes and dtypes of a value.
    """

    kind = "point"

    def __init__(self, arrays: Arrays, example: PyTree):
        self._arrays, self._values = arrays, dict[Point, PyTree]()
        self._zeros = _zeros(arrays, example)

    def put(self, point: Point, value: PyTree) -> list[Buffer]:
        """Store `value` without copying it, and return its buffers."""
        self._values[point] = value
        return [(id(leaf), leaf.nbytes) for leaf in jax.tree.leaves(value)]

    def free(self, point: Point) -> None:
        """Delete the value at `point`."""
        del self._values[point]

    def get(self, index: Index, widths: tuple[int, ...]) -> PyTree:
        """Return the value at a point, or the values of slices along new leading axes.

        `widths` contains the padded length of each slice. Raises `KeyError` for a point without a
        value.
        """
        ranges = [i for i in index if isinstance(i, range)]
        if not ranges:
            return self._values[index]  # pyright: ignore[reportArgumentType]
        columns = [
            [*coordinates, *[None] * (width - len(coordinates))]
            for coordinates, width in zip(ranges, widths, strict=True)
        ]
        values = []
        for choice in itertools.product(*columns):
            coordinates = iter(choice)
            point = tuple(next(coordinates) if isinstance(i, range) else i for i in index)
            values.append(self._zeros if None in point else self._values[point])
        return (
            self._arrays.stack(values, widths)
            if values
            else _zeros(self._arrays, self._zeros, widths)
        )


class BlockStore:
    """Store that keeps, for each point of the other dimensions, an array of values along `axis`.

    The array has `slots` slots, and coordinate t is in slot t mod `slots`. The previous value of a
    slot must be freed before the next one is stored. The memory of an array is released when its
    last value is freed.
    """

    def __init__(
        self,
        arrays: Arrays,
        example: PyTree,
        reserve: Callable[[int], None],
        axis: int,
        slots: int,
        extent: int,
    ):
        self.kind = "block" if slots >= extent else "ring"
        self.slots = slots
        self._arrays, self._zeros = arrays, _zeros(arrays, example)
        self._axis = axis
        self._reserve = reserve
        self._blocks: dict[Point, PyTree] = {}
        self._used: dict[Point, dict[int, int]] = {}

    def _split(self, point: Index) -> tuple[Point, Any]:
        outer = point[: self._axis] + point[self._axis + 1 :]
        return outer, point[self._axis]  # pyright: ignore[reportReturnType]

    def put(self, point: Point, value: PyTree) -> list[Buffer]:
        """Copy `value` to its slot, and return the slot as a buffer.

        Raises `ValueError` if the slot is in use, which means that there are too few slots for this
        order of events.
        """
        outer, t = self._split(point)
        slot, coordinates = t % self.slots, self._used.setdefault(outer, {})
        if slot in coordinates:
            raise ValueError(
                f"`slots` must cover all values that are alive at once, got {self.slots}: "
                f"coordinate {t} would overwrite {coordinates[slot]}."
            )
        if outer not in self._blocks:
            self._blocks[outer] = _zeros(self._arrays, self._zeros, (self.slots,))
            self._reserve(nbytes(self._blocks[outer]))
        self._blocks[outer] = self._arrays.write(self._blocks[outer], value, slot)
        coordinates[slot] = t
        return [((id(self), outer, slot), nbytes(value))]

    def free(self, point: Point) -> None:
        """Release the slot of `point`, and its array if all other slots are unused."""
        outer, t = self._split(point)
        if self._used[outer].get(t % self.slots) != t:
            raise KeyError(point)
        del self._used[outer][t % self.slots]
        if not self._used[outer]:
            self._reserve(-nbytes(self._blocks[outer]))
            del self._blocks[outer], self._used[outer]

    def get(self, index: Index, widths: tuple[int, ...]) -> PyTree:
        """Return the value at `index`, as in `PointStore.get`; only `axis` may be sliced."""
        outer, at = self._split(index)
        coordinates = self._used.get(outer, {})
        requests = at if isinstance(at, range) else range(at, at + 1)
        missing = [t for t in requests if coordinates.get(t % self.slots) != t]
        if missing:
            raise KeyError(missing[0])
        if not isinstance(at, range):
            return self._arrays.row(self._blocks[outer], at % self.slots)
        if not at:
            return _zeros(self._arrays, self._zeros, widths)
        return self._arrays.window(self._blocks[outer], at.start, len(at), widths[0])


class HostStore:
    """Store for values that were moved to the host's memory."""

    kind = "host"

    def __init__(self, arrays: Arrays) -> None:
        self._arrays, self._values = arrays, dict[Point, PyTree]()

    def put(self, points: Sequence[Point], values: Sequence[PyTree]) -> list[list[Buffer]]:
        """Move `values` to the host in one transfer, and return the buffers of each value."""
        self._values |= zip(points, self._arrays.move(values, HOST), strict=True)
        leaves = (jax.tree.leaves(self._values[point]) for point in points)
        return [[(id(leaf), leaf.nbytes) for leaf in each] for each in leaves]

    def take(self, points: Sequence[Point]) -> list[PyTree]:
        """Move the values at `points` back to the device in one transfer, and return them."""
        return self._arrays.move([self._values.pop(point) for point in points], DEVICE)


def batch_events(events: Sequence[Event]) -> Iterator[tuple]:
    """Merge consecutive memory events of the same kind and tensor into one event.

    The results are ("run", op, point) or ("free", tensor, points); "offload" and "fetch" have the
    same form as "free". The order of events between two operations is irrelevant, except that
    memory is released before more is allocated.
    """
    for run, several in itertools.groupby(events, lambda event: event[0] == "run"):
        if run:
            yield from several
        else:
            groups: dict[Any, list[Point]] = {}
            for kind, tensor, point in sorted(several, key=lambda event: event[0] == "fetch"):
                groups.setdefault((kind, tensor), []).append(point)
            yield from ((*what, tuple(points)) for what, points in groups.items())


@dataclasses.dataclass(frozen=True)
class Execution:
    """Results of a run, and the account of the memory used by its tensors.

    `results` are in the graph's order, stacked along the dimensions of their operations. Points
    that do not exist are omitted.
    """

    results: tuple[PyTree, ...]
    account: Account
    stores: Mapping[Output, str]
    """Type of each tensor's store: "point", "block" or "ring"."""


class Interpreter:
    """Function that interprets a compiled program for given bounds.

    An operation overwrites an input that is not needed afterwards (see `donations`), if the array
    library supports it and the input is in a point store.
    """

    def __init__(self, compiled: Any, bounds: Mapping[str, int], arrays: Arrays = BACKENDS["jax"]):
        self._env = functools.partial(run_env, compiled.stages[0].graph, bounds)
        self.graph: Graph = compiled.graph
        self.arrays = arrays
        self.accesses = ReadTable(self.graph, bounds)
        self.events = list(batch_events(compiled.trace(**self.accesses.bounds)))
        tensors = {what for kind, what, _ in self.events if kind == "offload"}
        self.slots = blocks(self.accesses, compiled.schedule, tensors)
        self.donations = donations(compiled.schedule) if arrays.donates else ()
        self.thunks = {name: self._thunk(op) for name, op in self.graph.ops.items()}

    def __call__(self, *, key: Any = None, **inputs: Any) -> Execution:
        """Run the program, and return its results and an account of its memory.

        A `key` replaces the program's seed. Raises `ValueError` for invalid inputs
        (`validate.run_env`).
        """
        env = self._env(key, inputs)
        values = jax.tree.map(self.arrays.asarray, env.get("inputs", {}))
        return _Run(self, {**env, "inputs": values}).finish()

    def _thunk(self, op: Op) -> Callable[..., tuple] | None:
        if op.run is None:
            return None
        work, bounds = op.run, self.accesses.bounds

        def run(env: dict[str, Any], *values: Any) -> tuple[Any, ...]:
            return work({**bounds, **env}, *values)

        if op.kind != "host":
            return self.arrays.thunk(run, op.types(bounds))
        call = BACKENDS["numpy"].thunk(run, op.types(bounds))
        return lambda *args: jax.tree.map(self.arrays.asarray, call(*args))


def interpret(
    compiled: Any,
    bounds: Mapping[str, int],
    *,
    key: Any = None,
    backend: str = "jax",
    **inputs: Any,
) -> Execution:
    """Run a compiled program once: `Interpreter(compiled, bounds)(key=key, **inputs)`."""
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be one of {', '.join(BACKENDS)}; got {backend!r}.")
    return Interpreter(compiled, bounds, BACKENDS[backend])(key=key, **inputs)


class _Run:
    """State of one execution: its stores and its account."""

    def __init__(self, program: Interpreter, env: dict[str, Any]):
        self.program, self.env, self.arrays = program, env, program.arrays
        self.account = Account()
        self.accesses = program.accesses
        self.stores: dict[Output, PointStore | BlockStore] = {}
        for tensor, kind in self.accesses.types.items():
            slots = program.slots.get(tensor)
            self.stores[tensor] = (
                PointStore(self.arrays, kind)
                if slots is None
                else BlockStore(self.arrays, kind, self.account.reserve, *slots)
            )
        self.host: dict[Output, HostStore] = defaultdict(lambda: HostStore(self.arrays))
        self.early_frees: set[tuple[Output, Point]] = set()
        for event in program.events:
            kind, name, point = event
            getattr(self, kind)(name, point)
            self.account.tick(event)

    def run(self, name: str, point: Point) -> None:
        thunk = self.program.thunks[name]
        reads = [read for read in self.accesses.reads[name] if read.exists(point)]
        values = dict(enumerate(self.read(read, point) for read in reads))
        if thunk is None:
            outputs = (values[0],)
        else:
            last_uses = {
                k: values.pop(k) for k, read in enumerate(reads) if self.can_donate(read, point)
            }
            where = dict(zip(self.accesses.names[name], point, strict=True))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Some donated buffers were not usable")
                outputs = thunk(last_uses, values, {**self.env, **where})
            for tensor, at in (reads[k].of(point) for k in last_uses):
                self.free(tensor, [at])
                self.early_frees.add((tensor, at))
        for tensor, value in zip(self.accesses.outputs[name], outputs, strict=True):
            self.account.hold(tensor, point, self.stores[tensor].put(point, value))

    def read(self, read: Read, point: Point) -> PyTree:
        index = read.index(point)
        try:
            return self.stores[read.tensor].get(index, read.widths)
        except KeyError:
            parts = (f"{k.start}:{k.stop}" if isinstance(k, range) else str(k) for k in index)
            raise ValueError(
                f"`tree` runs {read.edge.sink}{list(point)}, which reads "
                f"{read.tensor[0]}[{', '.join(parts)}], but some of these values are not in memory."
            ) from None

    def can_donate(self, read: Read, point: Point) -> bool:
        """Return True if a read is the value's last use, and no other value shares its memory."""
        if read.edge not in self.program.donations:
            return False
        tensor, at = read.of(point)
        return isinstance(self.stores[tensor], PointStore) and self.account.is_sole_holder(
            tensor, at
        )

    def free(self, tensor: Output, points: Sequence[Point]) -> None:
        for point in points:
            if (tensor, point) in self.early_frees:
                self.early_frees.remove((tensor, point))
            else:
                self.stores[tensor].free(point)
                self.account.drop(tensor, point)

    def offload(self, tensor: Output, points: Sequence[Point]) -> None:
        values = [self.stores[tensor].get(point, ()) for point in points]
        for point, buffers in zip(points, self.host[tensor].put(points, values), strict=True):
            self.account.hold(tensor, point, buffers, HOST)
        self.free(tensor, points)

    def fetch(self, tensor: Output, points: Sequence[Point]) -> None:
        for point, value in zip(points, self.host[tensor].take(points), strict=True):
            self.account.drop(tensor, point, HOST)
            self.account.hold(tensor, point, self.stores[tensor].put(point, value))

    def finish(self) -> Execution:
        results = tuple(self.collect(tensor) for tensor in self.program.graph.results)
        return Execution(results, self.account, {t: s.kind for t, s in self.stores.items()})

    def collect(self, tensor: Output) -> PyTree:
        grid = self.accesses.grids[tensor]
        values = [self.stores[tensor].get(point, ()) for point in itertools.product(*grid)]
        sizes = tuple(map(len, grid))

        def stack(kind: Any, *leaves: Any) -> Any:
            # Use NumPy, because JAX would compile a new program for each number of points.
            flat = np.stack(leaves) if leaves else np.empty(0, kind.dtype)
            return self.arrays.asarray(flat.reshape(sizes + kind.shape))

        return jax.tree.map(stack, self.accesses.types[tensor], *values)
