"""An interpreter of schedules: event by event, one compiled thunk per operation, frees for real.

Slow, since every operation is a call from Python, and plain: at each moment the stores hold what
the schedule says, byte for byte, and the account shows it.
"""

import dataclasses
import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.runtime.access import Accesses, Read, keyed
from mmrl.pdg.runtime.account import HOST, Account, Point, Tensor
from mmrl.pdg.runtime.layout import Event, fewest, lifetimes, own_places
from mmrl.pdg.runtime.stores import BlockStore, HostStore, PointStore


@dataclasses.dataclass(frozen=True)
class Execution:
    """The results of a program that was run, and the memory that its tensors took.

    `results` are the graph's, in its order, stacked along the dimensions of their operations,
    where they exist.
    """

    results: tuple[PyTree, ...]
    account: Account
    stores: Mapping[Tensor, str]
    """The kind of store each tensor was kept in."""


class Interpreter:
    """A compiled program with numbers for its bounds; call it to run it.

    `donate` True lets an operation write its outputs over what it reads and nobody needs after it.
    """

    def __init__(self, compiled: Any, bounds: Mapping[str, int], *, donate: bool = False):
        self.graph: Graph = compiled.graph
        self.accesses = Accesses(self.graph, bounds)
        self.events: list[Event] = compiled.trace(**self.accesses.bounds)
        self.slots = _slots(self.events, self.accesses)
        self.donated = last_reads(self.events, self.accesses) if donate else frozenset()
        self.thunks = {name: self._thunk(op) for name, op in self.graph.ops.items()}

    def __call__(self, *, key: Any = None) -> Execution:
        """Run the whole program. A `key` replaces the program's seed."""
        return _Run(self, keyed(key)).finish()

    def _thunk(self, op: Op) -> Callable[..., tuple] | None:
        """thunk(values to donate, other values, point, inputs), by their number as arguments."""
        if op.run is None:
            return None
        run, bounds = op.run, self.accesses.bounds

        def thunk(given: dict, kept: dict, point: dict[str, Any], inputs: dict[str, Any]) -> tuple:
            values = {**given, **kept}
            return run({**bounds, **inputs, **point}, *(values[k] for k in sorted(values)))

        return jax.jit(thunk, donate_argnums=0)


def last_reads(events: list[Event], accesses: Accesses) -> frozenset[Edge]:
    """The edges whose source is freed after every one of these reads, and is no result.

    At all bounds at once, the same is `frees.donations`.
    """
    last: dict[Edge, bool] = {}
    freed: set[tuple[Tensor, Any]] = set()
    for kind, name, point in reversed(events):
        if kind == "free":
            freed.add((name, point))
        elif kind == "run":
            reads = [read for read in accesses.reads[name] if read.exists(point)]
            values = [read.of(point) for read in reads]
            for read, value in zip(reads, values, strict=True):
                ends = value in freed and values.count(value) == 1 and not read.sliced
                last[read.edge] = ends and last.get(read.edge, True)
            freed.clear()
    return frozenset(edge for edge, ends in last.items() if ends)


def interpret(compiled: Any, bounds: Mapping[str, int], *, key: Any = None) -> Execution:
    """Run a compiled program once: `Interpreter(compiled, bounds)(key=key)`."""
    return Interpreter(compiled, bounds)(key=key)


class _Run:
    """One execution: its stores and its account."""

    def __init__(self, program: Interpreter, inputs: dict[str, Any]):
        self.program, self.inputs = program, inputs
        self.account = Account()
        self.accesses = program.accesses
        self.stores: dict[Tensor, PointStore | BlockStore] = {}
        for tensor, kind in self.accesses.types().items():
            slots = program.slots.get(tensor)
            self.stores[tensor] = (
                PointStore(kind)
                if slots is None
                else BlockStore(*slots, self.account.reserve, kind)
            )
        self.host: dict[Tensor, HostStore] = defaultdict(HostStore)
        self.given: set[tuple[Tensor, Point]] = set()
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
                outputs = thunk(given, values, where, self.inputs)
            for tensor, at in (reads[k].of(point) for k in given):
                self.free(tensor, at)
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
        """Is this its last use, and nothing else in the same memory?"""
        if read.edge not in self.program.donated:
            return False
        tensor, at = read.of(point)
        return isinstance(self.stores[tensor], PointStore) and self.account.alone(tensor, at)

    def free(self, tensor: Tensor, point: Point) -> None:
        if (tensor, point) in self.given:
            self.given.remove((tensor, point))
            return
        self.stores[tensor].free(point)
        self.account.drop(tensor, point)

    def offload(self, tensor: Tensor, point: Point) -> None:
        value = self.stores[tensor].get(point, ())
        self.account.hold(tensor, point, self.host[tensor].put(point, value), HOST)
        self.free(tensor, point)

    def fetch(self, tensor: Tensor, point: Point) -> None:
        value = self.host[tensor].take(point)
        self.account.drop(tensor, point, HOST)
        self.account.hold(tensor, point, self.stores[tensor].put(point, value))

    def finish(self) -> Execution:
        results = tuple(self.collect(tensor) for tensor in self.program.graph.results)
        return Execution(results, self.account, {t: s.kind for t, s in self.stores.items()})

    def collect(self, tensor: Tensor) -> PyTree:
        grid = self.accesses.grids[tensor]
        values = [self.stores[tensor].get(point, ()) for point in itertools.product(*grid)]
        sizes = tuple(map(len, grid))

        def stack(kind: Any, *leaves: Any) -> jax.Array:
            # With numpy: JAX would compile one program for each number of points.
            flat = np.stack(leaves) if leaves else np.empty(0, kind.dtype)
            return jnp.asarray(flat.reshape(sizes + kind.shape))

        return jax.tree.map(stack, self.accesses.types()[tensor], *values)


def _slots(events: list[tuple], accesses: Accesses) -> dict[Tensor, tuple[int, int, int]]:
    """(dimension, slots, extent) of every tensor that is read by slices along one dimension."""
    moved = {event[1] for event in events if event[0] == "offload"}
    lives = lifetimes(events, own_places(accesses), accesses)
    found = {}
    for tensor, dims in accesses.sliced.items():
        if len(dims) != 1 or tensor in moved or tensor not in lives:
            continue
        # What an operation reads is freed after it has run: no value takes the place of another.
        ordered = sorted(((b, e + 1), point) for point, (b, e) in lives[tensor].items())
        (axis,), extents = dims, accesses.extents[tensor[0]]
        options = ((*extents[:axis], n, *extents[axis + 1 :]) for n in range(1, extents[axis] + 1))
        found[tensor] = (axis, fewest(ordered, options)[axis], extents[axis])
    return found
