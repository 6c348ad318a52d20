"""Tensors that wait on the host between their uses: which, and when they move.  §6.2"""

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
    """Tensors that wait on the host between their uses, and when each of their values returns.

    Values of `tensors` (None: all) move if they have at least `size` bytes and are not used while
    more than `idle` operations run. A value is fetched `ahead` operations before its use. These
    numbers count where a run is followed, by the interpreter and by `check`; a text shows every
    move.
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
            raise ValueError(f"`swap` must name every tensor once; got {list(swap)}.")
        if wrong := [n for n in (self.size, self.idle, self.ahead) if n < 0]:
            raise ValueError(f"`size`, `idle` and `ahead` of a swap begin at 0, got {wrong[0]}.")
        return tuple(swap)

    def among(self, events: Sequence[Any], sizes: Mapping[Output, int]) -> list[Any]:
        """The events of a run without moves that are not worth it, and with fetches ahead of use.

        `sizes` has the bytes of a value of each tensor.
        """
        after, left, placed = 0, {}, []
        for event in events:
            kind, tensor, point = event
            if kind == "offload":
                left[tensor, point] = len(placed)
            elif kind == "fetch":
                place = left.pop((tensor, point))
                waits = after - placed[place][0]
                if waits <= max(self.idle, self.ahead) or sizes[tensor] < self.size:
                    placed[place] = None
                    continue
            early = self.ahead if kind == "fetch" else 0
            order = {"fetch": 1, "run": 2}.get(kind, 0)
            placed.append((after - early, order, event))
            after += kind == "run"
        kept = sorted((each for each in placed if each), key=lambda each: each[:2])
        return [event for _, _, event in kept]


def phases(schedule: Schedule, tensor: Output) -> list[isl.Map]:
    """Return groups of uses, x[q] -> times, between which a loop has advanced.

    Uses by two operations belong together if for some point of the tensor they fall into the same
    iteration of the innermost loop, or if their order is not the same for all points.
    """
    within = iteration(schedule)
    groups = list(schedule.uses(tensor).values())

    def leaves(a: isl.Map, b: isl.Map) -> bool:
        late, early = a.lexmax().apply_range(within), b.lexmin().apply_range(within)
        same = isl.Map.identity(late.get_space().domain().map_from_set())
        return late.lex_ge_map(early).intersect(same).is_empty()

    def tangled() -> tuple[isl.Map, isl.Map] | None:
        pairs = itertools.combinations(groups, 2)
        return next((pair for pair in pairs if leaves(*pair) == leaves(*reversed(pair))), None)

    while pair := tangled():
        groups = [each for each in groups if each not in pair] + [pair[0].union(pair[1])]
    return sorted(groups, key=functools.cmp_to_key(lambda a, b: -1 if leaves(a, b) else 1))


def either(several: Iterable[isl.Map]) -> isl.Map:
    """The union of maps from the points of one tensor to times."""
    return functools.reduce(isl.Map.union, several)
