"""One XLA program from a schedule: loops, rings, and no call from Python in between.

`for` becomes `fori_loop`; a statement that runs in some rounds only becomes a loop that may run no
times, so that no ring ever goes through `lax.cond`; every tensor is a ring (`layout.py`), and a
slice is a window of it, with zeros where there is no data. Nothing is freed at run time: the next
value is written where one was that is not needed any more.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mmrl.pdg.expr import Slice
from mmrl.pdg.runtime import rings
from mmrl.pdg.runtime.access import Accesses, Read, keyed
from mmrl.pdg.runtime.account import Tensor
from mmrl.pdg.runtime.layout import Place, settled
from mmrl.pdg.runtime.plan import Do, Planner, Repeat

Buffers = dict[Tensor, PyTree]


class XlaProgram:
    """A compiled program with numbers for its bounds, as one function of its key.

    It may be jitted and vmapped over it. `alias` False lets merges copy from ring to ring.
    """

    def __init__(self, compiled: Any, bounds: Mapping[str, int], *, alias: bool = True):
        self._graph, self._accesses = compiled.graph, Accesses(compiled.graph, bounds)
        self.layout = settled(self._accesses, compiled.trace, alias=alias)
        planner = Planner(self._accesses, self.layout)
        self._plan = planner.plan(compiled.tree)
        self._stored = sorted(planner.stored)
        self._jitted = jax.jit(self._run)

    def __call__(self, *, key: Any = None) -> tuple[PyTree, ...]:
        """The graph's results, stacked along the dimensions of their operations, where they exist.

        A `key` replaces the program's seed.
        """
        return self._jitted(keyed(key))

    def lower(self, *, key: Any = None) -> Any:
        """Lower the program as `jax.jit(f).lower` does; compiled, it has a `memory_analysis()`."""
        return self._jitted.lower(keyed(key))

    def slots(self) -> dict[Tensor, tuple[int, ...]]:
        """The number of slots along each dimension, of every tensor that is stored."""
        return {root: self.layout.rings[root].slots for root in self._stored}

    def ring_bytes(self) -> dict[Tensor, int]:
        """The bytes of the ring of every tensor that is stored."""
        buffers = jax.eval_shape(self._empty).items()
        return {
            root: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(buffer))
            for root, buffer in buffers
        }

    def _run(self, inputs: dict[str, Any]) -> tuple[PyTree, ...]:
        env = {**self._accesses.bounds, **inputs}
        buffers = self._block(self._plan, env, {}, self._empty())
        return tuple(self._result(tensor, buffers) for tensor in self._graph.results)

    def _empty(self) -> Buffers:
        types = self._accesses.types()
        return {root: rings.empty(self.layout.rings[root], types[root]) for root in self._stored}

    def _result(self, tensor: Tensor, buffers: Buffers) -> PyTree:
        place = self.layout.places[tensor]
        spans = [rings.Span.whole(extent) for extent in self._accesses.extents[tensor[0]]]
        found, grid = self._get(place, spans, buffers), self._accesses.grids[tensor]
        for axis, coordinates in enumerate(grid):
            if len(coordinates) < spans[axis].count:  # the others hold nothing
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

    def _writes(self, body: Sequence) -> list[Tensor]:
        """The stored roots that a plan writes."""
        found: set[Tensor] = set()
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
        elif values:
            outputs = (self._merge(node, point, here, values, buffers),)
        else:
            return buffers
        tensors = self._accesses.outputs[node.op.name]
        for tensor, key, value in zip(tensors, node.keys, outputs, strict=True):
            place = self.layout.places[tensor]
            known[key] = value
            if place.root in buffers:
                ring = self.layout.rings[place.root]
                after = rings.put(ring, buffers[place.root], place.at(point), value)
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
        index: list[Any] = []
        for entry in read.edge.index:
            if isinstance(entry, Slice):
                low, high = entry.lo.evaluate(here), entry.hi.evaluate(here)
                index.append(rings.Span(low, high - low, next(windows)))
            else:
                index.append(entry.evaluate(here))
        return self._get(self.layout.places[read.tensor], index, buffers)

    def _get(self, place: Place, index: list, buffers: Buffers) -> PyTree:
        return rings.get(self.layout.rings[place.root], buffers[place.root], place.at(index))


def xla(compiled: Any, bounds: Mapping[str, int], **options: bool) -> XlaProgram:
    """A compiled program as one function: `XlaProgram(compiled, bounds)`."""
    return XlaProgram(compiled, bounds, **options)
