"""Rings: how many slots a tensor needs in the order of a schedule, and which tensors share them.

Two decisions that the XLA executor takes before it compiles anything. A merge stores nothing of its
own: what its sources compute is written where the merge's readers will look for it (the next
observation becomes o[t + 1] at once). And a tensor keeps x[p] in slot p mod W, with the fewest
slots such that nothing is overwritten before its last use.
"""

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mmrl.pdg.expr import Const, Expr
from mmrl.pdg.graph import Edge, Output, Point
from mmrl.pdg.run.account import Read, ReadTable, Window

Event = tuple
"""("run", op, point) or ("free", tensor, point), in the order of the schedule."""
Interval = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a tensor's values are: in `root`, at one coordinate per dimension of it.

    A coordinate is (None, c), the constant c, or (j, c), dimension j of the point plus c.
    """

    root: Output
    coordinates: tuple[tuple[int | None, int], ...]

    def at(self, point: Sequence) -> tuple:
        """The coordinates of `point` in the root: numbers, or whatever can be added to one."""
        return tuple(c if j is None else point[j] + c for j, c in self.coordinates)

    def after(self, inner: "Place") -> "Place":
        """This place, given that its points are those of `inner`."""
        coordinates = tuple(
            (j, c) if j is None else (inner.coordinates[j][0], inner.coordinates[j][1] + c)
            for j, c in self.coordinates
        )
        return Place(self.root, coordinates)


@dataclasses.dataclass(frozen=True)
class Ring:
    """Along each dimension: x[p] is in slot p mod slots."""

    slots: tuple[int, ...]
    ends: tuple[tuple[int, int], ...] = ()
    """(dimension, end) where coordinates from `end` on are computed and never read: no slots."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """For every tensor its place, and for every root its ring."""

    places: Mapping[Output, Place]
    rings: Mapping[Output, Ring]
    aliased: frozenset[Read]
    """Reads of merges that need no copy, or never happen."""


def layout(accesses: ReadTable, events: Sequence[Event], *, alias: bool = True) -> Layout:
    """Places and rings for the order of `events`. `alias` False gives every tensor its own ring."""
    runs: dict[str, list[Point]] = defaultdict(list)
    for kind, name, point in events:
        if kind == "run":
            runs[name].append(point)
    places = own_places(accesses)
    aliased: set[Read] = set()
    for name, op in accesses.graph.ops.items():
        for read in accesses.reads[name] if alias and op.kind == "merge" else ():
            _forward(read, places, aliased, runs)
    places = {tensor: _resolve(tensor, places) for tensor in places}
    lives = lifetimes(events, places, accesses)
    found: dict[Output, dict[int, list[Window]]] = defaultdict(lambda: defaultdict(list))
    for read in itertools.chain(*accesses.reads.values()):
        place = places[read.tensor]
        windows = dict(zip(read.sliced, read.windows, strict=True))
        for k, (j, shift) in enumerate(place.coordinates):
            if j in windows:
                found[place.root][k].append(windows[j].moved(shift))
    # What never runs, as x[t + 1] where T is 1, has a ring that nobody reads.
    rings = {tensor: Ring((1,) * len(p.coordinates)) for tensor, p in own_places(accesses).items()}
    for root, alive in lives.items():
        needed, ends = _ended(alive, accesses.extents[root[0]])
        slots, fewer = (_slots(some, found[root]) for some in (alive, needed))
        saves = math.prod(fewer) < math.prod(slots)
        rings[root] = Ring(fewer, ends) if saves else Ring(slots)
    return Layout(places, rings, frozenset(aliased))


def own_places(accesses: ReadTable) -> dict[Output, Place]:
    """Every tensor in a root of its own."""
    ranks = {tensor: len(accesses.names[tensor[0]]) for tensor in accesses.tensors}
    return {t: Place(t, tuple((j, 0) for j in range(n))) for t, n in ranks.items()}


def settled(
    accesses: ReadTable, trace: Callable[..., Sequence[Event]], *, alias: bool = True
) -> Layout:
    """The layout at the bounds of `accesses`, without tracing every one of many iterations.

    Iterations, the outermost dimension, repeat: if a few of them and twice as many need equally
    many slots, or for results one per iteration, so do all. "Few" is more than any distance in
    iterations that the program reads across.
    """
    bounds, graph = accesses.bounds, accesses.graph
    outer = graph.bounds[0] if len(graph.bounds) > 1 else None
    few = 4 + 2 * _reach(graph.edges, outer)
    if outer is not None and bounds[outer] > 2 * few:
        traces = (trace(**{**bounds, outer: some}) for some in (few, 2 * few))
        one, two = (layout(accesses, events, alias=alias) for events in traces)
        grown = {
            root: _grown(r, two.rings[root], few, bounds[outer]) for root, r in one.rings.items()
        }
        rings = {root: ring for root, ring in grown.items() if ring is not None}
        if len(rings) == len(grown):
            return Layout(one.places, rings, one.aliased)
    return layout(accesses, trace(**bounds), alias=alias)


def _grown(one: Ring, two: Ring, few: int, number: int) -> Ring | None:
    """The ring of a number of iterations, from that of a few and that of twice as many."""
    if not one.slots:
        return one
    rate, rest = divmod(two.slots[0] - one.slots[0], few)
    if rest or (one.slots[1:], one.ends) != (two.slots[1:], two.ends):
        return None
    return Ring((one.slots[0] + rate * (number - few), *one.slots[1:]), one.ends)


def _reach(edges: Iterable[Edge], outer: str | None) -> int:
    """The largest number in an index or a condition that speaks of the outermost dimension."""
    names = {outer, (outer or "").lower()}
    parts = [part for edge in edges for part in (*edge.index, edge.when)]
    numbers = [n for part in parts if part.symbols() & names for n in _numbers(part)]
    return max(numbers, default=0)


def _numbers(part: Expr) -> Iterable[int]:
    if isinstance(part, Const):
        yield abs(int(part.value))
    for term in part.terms:
        yield from _numbers(term)


def _resolve(tensor: Output, places: Mapping[Output, Place]) -> Place:
    place = places[tensor]
    while places[place.root].root != place.root:
        place = places[place.root].after(place)
    return place


def _forward(
    read: Read, places: dict[Output, Place], aliased: set[Read], runs: Mapping[str, list[Point]]
) -> None:
    """Let the source of a merge's edge live where the merge does, if each point feeds one point."""
    source, sink = read.tensor, (read.edge.sink, 0)
    if places[source].root != source or _resolve(sink, places).root == source or read.sliced:
        return
    pairs: dict[Any, Point] = {}
    for point in runs[sink[0]]:
        if read.exists(point) and pairs.setdefault(read.index(point), point) != point:
            return
    coordinates = _fit(pairs)
    if not pairs:
        aliased.add(read)
    if coordinates is None:
        return
    place = Place(sink, coordinates)
    # A point of the source that the merge does not take must not fall on one of the merge's.
    others = {place.at(point) for point in runs[source[0]] if point not in pairs}
    if not others & set(runs[sink[0]]) and all(min(point, default=0) >= 0 for point in others):
        places[source] = place
        aliased.add(read)


def _fit(pairs: Mapping[Point, Point]) -> tuple[tuple[int | None, int], ...] | None:
    """The coordinates of a `Place` that takes every key of `pairs` to its value, if one does."""
    if not pairs:
        return None
    sources, sinks = list(pairs), list(pairs.values())
    found = []
    for k in range(len(sinks[0])):
        # The same position first: both may fit where a dimension has one point.
        order = sorted(range(len(sources[0])), key=lambda j: j != k)
        for j in [*order, None]:
            shifts = {
                q[k] - (0 if j is None else p[j]) for p, q in zip(sources, sinks, strict=True)
            }
            if len(shifts) == 1:
                found.append((j, shifts.pop()))
                break
        else:
            return None
    return tuple(found)


def lifetimes(
    events: Sequence[Event], places: Mapping[Output, Place], accesses: ReadTable
) -> dict[Output, dict[Point, Interval]]:
    """For every root and point: the event that writes it first, the last one that reads it.

    A value that is never freed is read for ever. Exact frees follow the last use at once, so the
    last event that ran before a free is the last use; if frees come late, this is only too careful.
    """
    begin: dict[Output, dict[Point, int]] = defaultdict(dict)
    end: dict[Output, dict[Point, int]] = defaultdict(dict)
    alive: dict[tuple[Output, Point], int] = defaultdict(int)
    now = -1
    for kind, name, point in events:
        if kind == "run":
            now += 1
            for tensor in accesses.outputs[name]:
                place = places[tensor]
                at = place.at(point)
                begin[place.root].setdefault(at, now)
                alive[place.root, at] += 1
        elif kind == "free":
            place = places[name]
            at = place.at(point)
            alive[place.root, at] -= 1
            end[place.root][at] = now
    return {
        root: {p: (b, now + 1 if alive[root, p] else end[root][p]) for p, b in points.items()}
        for root, points in begin.items()
    }


def _ended(
    lives: Mapping[Point, Interval], extents: Sequence[int]
) -> tuple[dict[Point, Interval], tuple[tuple[int, int], ...]]:
    """The values that need a slot: not o[T], which acting leaves behind and nobody reads."""
    unread = {point for point, (begin, end) in lives.items() if begin == end}
    ends = tuple(
        (k, end)
        for k, end in enumerate(extents)
        if (past := {point for point in lives if point[k] >= end}) and past <= unread
    )
    inside = {p: life for p, life in lives.items() if all(p[k] < end for k, end in ends)}
    return inside, ends


def _slots(
    lives: Mapping[Point, Interval], windows: Mapping[int, Sequence[Window]]
) -> tuple[int, ...]:
    """The fewest slots in which no two values that are alive at once share one.

    A few more are taken where slices begin at multiples of their width, so that none wraps around.
    """
    ordered = sorted((interval, point) for point, interval in lives.items())
    least = _most_alive(lives.values())
    options = itertools.product(*(range(1, max(axis) + 2) for axis in zip(*lives, strict=True)))
    sizes = sorted((s for s in options if math.prod(s) >= least), key=lambda s: (math.prod(s), s))
    slots = fewest(ordered, sizes)
    for k, several in windows.items():
        for width in {w.width for w in several if 1 < w.width < slots[k] and _aligned(w)}:
            wider = (*slots[:k], -(-slots[k] // width) * width, *slots[k + 1 :])
            slots = fewest(ordered, (wider, slots))
    return slots


def _aligned(window: Window) -> bool:
    """Does it begin at multiples of its width, and at several?"""
    return len(window.lows) > 1 and not any(low % window.width for low in window.lows)


def _most_alive(intervals: Iterable[Interval]) -> int:
    """How many values are alive at once, at most: the last reader may write over what it reads."""
    changes = sorted(change for b, e in intervals for change in ((b, 1), (max(e, b + 1), -1)))
    return max(itertools.accumulate(step for _, step in changes))


def fewest(
    ordered: Sequence[tuple[Interval, Point]], options: Iterable[tuple[int, ...]]
) -> tuple[int, ...]:
    """The first option in which every slot is read for the last time before it is written again.

    Or while it is: `ordered` has the first and the last event of each value's life.
    """
    return next(slots for slots in options if _fits(ordered, slots))


def _fits(ordered: Sequence[tuple[Interval, Point]], slots: Sequence[int]) -> bool:
    """Is every slot read for the last time before, or while, it is written again?"""
    busy: dict[Point, int] = {}
    for (begin, end), point in ordered:
        slot = tuple(p % w for p, w in zip(point, slots, strict=True))
        if busy.get(slot, -1) > begin:
            return False
        busy[slot] = max(end, begin + 1)
    return True
