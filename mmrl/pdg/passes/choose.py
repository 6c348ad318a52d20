"""Automatic choice of passes: what to vectorize, lift, tile, recompute and fuse.  §5.2-5.4

Fewer and larger operations take less time but more memory. The search therefore starts with the
largest choice: one block per dimension, with loops lifted and residuals stored. If a run exceeds
the memory limit, blocks of the innermost loop shrink by powers of two, followed by blocks of the
batch. If no choice with lifted loops fits, loops are not lifted. The search stops at the largest
blocks that fit. It runs twice, with residuals stored and with residuals recomputed, and returns the
choice with less estimated time.

Operations in blocks are fused, so that they share a loop. In a choice without blocks, for a program
without `Program.until`, all operations are fused if this takes no more memory and less time. In
all other cases, operations outside blocks are fused only if no other choice fits, because XLA fuses
operations anyway, and the scheduler cannot split a fused operation.

    choice = choose(graph, {"T": 128, "B": 32}, memory=8_000_000, cost=…)
    compile(graph, choice.passes())          # the same program, with explicit passes

Blocks of a dimension are used only if they save a tenth of all operations of a run. For example,
vectorizing a reset over all iterations would save few operations, but store the values of all
iterations at once.
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
from mmrl.pdg.clean.recompute import ops_with_residuals, recompute
from mmrl.pdg.passes.fuse import fuse
from mmrl.pdg.passes.lift import lift_loops
from mmrl.pdg.passes.move import graph_dims, movable, whole
from mmrl.pdg.passes.tile import tile, vectorize

WORTH = 0.9
"""Maximum fraction of the operations that may remain for a block to be used."""
RUN, FLOP = 1e-6, 2e-10
"""Estimated seconds per operation, and per floating-point operation within it, on a CPU."""
UNITS = {"": 1, "B": 1, **{f"{p}B": 1000 ** (k + 1) for k, p in enumerate("KMGT")}}
UNITS |= {f"{p}IB": 1024 ** (k + 1) for k, p in enumerate("KMGT")}


def parse_bytes(memory: int | float | str | None) -> int | None:
    """Convert a number of bytes or a string such as "8 MB" to bytes.

    8_000_000, "8 MB" and "8e6" are equal, and "8 MiB" is 8 · 2²⁰. None means no limit.

    Raises `ValueError` for any other string, and for less than one byte.
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
            f'`memory` must be a number of bytes or a string such as "8 MB", got {memory!r}'
        )
    return size


@dataclasses.dataclass(frozen=True)
class Along:
    """Passes along one dimension: a `size` of None vectorizes, m tiles by m, 1 keeps the loop."""

    name: str
    lift: bool = False
    size: int | None = None


@dataclasses.dataclass(frozen=True)
class Choice:
    """Passes to apply to a graph, in the order of the fields.

    Operations in blocks are fused unless `keep_blocks`.
    """

    recompute: bool = False
    along: tuple[Along, ...] = ()
    fuse: bool = False
    keep_blocks: bool = False

    def passes(self) -> dict[str, Any]:
        """Return the passes by name, as `compile` accepts them."""
        passes: dict[str, Any] = {"recompute": recompute} if self.recompute else {}
        for name, lift, size in map(dataclasses.astuple, self.along):
            if lift:
                passes[f"lift {name}"] = functools.partial(lift_loops, name=name)
            if size is None:
                passes[f"vectorize {name}"] = functools.partial(vectorize, name=name)
            elif size > 1:
                passes[f"tile {name} by {size}"] = functools.partial(tile, name=name, size=size)
                if not self.keep_blocks:
                    passes[f"fuse blocks of {name}"] = functools.partial(fuse_blocks, size=size)
        return passes | ({"fuse": fuse} if self.fuse else {})

    def apply(self, graph: Graph) -> Graph:
        """Apply all passes to a graph."""
        for change in self.passes().values():
            graph = remove_dead(change(graph)[0])
        return graph

    def __str__(self) -> str:
        return ", ".join(self.passes()) or "no passes"

    def with_sizes(self, *sizes: int | None) -> "Choice":
        """Return a copy with other block sizes."""
        pairs = zip(self.along, sizes, strict=True)
        along = tuple(dataclasses.replace(each, size=size) for each, size in pairs)
        return dataclasses.replace(self, along=along)


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of a run: peak bytes alive, operations, and floating-point operations.

    Unless `exact`, the bytes are an upper bound.
    """

    bytes: int
    operations: int
    flops: int
    exact: bool = True

    @property
    def seconds(self) -> float:
        """Estimated time in seconds, which is only meant for comparing choices."""
        return RUN * self.operations + FLOP * self.flops


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Parts of a choice that the caller sets; `choose` decides the parts that are None.

    `vectorize` contains all dimensions to vectorize, `tile` contains block sizes, and `lift`
    contains the dimensions whose recurrences become scans where this pays off.
    """

    vectorize: Sequence[str] | None = None
    tile: Mapping[Any, SupportsIndex] | None = None
    lift: Sequence[str] | None = None
    recompute: bool | None = None
    fuse: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tile or {}, Mapping):
            raise ValueError(
                f"`tile` must map dimensions to numbers of points, got {self.tile}: write, for "
                'example, `tile={"t": 8}`'
            )
        both = {str(name) for name in self.vectorize or ()} & {
            str(name) for name in self.tile or ()
        }
        if both:
            raise ValueError(
                f"`vectorize` and `tile` must name different dimensions, got {sorted(both)} in "
                "both: remove them from one"
            )

    def check(self, graph: Graph) -> None:
        """Raise `ValueError` for an unknown dimension or a size below 1."""
        dims = graph_dims(graph)
        for name in map(str, [*(self.vectorize or ()), *(self.tile or ()), *(self.lift or ())]):
            if name not in dims:
                raise ValueError(f"`{name}` must be a dimension, one of {', '.join(dims)}")
        for name, size in (self.tile or {}).items():
            if not isinstance(size, SupportsIndex) or operator.index(size) < 1:
                raise ValueError(
                    f"`tile` of {name} must be an integer of at least 1, got {size}: pass the "
                    "number of points per block"
                )

    def sizes(self) -> dict[str, int | None]:
        """Return the block size of each dimension for which the caller set one."""
        sizes: dict[str, int | None] = {str(name): None for name in self.vectorize or ()}
        return sizes | {str(name): operator.index(m) for name, m in (self.tile or {}).items()}


def choose(
    graph: Graph,
    bounds: Mapping[str, int],
    cost: Callable[[Choice], Cost],
    *,
    memory: int | None = None,
    constraints: Constraints = Constraints(),
) -> Choice:
    """Return the first choice that fits in `memory`, in the order of the module's docstring.

    A choice fits if its peak memory is at most `memory`, and if its operations have a valid order.
    Without a limit, the largest choice is returned. `cost` compiles a choice and estimates its
    cost, or raises `ValueError` if no order is valid; it is called for only a few choices.

    Raises `ValueError` if none of these choices fits; the message states the smallest peak.
    """
    least: list[float] = []

    def fits(choice: Choice) -> bool:
        try:
            least.append(cost(choice).bytes)
        except ValueError:
            least.append(math.inf)
        return memory is not None and least[-1] <= memory

    ends = any("ends" in op.params for op in graph.ops.values())

    def fused_if_free(choice: Choice) -> Choice:
        """If a choice has no blocks, fuse its operations if this saves time and costs no memory.

        A program with `Program.until` is not fused, because fused operations cannot be skipped.
        """
        blocks = any(each.size != 1 for each in choice.along)
        if choice.fuse or constraints.fuse is not None or blocks or ends:
            return choice
        fused = dataclasses.replace(choice, fuse=True)
        try:
            before, after = cost(choice), cost(fused)
        except ValueError:
            return choice
        saves = after.bytes <= before.bytes and after.seconds < before.seconds
        return fused if saves else choice

    largest = widest(graph, bounds, constraints)
    if memory is None or fits(largest):
        return fused_if_free(largest)
    bases = [largest]
    if constraints.lift is None and any(each.lift for each in largest.along):
        bases.append(widest(graph, bounds, dataclasses.replace(constraints, lift=())))
    both = constraints.recompute is None and bool(ops_with_residuals(graph))
    for fused in [False, True] if constraints.fuse is None else [constraints.fuse]:
        for base in bases:
            forms = [dataclasses.replace(base, fuse=fused)]
            forms += [dataclasses.replace(forms[0], recompute=True)] if both else []
            options = [_options(each, graph, bounds, constraints) for each in base.along]
            options = [o[o.index(each.size) :] for o, each in zip(options, base.along, strict=True)]
            inner = options[-1] if options else [None]
            for outer in _outer(options[:-1]):
                rows = [[f.with_sizes(*outer, m) if options else f for m in inner] for f in forms]
                candidates = [choice for row in rows if (choice := _first(row, fits)) is not None]
                if candidates:
                    return fused_if_free(min(candidates, key=lambda choice: cost(choice).seconds))
    if min(least) == math.inf:
        cost(largest)  # raises the error that explains why there is no order
    raise ValueError(
        f"`memory` must be at least {min(least)} bytes for this program at {dict(bounds)}, got "
        f"{memory}: raise `memory`, or reduce the bounds"
    )


def widest(
    graph: Graph, bounds: Mapping[str, int], constraints: Constraints = Constraints()
) -> Choice:
    """Return the choice with one block per dimension, where that saves enough operations."""
    along, sizes = [], constraints.sizes()
    repeats = bool(constraints.recompute)
    current = remove_dead(recompute(graph)[0]) if repeats else graph
    for name in _order(graph):
        lifts = (
            name in map(str, constraints.lift)
            if constraints.lift is not None
            else _lifts(current, name)
        )
        after_lift = remove_dead(lift_loops(current, name)[0]) if lifts else current
        if name not in graph_dims(after_lift):  # lifting removes it if only final states are read
            along.append(Along(name, lifts, 1))
            current = after_lift
            continue
        size = sizes.get(name, None if constraints.vectorize is None else 1)
        wide = Choice(along=(Along(name, size=size),)).apply(after_lift)
        if name not in sizes and operations(wide, bounds) > WORTH * operations(after_lift, bounds):
            size, wide = 1, after_lift
        if lifts or size != 1:
            along.append(Along(name, lifts, size))
        current = wide
    return Choice(repeats, tuple(along), bool(constraints.fuse), constraints.fuse is False)


def _order(graph: Graph) -> list[str]:
    """Return the dimensions that can be vectorized entirely, then the others, innermost first."""
    names = list(reversed(graph_dims(graph)))
    free = [name for name in names if not movable(graph, whole(graph, name))[1]]
    return [*free, *(name for name in names if name not in free)]


def _lifts(graph: Graph, name: str) -> bool:
    """Return True if lifting loops over a dimension changes the graph."""
    return str(lift_loops(graph, name)[0]) != str(graph)


def _options(
    each: Along, graph: Graph, bounds: Mapping[str, int], constraints: Constraints
) -> list[int | None]:
    """Return the possible block sizes of a dimension, largest first, or the one that is set."""
    if each.size == 1 or each.name in constraints.sizes():
        return [each.size]
    extent = int(graph_dims(graph)[each.name].evaluate(bounds))
    powers = range(math.ceil(math.log2(max(extent, 1))) - 1, -1, -1)
    return [None, *(2**k for k in powers)]


def _outer(options: Sequence[Sequence[int | None]]) -> Iterator[tuple[int | None, ...]]:
    """Yield the block sizes of all outer dimensions; the last dimension shrinks first."""
    if not options:
        yield ()
        return
    for first in options[0]:
        for rest in _outer(options[1:]):
            yield (first, *rest)


def _first(choices: Sequence[Choice], fits: Callable[[Choice], bool]) -> Choice | None:
    """Return the first choice that fits, by bisection if the last one fits."""
    if not fits(choices[-1]):
        return next((choice for choice in choices[:-1] if fits(choice)), None)
    low, high = 0, len(choices) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(choices[middle]) else (middle + 1, high)
    return choices[high]


def neighbors(
    choice: Choice,
    graph: Graph,
    bounds: Mapping[str, int],
    constraints: Constraints = Constraints(),
) -> list[Choice]:
    """Return a choice, similar choices, and `Choice()`, which has no passes.

    A similar choice differs in one block size, in recomputation, or in fusion.
    """
    choices = [choice]
    sizes = [each.size for each in choice.along]
    for k, each in enumerate(choice.along):
        options = _options(dataclasses.replace(each, size=None), graph, bounds, Constraints())
        at = options.index(each.size) if each.size in options else 0
        for size in options[max(0, at - 1) : at + 2]:
            choices.append(choice.with_sizes(*sizes[:k], size, *sizes[k + 1 :]))
    if ops_with_residuals(graph):
        choices.append(dataclasses.replace(choice, recompute=not choice.recompute))
    choices.append(dataclasses.replace(choice, fuse=not choice.fuse))
    return list(dict.fromkeys([*choices, Choice()]))


def fuse_blocks(graph: Graph, size: int) -> tuple[Graph, list[str]]:
    """Fuse all operations in blocks of `size` points."""
    return fuse(graph, [name for name, op in graph.ops.items() if op.params.get("block") == size])


def operations(graph: Graph, bounds: Mapping[str, int]) -> int:
    """Return the number of operations in a run, excluding merges, which only copy."""
    return sum(count(op, bounds) for op in graph.ops.values() if op.run is not None)


def count(op: Op, bounds: Mapping[str, int]) -> int:
    """Return the number of points in an operation's domain, for the given bounds."""
    when = op.domain.when
    names = set() if TRUE.same(when) else when.symbols()
    inside = dataclasses.replace(op.domain, dims=tuple(d for d in op.domain if d.name in names))
    rest = math.prod(int(d.bound.evaluate(bounds)) for d in op.domain if d.name not in names)
    shape = tuple(int(d.bound.evaluate(bounds)) for d in inside)
    places = dict(zip(inside.names, np.indices(shape, sparse=True), strict=True))
    return rest * int(np.broadcast_to(when.evaluate({**bounds, **places}), shape).sum())


@dataclasses.dataclass(frozen=True)
class Row:
    """Row of a report: a choice of passes and its cost."""

    passes: str
    cost: Cost
    fits: bool
    is_choice: bool


@dataclasses.dataclass(frozen=True)
class Report:
    """Report on the cost of a choice and of similar choices.

    `str(report)` is a table. `words` describes what each pass changed, what it left unchanged, and
    why.
    """

    rows: tuple[Row, ...]
    memory: int | None
    words: tuple[str, ...]

    @property
    def choice(self) -> Row:
        """Row of the selected choice."""
        return next(row for row in self.rows if row.is_choice)

    def __str__(self) -> str:
        limit = "no limit" if self.memory is None else f"at most {self.memory:,} bytes"
        width = max(len(row.passes) for row in self.rows)
        lines = [f"  {'passes':{width}} {'bytes':>14} {'operations':>12} {'flops':>16}  ({limit})"]
        for row in self.rows:
            cost, mark = row.cost, "*" if row.is_choice else " "
            note = "" if row.fits else "  too large"
            most = f"{'' if cost.exact else '≤ '}{cost.bytes:,}"
            numbers = f"{most:>14} {cost.operations:>12,} {cost.flops:>16,}"
            lines.append(f"{mark} {row.passes:{width}} {numbers}{note}")
        rule = "* The choice: the faster way to treat residuals, and the largest blocks that fit."
        return "\n".join([*lines, rule, *self.words])
