"""An interpreter of schedules: walk the tree, run one compiled thunk per operation, free for real.

Slow, since every operation is a call from Python, and plain: at each moment the stores hold what
the schedule says, byte for byte, and the account shows it.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from mmrl.pdg.graph import Graph, Op
from mmrl.pdg.runtime.access import Accesses, Read
from mmrl.pdg.runtime.account import DEVICE, HOST, Account, Point, Tensor
from mmrl.pdg.runtime.stores import BlockStore, HostStore, PointStore
from mmrl.pdg.syntax import Block, Execute, Fetch, Free, If, Loop, Offload


@dataclasses.dataclass(frozen=True)
class Execution:
    """What a program computed, and what its tensors took.

    `results` are the graph's, in its order, stacked along the dimensions of their operations.
    """

    results: tuple[PyTree, ...]
    account: Account
    stores: Mapping[Tensor, str]
    """The kind of store each tensor was kept in."""


class Interpreter:
    """A compiled program with numbers for its bounds; call it with its inputs to run it."""

    def __init__(self, compiled: Any, bounds: Mapping[str, int]):
        self.graph: Graph = compiled.graph
        self.tree = compiled.tree
        self.bounds = dict(bounds)
        self._accesses = Accesses(self.graph, self.bounds)
        self._thunks = {name: self._thunk(op) for name, op in self.graph.ops.items()}
        self._slots = _slots(compiled.trace(**bounds), self._accesses)

    def __call__(self, **inputs: Any) -> Execution:
        """Run the whole program. Operations find `inputs` in their `env`, beside the point."""
        return _Run(self, inputs).finish()

    def _thunk(self, op: Op) -> Callable[..., tuple] | None:
        if op.run is None:
            return None
        run, bounds = op.run, self.bounds

        @jax.jit
        def thunk(point: dict[str, Any], inputs: dict[str, Any], *values: Any) -> tuple:
            return run({**bounds, **inputs, **point}, *values)

        return thunk


def interpret(compiled: Any, bounds: Mapping[str, int], **inputs: Any) -> Execution:
    """Run a compiled program once: `Interpreter(compiled, bounds)(**inputs)`."""
    return Interpreter(compiled, bounds)(**inputs)


class _Run:
    """One execution: its stores, and the counters of the loops it is in."""

    def __init__(self, program: Interpreter, inputs: dict[str, Any]):
        self.program, self.inputs = program, inputs
        self.account = Account()
        self.accesses = program._accesses
        self.stores: dict[Tensor, PointStore | BlockStore] = {}
        for tensor in self.accesses.tensors:
            slots = program._slots.get(tensor)
            self.stores[tensor] = (
                PointStore() if slots is None else BlockStore(*slots, reserve=self.account.reserve)
            )
        self.host: dict[Tensor, HostStore] = defaultdict(HostStore)
        self.walk(program.tree, dict(program.bounds))

    def walk(self, node: Any, env: dict[str, int]) -> None:
        match node:
            case Block(body):
                for child in body:
                    self.walk(child, env)
            case Loop(counter, start, stop, step, body):
                for value in range(start.evaluate(env), stop.evaluate(env), step):
                    self.walk(body, {**env, counter: value})
            case If(condition, then, orelse):
                self.walk(then if condition.evaluate(env) else orelse, env)
            case Execute(op, point):
                self.run(self.program.graph.ops[op], tuple(p.evaluate(env) for p in point))
            case Free(tensor, point):
                self.free(tensor, tuple(p.evaluate(env) for p in point))
            case Offload(tensor, point):
                self.offload(tensor, tuple(p.evaluate(env) for p in point))
            case Fetch(tensor, point):
                self.fetch(tensor, tuple(p.evaluate(env) for p in point))
            case _:
                raise TypeError(f"`tree` has a node of unknown type {type(node).__name__}.")

    def run(self, op: Op, point: Point) -> None:
        thunk = self.program._thunks[op.name]
        reads = [read for read in self.accesses.reads[op.name] if read.exists(point)]
        values = [self.read(read, point) for read in reads]
        if thunk is None:
            outputs = (values[0],)
        else:
            where = dict(zip(self.accesses.names[op.name], point, strict=True))
            outputs = thunk(where, self.inputs, *values)
        for tensor, value in zip(self.accesses.outputs[op.name], outputs, strict=True):
            self.account.hold(tensor, point, self.stores[tensor].put(point, value))
        self.account.tick(("run", op.name, point))

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

    def free(self, tensor: Tensor, point: Point) -> None:
        self.stores[tensor].free(point)
        self.account.drop(tensor, point)
        self.account.tick(("free", tensor, point))

    def offload(self, tensor: Tensor, point: Point) -> None:
        value = self.stores[tensor].get(point, ())
        self.account.hold(tensor, point, self.host[tensor].put(point, value), HOST)
        self.stores[tensor].free(point)
        self.account.drop(tensor, point, DEVICE)
        self.account.tick(("offload", tensor, point))

    def fetch(self, tensor: Tensor, point: Point) -> None:
        value = self.host[tensor].take(point)
        self.account.drop(tensor, point, HOST)
        self.account.hold(tensor, point, self.stores[tensor].put(point, value), DEVICE)
        self.account.tick(("fetch", tensor, point))

    def finish(self) -> Execution:
        results = tuple(self.collect(tensor) for tensor in self.program.graph.results)
        return Execution(results, self.account, {t: s.kind for t, s in self.stores.items()})

    def collect(self, tensor: Tensor) -> PyTree:
        extents = self.accesses.extents[tensor[0]]
        index = tuple(range(extent) for extent in extents)
        return jax.tree.map(jnp.asarray, self.stores[tensor].get(index, extents))


def _slots(events: list[tuple], accesses: Accesses) -> dict[Tensor, tuple[int, int, int]]:
    """Of every tensor that is read by slices along one dimension: (dimension, slots, extent)."""
    moved = {event[1] for event in events if event[0] == "offload"}
    sliced = accesses.sliced.items()
    chosen = {t: min(dims) for t, dims in sliced if len(dims) == 1 and t not in moved}
    spans: dict[Tensor, list[tuple[int, int, Point]]] = defaultdict(list)
    begin: dict[tuple[Tensor, Point], int] = {}
    for now, (kind, name, point) in enumerate(events):
        if kind == "run":
            begin |= {(tensor, point): now for tensor in accesses.outputs[name]}
        elif kind == "free" and name in chosen:
            spans[name].append((begin.pop((name, point)), now, point))
    for (tensor, point), start in begin.items():
        if tensor in chosen:
            spans[tensor].append((start, len(events), point))
    return {
        tensor: (axis, _ring(spans[tensor], axis), accesses.extents[tensor[0]][axis])
        for tensor, axis in chosen.items()
    }


def _ring(spans: list[tuple[int, int, Point]], axis: int) -> int:
    """The fewest slots along `axis` such that no value is put where another still is."""
    most = 1 + max(point[axis] for _, _, point in spans)
    spans = sorted(spans)
    for slots in range(1, most):
        busy: dict[tuple, int] = {}
        for start, stop, point in spans:
            slot = (*point[:axis], point[axis] % slots, *point[axis + 1 :])
            if busy.get(slot, -1) > start:
                break
            busy[slot] = stop
        else:
            return slots
    return most
