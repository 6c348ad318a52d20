"""Ring buffers: the slots that a tensor needs under a schedule, and tensors that share them.  §6.2

Before it compiles, the XLA executor makes two decisions. First, a merge needs no copies if the
operations that it reads can write their values directly to the merge's storage. For example, the
next observation is written to o[t + 1]. Second, a tensor stores x[p] in slot p mod W of a ring,
where W is large enough that no value is overwritten before its last use.

Both decisions are based on integer sets, so a run of a million events is planned as fast as a run
of ten. Two values p and q conflict if q is written while p is still needed. The *distances* q - p
of all such pairs determine W: none of them may be 0 mod W.
"""

import dataclasses
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import islpy as isl
import jax

from mmrl.pdg.build import sets
from mmrl.pdg.build.graph import Output
from mmrl.pdg.build.sets import IN, OUT
from mmrl.pdg.plan.account import Read, ReadTable, Window
from mmrl.pdg.schedule import Schedule

_SET = isl.dim_type.set
_NEVER = 2**40  # coordinate that is later than any time


@dataclasses.dataclass(frozen=True)
class Place:
    """Location of a tensor's values in the storage of the tensor `root`.

    `coordinates` contains a pair per dimension of `root`: (None, c) is the constant c, and (j, c)
    is coordinate j of the tensor's point plus c.
    """

    root: Output
    coordinates: tuple[tuple[int | None, int], ...]

    def at(self, point: Sequence) -> tuple:
        """Return the coordinates of `point` in the root.

        The entries of `point` may have any type that supports adding an integer.
        """
        return tuple(c if j is None else point[j] + c for j, c in self.coordinates)

    def after(self, inner: "Place") -> "Place":
        """Compose two places: if this is x's place, and `inner` is y's place in x, return y's."""
        coordinates = tuple(
            (j, c) if j is None else (inner.coordinates[j][0], inner.coordinates[j][1] + c)
            for j, c in self.coordinates
        )
        return Place(self.root, coordinates)


@dataclasses.dataclass(frozen=True)
class Ring:
    """Slots of a ring buffer along each dimension; x[p] is in slot p mod `slots`."""

    slots: tuple[int, ...]
    ends: tuple[tuple[int, int], ...] = ()
    """Pairs (dimension, end): coordinates of at least `end` are never read, and not stored."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Storage of all tensors: the place of each tensor, and the ring of each root."""

    places: Mapping[Output, Place]
    rings: Mapping[Output, Ring]
    aliases: frozenset[Read]
    """Reads by merges that need no copy or that never happen."""
    zeros: frozenset[Read]
    """Reads of slices whose padding is already zero, because it has not been written yet."""


def layout(accesses: ReadTable, schedule: Schedule, *, alias: bool = True) -> Layout:
    """Return the places and rings under a schedule. Without `alias`, no tensors share a ring."""
    lives = _Lives(schedule, accesses)
    places = {x: _own(x, accesses) for x in accesses.tensors}
    aliases: set[Read] = set()
    for name, op in accesses.graph.ops.items():
        for read in accesses.reads[name] if alias and op.kind == "merge" else ():
            _forward(read, places, aliases, lives)
    places = {tensor: _resolve(tensor, places) for tensor in places}
    windows: dict[Output, dict[int, list[Window]]] = defaultdict(lambda: defaultdict(list))
    for read in itertools.chain(*accesses.reads.values()):
        place, own = places[read.tensor], dict(zip(read.sliced, read.windows, strict=True))
        for k, (j, shift) in enumerate(place.coordinates):
            if j in own:
                windows[place.root][k].append(own[j].shift(shift))
    rings = {x: Ring((1,) * len(accesses.names[x[0]])) for x in accesses.tensors}
    for root in {place.root for place in places.values()}:
        first, last = lives.of(root, places)
        ends = _ends(first, last, accesses.extents[root[0]])
        slots, fewer = (
            _slots(conflicts(_before(first, some), _before(last, some)), windows[root])
            for some in ((), ends)
        )
        saves = math.prod(fewer) < math.prod(slots)
        rings[root] = Ring(fewer, ends) if saves else Ring(slots)
    slices = (read for read in itertools.chain(*accesses.reads.values()) if read.sliced)
    zeros = {x for x in slices if _is_zero_beyond(x, places, rings, lives, accesses)}
    return Layout(places, rings, frozenset(aliases), frozenset(zeros))


def _is_zero_beyond(
    read: Read,
    places: Mapping[Output, Place],
    rings: Mapping[Output, Ring],
    lives: "_Lives",
    accesses: ReadTable,
) -> bool:
    """Return True if the slots beyond the end of a slice are still zero at every read of the slice.

    An example is k[0:t + 1] in a growing cache, read in the step that computes k[t].
    """
    tensor, (source, sink) = read.tensor, (read.edge.source, read.edge.sink)
    pairs, times = lives.reads.get(read.edge), lives.writes
    is_full = rings[tensor].slots == accesses.extents[source] and len(read.sliced) == 1
    tensors = [x for x, place in places.items() if place.root == tensor]
    if pairs is None or not is_full or tensors != [tensor]:
        return False
    (k,), (window,), own = read.sliced, read.windows, times[source].domain()
    if max(window.lows, default=0) + window.width > accesses.extents[source][k]:
        return False  # the window would wrap around to the first slot
    beyond = isl.Map.lex_gt(own.get_space()).reverse().intersect_domain(own).intersect_range(own)
    for j in {*range(own.dim(_SET))} - {k}:
        beyond = beyond.equate(IN, j, OUT, j)
    beyond = pairs.apply_range(beyond).subtract(pairs)
    before = times[sink].lex_gt_map(times[source])
    return pairs.domain().is_equal(times[sink].domain()) and beyond.is_disjoint(before)


def donate(
    plan: Layout, accesses: ReadTable, schedule: Schedule, stored: Collection[Output]
) -> Layout:
    """Return a layout in which outputs of operations overwrite inputs that are no longer needed.

    The test is exact: in y[p] = f(x[p], …), y is moved into the ring of x if no value of either
    tensor overwrites a value of the other that is still needed. The last use of x[p] is then to
    compute y[p]. A ring is merged with at most one other, which must have the same type and slots.
    (If y[p] overwrote x at a point other than p, XLA would copy the entire ring.)
    """
    lives, types, roots = _Lives(schedule, accesses), accesses.types, set()
    places, rings = dict(plan.places), dict(plan.rings)
    kinds = {x: (jax.tree.structure(kind), jax.tree.leaves(kind)) for x, kind in types.items()}
    for edge, read in lives.reads.items():
        for output in accesses.outputs[edge.sink]:
            x, y = places[edge.tensor], places[output]
            pairs = lives.coordinates(edge.sink, y).reverse().apply_range(read)
            pairs = pairs.apply_range(lives.coordinates(edge.source, x))
            alike = rings[x.root] == rings[y.root] and kinds[x.root] == kinds[y.root]
            free = x.root != y.root and {x.root, y.root} <= {*stored} - roots
            if not (free and alike and pairs.is_identity()):
                continue
            one, other = lives.of(x.root, places), lives.of(y.root, places)
            both = _between(*one, other[0]).union(_between(*other, one[0]))
            distances = conflicts(*one).union(conflicts(*other)).union(both.deltas())
            if fits(distances, rings[x.root].slots):
                roots |= {x.root, y.root}
                tensors = (t for t, place in plan.places.items() if place.root == y.root)
                places |= {t: Place(x.root, places[t].coordinates) for t in tensors}
    zeros = {read for read in plan.zeros if plan.places[read.tensor].root not in roots}
    return Layout(places, rings, plan.aliases, frozenset(zeros))


def blocks(
    accesses: ReadTable, schedule: Schedule, swap: Collection[Output]
) -> dict[Output, tuple[int, int, int]]:
    """Return (dimension, slots, extent) of each tensor that is read by slices of one dimension.

    These tensors are in block stores of the interpreter, which frees the inputs of an operation
    only after the operation has run, so outputs never overwrite inputs. Tensors in `swap`, which
    are moved to the host, are omitted.
    """
    lives, stores = _Lives(schedule, accesses), {}
    for tensor, dims in accesses.sliced.items():
        if len(dims) == 1 and tensor not in swap:
            (axis,), extents = dims, accesses.extents[tensor[0]]
            distances = conflicts(lives.writes[tensor[0]], lives.last[tensor], late=True)
            for k in {*range(len(extents))} - dims:
                distances = distances.fix_val(_SET, k, 0)
            stores[tensor] = (axis, _modulo(distances, [axis])[axis], extents[axis])
    return stores


class _Lives:
    """Lifetimes of all values (first write, last use) and all reads, for given bounds."""

    def __init__(self, schedule: Schedule, accesses: ReadTable):
        at = functools.partial(sets.at, bounds=accesses.bounds)
        self.writes = {name: at(times) for name, times in schedule.when.items()}
        self.last = {tensor: at(times) for tensor, times in schedule.last.items()}
        self.reads = {edge: at(read) for edge, read in schedule.reads.items()}
        for tensor in accesses.graph.results:
            never = f"[{', '.join([str(_NEVER)] * schedule.depth)}]"
            text = f"{{ {_axes('c', schedule.depth)} -> {never} }}"
            end = isl.Map(text, context=schedule.times.get_ctx())
            self.last[tensor] = self.writes[tensor[0]].apply_range(end)

    def of(self, root: Output, places: Mapping[Output, Place]) -> tuple[isl.Map, isl.Map]:
        """Return two maps from coordinates in a root: to the first write, and to the last use."""
        first, last = [], []
        for tensor, place in places.items():
            if place.root == root:
                back = self.coordinates(tensor[0], place).reverse()
                first.append(back.apply_range(self.writes[tensor[0]]))
                last.append(back.apply_range(self.last[tensor]))
        union = functools.partial(functools.reduce, isl.Map.union)
        return union(first).lexmin(), union(last).lexmax()

    def coordinates(self, op: str, place: Place) -> isl.Map:
        """Return the map from op[p] to the coordinates of p in a root."""
        points = self.writes[op].domain()
        to = ", ".join(str(c) if j is None else f"p{j} + {c}" for j, c in place.coordinates)
        text = f"{{ {op}{_axes('p', points.dim(_SET))} -> [{to}] }}"
        return isl.Map(text, context=points.get_ctx()).intersect_domain(points)


def _axes(letter: str, number: int) -> str:
    return f"[{', '.join(f'{letter}{k}' for k in range(number))}]"


def _own(tensor: Output, accesses: ReadTable) -> Place:
    """Return the place of a tensor that is its own root."""
    return Place(tensor, tuple((j, 0) for j in range(len(accesses.names[tensor[0]]))))


def _resolve(tensor: Output, places: Mapping[Output, Place]) -> Place:
    place = places[tensor]
    while places[place.root].root != place.root:
        place = places[place.root].after(place)
    return place


def _forward(read: Read, places: dict[Output, Place], aliases: set[Read], lives: _Lives) -> None:
    """Place the source of a merge's edge in the storage of the merge, if that is possible.

    At most one point of the merge may read each point of the source.
    """
    source, sink = read.tensor, (read.edge.sink, 0)
    if places[source].root != source or _resolve(sink, places).root == source or read.sliced:
        return
    pairs = lives.reads.get(read.edge)
    if pairs is None or pairs.is_empty():
        aliases.add(read)
        return
    coordinates = _fit(pairs.reverse()) if pairs.is_injective() else None
    if coordinates is None:
        return
    place = Place(sink, coordinates)
    # Points of the source that the merge does not read must not overwrite points of the merge.
    others = lives.writes[source[0]].domain().subtract(pairs.range())
    others = others.apply(lives.coordinates(source[0], place)).set_tuple_name(sink[0])
    inside = others.is_empty() or all(_least(others, k) >= 0 for k in range(others.dim(_SET)))
    if inside and others.is_disjoint(lives.writes[sink[0]].domain()):
        places[source] = place
        aliases.add(read)


def _fit(pairs: isl.Map) -> tuple[tuple[int | None, int], ...] | None:
    """Return the coordinates of a `Place` that maps each point of `pairs` to its image, or None."""
    coordinates = []
    for k in range(pairs.dim(OUT)):
        image = _only(pairs, OUT, k)
        # Several dimensions may fit if a dimension has only one point, so try dimension k of the
        # input first.
        shifts = {
            j: _only(image, IN, j).deltas()
            for j in sorted(range(pairs.dim(IN)), key=lambda j, k=k: j != k)
        }
        fits = (j for j, some in (shifts | {None: image.range()}).items() if some.is_singleton())
        if (j := next(fits, -1)) == -1:
            return None
        coordinates.append((j, _least(shifts[j] if j is not None else image.range(), 0)))
    return tuple(coordinates)


def _only(relation: isl.Map, side: isl.dim_type, k: int) -> isl.Map:
    """Project a relation onto dimension k on one side, and remove the name of that side."""
    relation = relation.project_out(side, k + 1, relation.dim(side) - k - 1)
    relation = relation.project_out(side, 0, k)
    return relation.reset_tuple_id(side) if relation.has_tuple_name(side) else relation


def _least(points: isl.Set, k: int) -> int:
    return points.dim_min_val(k).to_python()


def conflicts(first: isl.Map, last: isl.Map, *, late: bool = False) -> isl.Set:
    """Return the distances q - p of all pairs where q is written while p is still needed.

    `first` contains the times of writing, and `last` the times of the last use. The last operation
    that reads p may itself overwrite p with q, unless `late` is True. In that case, inputs are
    freed only after the operation.
    """
    pairs = _between(first, last, first, late=late)
    together = first.apply_range(first.reverse())
    itself = isl.Map.identity(together.get_space())
    return pairs.union(together.subtract(itself)).deltas().coalesce()


def _between(first: isl.Map, last: isl.Map, other: isl.Map, *, late: bool = False) -> isl.Map:
    """Return the pairs (p, q) where `other` writes q between the writing and last use of p."""
    overlap = last.lex_ge_map(other) if late else last.lex_gt_map(other)
    return first.lex_lt_map(other).intersect(overlap)


def _ends(first: isl.Map, last: isl.Map, extents: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return pairs (dimension, end) where coordinates of at least `end` are never read.

    An example is the last observation, o[T].
    """
    uses = first.subtract(last).domain()
    ends = []
    for k, end in enumerate(extents):
        past = first.domain().lower_bound_val(_SET, k, end)
        if not past.is_empty() and past.is_disjoint(uses):
            ends.append((k, end))
    return tuple(ends)


def _before(times: isl.Map, ends: Sequence[tuple[int, int]]) -> isl.Map:
    for k, end in ends:
        times = times.upper_bound_val(IN, k, end - 1)
    return times


def _slots(distances: isl.Set, windows: Mapping[int, Sequence[Window]]) -> tuple[int, ...]:
    """Return the smallest numbers of slots that the distances allow.

    If slices start at multiples of their width, the number of slots is rounded up to a multiple of
    that width where possible, so that these slices never wrap around.
    """
    slots = fewest(distances)
    for k, several in windows.items():
        for width in {w.width for w in several if 1 < w.width < slots[k] and _aligned(w)}:
            wider = (*slots[:k], -(-slots[k] // width) * width, *slots[k + 1 :])
            slots = wider if fits(distances, wider) else slots
    return slots


def fewest(distances: isl.Set) -> tuple[int, ...]:
    """Return the fewest slots for these distances over all orders of the dimensions."""
    orders = itertools.permutations(range(distances.dim(_SET)))
    return min((_modulo(distances, order) for order in orders), key=lambda s: (math.prod(s), s))


def _modulo(distances: isl.Set, order: Sequence[int]) -> tuple[int, ...]:
    """Return the slots for these distances, choosing one dimension after another.

    Each dimension gets one slot more than the largest distance of the remaining pairs. Only pairs
    at distance 0 along this dimension, which still share a slot, remain for the next dimension
    (Lefebvre and Feautrier 1998).
    """
    slots = [1] * distances.dim(_SET)
    for k in order:
        if not distances.is_empty():
            slots[k] = 1 + max(distances.dim_max_val(k).to_python(), -_least(distances, k))
            distances = distances.fix_val(_SET, k, 0)
    return tuple(slots)


def fits(distances: isl.Set, slots: Sequence[int]) -> bool:
    """Return True if no two values at these distances share a slot."""
    same = " and ".join(f"d{k} mod {w} = 0" for k, w in enumerate(slots)) or "true"
    text = f"{{ {_axes('d', len(slots))} : {same} }}"
    return distances.is_disjoint(isl.Set(text, context=distances.get_ctx()))


def _aligned(window: Window) -> bool:
    """Return True if a window has several starts, which are all multiples of its width."""
    return len(window.lows) > 1 and not any(low % window.width for low in window.lows)
