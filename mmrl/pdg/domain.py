"""Where a tensor lives: the points of its symbolic dimensions.  §4, domain inference."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmrl.pdg.expr import TRUE, And, Compare, Const, Expr, Mod, Slice, Sym

Point = tuple[int, ...]
_HUGE = 2**40  # more than any bound


@dataclasses.dataclass(frozen=True)
class Dim:
    """0 <= symbol < bound. `rank` is its place in the program's order of dimensions."""

    symbol: Sym
    bound: Expr
    rank: int = 0

    @property
    def name(self) -> str:
        return self.symbol.name

    def __str__(self) -> str:
        return f"0 <= {self.symbol} < {self.bound}"


@dataclasses.dataclass(frozen=True)
class Domain:
    """Ω, the points of a box where `when` holds; no dimensions, one point: an ordinary tensor."""

    dims: tuple[Dim, ...] = ()
    when: Expr = TRUE

    @staticmethod
    def of(*names: str, when: Expr = TRUE) -> "Domain":
        """`Domain.of("i", "t")` is 0 <= i < I, 0 <= t < T."""
        dims = (Dim(Sym(name), Sym(name.upper()), rank) for rank, name in enumerate(names))
        return Domain(tuple(dims), when)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dim.name for dim in self.dims)

    @property
    def symbols(self) -> tuple[Sym, ...]:
        return tuple(dim.symbol for dim in self.dims)

    def __len__(self) -> int:
        return len(self.dims)

    def __iter__(self) -> Iterator[Dim]:
        return iter(self.dims)

    def __str__(self) -> str:
        condition = "" if TRUE.same(self.when) else f": {self.when}"
        return f"[{', '.join(self.names)}{condition}]"

    def union(self, *others: "Domain") -> "Domain":
        """Every dimension of any, in the program's order, where all are defined."""
        dims, when = {dim.name: dim for dim in self.dims}, self.when
        for other in others:
            dims |= {dim.name: dim for dim in other.dims if dim.name not in dims}
            when = when & other.when
        return Domain(tuple(sorted(dims.values(), key=lambda dim: dim.rank)), when)

    def restrict(self, when: Expr) -> "Domain":
        """The domain less the points where `when` does not hold."""
        return Domain(self.dims, self.when & when)

    def box(self) -> "Domain":
        """The domain without its condition."""
        return Domain(self.dims)

    def dense(self) -> "Domain":
        """Without conditions on remainders: what to schedule before a stride is taken.  §5.3"""
        when = TRUE
        for part in conjuncts(self.when):
            if not (isinstance(part, Compare) and isinstance(part.left, Mod)):
                when = when & part
        return Domain(self.dims, when)

    def env(self, point: Sequence[Any], bounds: Mapping[str, int]) -> dict[str, Any]:
        """The values of all symbols at a point."""
        return {**bounds, **dict(zip(self.names, point, strict=True))}

    def points(self, bounds: Mapping[str, int]) -> Iterator[Point]:
        """All points in lexicographic order, once the bounds are numbers."""
        sizes = (range(int(dim.bound.evaluate(bounds))) for dim in self.dims)
        for point in itertools.product(*sizes):
            if bool(self.when.evaluate(self.env(point, bounds))):
                yield point

    def grid(self, bounds: Mapping[str, int]) -> tuple[Point, ...]:
        """Along each dimension, the coordinates that its points have; see `polyhedra.is_grid`."""
        if TRUE.same(self.when):
            return tuple(tuple(range(int(dim.bound.evaluate(bounds)))) for dim in self)
        points = list(self.points(bounds))
        return tuple(tuple(sorted({point[k] for point in points})) for k in range(len(self)))

    def ceiling(self, width: Expr) -> int | None:
        """The most that a width can be for any bounds: n of t:min(t + n, T); None of t:T."""
        names = width.symbols().union(*(dim.bound.symbols() for dim in self.dims))
        most = self._most(width, dict.fromkeys(names, (1, _HUGE)))
        return None if most > _HUGE // 2 else most

    def largest(self, width: Expr | int, bounds: Mapping[str, int]) -> int:
        """The most that a width can be anywhere in the domain: what padded arrays hold.

        A window of n steps holds n, also where the bounds leave room for fewer.
        """
        if not isinstance(width, Expr):
            return int(width)
        most = self.ceiling(width)
        if most is None:
            most = self._most(width, {name: (size, size) for name, size in bounds.items()})
        return most

    def _most(self, width: Expr, limits: Mapping[str, tuple[int, int]]) -> int:
        """The most from limits on the bounds."""
        within = {dim.name: (0, dim.bound.interval(limits)[1] - 1) for dim in self.dims}
        return max(0, int(width.interval({**limits, **within})[1]))


def conjuncts(when: Expr) -> tuple[Expr, ...]:
    """The parts of a condition that "and" joins."""
    if isinstance(when, And):
        return (*conjuncts(when.left), *conjuncts(when.right))
    return (when,)


def reads(index: Sequence[Expr], env: Mapping[str, Any]) -> Iterator[Point]:
    """The points that φ stands for where the symbols have the values in `env`."""
    axes = []
    for part in index:
        if isinstance(part, Slice):
            axes.append(range(part.lo.evaluate(env), part.hi.evaluate(env)))
        else:
            axes.append((part.evaluate(env),))
    return itertools.product(*axes)


def shape(sizes: Sequence[int | Expr]) -> tuple[int | Expr, ...]:
    """A shape whose constant entries are ints."""
    return tuple(int(n.value) if isinstance(n, Const) else n for n in sizes)
