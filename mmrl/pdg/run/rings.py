"""Ring buffers as JAX arrays: create, write, read and fill them.

The array of a ring has a leading axis for each dimension with more than one slot. Slices are read
by a dynamic slice if their slots are known to be adjacent, and by a gather if they may wrap around.
Functions that take `outer` handle arrays whose first `outer` axes come before the ring's axes.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from mmrl.pdg.plan.account import Window
from mmrl.pdg.plan.layout import Ring
from mmrl.pdg.run.arrays import HOST_MEMORY

Rings = PyTree[Shaped[Array, "..."]]


@dataclasses.dataclass(frozen=True)
class Span:
    """Range of `count` coordinates starting at `low`, padded with zeros to `window.width`."""

    low: Any
    count: Any
    window: Window

    @classmethod
    def whole(cls, extent: int) -> "Span":
        """Return the span of all coordinates of a dimension."""
        return cls(0, extent, Window(extent, (0,), True))

    def __add__(self, shift: int) -> "Span":
        return Span(self.low + shift, self.count, self.window.shift(shift))


def empty(ring: Ring, example: PyTree, outer: int) -> Rings:
    """Return a ring of zeros for values like `example`, with its slots after `outer` axes."""
    axes = tuple(w for w in ring.slots if w > 1)
    insert = lambda shape: shape[:outer] + axes + shape[outer:]  # noqa: E731
    return jax.tree.map(lambda x: jnp.zeros(insert(x.shape), x.dtype), example)


def put(ring: Ring, buffer: Rings, point: Sequence, value: PyTree, outer: int) -> Rings:
    """Write `value` to the slot of `point`, unless the point is beyond an end of the ring."""
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
    """Read a ring at `index`, one coordinate or `Span` per dimension; spans become leading axes."""
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
            if not span.window.full:  # pad with zeros
                inside = jnp.arange(span.window.width, dtype=jnp.int32) < span.count
                inside = inside.reshape([-1 if k == axis else 1 for k in range(b.ndim)])
                b = jnp.where(inside, b, jnp.zeros_like(b))
        return jnp.moveaxis(b, range(outer), range(len(spans), len(spans) + outer))

    return jax.tree.map(read, buffer)


def repeat(
    ring: Ring,
    buffer: Rings,
    axis: int,
    row: Any | None,
    span: tuple[Any, Any],
    point: Sequence,
    outer: int,
) -> Rings:
    """Copy the value at coordinate `row` of an axis to all coordinates in `span`.

    If `row` is None, write zeros instead. `span` is a pair, the first and the last coordinate, and
    is empty if the last is smaller. `point` contains a coordinate for each other axis, or None for
    the entire axis.
    """
    axes, (low, high) = [k for k, w in enumerate(ring.slots) if w > 1], span
    for k, end in ring.ends:
        high = jnp.minimum(high, end - 1) if k == axis else high
    along, slots = outer + axes.index(axis), ring.slots[axis]
    inside = (jnp.arange(slots) - low) % slots <= high - low

    def write(b: Array) -> Array:
        at, sizes = [jnp.int32(0)] * b.ndim, list(b.shape)
        for place, k in enumerate(axes, outer):
            if k != axis and point[k] is not None:
                at[place], sizes[place] = jnp.asarray(_slot(ring, k, point[k]), jnp.int32), 1
        part = to_device(jax.lax.dynamic_slice(b, at, sizes, allow_negative_indices=False))
        value = jnp.zeros((), b.dtype)
        if row is not None:
            value = jax.lax.dynamic_index_in_dim(part, row % slots, along)
        shape = [-1 if place == along else 1 for place in range(b.ndim)]
        v = to_memory_of(b, jnp.where(inside.reshape(shape), value, part))
        return jax.lax.dynamic_update_slice(b, v, at, allow_negative_indices=False)

    return jax.tree.map(write, buffer)


def on_host(x: Array) -> bool:
    """Return True if an array is in the host's memory, as the rings of swapped tensors are."""
    return jax.typeof(x).memory_space == jax.memory.Space.Host


def to_memory_of(ring: Array, value: Array) -> Array:
    """Move a value to the same memory as a ring."""
    return jax.device_put(value, jax.memory.Space.Host) if on_host(ring) else value


def to_device(x: Array) -> Array:
    """Move an array to the device's memory."""
    return jax.device_put(x, jax.memory.Space.Device) if on_host(x) else x


def has_host_memory() -> bool:
    """Return True if XLA supports arrays in separate host memory, which it does not on a CPU."""
    device = jax.devices()[0]
    return device.platform != "cpu" and HOST_MEMORY in {
        memory.kind for memory in device.addressable_memories()
    }


def _slot(ring: Ring, k: int, coordinate: Any) -> Any:
    if ring.slots[k] == 1:
        return 0 if jnp.ndim(coordinate) == 0 else jnp.zeros_like(coordinate)
    if isinstance(coordinate, int):
        return coordinate % ring.slots[k]
    # Coordinates are not negative, so the remainder equals the modulus.
    return jax.lax.rem(coordinate, jnp.full_like(coordinate, ring.slots[k]))


def _begin(ring: Ring, k: int, c: Any) -> tuple[Any, int]:
    """Return the first slot and the number of slots to read along a dimension.

    All slots are read if the span may wrap around.
    """
    if not isinstance(c, Span):
        return _slot(ring, k, c), 1
    if _side_by_side(ring, k, c.window):
        return _slot(ring, k, c.low), c.window.width
    return 0, ring.slots[k]


def _side_by_side(ring: Ring, k: int, window: Window) -> bool:
    """Return True if each window of the read occupies adjacent slots, without wrapping around."""
    # A read that never happens has no `lows`.
    last = max((low % ring.slots[k] for low in window.lows), default=0)
    return last + window.width <= ring.slots[k]
