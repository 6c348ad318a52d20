"""Tensors that are swapped to the host between their uses, and when they are transferred.  §6.2"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import islpy as isl

from mmrl.pdg.build.graph import Graph, Output
from mmrl.pdg.schedule import Schedule, iteration


@dataclasses.dataclass(frozen=True)
class Swap:
    """Rule that selects which values are moved to the host between their uses.

    A value of `tensors` (None: of any tensor) is moved to the host if it has at least `size` bytes,
    and if more than max(`idle`, `ahead`) operations run before its next use. The value is fetched
    `ahead` operations before this use. `size`, `idle` and `ahead` apply to the interpreter and to
    `check`; the program's text contains all possible transfers.
    """

    tensors: Sequence[Output] | None = None
    size: int = 0
    idle: int = 0
    ahead: int = 0

    def of(self, graph: Graph) -> tuple[Output, ...]:
        """Return the tensors to swap. Raises `ValueError` for an unknown or repeated tensor."""
        swap = graph.tensors if self.tensors is None else self.tensors
        if wrong := [tensor for tensor in swap if tensor not in graph.tensors]:
            raise ValueError(
                f"`swap` must name tensors (operation, output) of the graph; got {wrong}."
            )
        if len(set(swap)) < len(swap):
            raise ValueError(f"`swap` must not name a tensor twice, got {list(swap)}.")
        if wrong := [n for n in (self.size, self.idle, self.ahead) if n < 0]:
            raise ValueError(
                f"`size`, `idle` and `ahead` of a swap must be at least 0, got {wrong[0]}."
            )
        return tuple(swap)

    def within(self, source: Graph, graph: Graph) -> "Swap":
        """Return the rule for `graph`, which is the result of passes on `source`.

        Blocks `all_x` of x are swapped like x. Tensors that passes have removed are omitted.
        """
        if self.tensors is None:
            return self
        tensors = []
        for name, output in graph.tensors:
            plain = name
            while plain not in source.ops and plain.startswith("all_"):
                plain = plain.removeprefix("all_")
            tensors += [(name, output)] if (plain, output) in self.tensors else []
        return dataclasses.replace(self, tensors=tuple(tensors))

    def among(self, events: Sequence[Any], sizes: Mapping[Output, int]) -> list[Any]:
        """Return the events of a run, without transfers that the rule excludes.

        Each fetch happens `ahead` operations earlier. `sizes` contains the bytes per value of each
        tensor.
        """
        after, offloads, placements = 0, {}, []
        for event in events:
            kind, tensor, point = event
            if kind == "offload":
                offloads[tensor, point] = len(placements)
            elif kind == "fetch":
                place = offloads.pop((tensor, point))
                gap = after - placements[place][0]
                if gap <= max(self.idle, self.ahead) or sizes[tensor] < self.size:
                    placements[place] = None
                    continue
            early = self.ahead if kind == "fetch" else 0
            rank = {"fetch": 1, "run": 2}.get(kind, 0)
            placements.append((after - early, rank, event))
            after += kind == "run"
        order = sorted((each for each in placements if each), key=lambda each: each[:2])
        return [event for *_, event in order]


NO_SWAP = Swap(())
"""Rule that moves no value."""


def phases(schedule: Schedule, tensor: Output) -> list[isl.Map]:
    """Group the uses of a tensor, x[q] -> times, into phases in different loop iterations.

    The uses by two operations are in one phase if their order differs between points, or if they
    are in the same iteration of the innermost loop for some point of the tensor. Phases are in the
    order of time.
    """
    within = iteration(schedule)
    groups = list(schedule.uses(tensor).values())

    def precedes(a: isl.Map, b: isl.Map) -> bool:
        late, early = a.lexmax().apply_range(within), b.lexmin().apply_range(within)
        same = isl.Map.identity(late.get_space().domain().map_from_set())
        return late.lex_ge_map(early).intersect(same).is_empty()

    def find_overlap() -> tuple[isl.Map, isl.Map] | None:
        pairs = itertools.combinations(groups, 2)
        return next((pair for pair in pairs if precedes(*pair) == precedes(*reversed(pair))), None)

    while pair := find_overlap():
        groups = [each for each in groups if each not in pair] + [pair[0].union(pair[1])]
    return sorted(groups, key=functools.cmp_to_key(lambda a, b: -1 if precedes(a, b) else 1))


def merge_uses(several: Iterable[isl.Map]) -> isl.Map:
    """Return the union of maps from the points of a tensor to times."""
    return functools.reduce(isl.Map.union, several)
