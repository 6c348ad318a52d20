"""Reads of an operation that computes many points of a dimension d at once.

Vectorizing, tiling and lifting turn a loop over d, or over a block of d, into an axis of arrays. An
edge that read one point before then reads an array with an axis for d, from which the operation
extracts the points of the old φ. The paper's Algorithm 2 distinguishes four cases, depending on
whether the source and the sink are moved; here a single rule covers them.

`cycles` finds the operations that depend on themselves along a dimension d. A training loop is one
large cycle: parameters determine actions, actions produce experience, and experience updates the
parameters. Within one iteration, however, most of these operations are not on a cycle along t,
because they read parameters of the previous iteration, which is complete. Edges that lead to an
earlier point of another dimension are therefore removed before the search. (The paper calls a cycle
trivial if all its indices of d are d or constant, §5.2.)
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.expr import Const, Expr, Slice, Structural, Sym, max_, min_
from mmrl.pdg.build.graph import Domain, Edge, Graph, components
from mmrl.pdg.build.sets import always, never
from mmrl.pdg.clean import compose, phi

ZERO = Const(0)
NEAR = 8
"""Maximum number of blocks before or after a block that one read of a tiled operation may need."""


@dataclasses.dataclass(frozen=True, eq=False)
class Block(Structural):
    """Points of d that one run of an operation computes.

    Without a `size`, they are all points of d; otherwise, `size` points, of which the run's own
    point is the first.
    """

    name: str
    bound: Expr
    size: int | None = None

    @property
    def symbol(self) -> Sym:
        return Sym(self.name)

    @property
    def start(self) -> Expr:
        return ZERO if self.size is None else self.symbol

    @property
    def length(self) -> Expr:
        return self.bound if self.size is None else Const(self.size)

    @property
    def final(self) -> Expr:
        """First point of the last block."""
        return ZERO if self.size is None else (self.bound - 1) // self.size * self.size

    def begin(self, env: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return `env` with d set to the first point of its block."""
        return {**env, self.name: self.start.evaluate(env)}

    def cover(self, part: Expr, bound: Expr, box: Domain) -> Slice | None:
        """Return a slice that contains φ at all points of a block, or None if φ may decrease."""
        if self.size is None:
            return Slice(ZERO, bound)
        lo, hi = (part.lo, part.hi) if isinstance(part, Slice) else (part, part + 1)
        after = {self.name: self.symbol + 1}
        if not all(never(end > end.substitute(after), box) for end in (lo, hi)):
            return None
        last = hi.substitute({self.name: self.symbol + (self.size - 1)})
        first = lo if always(lo >= 0, box) else max_(lo, 0)
        return Slice(first, last if always(last <= bound, box) else min_(last, bound))

    def near(self, part: Expr, box: Domain) -> tuple[Expr, tuple[Expr, ...]] | None:
        """Return the tiles that φ reads from within a tile, or None if they may be too far away.

        The result contains the first point of the first tile, which may be negative, and an index
        for each tile. φ must not decrease along d, and may read at most `NEAR` tiles before and
        after its own. A tile beyond the ends of d is replaced by the first or last tile.
        """
        if self.size is None or self.symbol.same(part):
            return self.start, (self.symbol,)
        lo, hi = (part.lo, part.hi) if isinstance(part, Slice) else (part, part + 1)
        after, size = {self.name: self.symbol + 1}, self.size
        for end in (lo, hi):
            if self.name not in end.symbols() or not never(end > end.substitute(after), box):
                return None
        until, away = hi.substitute({self.name: self.symbol + (size - 1)}), range(NEAR + 1)
        before = (k for k in away if always(lo >= self.symbol - size * k, box))
        beyond = (k for k in away if always(until <= self.symbol + size * (k + 1), box))
        first, last = next(before, None), next(beyond, None)
        if first is None or last is None:
            return None
        tiles = [max_(self.symbol - size * k, 0) for k in range(first, 0, -1)]
        tiles += [self.symbol]
        tiles += [min_(self.symbol + size * k, self.final) for k in range(1, last + 1)]
        return self.symbol - size * first, tuple(tiles)


@dataclasses.dataclass(frozen=True, eq=False)
class Step(Structural):
    """Rule for one axis of an input, whose first entry belongs to the point `base`.

    The axis is indexed by `take` (a point or a slice), or remains as it is if `take` is None.
    """

    take: Expr | None = None
    base: Expr = ZERO


@dataclasses.dataclass(frozen=True, eq=False)
class Access(Structural):
    """Read along an edge after a move: the new φ, and the steps that extract the old input.

    - `steps`: a rule for each axis, in the order of the source's dimensions
    - `block_axis`: the position in `steps` of the axis along d, or None unless each value of the
      source contains this axis. In the input, it then comes after the axes of slices.
    - `scan_axis`: the position of the axis along d, or None unless iterating over this axis yields
      the old inputs
    - `more`: φ of each tile after the first, if the read needs several tiles. Their values are
      concatenated along d.
    """

    index: tuple[Expr, ...]
    domain: Domain  # domain of the reader, which determines the widths of slices
    steps: tuple[Step, ...] = ()
    block_axis: int | None = None
    scan_axis: int | None = None
    more: tuple[tuple[Expr, ...], ...] = ()

    @property
    def indices(self) -> tuple[tuple[Expr, ...], ...]:
        """The new φ of each tile, in the order of their points."""
        return (self.index, *self.more)

    @property
    def still(self) -> bool:
        """True if the new φ reads the old input, so that no step is needed."""
        return self.block_axis is None and all(step.take is None for step in self.steps)

    @property
    def copies(self) -> bool:
        """True if entry k of the new input is the old input at point k of the block."""
        return len(self.steps) == 1 and self.scan_axis == self.block_axis == 0

    @property
    def mixes(self) -> bool:
        """True if the leading axis of the new input does not come from its first slice."""
        sliced = [step for place, step in enumerate(self.steps) if place != self.block_axis]
        complete = [step for step in self.steps if step.take is None]
        return bool(sliced) and (not complete or complete[0] is not sliced[0])

    def order(self, *values: Any) -> Any:
        """Concatenate the values of all tiles, and order the axes like the source's dimensions."""
        last, place = len(self.steps) - 1, self.block_axis
        value = values[0] if len(values) == 1 else _join(values, last)
        return value if place is None else _move(value, last, place)

    def read(self, value: Any, env: Mapping[str, Any], start: Mapping[str, Any]) -> Any:
        """Return what the old φ reads at `env`, from an ordered input that was read at `start`."""
        bounds = {k: v for k, v in start.items() if isinstance(v, int)}

        def one(x: Any) -> Any:
            axis = 0
            for step in self.steps:
                if step.take is None:
                    axis += 1
                    continue
                base = step.base.evaluate(start)
                if isinstance(step.take, Slice):
                    lo, hi = step.take.lo.evaluate(env) - base, step.take.hi.evaluate(env) - base
                    x = _window(x, lo, hi, self.domain.largest(step.take.width(), bounds), axis)
                    axis += 1
                else:
                    place = jnp.asarray(step.take.evaluate(env) - base)
                    x = jnp.take(x, place, axis, mode="clip")
            return x

        return jax.tree.map(one, value)


def _join(values: Sequence[Any], axis: int) -> Any:
    return jax.tree.map(lambda *tiles: jnp.concatenate(tiles, axis), *values)


def order_inputs(readings: Sequence[Access], inputs: Sequence[Any]) -> list[Any]:
    """Return one ordered input per reading; `inputs` contain one value per tile of each reading."""
    values = iter(inputs)
    return [each.order(*itertools.islice(values, len(each.indices))) for each in readings]


def _move(value: Any, source: int, destination: int) -> Any:
    return jax.tree.map(lambda x: jnp.moveaxis(x, source, destination), value)


def _window(x: Any, lo: Any, hi: Any, width: int, axis: int) -> Any:
    """Return x[lo:hi] along an axis, padded with zeros to the size `width`."""
    places = lo + jnp.arange(width)
    entries = jnp.take(x, places, axis, mode="clip")
    inside = (places < hi).reshape(-1, *[1] * (x.ndim - 1 - axis))
    return jnp.where(inside, entries, jnp.zeros((), x.dtype))


def scan_inputs(
    readings: Sequence[Access], inputs: Sequence[Any], start: Mapping[str, Any]
) -> tuple[list[Any], Callable[[Mapping[str, Any], list[Any]], list[Any]]]:
    """Return the inputs to iterate over, and a function that returns all inputs at one point.

    The inputs to iterate over have the axis of d first; all other inputs are None in this list.
    The function `reads(point, here)` returns what the old φ reads at a point, given the entries
    `here` of the listed inputs at this point. `start` is the point at which the inputs were read.
    """
    values = order_inputs(readings, inputs)
    xs = [
        None if reading.scan_axis is None else _move(value, reading.scan_axis, 0)
        for reading, value in zip(readings, values, strict=True)
    ]

    def reads(point: Mapping[str, Any], here: list[Any]) -> list[Any]:
        return [
            reading.read(value, point, start) if reading.scan_axis is None else spot
            for reading, value, spot in zip(readings, values, here, strict=True)
        ]

    return xs, reads


def access(
    graph: Graph, edge: Edge, block: Block, moved: Collection[str], sinks: bool
) -> Access | None:
    """Return the access along `edge`, given that the operations in `moved` compute blocks of d.

    `sinks` is True if the reader is one of these operations. The result is None if the read makes
    the move impossible.
    """
    source, domain, name = graph.ops[edge.source], graph.ops[edge.sink].domain, block.name
    index, steps, block_axis, d_axis, at, tiles = [], [], None, None, 0, ()
    for dim, part in zip(source.domain, edge.index, strict=True):
        if dim.name == name and block.symbol.same(part):
            d_axis = len(steps)
        if source.name in moved and dim.name == name:
            # A tile can only be read from nearby tiles, whereas all of d can be read at any index.
            is_all = block.size is None
            near = block.near(part, domain.box()) if sinks or is_all else None
            if near is None:
                return None
            base, tiles = near
            block_axis, at = len(steps), len(index)
            whole = isinstance(part, Slice) and ZERO.same(part.lo) and dim.bound.same(part.hi)
            steps.append(Step() if whole else Step(part, base))
            index += [] if is_all else [tiles[0]]
        elif sinks and name in part.symbols():
            cover = block.cover(part, dim.bound, domain.box())
            if cover is None or dim.name in source.domain.when.symbols():
                return None
            index.append(cover)
            steps.append(Step(part, cover.lo))
        else:
            index.append(part)
            steps += [Step()] if isinstance(part, Slice) else []
    indexed = [(k, step.take) for k, step in enumerate(steps) if step.take is not None]
    # Only an axis of d can be iterated over: in x[t] with x over i, the axis contains points of i.
    scans = sinks and [place for place, _ in indexed] == [d_axis]
    more = tuple((*index[:at], tile, *index[at + 1 :]) for tile in tiles[1:])
    return Access(tuple(index), domain, tuple(steps), block_axis, d_axis if scans else None, more)


def entry(graph: Graph, edge: Edge, block: Block) -> Access | None:
    """Return the access of a loop over all of d to an outside input, or None if it is impossible.

    An input that exists only at some points of d, such as c * r[t + 1], is read as a block of d
    with zeros at the other points.
    """
    reading = access(graph, edge, block, (), True)
    if reading is None and block.name in graph.ops[edge.source].domain.when.symbols():
        return access(graph, edge, block, (edge.source,), True)
    return reading


@dataclasses.dataclass(frozen=True)
class Cycle:
    """Cycle of operations that depend on each other while other dimensions are fixed.

    It is trivial if every index along d is d itself or independent of d.
    """

    ops: tuple[str, ...]
    edges: tuple[Edge, ...]
    trivial: bool

    def __str__(self) -> str:
        return ", ".join(self.ops)

    def rename(self, names: Mapping[str, str]) -> "Cycle":
        """Return the cycle with the operations renamed."""
        edges = (
            dataclasses.replace(edge, sink=names[edge.sink], source=names[edge.source])
            for edge in self.edges
        )
        return Cycle(tuple(map(names.__getitem__, self.ops)), tuple(edges), self.trivial)


def cycles(graph: Graph, name: str) -> list[Cycle]:
    """Return the cycles along `name`, which are the strongly connected components of `level`."""
    results = []
    for component, inside in _components(level(graph, name)):
        ops = tuple(op for op in graph.ops if op in component)
        at = [part for edge in inside if (part := phi(graph, edge).get(name)) is not None]
        trivial = all(name not in part.symbols() or shift(part, name) == 0 for part in at)
        results.append(Cycle(ops, tuple(inside), trivial))
    return results


def _components(edges: Sequence[Edge]) -> Iterator[tuple[set[str], list[Edge]]]:
    """Yield the strongly connected groups of operations, with the edges inside each group."""
    for component in components(edges):
        inside = [e for e in edges if {e.sink, e.source} <= component]
        if inside:
            yield component, inside


def level(graph: Graph, name: str) -> list[Edge]:
    """Return the edges along which operations may depend on themselves in one loop over d.

    All other dimensions are fixed in this loop. Edges that step back along another dimension are
    removed if no edge of their component steps forward along it, because no path through them then
    returns to its start. The same holds with back and forward exchanged. A read of a merge at a
    constant index is replaced by reads of the branches that are possible there. For example,
    w[i, 0] cannot take the branch for k >= 1.
    """
    pairs = [(edge, branch) for edge in graph.edges for branch in _branches(graph, edge)]
    dims = dict.fromkeys(dim.name for op in graph.ops.values() for dim in op.domain)
    others = [dim for dim in dims if dim != name]
    while away := _lead_away(graph, list(dict.fromkeys(branch for _, branch in pairs)), others):
        pairs = [(edge, branch) for edge, branch in pairs if branch not in away]
    return list(dict.fromkeys(edge for edge, _ in pairs))


def _branches(graph: Graph, edge: Edge) -> list[Edge]:
    """Return the edge, or its replacements if it reads a merge at a constant index."""
    source, domain = graph.ops[edge.source], graph.ops[edge.sink].domain
    branches = graph.inputs(edge.source)
    is_constant = any(isinstance(part, Const) for part in edge.index)
    if source.run is not None or not is_constant or any(e.slices for e in (edge, *branches)):
        return [edge]
    compositions = (compose(graph, edge, branch) for branch in branches)
    return [each for each in compositions if not never(each.when, domain)]


def _lead_away(graph: Graph, edges: Sequence[Edge], dims: Sequence[str]) -> set[Edge]:
    """Find a component whose edges never step in opposite directions along another dimension.

    Returns the edges of the component that step along this dimension, or an empty set if there is
    no such component. An edge whose distance varies, as in w[max_(0, i - 3)], must not step in the
    opposite direction either. It is not among the returned edges, because its distance may be 0.
    """
    for _, inside in _components(edges):
        for dim in dims:
            steps = {edge: step(graph, edge, dim) for edge in inside}
            away = {edge for edge, step in steps.items() if step}
            if away and any(
                all(_leads(graph, edge, dim, way, steps[edge]) for edge in inside)
                for way in (-1, 1)
            ):
                return away
    return set()


def _leads(graph: Graph, edge: Edge, name: str, way: int, step: int | None) -> bool:
    """Return True if an edge never steps in the direction opposite to `way`, which is -1 or 1."""
    if step is not None:
        return step * way >= 0
    domain = graph.ops[edge.sink].domain
    part = phi(graph, edge).get(name) if name in domain.names else None
    if part is None or isinstance(part, Slice):
        return False
    gap = (part - Sym(name)) * way
    return never(gap < 0, domain.restrict(edge.when))


def step(graph: Graph, edge: Edge, name: str) -> int | None:
    """Return the distance of an edge along a dimension, or None if it varies between points."""
    part = phi(graph, edge).get(name) if name in graph.ops[edge.sink].domain.names else None
    return None if part is None else shift(part, name)


def shift(part: Expr, name: str) -> int | None:
    """Return c if the index is d + c, otherwise None."""
    if isinstance(part, Slice):
        return None
    difference = part - Sym(name)
    return difference.value if isinstance(difference, Const) else None
