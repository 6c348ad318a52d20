"""Interpret a schedule event by event: one call for each operation, and memory freed for real.

Slow, because every operation is a call from Python, but exact: at each moment the stores hold the
values that the schedule keeps, byte for byte, and the account shows them. The array library is
exchangeable (`arrays`).

Each tensor has one store, chosen by its readers. A point store is a map from points to values. A
block store keeps the values along one dimension in one array, so that a slice is a piece of it;
with fewer slots than points it is a ring. Both are the stores of TimeRL (section 7). A slice comes
back padded with zeros to its greatest width, so that no program is compiled per length.
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
from mmrl.pdg.clean.validate import given
from mmrl.pdg.plan.account import DEVICE, HOST, Account, Buffer, Index, Read, ReadTable, nbytes
from mmrl.pdg.plan.code import Event
from mmrl.pdg.plan.frees import donations
from mmrl.pdg.plan.layout import blocks
from mmrl.pdg.run.arrays import BACKENDS, Arrays
from mmrl.pdg.run.arrays import HOST_MEMORY as HOST_MEMORY


def _zeros(arrays: Arrays, like: PyTree, widths: tuple[int, ...] = ()) -> PyTree:
    """Return zeros of the shapes and dtypes of a value, with these leading axes."""
    return jax.tree.map(lambda x: arrays.asarray(np.zeros(widths + x.shape, x.dtype)), like)


class PointStore:
    """A map from points to values: everything is quick but a slice, which is put together anew.

    `example` has the shapes and dtypes of a value.
    """

    kind = "point"

    def __init__(self, arrays: Arrays, example: PyTree):
        self._arrays, self._values = arrays, dict[Point, PyTree]()
        self._zeros = _zeros(arrays, example)

    def put(self, point: Point, value: PyTree) -> list[Buffer]:
        """Store `value`, without a copy; the buffers it is in."""
        self._values[point] = value
        return [(id(leaf), leaf.nbytes) for leaf in jax.tree.leaves(value)]

    def free(self, point: Point) -> None:
        """Forget the value at `point`."""
        del self._values[point]

    def get(self, index: Index, widths: tuple[int, ...]) -> PyTree:
        """The value at a point, or the values of slices along new leading axes.

        `widths` has the padded length of each slice. Raises KeyError for a point without a value.
        """
        ranges = [i for i in index if isinstance(i, range)]
        if not ranges:
            return self._values[index]  # pyright: ignore[reportArgumentType]
        padded = [
            [*coordinates, *[None] * (width - len(coordinates))]
            for coordinates, width in zip(ranges, widths, strict=True)
        ]
        values = []
        for chosen in itertools.product(*padded):
            coordinates = iter(chosen)
            point = tuple(next(coordinates) if isinstance(i, range) else i for i in index)
            values.append(self._zeros if None in point else self._values[point])
        return (
            self._arrays.stack(values, widths)
            if values
            else _zeros(self._arrays, self._zeros, widths)
        )


class BlockStore:
    """Values along dimension `axis` in an array of `slots`, one array for all else that differs.

    Coordinate t is in slot t mod `slots`, whose former value must be dead by then. An array exists
    as long as one of its values does: freeing a value frees no memory before the last one of its
    array.
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
        """Copy `value` into its slot; the slot as a buffer.

        Raises ValueError if the slot is in use: then there are too few for this order of events.
        """
        outer, t = self._split(point)
        slot, used = t % self.slots, self._used.setdefault(outer, {})
        if slot in used:
            raise ValueError(
                f"`slots` must cover every value alive at once, got {self.slots}: coordinate {t} "
                f"would overwrite {used[slot]}."
            )
        if outer not in self._blocks:
            self._blocks[outer] = _zeros(self._arrays, self._zeros, (self.slots,))
            self._reserve(nbytes(self._blocks[outer]))
        self._blocks[outer] = self._arrays.write(self._blocks[outer], value, slot)
        used[slot] = t
        return [((id(self), outer, slot), nbytes(value))]

    def free(self, point: Point) -> None:
        """Give back the slot of `point`, and the array with its last slot."""
        outer, t = self._split(point)
        if self._used[outer].get(t % self.slots) != t:
            raise KeyError(point)
        del self._used[outer][t % self.slots]
        if not self._used[outer]:
            self._reserve(-nbytes(self._blocks[outer]))
            del self._blocks[outer], self._used[outer]

    def get(self, index: Index, widths: tuple[int, ...]) -> PyTree:
        """The value at `index`, as `PointStore.get` has it; at most one slice, along `axis`."""
        outer, at = self._split(index)
        used = self._used.get(outer, {})
        wanted = at if isinstance(at, range) else range(at, at + 1)
        missing = [t for t in wanted if used.get(t % self.slots) != t]
        if missing:
            raise KeyError(missing[0])
        if not isinstance(at, range):
            return self._arrays.row(self._blocks[outer], at % self.slots)
        if not at:
            return _zeros(self._arrays, self._zeros, widths)
        return self._arrays.window(self._blocks[outer], at.start, len(at), widths[0])


class HostStore:
    """Values that were moved to the host's memory until they are fetched back."""

    kind = "host"

    def __init__(self, arrays: Arrays) -> None:
        self._arrays, self._values = arrays, dict[Point, PyTree]()

    def put(self, points: Sequence[Point], values: Sequence[PyTree]) -> list[list[Buffer]]:
        """Move `values` to the host, in one go; the buffers that each is in there."""
        self._values |= zip(points, self._arrays.move(values, HOST), strict=True)
        leaves = (jax.tree.leaves(self._values[point]) for point in points)
        return [[(id(leaf), leaf.nbytes) for leaf in each] for each in leaves]

    def take(self, points: Sequence[Point]) -> list[PyTree]:
        """Move the values at `points` back to the device, in one go."""
        return self._arrays.move([self._values.pop(point) for point in points], DEVICE)


def batched(events: Sequence[Event]) -> Iterator[tuple]:
    """The events, but between two operations one instruction for all points of a tensor.

    ("run", op, point), or ("free", tensor, points), as for "offload" and "fetch". What happens
    between two operations may happen in any order, if memory is given back before more is taken.
    """
    for run, several in itertools.groupby(events, lambda event: event[0] == "run"):
        if run:
            yield from several
        else:
            found: dict[Any, list[Point]] = {}
            for kind, tensor, point in sorted(several, key=lambda event: event[0] == "fetch"):
                found.setdefault((kind, tensor), []).append(point)
            yield from ((*what, tuple(points)) for what, points in found.items())


@dataclasses.dataclass(frozen=True)
class Execution:
    """The results of a program that was run, and the memory that its tensors took.

    `results` are the graph's, in its order, stacked along the dimensions of their operations,
    where they exist.
    """

    results: tuple[PyTree, ...]
    account: Account
    stores: Mapping[Output, str]
    """The kind of store each tensor was kept in."""


class Interpreter:
    """A compiled program with numbers for its bounds; call it to run it.

    An operation writes its outputs over an input that is not needed afterwards (see
    `donations`) and if `arrays` can.
    """

    def __init__(self, compiled: Any, bounds: Mapping[str, int], arrays: Arrays = BACKENDS["jax"]):
        self._given = functools.partial(given, compiled.stages[0].graph, bounds)
        self.graph: Graph = compiled.graph
        self.arrays = arrays
        self.accesses = ReadTable(self.graph, bounds)
        self.events = list(batched(compiled.trace(**self.accesses.bounds)))
        moved = {what for kind, what, _ in self.events if kind == "offload"}
        self.slots = blocks(self.accesses, compiled.schedule, moved)
        self.donated = donations(compiled.schedule) if arrays.donates else ()
        self.thunks = {name: self._thunk(op) for name, op in self.graph.ops.items()}

    def __call__(self, *, key: Any = None, **inputs: Any) -> Execution:
        """Run the whole program. A `key` replaces the program's seed.

        Raises `ValueError` for wrong inputs (`validate.given`).
        """
        env = self._given(key, inputs)
        found = jax.tree.map(self.arrays.asarray, env.get("inputs", {}))
        return _Run(self, {**env, "inputs": found}).finish()

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
    """One execution: its stores and its account."""

    def __init__(self, program: Interpreter, env: dict[str, Any]):
        self.program, self.env, self.arrays = program, env, program.arrays
        self.account = Account()
        self.accesses = program.accesses
        self.stores: dict[Output, PointStore | BlockStore] = {}
        for tensor, kind in self.accesses.types().items():
            slots = program.slots.get(tensor)
            self.stores[tensor] = (
                PointStore(self.arrays, kind)
                if slots is None
                else BlockStore(self.arrays, kind, self.account.reserve, *slots)
            )
        self.host: dict[Output, HostStore] = defaultdict(lambda: HostStore(self.arrays))
        self.given: set[tuple[Output, Point]] = set()
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
            given = {k: values.pop(k) for k, read in enumerate(reads) if self.gives(read, point)}
            where = dict(zip(self.accesses.names[name], point, strict=True))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Some donated buffers were not usable")
                outputs = thunk(given, values, {**self.env, **where})
            for tensor, at in (reads[k].of(point) for k in given):
                self.free(tensor, [at])
                self.given.add((tensor, at))
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
                f"{read.tensor[0]}[{', '.join(parts)}], and not all of it is there."
            ) from None

    def gives(self, read: Read, point: Point) -> bool:
        """True if this is its last use, and its memory holds no other value."""
        if read.edge not in self.program.donated:
            return False
        tensor, at = read.of(point)
        return isinstance(self.stores[tensor], PointStore) and self.account.alone(tensor, at)

    def free(self, tensor: Output, points: Sequence[Point]) -> None:
        for point in points:
            if (tensor, point) in self.given:
                self.given.remove((tensor, point))
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
            # With numpy: JAX would compile one program for each number of points.
            flat = np.stack(leaves) if leaves else np.empty(0, kind.dtype)
            return self.arrays.asarray(flat.reshape(sizes + kind.shape))

        return jax.tree.map(stack, self.accesses.types()[tensor], *values)
