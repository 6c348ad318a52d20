"""What an operation reads once it computes many points of a dimension d in one go.

Vectorizing, tiling and lifting all move d, or a block of it, out of the loops and into arrays.
Then an edge hands over an array with an axis for d where it handed over one point, and the points
that the old φ names are taken out of that array inside the operation. The four cases of the
paper's Algorithm 2 (is the source moved, is the sink) are one rule here.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.domain import Domain
from mmrl.pdg.expr import Add, Const, Expr, FloorDiv, Max, Min, Mul, Slice, Sub, Sym, max_, min_
from mmrl.pdg.graph import Edge, Op
from mmrl.pdg.normal import leaves

ZERO = Const(0)


@dataclasses.dataclass(frozen=True)
class Block:
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

    def count(self, env: Mapping[str, Any]) -> int:
        return int(self.bound.evaluate(env)) if self.size is None else self.size

    def cover(self, part: Expr, bound: Expr) -> Slice | None:
        """A slice that holds φ of every point of the block; None if there is none in general."""
        if self.size is None:
            return Slice(ZERO, bound)
        lo, hi = (part.lo, part.hi) if isinstance(part, Slice) else (part, part + 1)
        if not (rising(lo, self.name) and rising(hi, self.name)):
            return None
        last = hi.substitute({self.name: self.symbol + (self.size - 1)})
        ends = any(bound.same(leaf) for leaf in leaves(last, Min))
        return Slice(_positive(lo, self.name), last if ends else min_(last, bound))


@dataclasses.dataclass(frozen=True)
class Step:
    """What happens to one axis that arrives: it stays (`take` is None), or φ is taken from it.

    The axis holds the points from `base` on; `domain` is that of the reader, for widths.
    """

    take: Expr | None = None
    base: Expr = ZERO


@dataclasses.dataclass(frozen=True)
class Access:
    """An edge after the move: the new φ, and how to find in what arrives what used to arrive.

    `stored` is the place, among the axes in the order of the source's dimensions, of the axis
    that lies in the stored value itself; it arrives behind the axes of slices.
    """

    index: tuple[Expr, ...]
    steps: tuple[Step, ...]
    domain: Domain
    stored: int | None = None

    def direct(self, name: str) -> bool:
        """Whether the only thing to do is to walk along d, so that `vmap` can do it."""
        taken = [step for step in self.steps if step.take is not None]
        return len(taken) == 1 and Sym(name).same(taken[0].take) and self.walks is not None

    @property
    def walks(self) -> int | None:
        """The axis, in order of the source's dimensions, of the only point that is taken."""
        places = [i for i, step in enumerate(self.steps) if step.take is not None]
        return places[0] if len(places) == 1 else None

    @property
    def still(self) -> bool:
        """Whether what arrives is what used to arrive."""
        return all(step.take is None for step in self.steps)

    def order(self, value: Any) -> Any:
        """The axes in the order of the source's dimensions."""
        if self.stored is None:
            return value
        last = len(self.steps) - 1
        place = self.stored
        return jax.tree.map(lambda x: jnp.moveaxis(x, last, place), value)

    def read(self, value: Any, env: Mapping[str, Any], start: Mapping[str, Any]) -> Any:
        """What the old φ read at the point `env`, out of `value`, which arrived at `start`."""
        bounds = {k: v for k, v in start.items() if isinstance(v, int)}

        def one(x):
            axis = 0
            for step in self.steps:
                if step.take is None:
                    axis += 1
                    continue
                base = step.base.evaluate(start)
                if isinstance(step.take, Slice):
                    lo, hi = step.take.lo.evaluate(env) - base, step.take.hi.evaluate(env) - base
                    width = self.domain.largest(step.take.width(), bounds)
                    x = window(x, lo, hi, width, axis)
                    axis += 1
                else:
                    place = jnp.asarray(step.take.evaluate(env) - base)
                    x = jnp.take(x, place, axis, mode="clip")
            return x

        return jax.tree.map(one, self.order(value))


def window(x: Any, lo: Any, hi: Any, width: int, axis: int) -> Any:
    """x[lo:hi] along an axis, filled with zeros to `width`."""
    places = lo + jnp.arange(width)
    taken = jnp.take(x, places, axis, mode="clip")
    inside = (places < hi).reshape(-1, *[1] * (x.ndim - 1 - axis))
    return jnp.where(inside, taken, jnp.zeros((), x.dtype))


def access(
    edge: Edge, sink: Op, source: Op, block: Block, moved: Any, sinks: bool
) -> Access | None:
    """How `sink` reads `source` when the operations in `moved` compute a block of d at a time.

    `sinks` says whether the sink is one of them. None if this read forbids the move.
    """
    name, index, steps, stored = block.name, [], [], None
    for dim, part in zip(source.domain, edge.index, strict=True):
        held = source.name in moved and dim.name == name
        if held:
            if not _meets(part, block, sinks):
                return None
            stored = len(steps)
            steps.append(Step() if _whole(part, dim.bound) else Step(part, block.start))
            if block.size is not None:
                index.append(block.symbol)
        elif sinks and name in part.symbols():
            cover = block.cover(part, dim.bound)
            if cover is None or dim.name in source.domain.when.symbols():
                return None
            index.append(cover)
            steps.append(Step(part, cover.lo))
        else:
            index.append(part)
            if isinstance(part, Slice):
                steps.append(Step())
    return Access(tuple(index), tuple(steps), sink.domain, stored)


def _meets(part: Expr, block: Block, sinks: bool) -> bool:
    """Blocks of a tile can only be read by their own block; a whole dimension in any way."""
    return block.size is None or (sinks and block.symbol.same(part))


def _positive(lo: Expr, name: str) -> Expr:
    """The expression, or 0 where it is negative; as it is where it clearly never is."""
    sure = lo - Sym(name)
    known = sure if isinstance(sure, Const) else lo
    return lo if isinstance(known, Const) and not _negative(known) else max_(lo, 0)


def _negative(part: Expr) -> bool:
    return isinstance(part, Const) and part.value < 0


def _whole(part: Expr, bound: Expr) -> bool:
    return isinstance(part, Slice) and ZERO.same(part.lo) and bound.same(part.hi)


def rising(part: Expr, name: str) -> bool:
    """Is an expression sure not to fall as the symbol grows?"""
    if name not in part.symbols():
        return True
    if isinstance(part, Sub):
        return rising(part.left, name) and name not in part.right.symbols()
    if isinstance(part, Mul):
        return isinstance(part.left, Const) and part.left.value >= 0 and rising(part.right, name)
    if isinstance(part, Add | Min | Max | FloorDiv):
        return rising(part.left, name) and rising(part.right, name)
    return isinstance(part, Sym)
