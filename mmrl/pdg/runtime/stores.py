"""Where an interpreted program keeps its tensors: one store per tensor, chosen by its readers.

A point store is a map from points to values. A block store keeps the values along one dimension in
one array, so that a slice is a piece of it; with fewer slots than points it is a ring. Both are the
stores of TimeRL (section 7). A slice comes back padded with zeros to its greatest width, so that no
program is compiled per length.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from mmrl.pdg.runtime.access import Index
from mmrl.pdg.runtime.account import DEVICE, HOST, Buffer, Point

HOST_MEMORY = "pinned_host"


def nbytes(value: PyTree) -> int:
    """Bytes of all leaves."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(value))


@functools.partial(jax.jit, static_argnames="widths")
def _stack(values: list[PyTree], widths: tuple[int, ...]) -> PyTree[Shaped[Array, "..."]]:
    return jax.tree.map(lambda *xs: jnp.stack(xs).reshape(widths + xs[0].shape), *values)


def _nothing(zeros: PyTree, widths: tuple[int, ...]) -> PyTree[Shaped[Array, "..."]]:
    """The value of an empty slice: zeros, as many as there is room for."""
    return jax.tree.map(lambda x: jnp.zeros(widths + x.shape, x.dtype), zeros)


class PointStore:
    """A map from points to values: everything is quick but a slice, which is put together anew.

    `example` has the shapes and dtypes of a value.
    """

    kind = "point"

    def __init__(self, example: PyTree):
        self._values: dict[Point, PyTree] = {}
        self._zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), example)

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
        return _stack(values, widths) if values else _nothing(self._zeros, widths)


@functools.partial(jax.jit, donate_argnums=0)
def _write(block: PyTree, value: PyTree, slot: Any) -> PyTree[Shaped[Array, "..."]]:
    put = jax.lax.dynamic_update_index_in_dim
    return jax.tree.map(lambda b, v: put(b, v, slot, 0), block, value)


@jax.jit
def _row(block: PyTree, slot: Any) -> PyTree[Shaped[Array, "..."]]:
    return jax.tree.map(lambda b: jax.lax.dynamic_index_in_dim(b, slot, keepdims=False), block)


@functools.partial(jax.jit, static_argnames="width")
def _window(block: PyTree, low: Any, count: Any, width: int) -> PyTree[Shaped[Array, "..."]]:
    at = jnp.arange(width)

    def window(b: Array) -> Array:
        rows = jnp.take(b, (low + at) % b.shape[0], axis=0)
        return jnp.where((at < count).reshape(-1, *[1] * (b.ndim - 1)), rows, jnp.zeros_like(rows))

    return jax.tree.map(window, block)


class BlockStore:
    """Values along dimension `axis` in an array of `slots`, one array for all else that differs.

    Coordinate t is in slot t mod `slots`, where nothing may live by then. An array exists as long
    as one of its values does: freeing a value frees no memory before the last one of its array.
    """

    def __init__(
        self, axis: int, slots: int, extent: int, reserve: Callable[[int], None], example: PyTree
    ):
        self.kind = "block" if slots >= extent else "ring"
        self.slots = slots
        self._zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), example)
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
            self._blocks[outer] = jax.tree.map(
                lambda x: jnp.zeros((self.slots, *jnp.shape(x)), x.dtype), value
            )
            self._reserve(nbytes(self._blocks[outer]))
        self._blocks[outer] = _write(self._blocks[outer], value, slot)
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
            return _row(self._blocks[outer], at % self.slots)
        if not at:
            return _nothing(self._zeros, widths)
        return _window(self._blocks[outer], at.start, len(at), widths[0])


class HostStore:
    """Values that were moved to the host's memory until they are fetched back."""

    kind = "host"

    def __init__(self) -> None:
        self._values: dict[Point, PyTree] = {}

    def put(self, point: Point, value: PyTree) -> list[Buffer]:
        """Move `value` to the host; the buffers it is in there."""
        value = jax.tree.map(lambda x: _move(x, HOST), value)
        self._values[point] = value
        return [(id(leaf), leaf.nbytes) for leaf in jax.tree.leaves(value)]

    def take(self, point: Point) -> PyTree:
        """Move the value at `point` back to the device."""
        return jax.tree.map(lambda x: _move(x, DEVICE), self._values.pop(point))


def _move(x: Array, place: str) -> Array:
    kind = HOST_MEMORY if place == HOST else x.sharding._device_assignment[0].default_memory().kind
    return jax.device_put(x, x.sharding.with_memory_kind(kind))
