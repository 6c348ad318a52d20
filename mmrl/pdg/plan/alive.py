"""Bytes alive during a run, on the device and on the host, from the integer sets of its schedule.

A value is alive from the operation that computes it to its last use. A merge copies its source only
if the merge or the source is read by slices along one dimension, because the values of such a
tensor are stored in a single array. The last operation that reads a value may overwrite it. A value
that is moved to the host (`Swap`) is on the device during several separate intervals, called
*stays*, one per phase of its uses. `Account` measures the same bytes while the interpreter runs.

`Schedule.last` describes the last uses of all points of a tensor at once, so bytes are counted with
array operations instead of event by event. If a run has more than `MOST` values, a run with smaller
outermost bounds is counted instead, and the growth of its rings (`layout`) up to the full bounds is
added.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import islpy as isl
import numpy as np

from mmrl.pdg.build import sets
from mmrl.pdg.build.graph import Edge, Graph, Output
from mmrl.pdg.build.indexing import largest_number
from mmrl.pdg.plan.account import ReadTable, extents, nbytes
from mmrl.pdg.plan.frees import donations
from mmrl.pdg.plan.layout import layout
from mmrl.pdg.plan.swap import NO_SWAP, Swap, phases
from mmrl.pdg.schedule import Schedule

MOST = 500_000
"""Maximum number of values in a run whose bytes are counted exactly."""
_INPUT, _DIV = isl.dim_type.in_, isl.dim_type.div


@dataclasses.dataclass(frozen=True)
class Peak:
    """Peak of the bytes alive on the device and on the host; upper bounds unless `exact`."""

    bytes: int
    host: int = 0
    exact: bool = True


def peak(
    schedule: Schedule, bounds: Mapping[str, int], swap: Swap = NO_SWAP, *, most: int = MOST
) -> Peak:
    """Return the peaks of the bytes alive in a run, as measured by `Account.peak`.

    The result is exact for up to `most` values. For more values it is an upper bound, the smaller
    of two: the bytes of all rings, or the peak of a run with smaller bounds plus the growth of all
    rings from these bounds to `bounds`. The latter assumes that the runs differ only in the number
    of values that their rings store.
    """
    sizes = _reduce_bounds(schedule.graph, bounds, most)
    tensors = swap.of(schedule.graph)
    if sizes == dict(bounds):
        device, host = timelines(schedule, bounds, swap)
        return Peak(int(device.max(initial=0)), int(host.max(initial=0)))
    # A fetched value shares its memory with no other value.
    rings, largest_write = _rings(schedule, bounds, alias=not tensors)
    above, most_host = sum(rings.values()) + largest_write, sum(rings[x] for x in tensors)
    if sizes is not None:
        fewer, _ = _rings(schedule, sizes, alias=not tensors)
        growth = {root: max(0, size - fewer.get(root, 0)) for root, size in rings.items()}
        device, host = timelines(schedule, sizes, swap)
        above = min(above, int(device.max(initial=0)) + sum(growth.values()))
        most_host = min(most_host, int(host.max(initial=0)) + sum(growth[x] for x in tensors))
    return Peak(above, most_host, exact=False)


def _reduce_bounds(graph: Graph, bounds: Mapping[str, int], most: int) -> dict[str, int] | None:
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
    """Return the number of values in a run, counting points that conditions exclude as well."""
    return sum(math.prod(extents(graph, x, bounds)) * len(graph.ops[x].outputs) for x in graph.ops)


def _reach(graph: Graph, bound: str) -> int:
    """Return the largest constant in expressions with a bound or one of its dimensions."""
    dims = [dim for op in graph.ops.values() for dim in op.domain]
    names = {bound} | {dim.name for dim in dims if bound in dim.bound.symbols()}
    exprs = [dim.bound for dim in dims] + [op.domain.when for op in graph.ops.values()]
    exprs += [part for edge in graph.edges for part in (*edge.index, edge.when)]
    return max((largest_number(e) for e in exprs if names & e.symbols()), default=0)


def _rings(
    schedule: Schedule, bounds: Mapping[str, int], *, alias: bool
) -> tuple[dict[Output, int], int]:
    """Return the bytes of each root's ring, and the maximum bytes that an operation writes.

    All values that are alive before or after an operation are in different slots, so their bytes
    never exceed the bytes of all rings.
    """
    table = ReadTable(schedule.graph, bounds)
    size = {tensor: nbytes(kind) for tensor, kind in table.types.items()}
    plan = layout(table, schedule, alias=alias)
    roots = {place.root for place in plan.places.values()}
    # The number of slots is rounded up to complete blocks, so it may exceed the number of values.
    values = {root: math.prod(extents(schedule.graph, root[0], bounds)) for root in roots}
    rings = {x: min(math.prod(plan.rings[x].slots), values[x]) * size[x] for x in roots}
    return rings, max((sum(map(size.__getitem__, x)) for x in table.outputs.values()), default=0)


def timelines(
    schedule: Schedule, bounds: Mapping[str, int], swap: Swap
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes alive on the device and on the host, at each operation of a run.

    On the device, this is the maximum of the bytes before and during the operation. Results remain
    alive until the end of the run.
    """
    run = _Run(schedule, bounds, swap)
    root = run.roots()
    (own,) = ((root == np.arange(len(root))) & (run.start >= 0)).nonzero()
    start, sizes, (last, stop) = run.start[own], run.sizes[run.value[own]], run.ends(root)
    during = _alive(start, stop[own], sizes, run.length)
    # Fetched values, and an input that the operation overwrites, are in memory before it runs.
    before = _alive(start + np.isin(own, run.first), last[own], sizes, run.length)
    value, departure, again = run.away
    return np.maximum(before, during), _alive(departure + 1, again, run.sizes[value], run.length)


def _alive(first: np.ndarray, last: np.ndarray, sizes: np.ndarray, length: int) -> np.ndarray:
    """Return the total size of the intervals [first, last] that contain k, for k < `length`."""
    steps = np.bincount(first, sizes, length + 2) - np.bincount(last + 1, sizes, length + 2)
    return np.cumsum(steps)[:length].astype(np.int64)


class _Run:
    """All values of a run, numbered by tensor, including values that conditions exclude.

    Stay k is the interval from operation `start[k]` to `stop[k]` in which `value[k]` is on the
    device. Stays are sorted by value and time. `away` is a triple of arrays with an entry for each
    time that a value is on the host: the value, the last operation before the transfer to the host,
    and the first operation after the transfer back.
    """

    def __init__(self, schedule: Schedule, bounds: Mapping[str, int], swap: Swap):
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
        candidates = (x for x in swap.of(schedule.graph) if nbytes(types[x]) >= swap.size)
        self.phases = {x: each for x in candidates if len(each := phases(schedule, x)) > 1}
        begin, last, self.away, self.length = self.times(max(swap.idle, swap.ahead), swap.ahead)
        value, departure, again = self.away
        self.moved = {x for x in self.phases if np.isin(self.values(x), value).any()}
        value, start = np.concatenate([np.arange(len(last)), value]), np.concatenate([begin, again])
        order = np.lexsort((start, value))
        departure = np.concatenate([begin, departure])[order]
        self.value, self.start = value[order], start[order]
        self.first = np.searchsorted(self.value, np.arange(len(last)))
        self.stop, back = last[self.value], np.diff(self.value) == 0
        self.stop[:-1][back] = departure[1:][back]

    def images(self, function: isl.Map, op: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the points where a function is defined, and its values there."""
        return images(sets.at(function, self.table.bounds), self.points[op])

    def values(self, tensor: Output) -> np.ndarray:
        """Return the numbers of all values of a tensor."""
        return self.place[tensor] + np.arange(self.points[tensor[0]].shape[1])

    def times(self, idle: int, ahead: int) -> tuple[np.ndarray, np.ndarray, Any, int]:
        """Return when each value is computed, last used and `away`, and the length of the run.

        Times are numbers of operations since the start of the run.
        """
        schedule, tensors = self.schedule, self.table.tensors
        computations = {name: self.images(times, name) for name, times in schedule.when.items()}
        uses = {x: self.images(schedule.last[x], x[0]) for x in tensors}
        away = [
            (x, *(self.images(each, x[0]) for each in (stay.lexmax(), later.lexmin())))
            for x, intervals in self.phases.items()
            for stay, later in itertools.pairwise(intervals)
        ]
        late = [times for _, *both in away for _, times in both]
        order = _ranks([times for _, times in (*computations.values(), *uses.values())] + late)
        when = dict(zip(computations, order, strict=False))
        length = sum(map(len, when.values()))
        begin, last, departure = (np.full(len(self.sizes), -1) for _ in range(3))
        for tensor, now in zip(tensors, order[len(computations) :], strict=False):
            at, (points, _) = self.place[tensor], computations[tensor[0]]
            begin[at + points] = when[tensor[0]]
            last[at + uses[tensor][0]] = now
            if tensor in schedule.graph.results:
                last[at + points] = length
        absences = [np.zeros((3, 0), np.int64)]
        ranks = iter(order[len(computations) + len(tensors) :])
        for tensor, (used_at, _), (again_at, _) in away:
            departure[self.place[tensor] + used_at], again = next(ranks), next(ranks)
            values = self.place[tensor] + again_at
            far = again - departure[values] - 1 > idle
            absences.append(np.stack([values, departure[values], again - ahead])[:, far])
        return begin, last, np.concatenate(absences, axis=1), length

    def stay(self, value: np.ndarray, now: np.ndarray) -> np.ndarray:
        """Return the stay during which each value is on the device at the time `now`."""
        key = self.value * (self.length + 2) + self.start
        return np.searchsorted(key, value * (self.length + 2) + now, side="right") - 1

    def read(self, edge: Edge) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the points that read along an edge, and of the values they read."""
        if edge not in self.schedule.reads:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        points, coordinates = self.images(self.schedule.reads[edge], edge.sink)
        shape = self.table.extents[edge.source]
        flat = np.ravel_multi_index((*coordinates,), shape) if shape else np.zeros_like(points)
        return points, self.place[edge.tensor] + np.asarray(flat)

    def roots(self) -> np.ndarray:
        """Return the stay that owns the memory of each stay; a merge shares its source's memory."""
        root = np.arange(len(self.value))
        for name, op in self.schedule.graph.ops.items():
            for edge in self.schedule.graph.inputs(name) if op.run is None else ():
                if not (self._is_block((name, 0)) or self._is_block(edge.tensor)):
                    points, values = self.read(edge)
                    sinks = self.first[self.place[name, 0] + points]
                    root[sinks] = self.stay(values, self.start[sinks])
        while (root != root[root]).any():
            root = root[root]
        return root

    def ends(self, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the last operation before which each root's memory is in use, and the last during.

        The two differ where an operation overwrites its input.
        """
        end = self.stop.copy()
        np.maximum.at(end, root, self.stop)
        last = end.copy()
        holders = np.bincount(root, self.stop == end[root], minlength=len(root))
        for edge in donations(self.schedule):
            if self.schedule.graph.ops[edge.sink].run is None or self._is_block(edge.tensor):
                continue
            points, values = self.read(edge)
            now = self.start[self.first[self.place[edge.sink, 0] + points]]
            stays = self.stay(values, now)
            roots = root[stays]
            alone = (self.stop[stays] == now) & (end[roots] == now) & (holders[roots] == 1)
            # The output overwrites this input, so the input's memory is freed one step earlier.
            end[roots[alone]] -= 1
        return last, end

    def _is_block(self, tensor: Output) -> bool:
        """Return True if the values of a tensor along a dimension are stored in a single array."""
        return len(self.table.sliced[tensor]) == 1 and tensor not in self.moved


def _ranks(times: list[np.ndarray]) -> list[np.ndarray]:
    """Return the lexicographic ranks of the times [coordinate, point]; equal times rank equally."""
    whole = np.concatenate(times, axis=1)
    rank = np.zeros(whole.shape[1], np.int64)
    for numbers in whole:
        low, high = numbers.min(initial=0), numbers.max(initial=0)
        if low < high:
            rank = np.unique(rank * (high - low + 1) + numbers - low, return_inverse=True)[1]
    return np.split(rank, np.cumsum([each.shape[1] for each in times])[:-1])


def images(function: isl.Map, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the `points` [dimension, point] that have an image, and the images.

    `function` must be single-valued and have no parameters.
    """
    places, columns = [np.zeros(0, np.int64)], [np.zeros((function.dim(isl.dim_type.out), 0), int)]

    def add(where: isl.Set, values: isl.MultiAff) -> None:
        inside = np.zeros(points.shape[1], bool)
        for part in where.compute_divs().get_basic_sets():
            inside |= _inside(part, points)
        (indices,) = inside.nonzero()
        here = points[:, indices]
        rows = [_number(values.get_aff(k), here) for k in range(len(columns[0]))]
        places.append(indices)
        columns.append(np.reshape(rows, (len(rows), len(indices))))

    isl.PwMultiAff.from_map(function).foreach_piece(add)
    return np.concatenate(places), np.concatenate(columns, axis=1)


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
