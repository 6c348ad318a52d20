"""Execution of a schedule as one XLA program with loops and ring buffers, without Python calls.

`for` becomes `fori_loop`. A statement that runs only in some rounds becomes a loop with possibly
zero iterations, so that no ring ever passes through `lax.cond`. Every tensor is a ring (`layout`),
and a slice is a window of the ring, padded with zeros; `rings` contains the array operations. No
memory is freed at run time: new values overwrite values that are no longer needed.

A loop over a dimension that is ended by data (`Program.until`) skips iterations after the end if
this changes no result (`skips`).

The rings of swapped tensors are in the host's memory (`pinned_host`). Values are written there
immediately and read from there. XLA decides when to transfer them, so the sizes and distances of a
`Swap` apply only to the interpreter.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mmrl.pdg.build.expr import Expr, Slice
from mmrl.pdg.build.graph import Output
from mmrl.pdg.clean.validate import run_env
from mmrl.pdg.plan.account import Read, ReadTable, nbytes
from mmrl.pdg.plan.layout import Place, donate, layout
from mmrl.pdg.plan.tails import ends
from mmrl.pdg.run.lowering import Do, Lowering, Repeat, executions
from mmrl.pdg.run.rings import Span, empty, get, has_host_memory, put
from mmrl.pdg.run.skips import END, NEVER, Buffers, run_with_skips, skips


class XlaProgram:
    """Compiled program with fixed bounds, as a function of a key and the inputs.

    The function supports `jit`, `vmap` and forward-mode differentiation (`jax.jvp`, `jax.jacfwd`).
    Reverse mode requires loops of constant length, which tiles need not have, and `early` False;
    otherwise, use `gradient` in the program. A program that calls the host supports only `jit`. If
    `alias` is False, merges copy values between rings. If `early`, loops stop where data end them,
    and `ends` contains a sentence about each loop over such a dimension. This is experimental, and
    can be slower, because each iteration costs more, so loops run to their bounds by default.
    """

    def __init__(
        self, compiled: Any, bounds: Mapping[str, int], *, alias: bool = True, early: bool = False
    ):
        self._env = functools.partial(run_env, compiled.stages[0].graph, bounds)
        self._graph, self._accesses = compiled.graph, ReadTable(compiled.graph, bounds)
        self.layout = layout(self._accesses, compiled.schedule, alias=alias)
        swapped = compiled.swap.of(compiled.graph)
        if swapped and not has_host_memory():
            kind = jax.devices()[0].platform
            raise ValueError(
                f"`swap` must be empty for an XLA program on a {kind}, which has no separate host "
                f"memory; got {list(swapped)}. Use `interpret`, which executes the transfers."
            )
        lowering = Lowering(self._accesses, self.layout)
        self._plan = lowering.lower(compiled.loops)
        parts = self._plan, self._accesses, self.layout, lowering.stored
        self._skips, self.ends = skips(*parts) if early else ({}, [])
        alive = {skip.end[0] for skip in self._skips.values()}
        # A ring must not share its buffer if it stores `alive`, or if it is filled after a
        # dimension has ended early.
        alone = {fill.root for skip in self._skips.values() for fill in skip.fills}
        shared = lowering.stored - alone - {(name, 0) for name in alive}
        self.layout = donate(self.layout, self._accesses, compiled.schedule, shared)
        # Maps the root of each `alive` to its name, and to the axis of the dimension that it ends.
        self._ends = {
            self.layout.places[x, 0].root: (x, self._accesses.names[x].index(ends(self._graph)[x]))
            for x in alive
        }
        self._stored = sorted({self.layout.places[root].root for root in lowering.stored})
        self._swapped = {self.layout.places[tensor].root for tensor in swapped}
        self._jitted = jax.jit(self._run)

    def __call__(self, *, key: Any = None, **inputs: Any) -> tuple[PyTree, ...]:
        """Run the program and return its results, stacked along their operations' dimensions.

        Points that do not exist are omitted. A `key` replaces the program's seed. All calls of the
        host are complete when this method returns. Raises `ValueError` for invalid inputs
        (`run_env`).
        """
        results = self._jitted(self._env(key, inputs))
        if any(op.kind == "host" for op in self._graph.ops.values()):
            jax.effects_barrier()
        return results

    def lower(self, *, key: Any = None, **inputs: Any) -> Any:
        """Lower the program, as `jax.jit(f).lower` does, for example for a memory analysis."""
        return self._jitted.lower(self._env(key, inputs))

    def slots(self) -> dict[Output, tuple[int, ...]]:
        """Return the number of slots along each dimension of every stored tensor."""
        return {root: self.layout.rings[root].slots for root in self._stored}

    def ring_bytes(self) -> dict[Output, int]:
        """Return the size in bytes of each stored tensor's ring."""
        return {root: nbytes(ring) for root, ring in jax.eval_shape(self._empty).items()}

    def _run(self, inputs: dict[str, Any]) -> tuple[PyTree, ...]:
        env = {**self._accesses.bounds, **inputs}
        never = {(name, END): jnp.int32(NEVER) for name, _ in self._ends.values()}
        buffers = self._block(self._plan, env, {}, self._empty() | never)
        return tuple(self._result(tensor, buffers) for tensor in self._graph.results)

    def _empty(self) -> Buffers:
        types = self._accesses.types
        rings = {
            root: empty(self.layout.rings[root], types[root], self._outer(root))
            for root in self._stored
        }
        host = {root: ring for root, ring in rings.items() if root in self._swapped}
        return rings | jax.device_put(host, jax.memory.Space.Host)

    def _outer(self, root: Output) -> int:
        """Return the number of axes before the ring's axes: 1 after vectorization, else 0.

        The window of each point along the vectorized axis is then contiguous.
        """
        params = self._graph.ops[root[0]].params
        return int("over" in params and params.get("block", 0) is None)

    def _result(self, tensor: Output, buffers: Buffers) -> PyTree:
        place = self.layout.places[tensor]
        spans = [Span.whole(extent) for extent in self._accesses.extents[tensor[0]]]
        value, grid = self._get(place, spans, buffers), self._accesses.grids[tensor]
        for axis, coordinates in enumerate(grid):
            if len(coordinates) < spans[axis].count:  # some points do not exist
                at = np.array(coordinates, int)
                value = jax.tree.map(lambda x, a=axis, at=at: jnp.take(x, at, a), value)
        return value

    def _block(self, nodes: Sequence, env: dict, cache: dict, buffers: Buffers) -> Buffers:
        """Run `nodes`, add their values to `cache`, and return the buffers."""
        for node in nodes:
            match node:
                case Do():
                    buffers = self._do(node, env, cache, buffers)
                case Repeat():
                    buffers = self._repeat(node, env, cache, buffers)
        return buffers

    def _repeat(self, node: Repeat, env: dict, cache: dict, buffers: Buffers) -> Buffers:
        """Run a loop that carries only the buffers that its body writes, and return all buffers.

        Results that their own operation reads in the next iteration are carried as well. Otherwise,
        XLA may copy the complete buffer in each iteration, because it writes the buffer before the
        last read of an old value.
        """
        start, step, number = (part.evaluate(env) for part in (node.start, node.step, node.number))
        carried, slots = self._writes(node.body), self._old_slots(node.body)
        reads = [(do, read) for do, read, _ in node.again] + slots

        def old(k: Any, written: Buffers, reads: Sequence[tuple[Do, Read | None]]) -> list[PyTree]:
            here = {**env, node.counter: start + k * step}
            return [self._read(*read, here, {**buffers, **written}) for read in reads]

        def turn(k: Any, state: tuple[Buffers, list[PyTree]]) -> tuple[Buffers, list[PyTree]]:
            written, ahead = state
            here = {**env, node.counter: start + k * step}
            values = cache | dict(zip(reads, ahead, strict=True))
            after = self._block(node.body, here, values, {**buffers, **written})
            written = {root: after[root] for root in carried}
            new = [values[key] for *_, key in node.again] + old(k + 1, written, slots)
            cast = lambda x, y: jnp.asarray(x, y.dtype)  # noqa: E731
            return written, jax.tree.map(cast, new, ahead) if node.counter else ahead

        number = int(number) if isinstance(number, int) else jnp.asarray(number, jnp.int32)
        written = {root: buffers[root] for root in carried}
        if node in self._skips:
            turns = start + step * jnp.arange(number, dtype=jnp.int32)
            here = {**env, node.counter: turns}
            rings = self.layout.rings, self._outer
            plain = lambda k, written: turn(k, (written, old(k, written, reads)))[0]  # noqa: E731
            written = run_with_skips(self._skips[node], plain, written, here, buffers, *rings)
        else:
            state = written, old(0, written, reads)
            written = jax.lax.fori_loop(0, number, turn, state)[0]
        return {**buffers, **written}

    def _writes(self, body: Sequence) -> list[Output]:
        """Return the keys of the buffers that a plan writes: stored roots and ends."""
        tensors = (x for do in executions(body) for x in self._accesses.outputs[do.op.name])
        roots = {self.layout.places[tensor].root for tensor in tensors}
        ends = {(self._ends[root][0], END) for root in roots & self._ends.keys()}
        return sorted(roots & set(self._stored) | ends)

    def _old_slots(self, body: Sequence) -> list[tuple[Do, None]]:
        """Return the merges that read their own slot of a large buffer before `body` writes it."""
        nodes, written = [], set()
        for node in body:
            root = self.layout.places[node.op.name, 0].root if isinstance(node, Do) else None
            if root and root not in written and None in self._from_rings(node):
                nodes += [(node, None)] if math.prod(self.layout.rings[root].slots) > 2 else []
            written |= {*self._writes([node])}
        return nodes

    def _do(self, node: Do, env: dict, cache: dict, buffers: Buffers) -> Buffers:
        point, here = self._at(node, env)

        def read_value(read: Read | None, key: Any = None) -> PyTree:
            key = (node, read) if key is None else key
            return cache[key] if key in cache else self._read(node, read, env, buffers)

        values = [read_value(*each) for each in node.reads]
        if node.op.run is not None:
            outputs = node.op.run(here, *values)
        else:
            values += [read_value(None)] if None in self._from_rings(node) else []
            outputs = (self._merge(node, here, values),)
        tensors = self._accesses.outputs[node.op.name]
        for tensor, key, value in zip(tensors, node.keys, outputs, strict=True):
            place = self.layout.places[tensor]
            cache[key] = value
            if place.root in buffers:
                ring = self.layout.rings[place.root]
                outer = self._outer(place.root)
                after = put(ring, buffers[place.root], place.at(point), value, outer)
                buffers = {**buffers, place.root: after}
            if place.root in self._ends:
                name, axis = self._ends[place.root]
                at, last = place.at(point)[axis], buffers[name, END]
                end = jnp.where(jnp.any(value), at + 1, jnp.minimum(last, at)).astype(jnp.int32)
                buffers = {**buffers, (name, END): end}
        return buffers

    def _merge(self, node: Do, here: dict, values: Sequence[PyTree]) -> PyTree:
        """Return the value whose condition holds, or the last value if no condition holds."""
        *others, value = values
        for (read, _), other in zip(node.reads, others, strict=False):
            holds = read.edge.when.evaluate(here)
            value = jax.tree.map(lambda a, b, holds=holds: jnp.where(holds, a, b), other, value)
        return value

    def _at(self, node: Do, env: dict) -> tuple[list, dict]:
        """Return the coordinates of an execution, and the values of all symbols there."""
        point = [entry.evaluate(env) for entry in node.point]
        return point, {**env, **dict(zip(self._accesses.names[node.op.name], point, strict=True))}

    def _from_rings(self, node: Do) -> list[Read | None]:
        """Return the reads from rings; None is a read of the value that a merge may replace."""
        reads: list[Read | None] = [read for read, key in node.reads if key is None]
        shares = len(node.reads) < len(self._accesses.reads[node.op.name])
        return reads + [None] * shares

    def _read(self, node: Do, read: Read | None, env: dict, buffers: Buffers) -> PyTree:
        """Return the value of a read from a ring."""
        point, here = self._at(node, env)
        if read is None:
            return self._get(self.layout.places[node.op.name, 0], point, buffers)
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
    """Return a compiled program as one function: `XlaProgram(compiled, bounds, **options)`."""
    return XlaProgram(compiled, bounds, **options)
