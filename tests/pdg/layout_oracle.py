"""Slots and last reads by following one run event by event: what integer sets must agree with."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mmrl.pdg.build.graph import Edge
from mmrl.pdg.plan.account import ReadTable

Lives = dict[tuple[int, ...], tuple[int, int]]


def lifetimes(events: Sequence[Any], places: Mapping[Any, Any], accesses: ReadTable) -> dict:
    """For every root and point: the event that writes it first, the last one that reads it.

    A value that is never freed is read for ever. Exact frees follow the last use at once, so the
    last event that ran before a free is the last use.
    """
    begin: dict[Any, dict] = defaultdict(dict)
    end: dict[Any, dict] = defaultdict(dict)
    alive: dict[Any, int] = defaultdict(int)
    now = -1
    for kind, name, point in events:
        now += kind == "run"
        for tensor in accesses.outputs[name] if kind == "run" else [name]:
            place = places[tensor]
            at = place.at(point)
            if kind == "run":
                begin[place.root].setdefault(at, now)
                alive[place.root, at] += 1
            else:
                alive[place.root, at] -= 1
                end[place.root][at] = now
    return {
        root: {p: (b, now + 1 if alive[root, p] else end[root][p]) for p, b in points.items()}
        for root, points in begin.items()
    }


def slots(lives: Lives, extents: Sequence[int]) -> tuple[int, ...]:
    """The fewest in which no two values alive at once share one; what nobody reads has none."""
    unread = {point for point, (begin, end) in lives.items() if begin == end}
    for k, end in enumerate(extents):
        past = {point for point in lives if point[k] >= end}
        if past and past <= unread:
            lives = {p: life for p, life in lives.items() if p[k] < end}
    options = itertools.product(*(range(1, max(axis) + 2) for axis in zip(*lives, strict=True)))
    return fewest(lives, sorted(options, key=lambda s: (math.prod(s), s)))


def fewest(lives: Lives, options: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The first option in which every slot is read for the last time before it is written again.

    Or while it is.
    """
    return next(slots for slots in options if fits(lives, slots))


def fits(lives: Lives, slots: Sequence[int]) -> bool:
    busy: dict[Any, int] = {}
    for (begin, end), point in sorted((life, point) for point, life in lives.items()):
        slot = tuple(p % w for p, w in zip(point, slots, strict=True))
        if busy.get(slot, -1) > begin:
            return False
        busy[slot] = max(end, begin + 1)
    return True


def last_reads(events: Sequence[Any], accesses: ReadTable) -> frozenset[Edge]:
    """The edges whose source is freed after every one of these reads, and is no result."""
    last: dict[Edge, bool] = {}
    freed: set[Any] = set()
    for kind, name, point in reversed(events):
        if kind == "free":
            freed.add((name, point))
        elif kind == "run":
            reads = [read for read in accesses.reads[name] if read.exists(point)]
            values = [read.of(point) for read in reads]
            for read, value in zip(reads, values, strict=True):
                ends = value in freed and values.count(value) == 1 and not read.sliced
                last[read.edge] = ends and last.get(read.edge, True)
            freed.clear()
    return frozenset(edge for edge, ends in last.items() if ends)
