"""Bytes alive during a run, from the integer sets of its schedule.

A value is alive from the operation that computes it to its last use. A merge copies its source only
if it or its source is read by slices along one dimension, because these are kept in one array. An
operation that is the last to read a value may write over it. `Account` measures the same bytes when
the interpreter runs.

When a value is computed and used last is known for all points at once (`Schedule.last`), so a run
is counted with arrays and not event by event. A run with more than `MOST` values is cut along its
outermost dimensions, and the growth of its rings (`layout`) from there on is added.
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
"""Values of a run whose bytes are counted exactly."""
_INPUT, _DIV = isl.dim_type.in_, isl.dim_type.div


@dataclasses.dataclass(frozen=True)
class Peak:
    """The most bytes alive at once, or an upper bound of it if not `exact`."""

    bytes: int
    exact: bool = True


def peak(schedule: Schedule, bounds: Mapping[str, int], *, most: int = MOST) -> Peak:
    """Return the most bytes alive at once in a run, as `Account.peak` measures them.

    It is exact up to `most` values. Beyond that, it is an upper bound: the peak at bounds that are
    cut, and all bytes that rings grow by from there to `bounds`. This assumes that a longer run is
    like the one that was cut, but for the values that rings have to keep.
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
    """The bounds, halved from the outermost on until a run has at most `most` values.

    They stay beyond all numbers in the indices along them. None if they cannot be that small.
    """
    sizes = {name: bounds[name] for name in graph.bounds}
    for name in sizes:
        least = 2 + _reach(graph, name)
        while sizes[name] > least and _values(graph, sizes) > most:
            sizes[name] = max(least, sizes[name] // 2)
    return sizes if _values(graph, sizes) <= most else None


def _values(graph: Graph, bounds: Mapping[str, int]) -> int:
    """The number of values of a run, with those that conditions leave out."""
    return sum(math.prod(extents(graph, x, bounds)) * len(graph.ops[x].outputs) for x in graph.ops)


def _reach(graph: Graph, bound: str) -> int:
    """The largest number in an expression with a bound or with a dimension of that bound."""
    dims = [dim for op in graph.ops.values() for dim in op.domain]
    names = {bound} | {dim.name for dim in dims if bound in dim.bound.symbols()}
    exprs = [dim.bound for dim in dims] + [op.domain.when for op in graph.ops.values()]
    exprs += [part for edge in graph.edges for part in (*edge.index, edge.when)]
    return max((largest_number(e) for e in exprs if names & e.symbols()), default=0)


def _rings(schedule: Schedule, bounds: Mapping[str, int]) -> tuple[dict[Output, int], int]:
    """The bytes of the ring of every tensor, and the most that one operation writes.

    All values that are needed after an operation are in different slots of these rings, and so are
    those that are needed before it.
    """
    table = ReadTable(schedule.graph, bounds)
    size = {tensor: nbytes(kind) for tensor, kind in table.types().items()}
    found = layout(table, schedule)
    roots = {place.root for place in found.places.values()}
    # Slots are rounded up to whole blocks, of which a tensor may fill only a part.
    values = {root: math.prod(extents(schedule.graph, root[0], bounds)) for root in roots}
    rings = {x: min(math.prod(found.rings[x].slots), values[x]) * size[x] for x in roots}
    return rings, max((sum(map(size.__getitem__, x)) for x in table.outputs.values()), default=0)


def timeline(schedule: Schedule, bounds: Mapping[str, int]) -> np.ndarray:
    """Return the bytes alive during each operation of a run; results stay to its end."""
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
    """The values of a run, numbered tensor by tensor, with those that conditions leave out."""

    def __init__(self, schedule: Schedule, bounds: Mapping[str, int]):
        self.schedule, self.table = schedule, ReadTable(schedule.graph, bounds)
        self.points = {
            name: np.indices(shape, np.int64).reshape(len(shape), math.prod(shape))
            for name, shape in self.table.extents.items()
        }
        counts = [self.points[name].shape[1] for name, _ in self.table.tensors]
        starts = itertools.accumulate(counts, initial=0)
        self.place = dict(zip(self.table.tensors, starts, strict=False))
        types = self.table.types()
        self.sizes = np.repeat([nbytes(types[x]) for x in self.table.tensors], counts)

    def images(self, function: isl.Map, op: str) -> tuple[np.ndarray, np.ndarray]:
        """The places of an operation's points at which a function has a value, and these values."""
        return images(sets.at(function, self.table.bounds), self.points[op])

    def times(self) -> tuple[np.ndarray, np.ndarray, int]:
        """When each value is computed and used last, and the number of operations that run."""
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
        """The places of the points that read along an edge, and the values that they read."""
        if edge not in self.schedule.reads:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        points, found = self.images(self.schedule.reads[edge], edge.sink)
        shape = self.table.extents[edge.source]
        flat = np.ravel_multi_index((*found,), shape) if shape else np.zeros_like(points)
        return points, self.place[edge.tensor] + np.asarray(flat)

    def roots(self) -> np.ndarray:
        """Return the value whose memory holds each value: a merge uses the memory of its source."""
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
        """The last operation during which the memory of each root is taken."""
        end = last.copy()
        np.maximum.at(end, root, last)
        holders = np.bincount(root, last == end[root], minlength=len(root))
        for edge in donations(self.schedule):
            if self.schedule.graph.ops[edge.sink].run is None or self._is_block(edge.tensor):
                continue
            points, values = self.read(edge)
            now, roots = begin[self.place[edge.sink, 0] + points], root[values]
            alone = (last[values] == now) & (end[roots] == now) & (holders[roots] == 1)
            end[roots[alone]] -= 1  # what the operation writes takes the place of what it reads
        return end

    def _is_block(self, tensor: Output) -> bool:
        """True if the values of a tensor are kept in one array along a dimension."""
        return len(self.table.sliced[tensor]) == 1


def _ranks(times: list[np.ndarray]) -> list[np.ndarray]:
    """The places of times [number, point], compared lexicographically, among all that differ."""
    whole = np.concatenate(times, axis=1)
    rank = np.zeros(whole.shape[1], np.int64)
    for numbers in whole:
        low, high = numbers.min(initial=0), numbers.max(initial=0)
        if low < high:
            rank = np.unique(rank * (high - low + 1) + numbers - low, return_inverse=True)[1]
    return np.split(rank, np.cumsum([each.shape[1] for each in times])[:-1])


def images(function: isl.Map, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of the points [dimension, point] have an image, and the images in that order.

    `function` is single-valued and has no parameters.
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
    """Which points satisfy all constraints."""
    inside = np.ones(points.shape[1], bool)
    for constraint in part.get_constraints():
        number = _number(constraint.get_aff(), points)
        inside &= (number == 0) if constraint.is_equality() else (number >= 0)
    return inside


def _number(aff: isl.Aff, points: np.ndarray) -> np.ndarray:
    """The value of a quasi-affine expression, rounded down, at each point."""
    scale = aff.get_denominator_val().to_python()
    whole = aff.scale_val(aff.get_denominator_val())
    number = np.full(points.shape[1], whole.get_constant_val().to_python(), np.int64)
    for k in range(whole.dim(_INPUT)):
        number += whole.get_coefficient_val(_INPUT, k).to_python() * points[k]
    for k in range(whole.dim(_DIV)):
        if factor := whole.get_coefficient_val(_DIV, k).to_python():
            number += factor * _number(whole.get_div(k), points)
    return number // scale
