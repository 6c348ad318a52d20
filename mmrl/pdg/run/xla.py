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
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mmrl.pdg.build.expr import Expr, Slice
from mmrl.pdg.build.graph import Output
from mmrl.pdg.clean.validate import given
from mmrl.pdg.plan.account import Read, ReadTable, nbytes
from mmrl.pdg.plan.layout import Place, donated, layout
from mmrl.pdg.plan.tails import ends
from mmrl.pdg.run.lowering import Do, Lowering, Repeat
from mmrl.pdg.run.rings import Span, empty, get, has_host_memory, put, repeat
from mmrl.pdg.run.skips import END, NEVER, Skip, executions, latest, skips

Buffers = dict[Output, PyTree]


class XlaProgram:
    """Compiled program with fixed bounds, as a function of a key and the inputs.

    The function supports `jit`, `vmap` and forward-mode differentiation (`jax.jvp`, `jax.jacfwd`).
    Reverse mode requires loops with the same length in every round, and `early` False; otherwise,
    use `gradient` inside the program. A program that calls the host supports only `jit`. If `alias`
    is False, merges copy values between rings. If `early`, loops stop where data end them; this is
    experimental, so loops run to their bounds by default. `ends` then contains a sentence about
    each loop over such a dimension.
    """

    def __init__(
        self, compiled: Any, bounds: Mapping[str, int], *, alias: bool = True, early: bool = False
    ):
        self._given = functools.partial(given, compiled.stages[0].graph, bounds)
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
        self.layout = donated(self.layout, self._accesses, compiled.schedule, shared)
        # Maps the root of each tensor in `alive` to the tensor and the axis that stores its end.
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
        (`given`).
        """
        results = self._jitted(self._given(key, inputs))
        if any(op.kind == "host" for op in self._graph.ops.values()):
            jax.effects_barrier()
        return results

    def lower(self, *, key: Any = None, **inputs: Any) -> Any:
        """Lower the program, as `jax.jit(f).lower` does, for example for a memory analysis."""
        return self._jitted.lower(self._given(key, inputs))

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
        found, grid = self._get(place, spans, buffers), self._accesses.grids[tensor]
        for axis, coordinates in enumerate(grid):
            if len(coordinates) < spans[axis].count:  # some points do not exist
                some = np.array(coordinates, int)
                found = jax.tree.map(lambda x, a=axis, some=some: jnp.take(x, some, a), found)
        return found

    def _block(self, nodes: Sequence, env: dict, known: dict, buffers: Buffers) -> Buffers:
        """Run `nodes`, add their values to `known`, and return the buffers."""
        for node in nodes:
            match node:
                case Do():
                    buffers = self._do(node, env, known, buffers)
                case Repeat():
                    buffers = self._repeat(node, env, known, buffers)
        return buffers

    def _repeat(self, node: Repeat, env: dict, known: dict, buffers: Buffers) -> Buffers:
        """Run a loop that carries only the buffers its body writes, and return all buffers."""
        start, step, number = (part.evaluate(env) for part in (node.start, node.step, node.number))
        carried = self._writes(node.body)

        def turn(k: Any, written: Buffers) -> Buffers:
            here = {**env, node.counter: start + k * step}
            after = self._block(node.body, here, dict(known), {**buffers, **written})
            return {root: after[root] for root in carried}

        number = int(number) if isinstance(number, int) else jnp.asarray(number, jnp.int32)
        written = {root: buffers[root] for root in carried}
        if node in self._skips:
            turns = start + step * jnp.arange(number, dtype=jnp.int32)
            here = {**env, node.counter: turns}
            written = self._shortened(self._skips[node], turn, written, here, buffers)
        else:
            written = jax.lax.fori_loop(0, number, turn, written)
        return {**buffers, **written}

    def _shortened(
        self, skip: Skip, turn: Any, written: Buffers, env: dict, buffers: Buffers
    ) -> Buffers:
        """Run a loop without its skipped iterations, and fill the slots that they would write."""
        turns, until = len(skip.until), jnp.asarray(skip.until, jnp.int32)
        for condition in skip.unless:
            until = jnp.where(jnp.asarray(condition.evaluate(env)) > 0, -1, until)
        some = slice(skip.first, skip.stop)
        until = until.at[some].set(jax.lax.cummin(until[some], reverse=skip.forward))

        def filled(written: Buffers, first: Any, stop: Any) -> Buffers:
            for fill in skip.fills:
                last = jnp.asarray(fill.last, jnp.int32)
                row, past = last[first], last[stop]
                span = (row + 1, past) if skip.forward else (past, row - 1)
                point = [None if x is None else x.evaluate(env) for x in fill.point]
                ring, outer = self.layout.rings[fill.root], self._outer(fill.root)
                value = None if fill.zeros else row
                after = repeat(ring, written[fill.root], fill.axis, value, span, point, outer)
                written = {**written, fill.root: after}
            return written

        def end(written: Buffers) -> Any:
            return latest({**buffers, **written}[skip.end])

        def part(again: Any, state: tuple[Any, Buffers]) -> tuple[Any, Buffers]:
            """Run iterations up to the skipped ones, or all remaining ones if `again`."""

            def goes_on(k: Any, written: Buffers) -> Any:
                before = until[jnp.minimum(k, turns - 1)] < end(written)
                return (k < turns) & ((again == 1) | before)

            def more(state: tuple) -> tuple:
                k, _, written = state
                written = turn(k, written)
                return k + 1, goes_on(k + 1, written), written

            begin = (state[0], goes_on(*state), state[1])
            k, _, written = jax.lax.while_loop(lambda state: state[1], more, begin)
            after = jnp.int32(skip.stop)
            if not skip.forward:
                after = skip.first + (until[some] >= end(written)).sum()
            after = jnp.maximum(k, after)
            return after, filled(written, k, after)

        parts = 1 if skip.forward and skip.stop == turns else 2
        return jax.lax.fori_loop(0, parts, part, (jnp.int32(0), written))[1]

    def _writes(self, body: Sequence) -> list[Output]:
        """Return the stored roots and the ends that a plan writes."""
        tensors = (x for do in executions(body) for x in self._accesses.outputs[do.op.name])
        found = {self.layout.places[tensor].root for tensor in tensors}
        ends = {(self._ends[root][0], END) for root in found & self._ends.keys()}
        return sorted(found & set(self._stored) | ends)

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
            if place.root in self._ends:
                name, axis = self._ends[place.root]
                at, last = place.at(point)[axis], buffers[name, END]
                end = jnp.where(jnp.any(value), at + 1, jnp.minimum(last, at)).astype(jnp.int32)
                buffers = {**buffers, (name, END): end}
        return buffers

    def _merge(self, node: Do, point: list, here: dict, values: list, buffers: Buffers) -> PyTree:
        """Return the value whose condition holds, or the value that is already in the ring."""
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
    """Return a compiled program as one function: `XlaProgram(compiled, bounds, **options)`."""
    return XlaProgram(compiled, bounds, **options)
