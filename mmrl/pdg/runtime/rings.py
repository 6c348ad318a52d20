"""Reading and writing rings inside a compiled program.

A ring's array has one leading axis for every dimension with more than one slot. A slice is a
dynamic slice where its slots lie side by side for certain, and a gather where they may wrap.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from mmrl.pdg.runtime.access import Window
from mmrl.pdg.runtime.layout import Ring

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


def empty(ring: Ring, example: PyTree) -> Rings:
    """A ring of values like `example`, all zero."""
    axes = tuple(w for w in ring.slots if w > 1)
    return jax.tree.map(lambda x: jnp.zeros(axes + x.shape, x.dtype), example)


def put(ring: Ring, buffer: Rings, point: Sequence, value: PyTree) -> Rings:
    """The ring with `value` in the slot of `point`, or as it was if that is past an end."""
    starts = [_slot(ring, k, c) for k, c in enumerate(point) if ring.slots[k] > 1]
    inside = [point[k] < end for k, end in ring.ends]

    def write(b: Array, v: Any) -> Array:
        v = jnp.asarray(v, b.dtype)
        if not (starts or inside):
            return v
        v = v.reshape((1,) * len(starts) + v.shape)
        at = [jnp.asarray(s, jnp.int32) for s in [*starts, *[0] * (v.ndim - len(starts))]]
        if inside:
            old = jax.lax.dynamic_slice(b, at, v.shape, allow_negative_indices=False)
            v = jnp.where(jnp.all(jnp.stack(inside)), v, old)
        return jax.lax.dynamic_update_slice(b, v, at, allow_negative_indices=False)

    return jax.tree.map(write, buffer, value)


def get(ring: Ring, buffer: Rings, index: Sequence) -> Rings:
    """The value at `index`, one coordinate or `Span` per dimension; spans become leading axes."""
    spans = [(k, c) for k, c in enumerate(index) if isinstance(c, Span)]

    def read(b: Array) -> Array:
        b = jax.lax.expand_dims(b, [k for k, w in enumerate(ring.slots) if w == 1])
        rank = len(index)
        begins = [_begin(ring, k, c) for k, c in enumerate(index)]
        starts = [jnp.asarray(s, jnp.int32) for s, _ in [*begins, *[(0, 0)] * (b.ndim - rank)]]
        sizes = [size for _, size in begins] + [*b.shape[rank:]]
        b = jax.lax.dynamic_slice(b, starts, sizes, allow_negative_indices=False)
        for k, span in spans:
            if not _side_by_side(ring, k, span.window):
                at = _slot(ring, k, span.low + jnp.arange(span.window.width, dtype=jnp.int32))
                b = jnp.take(b, at, axis=k, mode="clip")
        b = b.reshape([b.shape[k] for k, _ in spans] + list(b.shape[rank:]))
        for axis, (_, span) in enumerate(spans):
            b = _mask(b, span, axis)
        return b

    return jax.tree.map(read, buffer)


def _mask(b: Array, span: Span, axis: int) -> Array:
    """Zeros past the end of a span that is not always of full width."""
    if span.window.full:
        return b
    inside = jnp.arange(span.window.width, dtype=jnp.int32) < span.count
    shape = [1] * b.ndim
    shape[axis] = span.window.width
    return jnp.where(inside.reshape(shape), b, jnp.zeros_like(b))


def _slot(ring: Ring, k: int, coordinate: Any) -> Any:
    if ring.slots[k] == 1:
        return 0 if jnp.ndim(coordinate) == 0 else jnp.zeros_like(coordinate)
    if isinstance(coordinate, int):
        return coordinate % ring.slots[k]
    # Coordinates are not negative, so that the remainder is the modulus.
    return jax.lax.rem(coordinate, jnp.full_like(coordinate, ring.slots[k]))


def _begin(ring: Ring, k: int, c: Any) -> tuple[Any, int]:
    """The first slot to read and how many: one, those of a span, or all where it may wrap."""
    if not isinstance(c, Span):
        return _slot(ring, k, c), 1
    if _side_by_side(ring, k, c.window):
        return _slot(ring, k, c.low), c.window.width
    return 0, ring.slots[k]


def _side_by_side(ring: Ring, k: int, window: Window) -> bool:
    """Is every window of this read in neighboring slots, none past the last one?"""
    last = max((low % ring.slots[k] for low in window.lows), default=0)  # of a read that never is
    return last + window.width <= ring.slots[k]
