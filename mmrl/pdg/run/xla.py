"""One XLA program from a schedule: loops, rings, and no call from Python in between.

`for` becomes `fori_loop`; a statement that runs only in some rounds becomes a loop that may run
zero times, so that no ring ever goes through `lax.cond`; every tensor is a ring (`layout`), and a
slice is a window of it, with zeros where there is no data. No memory is freed at run time: the next
value is written over one that is no longer needed.

A ring's array has one leading axis for every dimension with more than one slot. A slice is a
dynamic slice where its slots lie side by side for certain, and a gather where they may wrap.

The rings of swapped tensors are in the host's memory (`pinned_host`): what is written goes there at
once, and what is read comes from there. When it moves is up to XLA; the sizes and distances of a
`Swap` are for the interpreter.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Shaped

from mmrl.pdg.build.expr import Expr, Slice
from mmrl.pdg.build.graph import Output
from mmrl.pdg.clean.validate import given
from mmrl.pdg.plan.account import Read, ReadTable, Window, nbytes
from mmrl.pdg.plan.layout import Place, Ring, donated, layout
from mmrl.pdg.run.arrays import HOST_MEMORY
from mmrl.pdg.run.lowering import Do, Lowering, Repeat

Rings = PyTree[Shaped[Array, "..."]]


@dataclasses.dataclass(frozen=True)
class Span:
    """Coordinates `low` to `low + count`, read as `window.width` of them with zeros at the end."""

    low: Any
    count: Any
    window: Window

    @classmethod
    def whole(cls, extent: int) -> "Span":
        """All coordinates of a dimension."""
        return cls(0, extent, Window(extent, (0,), True))

    def __add__(self, shift: int) -> "Span":
        return Span(self.low + shift, self.count, self.window.moved(shift))


def empty(ring: Ring, example: PyTree, outer: int) -> Rings:
    """A ring of values like `example`, all zero; its axes come after `outer` axes of these."""
    axes = tuple(w for w in ring.slots if w > 1)
    around = lambda shape: shape[:outer] + axes + shape[outer:]  # noqa: E731
    return jax.tree.map(lambda x: jnp.zeros(around(x.shape), x.dtype), example)


def put(ring: Ring, buffer: Rings, point: Sequence, value: PyTree, outer: int) -> Rings:
    """The ring with `value` in the slot of `point`, or as it was if that is past an end."""
    starts = [_slot(ring, k, c) for k, c in enumerate(point) if ring.slots[k] > 1]
    inside = [point[k] < end for k, end in ring.ends]

    def write(b: Array, v: Any) -> Array:
        v = jnp.asarray(v, b.dtype)
        if not (starts or inside):
            return to_memory_of(b, v)
        rest = [0] * (v.ndim - outer)
        v = v.reshape(v.shape[:outer] + (1,) * len(starts) + v.shape[outer:])
        at = [jnp.asarray(s, jnp.int32) for s in [*[0] * outer, *starts, *rest]]
        if inside:
            old = to_device(jax.lax.dynamic_slice(b, at, v.shape, allow_negative_indices=False))
            v = jnp.where(jnp.all(jnp.stack(inside)), v, old)
        v = to_memory_of(b, v)
        return jax.lax.dynamic_update_slice(b, v, at, allow_negative_indices=False)

    return jax.tree.map(write, buffer, value)


def get(ring: Ring, buffer: Rings, index: Sequence, outer: int) -> Rings:
    """The value at `index`, one coordinate or `Span` per dimension; spans become leading axes."""
    spans = [(k, c) for k, c in enumerate(index) if isinstance(c, Span)]

    def read(b: Array) -> Array:
        b = jax.lax.expand_dims(b, [outer + k for k, w in enumerate(ring.slots) if w == 1])
        before, after = b.shape[:outer], b.shape[outer + len(index) :]
        begins = [_begin(ring, k, c) for k, c in enumerate(index)]
        starts = [0] * len(before) + [start for start, _ in begins] + [0] * len(after)
        starts = [jnp.asarray(start, jnp.int32) for start in starts]
        sizes = [*before, *(size for _, size in begins), *after]
        b = to_device(jax.lax.dynamic_slice(b, starts, sizes, allow_negative_indices=False))
        for k, span in spans:
            if not _side_by_side(ring, k, span.window):
                at = _slot(ring, k, span.low + jnp.arange(span.window.width, dtype=jnp.int32))
                b = jnp.take(b, at, axis=outer + k, mode="clip")
        b = b.reshape([*before, *(b.shape[outer + k] for k, _ in spans), *after])
        for axis, (_, span) in enumerate(spans, outer):
            if not span.window.full:  # zeros past its end
                inside = jnp.arange(span.window.width, dtype=jnp.int32) < span.count
                inside = inside.reshape([-1 if k == axis else 1 for k in range(b.ndim)])
                b = jnp.where(inside, b, jnp.zeros_like(b))
        return jnp.moveaxis(b, range(outer), range(len(spans), len(spans) + outer))

    return jax.tree.map(read, buffer)


def on_host(x: Array) -> bool:
    """True for an array in the host's memory, as the rings of swapped tensors are."""
    return jax.typeof(x).memory_space == jax.memory.Space.Host


def to_memory_of(ring: Array, value: Array) -> Array:
    """Return the value in the memory that a ring is in."""
    return jax.device_put(value, jax.memory.Space.Host) if on_host(ring) else value


def to_device(x: Array) -> Array:
    """Return an array in the device's memory."""
    return jax.device_put(x, jax.memory.Space.Device) if on_host(x) else x


def has_host_memory() -> bool:
    """True if XLA can keep arrays in another memory than the device's; on a CPU it ignores that."""
    device = jax.devices()[0]
    return device.platform != "cpu" and HOST_MEMORY in {
        memory.kind for memory in device.addressable_memories()
    }


def _slot(ring: Ring, k: int, coordinate: Any) -> Any:
    if ring.slots[k] == 1:
        return 0 if jnp.ndim(coordinate) == 0 else jnp.zeros_like(coordinate)
    if isinstance(coordinate, int):
        return coordinate % ring.slots[k]
    # Coordinates are not negative, so that the remainder is the modulus.
    return jax.lax.rem(coordinate, jnp.full_like(coordinate, ring.slots[k]))


def _begin(ring: Ring, k: int, c: Any) -> tuple[Any, int]:
    """Return the first slot to read and the number: one, a span, or all where it may wrap."""
    if not isinstance(c, Span):
        return _slot(ring, k, c), 1
    if _side_by_side(ring, k, c.window):
        return _slot(ring, k, c.low), c.window.width
    return 0, ring.slots[k]


def _side_by_side(ring: Ring, k: int, window: Window) -> bool:
    """Is every window of this read in neighboring slots, none past the last one?"""
    last = max((low % ring.slots[k] for low in window.lows), default=0)  # of a read that never is
    return last + window.width <= ring.slots[k]


Buffers = dict[Output, PyTree]


class XlaProgram:
    """A compiled program with numbers for its bounds, as one function of its key and its inputs.

    It may be jitted, vmapped and differentiated forward (`jax.jvp`, `jax.jacfwd`) over them;
    backward, where each loop has the same length in every round (else `gradient`, in the program,
    does it). With calls of the host it may only be jitted. `alias` False lets merges copy from ring
    to ring.
    """

    def __init__(self, compiled: Any, bounds: Mapping[str, int], *, alias: bool = True):
        self._given = functools.partial(given, compiled.stages[0].graph, bounds)
        self._graph, self._accesses = compiled.graph, ReadTable(compiled.graph, bounds)
        self.layout = layout(self._accesses, compiled.schedule, alias=alias)
        swapped = compiled.swap.of(compiled.graph)
        if swapped and not has_host_memory():
            kind = jax.devices()[0].platform
            raise ValueError(
                f"`swap` must be empty for one XLA program on a {kind}, which has no memory apart "
                f"from the host's, got {list(swapped)}; `interpret` executes the moves."
            )
        lowering = Lowering(self._accesses, self.layout)
        self._plan = lowering.lower(compiled.loops)
        self.layout = donated(self.layout, self._accesses, compiled.schedule, lowering.stored)
        self._stored = sorted({self.layout.places[root].root for root in lowering.stored})
        self._swapped = {self.layout.places[tensor].root for tensor in swapped}
        self._jitted = jax.jit(self._run)

    def __call__(self, *, key: Any = None, **inputs: Any) -> tuple[PyTree, ...]:
        """The graph's results, stacked along the dimensions of their operations, where they exist.

        A `key` replaces the program's seed. Raises `ValueError` for wrong inputs (`given`).
        Calls of the host are made when this returns.
        """
        results = self._jitted(self._given(key, inputs))
        if any(op.kind == "host" for op in self._graph.ops.values()):
            jax.effects_barrier()
        return results

    def lower(self, *, key: Any = None, **inputs: Any) -> Any:
        """Lower the program as `jax.jit(f).lower` does; compiled, it has a `memory_analysis()`."""
        return self._jitted.lower(self._given(key, inputs))

    def slots(self) -> dict[Output, tuple[int, ...]]:
        """The number of slots along each dimension, of every tensor that is stored."""
        return {root: self.layout.rings[root].slots for root in self._stored}

    def ring_bytes(self) -> dict[Output, int]:
        """The bytes of the ring of every tensor that is stored."""
        return {root: nbytes(ring) for root, ring in jax.eval_shape(self._empty).items()}

    def _run(self, inputs: dict[str, Any]) -> tuple[PyTree, ...]:
        env = {**self._accesses.bounds, **inputs}
        buffers = self._block(self._plan, env, {}, self._empty())
        return tuple(self._result(tensor, buffers) for tensor in self._graph.results)

    def _empty(self) -> Buffers:
        types = self._accesses.types()
        rings = {
            root: empty(self.layout.rings[root], types[root], self._outer(root))
            for root in self._stored
        }
        host = {root: ring for root, ring in rings.items() if root in self._swapped}
        return rings | jax.device_put(host, jax.memory.Space.Host)

    def _outer(self, root: Output) -> int:
        """The axes in front of the ring, for dimensions that were vectorized.

        Each point along them then finds its own window in one piece.
        """
        params = self._graph.ops[root[0]].params
        return int("over" in params and params.get("block", 0) is None)

    def _result(self, tensor: Output, buffers: Buffers) -> PyTree:
        place = self.layout.places[tensor]
        spans = [Span.whole(extent) for extent in self._accesses.extents[tensor[0]]]
        found, grid = self._get(place, spans, buffers), self._accesses.grids[tensor]
        for axis, coordinates in enumerate(grid):
            if len(coordinates) < spans[axis].count:  # the others are empty
                some = np.array(coordinates, int)
                found = jax.tree.map(lambda x, a=axis, some=some: jnp.take(x, some, a), found)
        return found

    def _block(self, nodes: Sequence, env: dict, known: dict, buffers: Buffers) -> Buffers:
        """The buffers after `nodes`; `known` has the values at hand, and grows."""
        for node in nodes:
            match node:
                case Do():
                    buffers = self._do(node, env, known, buffers)
                case Repeat():
                    buffers = self._repeat(node, env, known, buffers)
        return buffers

    def _repeat(self, node: Repeat, env: dict, known: dict, buffers: Buffers) -> Buffers:
        """Only what the body writes is carried from turn to turn; the rest stays in place."""
        start, step, number = (part.evaluate(env) for part in (node.start, node.step, node.number))
        carried = self._writes(node.body)

        def turn(k: Any, written: Buffers) -> Buffers:
            here = {**env, node.counter: start + k * step}
            after = self._block(node.body, here, dict(known), {**buffers, **written})
            return {root: after[root] for root in carried}

        number = int(number) if isinstance(number, int) else jnp.asarray(number, jnp.int32)
        written = {root: buffers[root] for root in carried}
        return {**buffers, **jax.lax.fori_loop(0, number, turn, written)}

    def _writes(self, body: Sequence) -> list[Output]:
        """The stored roots that a plan writes."""
        found: set[Output] = set()
        for node in body:
            if isinstance(node, Repeat):
                found |= set(self._writes(node.body))
            else:
                tensors = self._accesses.outputs[node.op.name]
                found |= {self.layout.places[tensor].root for tensor in tensors}
        return sorted(found & set(self._stored))

    def _do(self, node: Do, env: dict, known: dict, buffers: Buffers) -> Buffers:
        point = [entry.evaluate(env) for entry in node.point]
        here = {**env, **dict(zip(self._accesses.names[node.op.name], point, strict=True))}
        values = [
            self._read(read, here, buffers) if key is None else known[key]
            for read, key in node.reads
        ]
        if node.op.run is not None:
            outputs = node.op.run(here, *values)
        else:
            outputs = (self._merge(node, point, here, values, buffers),)
        tensors = self._accesses.outputs[node.op.name]
        for tensor, key, value in zip(tensors, node.keys, outputs, strict=True):
            place = self.layout.places[tensor]
            known[key] = value
            if place.root in buffers:
                ring = self.layout.rings[place.root]
                outer = self._outer(place.root)
                after = put(ring, buffers[place.root], place.at(point), value, outer)
                buffers = {**buffers, place.root: after}
        return buffers

    def _merge(self, node: Do, point: list, here: dict, values: list, buffers: Buffers) -> PyTree:
        """The value whose condition holds; else what is in the merge's place already."""
        name, rest = node.op.name, list(zip(node.reads, values, strict=True))
        if len(rest) < len(self._accesses.reads[name]):
            value = self._get(self.layout.places[name, 0], point, buffers)
        else:
            value = rest.pop()[1]
        for (read, _), other in rest:
            holds = read.edge.when.evaluate(here)
            value = jax.tree.map(lambda a, b, holds=holds: jnp.where(holds, a, b), other, value)
        return value

    def _read(self, read: Read, here: dict, buffers: Buffers) -> PyTree:
        windows = iter(read.windows)

        def part(entry: Expr) -> Any:
            if not isinstance(entry, Slice):
                return entry.evaluate(here)
            low, high, window = entry.lo.evaluate(here), entry.hi.evaluate(here), next(windows)
            full = window.full or read in self.layout.zeros
            return Span(low, high - low, dataclasses.replace(window, full=full))

        place = self.layout.places[read.tensor]
        return self._get(place, [part(entry) for entry in read.edge.index], buffers)

    def _get(self, place: Place, index: list, buffers: Buffers) -> PyTree:
        ring, buffer = self.layout.rings[place.root], buffers[place.root]
        return get(ring, buffer, place.at(index), self._outer(place.root))


def xla(compiled: Any, bounds: Mapping[str, int], **options: bool) -> XlaProgram:
    """A compiled program as one function: `XlaProgram(compiled, bounds)`."""
    return XlaProgram(compiled, bounds, **options)
