"""Choose passes for a graph: what to vectorize, lift, tile, recompute and fuse.  §5.2-5.4

Fewer and larger operations take less time and more memory. So the largest choice comes first:
every dimension in one block, loops lifted, residuals kept. On a CPU, blocks that exceed its cache
take more time again, so the innermost loop gets blocks that fit, if the estimate is better. If the
bytes of a run exceed the limit, the blocks of the innermost loop shrink, by powers of two, and then
those of the batch; residuals may be recomputed, and if nothing fits after loops were lifted, they
stay loops. Of what fits, the choice of least estimated time wins. Operations in blocks are fused,
so that they share a loop. Others are fused only if nothing else fits, because XLA fuses what it
compiles, and a fused chain is one piece to the schedule.

    choice = choose(graph, {"T": 128, "B": 32}, memory=8_000_000, cost=…)
    compile(graph, choice.passes())          # the same program, by hand

A block of a dimension is used only if it saves a tenth of all operations that run: moving a reset
out of the loop over iterations would save few of them, and keep all of its values.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from mmrl.pdg.build.expr import TRUE
from mmrl.pdg.build.graph import Graph, Op
from mmrl.pdg.clean import remove_dead
from mmrl.pdg.clean.recompute import keeping, recompute
from mmrl.pdg.passes.fuse import fuse
from mmrl.pdg.passes.lift import lift_loops
from mmrl.pdg.passes.move import graph_dims, movable, whole
from mmrl.pdg.passes.tile import tile, vectorize

WORTH = 0.9
"""A block must leave at most this part of the operations that run."""
RUN, FLOP = 1e-6, 2e-10
"""Estimated seconds of one operation, and of one floating-point operation in it, on a CPU."""
CACHE, BYTE = 256 * 1024, 2e-10
"""Bytes that a core of a CPU keeps near; seconds for each byte of an operation that has more."""
UNITS = {"": 1, "B": 1, **{f"{p}B": 1000 ** (k + 1) for k, p in enumerate("KMGT")}}
UNITS |= {f"{p}IB": 1024 ** (k + 1) for k, p in enumerate("KMGT")}


def parse_bytes(memory: int | float | str | None) -> int | None:
    """Return a limit in bytes: 8_000_000, "8 MB" and "8e6" are equal, and "8 MiB" is 8 · 2²⁰.

    Raises `ValueError` for any other text and for less than one byte.
    """
    if memory is None:
        return None
    text = str(memory).strip()
    number = text.rstrip("BKMGTIbkmgti").strip()
    unit = text[len(number) :].strip().upper()
    try:
        size = int(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ValueError(
            f'`memory` must be a number of bytes or a text such as "8 MB", got {memory!r}'
        )
    return size


@dataclasses.dataclass(frozen=True)
class Along:
    """Passes along a dimension: `size` None vectorizes, m tiles by m, and 1 leaves a loop."""

    name: str
    lift: bool = False
    size: int | None = None


@dataclasses.dataclass(frozen=True)
class Choice:
    """Passes to run on a graph, in this order."""

    recompute: bool = False
    along: tuple[Along, ...] = ()
    fuse: bool = False

    def passes(self) -> dict[str, Any]:
        """Return the passes by their names, as `compile` takes them."""
        found: dict[str, Any] = {"recompute": recompute} if self.recompute else {}
        for name, lift, size in map(dataclasses.astuple, self.along):
            if lift:
                found[f"lift {name}"] = functools.partial(lift_loops, name=name)
            if size is None:
                found[f"vectorize {name}"] = functools.partial(vectorize, name=name)
            elif size > 1:
                found[f"tile {name} by {size}"] = functools.partial(tile, name=name, size=size)
                found[f"fuse blocks of {name}"] = functools.partial(fuse_blocks, size=size)
        return found | ({"fuse": fuse} if self.fuse else {})

    def apply(self, graph: Graph) -> Graph:
        """Return the graph after all passes."""
        for change in self.passes().values():
            graph = remove_dead(change(graph)[0])
        return graph

    def __str__(self) -> str:
        return ", ".join(self.passes()) or "no passes"

    def sized(self, *sizes: int | None) -> "Choice":
        """Return the choice with other block sizes."""
        pairs = zip(self.along, sizes, strict=True)
        along = tuple(dataclasses.replace(each, size=size) for each, size in pairs)
        return dataclasses.replace(self, along=along)


@dataclasses.dataclass(frozen=True)
class Cost:
    """The most bytes alive at once in a run, the operations that run, and the flops in them.

    If not `exact`, the bytes are an upper bound.
    """

    bytes: int
    operations: int
    flops: int
    exact: bool = True

    @property
    def seconds(self) -> float:
        """An estimate, only to compare choices."""
        return RUN * self.operations + FLOP * self.flops


@dataclasses.dataclass(frozen=True)
class Fixed:
    """The parts of a choice that the caller decides; None leaves a part to `choose`.

    `vectorize` names all dimensions that are vectorized, and `tile` gives sizes of blocks; `lift`
    names dimensions whose recurrences become scans where that pays.
    """

    vectorize: Sequence[str] | None = None
    tile: Mapping[Any, SupportsIndex] | None = None
    lift: Sequence[str] | None = None
    recompute: bool | None = None
    fuse: bool | None = None

    def __post_init__(self) -> None:
        both = {str(name) for name in self.vectorize or ()} & {
            str(name) for name in self.tile or ()
        }
        if both:
            raise ValueError(
                f"`vectorize` and `tile` must name different dimensions, got {sorted(both)} in both"
            )

    def check(self, graph: Graph) -> None:
        """Raise `ValueError` for dimensions that the graph does not have, and sizes below 1."""
        dims = graph_dims(graph)
        for name in map(str, [*(self.vectorize or ()), *(self.tile or ()), *(self.lift or ())]):
            if name not in dims:
                raise ValueError(f"`{name}` must be a dimension, one of {', '.join(dims)}")
        for name, size in (self.tile or {}).items():
            if not isinstance(size, SupportsIndex) or operator.index(size) < 1:
                raise ValueError(
                    f"`tile` of {name} must be a number of points from 1 on, got {size}"
                )

    def sizes(self) -> dict[str, int | None]:
        """Return the block size of each dimension that the caller names."""
        found: dict[str, int | None] = {str(name): None for name in self.vectorize or ()}
        return found | {str(name): operator.index(m) for name, m in (self.tile or {}).items()}


def choose(
    graph: Graph,
    bounds: Mapping[str, int],
    cost: Callable[[Choice], Cost],
    *,
    memory: int | None = None,
    fixed: Fixed = Fixed(),
    sizes: Callable[[Graph], Mapping[str, int]] | None = None,
) -> Choice:
    """Return the choice of least estimated time whose most bytes alive at once fit in `memory`.

    `cost` compiles a choice and measures it; it is called for few of them. A choice for which it
    raises `ValueError`, because no order of its operations is legal, does not fit. On a CPU,
    `sizes` gives the bytes that one run of each operation reads and writes. Raises `ValueError` if
    no choice that it measures fits, with the least bytes of these.
    """

    def close(fixed: Fixed) -> Choice:
        wide = widest(graph, bounds, fixed)
        return wide if sizes is None else near(wide, graph, bounds, fixed, sizes)

    least: list[float] = []

    def fits(choice: Choice) -> bool:
        try:
            least.append(cost(choice).bytes)
        except ValueError:
            least.append(math.inf)
        return memory is not None and least[-1] <= memory

    largest = close(fixed)
    if memory is None or fits(largest):
        return largest
    bases = [largest]
    if fixed.lift is None and any(each.lift for each in largest.along):
        bases.append(close(dataclasses.replace(fixed, lift=())))
    both = fixed.recompute is None and bool(keeping(graph))
    for fused in [False, True] if fixed.fuse is None else [fixed.fuse]:
        for base in bases:
            forms = [dataclasses.replace(base, fuse=fused)]
            forms += [dataclasses.replace(forms[0], recompute=True)] if both else []
            options = [_options(each, graph, bounds, fixed) for each in base.along]
            options = [o[o.index(each.size) :] for o, each in zip(options, base.along, strict=True)]
            inner = options[-1] if options else [None]
            for outer in _outer(options[:-1]):
                rows = [[f.sized(*outer, m) if options else f for m in inner] for f in forms]
                found = [choice for row in rows if (choice := _first(row, fits)) is not None]
                if found:
                    return min(found, key=lambda choice: cost(choice).seconds)
    if min(least) == math.inf:
        cost(largest)  # raises the reason why it has no order
    raise ValueError(
        f"`memory` must be at least {min(least)} bytes for this program at {dict(bounds)}, got "
        f"{memory}: raise it, or make the bounds smaller"
    )


def widest(graph: Graph, bounds: Mapping[str, int], fixed: Fixed = Fixed()) -> Choice:
    """Return the choice with all dimensions in one block where that saves enough operations."""
    along, sizes = [], fixed.sizes()
    again = bool(fixed.recompute)
    changed = remove_dead(recompute(graph)[0]) if again else graph
    for name in _order(graph):
        lifted = name in map(str, fixed.lift) if fixed.lift is not None else _lifts(changed, name)
        lone = remove_dead(lift_loops(changed, name)[0]) if lifted else changed
        if name not in graph_dims(lone):  # only the end of its loops was read
            along.append(Along(name, lifted, 1))
            changed = lone
            continue
        size = sizes.get(name, None if fixed.vectorize is None else 1)
        wide = Choice(along=(Along(name, size=size),)).apply(lone)
        if name not in sizes and operations(wide, bounds) > WORTH * operations(lone, bounds):
            size, wide = 1, lone
        if lifted or size != 1:
            along.append(Along(name, lifted, size))
        changed = wide
    return Choice(again, tuple(along), bool(fixed.fuse))


def near(
    choice: Choice,
    graph: Graph,
    bounds: Mapping[str, int],
    fixed: Fixed,
    sizes: Callable[[Graph], Mapping[str, int]],
) -> Choice:
    """Return the choice with blocks of the last dimension that fit in `CACHE`, if they are faster.

    A block has about as many bytes as it has points.
    """
    if not choice.along or choice.along[-1].size is not None:
        return choice
    last, whole_graph = choice.along[-1], choice.apply(graph)
    options = _options(last, graph, bounds, fixed)
    extent = int(graph_dims(graph)[last.name].evaluate(bounds))
    most = max(sizes(whole_graph).values(), default=0)
    fitting = [m for m in options if m is not None and m * most <= CACHE * extent]
    if most <= CACHE or not fitting:
        return choice
    smaller = choice.sized(*(each.size for each in choice.along[:-1]), fitting[0])

    def effort(graph: Graph) -> float:
        far = {name: size for name, size in sizes(graph).items() if size > CACHE}
        moved = sum(count(graph.ops[name], bounds) * size for name, size in far.items())
        return RUN * operations(graph, bounds) + BYTE * moved

    return min(choice, smaller, key=lambda each: effort(each.apply(graph)))


def _order(graph: Graph) -> list[str]:
    """The dimensions that no loop needs, and then loops, both from inside out."""
    names = list(reversed(graph_dims(graph)))
    free = [name for name in names if not movable(graph, whole(graph, name))[1]]
    return [*free, *(name for name in names if name not in free)]


def _lifts(graph: Graph, name: str) -> bool:
    """Does lifting loops over a dimension change the graph?"""
    return str(lift_loops(graph, name)[0]) != str(graph)


def _options(
    each: Along, graph: Graph, bounds: Mapping[str, int], fixed: Fixed
) -> list[int | None]:
    """Block sizes of a dimension, the largest first; only one if the caller gave it."""
    if each.size == 1 or each.name in fixed.sizes():
        return [each.size]
    extent = int(graph_dims(graph)[each.name].evaluate(bounds))
    powers = range(math.ceil(math.log2(max(extent, 1))) - 1, -1, -1)
    return [None, *(2**k for k in powers)]


def _outer(options: Sequence[Sequence[int | None]]) -> Iterator[tuple[int | None, ...]]:
    """Block sizes of all outer dimensions: the last of them shrinks first."""
    if not options:
        yield ()
        return
    for first in options[0]:
        for rest in _outer(options[1:]):
            yield (first, *rest)


def _first(choices: Sequence[Choice], fits: Callable[[Choice], bool]) -> Choice | None:
    """Return the first choice that fits, by bisection if the smallest blocks fit."""
    if not fits(choices[-1]):
        return next((choice for choice in choices[:-1] if fits(choice)), None)
    low, high = 0, len(choices) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(choices[middle]) else (middle + 1, high)
    return choices[high]


def neighbors(
    choice: Choice, graph: Graph, bounds: Mapping[str, int], fixed: Fixed = Fixed()
) -> list[Choice]:
    """Return the choices next to one: a block larger or smaller, residuals, fusing, no passes."""
    found = [choice]
    sizes = [each.size for each in choice.along]
    for k, each in enumerate(choice.along):
        options = _options(dataclasses.replace(each, size=None), graph, bounds, Fixed())
        at = options.index(each.size) if each.size in options else 0
        for size in options[max(0, at - 1) : at + 2]:
            found.append(choice.sized(*sizes[:k], size, *sizes[k + 1 :]))
    if keeping(graph):
        found.append(dataclasses.replace(choice, recompute=not choice.recompute))
    found.append(dataclasses.replace(choice, fuse=not choice.fuse))
    return list(dict.fromkeys([*found, Choice()]))


def fuse_blocks(graph: Graph, size: int) -> tuple[Graph, list[str]]:
    """Return the graph in which operations in blocks of `size` points share their loop."""
    return fuse(graph, [name for name, op in graph.ops.items() if op.params.get("block") == size])


def operations(graph: Graph, bounds: Mapping[str, int]) -> int:
    """Return the number of operations that a run executes; merges copy and do not count."""
    return sum(count(op, bounds) for op in graph.ops.values() if op.run is not None)


def count(op: Op, bounds: Mapping[str, int]) -> int:
    """Return the number of points of an operation."""
    when = op.domain.when
    used = set() if TRUE.same(when) else when.symbols()
    inside = dataclasses.replace(op.domain, dims=tuple(d for d in op.domain if d.name in used))
    rest = math.prod(int(d.bound.evaluate(bounds)) for d in op.domain if d.name not in used)
    shape = tuple(int(d.bound.evaluate(bounds)) for d in inside)
    places = dict(zip(inside.names, np.indices(shape, sparse=True), strict=True))
    return rest * int(np.broadcast_to(when.evaluate({**bounds, **places}), shape).sum())


@dataclasses.dataclass(frozen=True)
class Row:
    """A choice in a report, and what it costs."""

    passes: str
    cost: Cost
    fits: bool
    chosen: bool


@dataclasses.dataclass(frozen=True)
class Report:
    """The cost of a choice and of those next to it, as rows.

    `str(report)` is a table. `words` states what each pass did, and what stayed as it was and why.
    """

    rows: tuple[Row, ...]
    memory: int | None
    words: tuple[str, ...]

    @property
    def chosen(self) -> Row:
        """The row of the choice."""
        return next(row for row in self.rows if row.chosen)

    def __str__(self) -> str:
        limit = "no limit" if self.memory is None else f"at most {self.memory:,} bytes"
        width = max(len(row.passes) for row in self.rows)
        lines = [f"  {'passes':{width}} {'bytes':>14} {'operations':>12} {'flops':>16}  ({limit})"]
        for row in self.rows:
            cost, mark = row.cost, "*" if row.chosen else " "
            note = "" if row.fits else "  too large"
            most = f"{'' if cost.exact else '≤ '}{cost.bytes:,}"
            numbers = f"{most:>14} {cost.operations:>12,} {cost.flops:>16,}"
            lines.append(f"{mark} {row.passes:{width}} {numbers}{note}")
        return "\n".join([*lines, *self.words])
