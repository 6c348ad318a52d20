"""Reads of an operation that computes many points of a dimension d in one go.

Vectorizing, tiling and lifting all move d, or a block of it, out of the loops and into arrays.
Then an edge hands over an array with an axis for d where it handed over one point, and the points
that the old φ names are taken out of that array inside the operation. The four cases of the
paper's Algorithm 2 (is the source moved, is the sink) are one rule here.

`cycles` finds the operations that depend on themselves, seen from one dimension d. A training loop
is one great cycle: parameters act, actions make experience, experience makes parameters. Along t,
most of it is none: what goes through the iteration before is done by then. So edges that lead to an
earlier point of another dimension are left out before cycles are looked for. (The paper calls a
cycle trivial if all its indices of d are d or constant, §5.2.)
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.expr import Const, Expr, Slice, Structural, Sym, max_, min_
from mmrl.pdg.build.graph import Domain, Edge, Graph, components
from mmrl.pdg.build.sets import always, never
from mmrl.pdg.clean import composed, phi

ZERO = Const(0)


@dataclasses.dataclass(frozen=True, eq=False)
class Block(Structural):
    """The points of d that one run computes: all of them, or `size` from the one that names it."""

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

    def begin(self, env: Mapping[str, Any]) -> Mapping[str, Any]:
        """The first point of the block that `env` names."""
        return {**env, self.name: self.start.evaluate(env)}

    def cover(self, part: Expr, bound: Expr, box: Domain) -> Slice | None:
        """A slice that holds φ of every point of a block in the box; None if there is none."""
        if self.size is None:
            return Slice(ZERO, bound)
        lo, hi = (part.lo, part.hi) if isinstance(part, Slice) else (part, part + 1)
        after = {self.name: self.symbol + 1}
        if not all(never(end > end.substitute(after), box) for end in (lo, hi)):
            return None
        last = hi.substitute({self.name: self.symbol + (self.size - 1)})
        first = lo if always(lo >= 0, box) else max_(lo, 0)
        return Slice(first, last if always(last <= bound, box) else min_(last, bound))


@dataclasses.dataclass(frozen=True, eq=False)
class Step(Structural):
    """The fate of one axis that arrives: it stays (`take` is None), or φ is taken from it.

    The axis holds the points from `base` on.
    """

    take: Expr | None = None
    base: Expr = ZERO


@dataclasses.dataclass(frozen=True, eq=False)
class Access(Structural):
    """An edge after the move: the new φ, and how to find in what arrives what used to arrive.

    `steps` are for the axes in the order of the source's dimensions. `stored` is the place among
    them of the axis that lies in the stored value itself; it arrives behind the axes of slices.
    `walked` is the place of the axis of d, if all there is to do is to walk along it.
    """

    index: tuple[Expr, ...]
    domain: Domain  # of the reader, for the widths of slices
    steps: tuple[Step, ...] = ()
    stored: int | None = None
    walked: int | None = None

    @property
    def still(self) -> bool:
        """True if the read returns the values that it returned before."""
        return self.stored is None and all(step.take is None for step in self.steps)

    @property
    def copies(self) -> bool:
        """True if the read returns, at each point of the block, the values as before."""
        return len(self.steps) == 1 and self.walked == self.stored == 0

    @property
    def mixes(self) -> bool:
        """True if the leading axis of a value is not the axis of its first slice."""
        sliced = [step for place, step in enumerate(self.steps) if place != self.stored]
        kept = [step for step in self.steps if step.take is None]
        return bool(sliced) and (not kept or kept[0] is not sliced[0])

    def order(self, value: Any) -> Any:
        """The axes in the order of the source's dimensions."""
        last, place = len(self.steps) - 1, self.stored
        return value if place is None else _move(value, last, place)

    def read(self, value: Any, env: Mapping[str, Any], start: Mapping[str, Any]) -> Any:
        """The value that the old φ read at the point `env`, from an ordered one from `start`."""
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


def _move(value: Any, source: int, destination: int) -> Any:
    return jax.tree.map(lambda x: jnp.moveaxis(x, source, destination), value)


def _window(x: Any, lo: Any, hi: Any, width: int, axis: int) -> Any:
    """x[lo:hi] along an axis, filled with zeros to `width`."""
    places = lo + jnp.arange(width)
    taken = jnp.take(x, places, axis, mode="clip")
    inside = (places < hi).reshape(-1, *[1] * (x.ndim - 1 - axis))
    return jnp.where(inside, taken, jnp.zeros((), x.dtype))


def arrive(
    readings: Sequence[Access], inputs: Sequence[Any], start: Mapping[str, Any]
) -> tuple[list[Any], Callable[[Mapping[str, Any], list[Any]], list[Any]]]:
    """The axes to walk along, d first, and `reads(point, walked)`: what the old φ read at a point.

    None stands for inputs that are not walked along. `start` is the point at which all arrived.
    """
    ordered = [reading.order(value) for reading, value in zip(readings, inputs, strict=True)]
    walked = [
        None if reading.walked is None else _move(value, reading.walked, 0)
        for reading, value in zip(readings, ordered, strict=True)
    ]

    def reads(point: Mapping[str, Any], here: list[Any]) -> list[Any]:
        return [
            reading.read(value, point, start) if reading.walked is None else spot
            for reading, value, spot in zip(readings, ordered, here, strict=True)
        ]

    return walked, reads


def access(
    graph: Graph, edge: Edge, block: Block, moved: Collection[str], sinks: bool
) -> Access | None:
    """Return a read for operations in `moved` that compute a block of d at a time.

    `sinks`: whether the reading operation is one of them. None if this read forbids the move.
    """
    source, domain, name = graph.ops[edge.source], graph.ops[edge.sink].domain, block.name
    index, steps, stored, along = [], [], None, None
    for dim, part in zip(source.domain, edge.index, strict=True):
        if dim.name == name and block.symbol.same(part):
            along = len(steps)
        if source.name in moved and dim.name == name:
            # A block of a tile can only be read by its own block; all of d in any way.
            if block.size is not None and not (sinks and block.symbol.same(part)):
                return None
            stored = len(steps)
            whole = isinstance(part, Slice) and ZERO.same(part.lo) and dim.bound.same(part.hi)
            steps.append(Step() if whole else Step(part, block.start))
            index += [] if block.size is None else [block.symbol]
        elif sinks and name in part.symbols():
            cover = block.cover(part, dim.bound, domain.box())
            if cover is None or dim.name in source.domain.when.symbols():
                return None
            index.append(cover)
            steps.append(Step(part, cover.lo))
        else:
            index.append(part)
            steps += [Step()] if isinstance(part, Slice) else []
    taken = [(k, step.take) for k, step in enumerate(steps) if step.take is not None]
    # Not along x[t] of a tensor over i: it has as many points as i.
    walks = sinks and [place for place, _ in taken] == [along]
    return Access(tuple(index), domain, tuple(steps), stored, along if walks else None)


@dataclasses.dataclass(frozen=True)
class Cycle:
    """Operations that depend on each other at one point of the other dimensions.

    It is trivial if all its indices of d are d itself or do not depend on it.
    """

    ops: tuple[str, ...]
    edges: tuple[Edge, ...]
    trivial: bool

    def __str__(self) -> str:
        return ", ".join(self.ops)

    def renamed(self, names: Mapping[str, str]) -> "Cycle":
        """This cycle after its operations were given new names."""
        edges = (
            dataclasses.replace(edge, sink=names[edge.sink], source=names[edge.source])
            for edge in self.edges
        )
        return Cycle(tuple(map(names.__getitem__, self.ops)), tuple(edges), self.trivial)


def cycles(graph: Graph, name: str) -> list[Cycle]:
    """The cycles along d = `name`: strongly connected components of what is left of the graph."""
    found = []
    for component, inside in _components(level(graph, name)):
        ops = tuple(op for op in graph.ops if op in component)
        at = [part for edge in inside if (part := phi(graph, edge).get(name)) is not None]
        trivial = all(name not in part.symbols() or shift(part, name) == 0 for part in at)
        found.append(Cycle(ops, tuple(inside), trivial))
    return found


def _components(edges: Sequence[Edge]) -> Iterator[tuple[set[str], list[Edge]]]:
    """Groups of operations that reach each other, and the edges inside each."""
    for component in components(edges):
        inside = [e for e in edges if {e.sink, e.source} <= component]
        if inside:
            yield component, inside


def level(graph: Graph, name: str) -> list[Edge]:
    """The edges on which an operation may depend on itself at one point of the other dimensions.

    On a component whose edges all lead to no later point of another dimension, those that lead to
    an earlier one are left out: no way along them ends where it began. Or the other way around. A
    read of one point of a merge is one of the branches that there can be, as w[i, 0] is none of
    those for k >= 1.
    """
    found = [(edge, taken) for edge in graph.edges for taken in _branches(graph, edge)]
    dims = dict.fromkeys(dim.name for op in graph.ops.values() for dim in op.domain)
    others = [dim for dim in dims if dim != name]
    while gone := _lead_away(graph, list(dict.fromkeys(taken for _, taken in found)), others):
        found = [(edge, taken) for edge, taken in found if taken not in gone]
    return list(dict.fromkeys(edge for edge, _ in found))


def _branches(graph: Graph, edge: Edge) -> list[Edge]:
    """The edge, or what it reads through a merge of which it takes a fixed point."""
    source, domain = graph.ops[edge.source], graph.ops[edge.sink].domain
    branches = graph.inputs(edge.source)
    fixed = any(isinstance(part, Const) for part in edge.index)
    if source.run is not None or not fixed or any(e.slices for e in (edge, *branches)):
        return [edge]
    found = (composed(graph, edge, branch) for branch in branches)
    return [each for each in found if not never(each.when, domain)]


def _lead_away(graph: Graph, edges: Sequence[Edge], dims: Sequence[str]) -> set[Edge]:
    """The edges of a component that lead to another point of a dimension, all the same way."""
    for _, inside in _components(edges):
        for dim in dims:
            steps = {edge: step(graph, edge, dim) for edge in inside}
            known = [step for step in steps.values() if step is not None]
            gone = {edge for edge, step in steps.items() if step}
            if gone and len(known) == len(inside) and (max(known) <= 0 or min(known) >= 0):
                return gone
    return set()


def step(graph: Graph, edge: Edge, name: str) -> int | None:
    """Return the distance of an edge along a dimension if all points share it, else None."""
    part = phi(graph, edge).get(name) if name in graph.ops[edge.sink].domain.names else None
    return None if part is None else shift(part, name)


def shift(part: Expr, name: str) -> int | None:
    """c if the index is d + c."""
    if isinstance(part, Slice):
        return None
    difference = part - Sym(name)
    return difference.value if isinstance(difference, Const) else None
