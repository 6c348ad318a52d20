"""Bytes alive during a run, computed from the integer sets of its schedule.

A value is alive from the operation that computes it to its last use. A merge copies its source only
if the merge or the source is read by slices along one dimension, because the values of such a
tensor are stored in a single array. The last operation that reads a value may overwrite it.
`Account` measures the same bytes while the interpreter runs.

`Schedule.last` describes the last uses of all points of a tensor at once, so bytes are counted with
array operations instead of event by event. If a run has more than `MOST` values, the bounds of its
outermost dimensions are reduced until it is small enough. The growth of its rings (`layout`) up to
the full bounds is then added.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping

import islpy as isl
import numpy as np

from mmrl.pdg.build import sets
from mmrl.pdg.build.graph import Edge, Graph, Output
from mmrl.pdg.build.indexing import largest_number
from mmrl.pdg.plan.account import ReadTable, extents, nbytes
from mmrl.pdg.plan.frees import donations
from mmrl.pdg.plan.layout import layout
from mmrl.pdg.schedule import Schedule

MOST = 500_000
"""Maximum number of values in a run whose bytes are counted exactly."""
_INPUT, _DIV = isl.dim_type.in_, isl.dim_type.div


@dataclasses.dataclass(frozen=True)
class Peak:
    """Peak of the bytes alive, or an upper bound of it unless `exact`."""

    bytes: int
    exact: bool = True


def peak(schedule: Schedule, bounds: Mapping[str, int], *, most: int = MOST) -> Peak:
    """Return the peak of the bytes alive in a run, as measured by `Account.peak`.

    The result is exact for up to `most` values. For more values it is an upper bound, the smaller
    of two: the bytes of all rings, or the peak of a run with smaller bounds plus the growth of all
    rings from these bounds to `bounds`. The latter assumes that the runs differ only in the number
    of values that their rings store.
    """
    sizes = _cut(schedule.graph, bounds, most)
    if sizes == dict(bounds):
        return Peak(int(timeline(schedule, bounds).max(initial=0)))
    rings, written = _rings(schedule, bounds)
    above = sum(rings.values()) + written
    if sizes is not None:
        fewer, _ = _rings(schedule, sizes)
        grown = sum(max(0, size - fewer.get(root, 0)) for root, size in rings.items())
        above = min(above, int(timeline(schedule, sizes).max(initial=0)) + grown)
    return Peak(above, exact=False)


def _cut(graph: Graph, bounds: Mapping[str, int], most: int) -> dict[str, int] | None:
    """Halve the bounds, outermost first, until a run has at most `most` values.

    Each bound stays larger than every constant in the indices along its dimensions. Returns None if
    the bounds cannot be reduced far enough.
    """
    sizes = {name: bounds[name] for name in graph.bounds}
    for name in sizes:
        least = 2 + _reach(graph, name)
        while sizes[name] > least and _values(graph, sizes) > most:
            sizes[name] = max(least, sizes[name] // 2)
    return sizes if _values(graph, sizes) <= most else None


def _values(graph: Graph, bounds: Mapping[str, int]) -> int:
    """Return the number of values in a run, including those excluded by conditions."""
    return sum(math.prod(extents(graph, x, bounds)) * len(graph.ops[x].outputs) for x in graph.ops)


def _reach(graph: Graph, bound: str) -> int:
    """Return the largest constant in expressions with a bound or one of its dimensions."""
    dims = [dim for op in graph.ops.values() for dim in op.domain]
    names = {bound} | {dim.name for dim in dims if bound in dim.bound.symbols()}
    exprs = [dim.bound for dim in dims] + [op.domain.when for op in graph.ops.values()]
    exprs += [part for edge in graph.edges for part in (*edge.index, edge.when)]
    return max((largest_number(e) for e in exprs if names & e.symbols()), default=0)


def _rings(schedule: Schedule, bounds: Mapping[str, int]) -> tuple[dict[Output, int], int]:
    """Return the bytes of each tensor's ring, and the maximum bytes that an operation writes.

    Values that are needed at the same time, before or after an operation, are in different slots.
    """
    table = ReadTable(schedule.graph, bounds)
    size = {tensor: nbytes(kind) for tensor, kind in table.types.items()}
    found = layout(table, schedule)
    roots = {place.root for place in found.places.values()}
    # The number of slots is rounded up to complete blocks, so it may exceed the number of values.
    values = {root: math.prod(extents(schedule.graph, root[0], bounds)) for root in roots}
    rings = {x: min(math.prod(found.rings[x].slots), values[x]) * size[x] for x in roots}
    return rings, max((sum(map(size.__getitem__, x)) for x in table.outputs.values()), default=0)


def timeline(schedule: Schedule, bounds: Mapping[str, int]) -> np.ndarray:
    """Return the bytes alive during each operation; results stay alive until the end of the run."""
    run = _Run(schedule, bounds)
    begin, last, length = run.times()
    root = run.roots()
    end = run.ends(begin, last, root)
    own = (root == np.arange(len(root))) & (begin >= 0)
    steps = np.zeros(length + 2)
    steps += np.bincount(begin[own], run.sizes[own], minlength=length + 2)
    steps -= np.bincount(end[own] + 1, run.sizes[own], minlength=length + 2)
    return np.cumsum(steps)[:length].astype(np.int64)


class _Run:
    """All values of a run, numbered by tensor, including those excluded by conditions."""

    def __init__(self, schedule: Schedule, bounds: Mapping[str, int]):
        self.schedule, self.table = schedule, ReadTable(schedule.graph, bounds)
        self.points = {
            name: np.indices(shape, np.int64).reshape(len(shape), math.prod(shape))
            for name, shape in self.table.extents.items()
        }
        counts = [self.points[name].shape[1] for name, _ in self.table.tensors]
        starts = itertools.accumulate(counts, initial=0)
        self.place = dict(zip(self.table.tensors, starts, strict=False))
        types = self.table.types
        self.sizes = np.repeat([nbytes(types[x]) for x in self.table.tensors], counts)

    def images(self, function: isl.Map, op: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the points where a function is defined, and its values there."""
        return images(sets.at(function, self.table.bounds), self.points[op])

    def times(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return when each value is computed and last used, and the length of the run.

        All three are measured in operations.
        """
        schedule, tensors = self.schedule, self.table.tensors
        made = {name: self.images(times, name) for name, times in schedule.when.items()}
        used = {x: self.images(schedule.last[x], x[0]) for x in tensors}
        order = _ranks([times for _, times in (*made.values(), *used.values())])
        when = dict(zip(made, order, strict=False))
        length = sum(map(len, when.values()))
        begin, last = (np.full(len(self.sizes), -1) for _ in range(2))
        for tensor, now in zip(tensors, order[len(made) :], strict=True):
            at, (points, _) = self.place[tensor], made[tensor[0]]
            begin[at + points] = when[tensor[0]]
            last[at + used[tensor][0]] = now
            if tensor in schedule.graph.results:
                last[at + points] = length
        return begin, last, length

    def read(self, edge: Edge) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the points that read along an edge, and of the values they read."""
        if edge not in self.schedule.reads:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        points, found = self.images(self.schedule.reads[edge], edge.sink)
        shape = self.table.extents[edge.source]
        flat = np.ravel_multi_index((*found,), shape) if shape else np.zeros_like(points)
        return points, self.place[edge.tensor] + np.asarray(flat)

    def roots(self) -> np.ndarray:
        """Return the value whose memory stores each value; a merge uses its source's memory."""
        root = np.arange(len(self.sizes))
        for name, op in self.schedule.graph.ops.items():
            for edge in self.schedule.graph.inputs(name) if op.run is None else ():
                if not (self._is_block((name, 0)) or self._is_block(edge.tensor)):
                    points, values = self.read(edge)
                    root[self.place[name, 0] + points] = values
        while (root != root[root]).any():
            root = root[root]
        return root

    def ends(self, begin: np.ndarray, last: np.ndarray, root: np.ndarray) -> np.ndarray:
        """Return the last operation during which the memory of each root is in use."""
        end = last.copy()
        np.maximum.at(end, root, last)
        holders = np.bincount(root, last == end[root], minlength=len(root))
        for edge in donations(self.schedule):
            if self.schedule.graph.ops[edge.sink].run is None or self._is_block(edge.tensor):
                continue
            points, values = self.read(edge)
            now, roots = begin[self.place[edge.sink, 0] + points], root[values]
            alone = (last[values] == now) & (end[roots] == now) & (holders[roots] == 1)
            # The output overwrites this input, so the input's memory is freed one step earlier.
            end[roots[alone]] -= 1
        return end

    def _is_block(self, tensor: Output) -> bool:
        """Return True if the values of a tensor along a dimension are stored in a single array."""
        return len(self.table.sliced[tensor]) == 1


def _ranks(times: list[np.ndarray]) -> list[np.ndarray]:
    """Return the lexicographic ranks of the times [coordinate, point]; equal times are ties."""
    whole = np.concatenate(times, axis=1)
    rank = np.zeros(whole.shape[1], np.int64)
    for numbers in whole:
        low, high = numbers.min(initial=0), numbers.max(initial=0)
        if low < high:
            rank = np.unique(rank * (high - low + 1) + numbers - low, return_inverse=True)[1]
    return np.split(rank, np.cumsum([each.shape[1] for each in times])[:-1])


def images(function: isl.Map, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the points [dimension, point] that have an image, and the images.

    `function` must be single-valued and have no parameters.
    """
    places, found = [np.zeros(0, np.int64)], [np.zeros((function.dim(isl.dim_type.out), 0), int)]

    def add(where: isl.Set, values: isl.MultiAff) -> None:
        inside = np.zeros(points.shape[1], bool)
        for part in where.compute_divs().get_basic_sets():
            inside |= _inside(part, points)
        (chosen,) = inside.nonzero()
        here = points[:, chosen]
        rows = [_number(values.get_aff(k), here) for k in range(len(found[0]))]
        places.append(chosen)
        found.append(np.reshape(rows, (len(rows), len(chosen))))

    isl.PwMultiAff.from_map(function).foreach_piece(add)
    return np.concatenate(places), np.concatenate(found, axis=1)


def _inside(part: isl.BasicSet, points: np.ndarray) -> np.ndarray:
    """Return a mask of the points that satisfy all constraints."""
    inside = np.ones(points.shape[1], bool)
    for constraint in part.get_constraints():
        number = _number(constraint.get_aff(), points)
        inside &= (number == 0) if constraint.is_equality() else (number >= 0)
    return inside


def _number(aff: isl.Aff, points: np.ndarray) -> np.ndarray:
    """Evaluate a quasi-affine expression at each point, rounding down."""
    scale = aff.get_denominator_val().to_python()
    whole = aff.scale_val(aff.get_denominator_val())
    number = np.full(points.shape[1], whole.get_constant_val().to_python(), np.int64)
    for k in range(whole.dim(_INPUT)):
        number += whole.get_coefficient_val(_INPUT, k).to_python() * points[k]
    for k in range(whole.dim(_DIV)):
        if factor := whole.get_coefficient_val(_DIV, k).to_python():
            number += factor * _number(whole.get_div(k), points)
    return number // scale
