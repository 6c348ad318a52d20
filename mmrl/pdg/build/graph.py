"""The polyhedral dependence graph: operations, where they run, and what they read.  §5.1

A *tensor* is one output of an operation at a point of its domain; its value is a pytree of arrays
(parameters, states of environments and observations are tensors). A branching definition is an
operation of kind "merge": exactly one of the conditions of its edges holds at each point.

A tensor exists at the points of its symbolic dimensions.  §4, domain inference.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mmrl.pdg.build.expr import TRUE, And, Compare, Const, Expr, Mod, Slice, Structural, Sym

Output = tuple[str, int]  # an operation, and which of its outputs


Point = tuple[int, ...]
_HUGE = 2**40  # more than any bound


@dataclasses.dataclass(frozen=True, eq=False)
class Dim(Structural):
    """0 <= symbol < bound. `rank` is its place in the program's order of dimensions."""

    symbol: Sym
    bound: Expr
    rank: int = 0

    @property
    def name(self) -> str:
        return self.symbol.name

    def __str__(self) -> str:
        return f"0 <= {self.symbol} < {self.bound}"


@dataclasses.dataclass(frozen=True, eq=False)
class Domain(Structural):
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

    def at(self, name: str, coordinate: Expr | int) -> tuple[Expr | int, ...]:
        """The index of this point but for its coordinate along one dimension."""
        return tuple(coordinate if dim.name == name else dim.symbol for dim in self)

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
        """Along each dimension, the coordinates that its points have; see `sets.is_grid`."""
        if TRUE.same(self.when):
            return tuple(tuple(range(int(dim.bound.evaluate(bounds)))) for dim in self)
        points = list(self.points(bounds))
        return tuple(tuple(sorted({point[k] for point in points})) for k in range(len(self)))

    def ceiling(self, width: Expr) -> int | None:
        """The most that a width can be for any bounds: n of t:min(t + n, T); None of t:T."""
        names = width.symbols().union(*(dim.bound.symbols() for dim in self.dims))
        most = self._most(width, dict.fromkeys(names, (1, _HUGE)))
        return None if most > _HUGE // 2 else most

    def largest(self, width: Expr | int, bounds: Mapping[str, Any]) -> int:
        """The most that a width can be anywhere in the domain: what padded arrays hold.

        A window of n steps holds n, also where the bounds leave room for fewer.
        """
        if not isinstance(width, Expr):
            return int(width)
        most = self.ceiling(width)
        if most is None:
            numbers = {name: n for name, n in bounds.items() if isinstance(n, int)}
            most = self._most(width, {name: (n, n) for name, n in numbers.items()})
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


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayType(Structural):
    """Shape and dtype of an array; an entry of the shape may depend on the point ("T - t").

    Such a ragged array is stored at the largest size it has in the domain, padded with zeros.
    """

    shape: tuple[int | Expr, ...]
    dtype: np.dtype

    def padded(self, domain: Domain, bounds: Mapping[str, Any]) -> jax.ShapeDtypeStruct:
        """The array that is stored, once the bounds are numbers."""
        sizes = tuple(domain.largest(size, bounds) for size in self.shape)
        return jax.ShapeDtypeStruct(sizes, self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True, eq=False)
class Op:
    """An operation: at each point of `domain`, `run(env, *inputs)` gives the tuple of its outputs.

    `outputs` holds, of each output, a pytree of `ArrayType`. `env` has every symbol's value at the
    point (an int, or traced) and every bound's (an int). A merge has no `run`. `needs` is what must
    hold at every point, so that there is a value.
    """

    name: str
    kind: str
    domain: Domain
    outputs: tuple[Any, ...]
    run: Callable[..., tuple[Any, ...]] | None = None
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    needs: Expr = TRUE

    def types(self, bounds: Mapping[str, int]) -> tuple[Any, ...]:
        """A pytree of `jax.ShapeDtypeStruct` for each output: what one point stores."""
        return jax.tree.map(lambda leaf: leaf.padded(self.domain, bounds), self.outputs)

    def __str__(self) -> str:
        outputs = "; ".join(type_text(output) for output in self.outputs)
        return f"{self.name}{self.domain} = {self.kind}: {outputs}"


@dataclasses.dataclass(frozen=True, eq=False)
class Edge(Structural):
    """The `sink` at p reads the `source` at φ(p) = `index`, where ψ(p) = `when`.  §5.1

    `index` has a point expression or a `Slice` for each dimension of the *source*. Points of a
    slice arrive stacked along a new leading axis, in the order of the dimensions.
    """

    sink: str
    source: str
    index: tuple[Expr, ...]
    when: Expr = TRUE
    input: int = 0
    output: int = 0

    @property
    def tensor(self) -> tuple[str, int]:
        """The tensor that is read: an operation and one of its outputs."""
        return self.source, self.output

    @property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(part for part in self.index if isinstance(part, Slice))

    def __str__(self) -> str:
        condition = "" if TRUE.same(self.when) else f" if {self.when}"
        output = f".{self.output}" if self.output else ""
        return f"{self.sink} <- {self.source}{output}[{', '.join(map(str, self.index))}]{condition}"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A program: operations by name, edges, the names of the bounds, and the results.

    `results` are (operation, output) pairs whose tensors stay when the program has ended.
    """

    ops: dict[str, Op]
    edges: tuple[Edge, ...]
    bounds: tuple[str, ...]
    results: tuple[tuple[str, int], ...] = ()

    @functools.cached_property
    def _inputs(self) -> dict[str, tuple[Edge, ...]]:
        found: dict[str, tuple[Edge, ...]] = {}
        for edge in sorted(self.edges, key=lambda edge: edge.input):
            found[edge.sink] = (*found.get(edge.sink, ()), edge)
        return found

    @functools.cached_property
    def tensors(self) -> list[Output]:
        """All outputs of all operations."""
        return [(name, k) for name, op in self.ops.items() for k in range(len(op.outputs))]

    def inputs(self, sink: str) -> tuple[Edge, ...]:
        """The edges into `sink`, by argument; a merge has several into argument 0."""
        return self._inputs.get(sink, ())

    def readers(self, source: str) -> tuple[Edge, ...]:
        """The edges along which others read `source`."""
        return tuple(edge for edge in self.edges if edge.source == source)

    def sizes(self, bounds: Mapping[str, int]) -> dict[str, int]:
        """The bounds as numbers, checked.

        Raises `ValueError` if one is missing, unknown, not a whole number or below 1. Whether they
        are large enough for what the program reads is asked by `validate.fitting`.
        """
        wanted, got = list(self.bounds), {str(name): size for name, size in bounds.items()}
        for name in wanted:
            if name not in got:
                raise ValueError(f"`bounds` must give {name} a number, got {got}")
        for name, size in got.items():
            if name not in wanted:
                raise ValueError(f"`bounds` must name {wanted} of the graph and not {name}")
            if not isinstance(size, int | np.integer):
                raise ValueError(f"`bounds` must be whole numbers, got {name} = {size!r}")
            if size < 1:
                raise ValueError(f"`bounds` begin at 1, got {name} = {size}")
        return {name: int(got[name]) for name in wanted}

    def replace(self, **changes: Any) -> "Graph":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        return f"Graph({len(self.ops)} operations, results={self.results})"

    def __str__(self) -> str:
        lines = []
        for op in self.ops.values():
            lines.append(str(op))
            lines += [f"    {edge}" for edge in self.inputs(op.name)]
        return "\n".join(lines)


def reach(start: Iterable[Any], after: Callable[[Any], Iterable[Any]]) -> set[Any]:
    """Return all that can be reached from `start`, itself included, by steps of `after`."""
    found = set(start)
    ready = list(found)
    while ready:
        new = set(after(ready.pop())) - found
        found |= new
        ready += new
    return found


def components(edges: Iterable["Edge"]) -> list[set[str]]:
    """Groups of operations that can reach each other, each group after all that it reads."""
    after: dict[str, list[str]] = {}
    for edge in edges:
        after.setdefault(edge.sink, []).append(edge.source)
        after.setdefault(edge.source, [])
    reached = {name: reach([name], after.__getitem__) for name in after}
    order = sorted(after, key=lambda name: len(reached[name]))
    groups = (frozenset(x for x in reached[name] if name in reached[x]) for name in order)
    return [set(group) for group in dict.fromkeys(groups)]


def array_type(sizes: tuple[int | Expr, ...], dtype: Any) -> ArrayType:
    """`ArrayType` from anything that numpy takes as a dtype."""
    return ArrayType(shape(sizes), np.dtype(dtype))


def ragged(kind: Any) -> dict[str, Expr]:
    """The sizes in a tree of types that depend on the point, by their text."""
    leaves = (leaf for leaf in jax.tree.leaves(kind) if isinstance(leaf, ArrayType))
    return {str(n): n for leaf in leaves for n in leaf.shape if isinstance(n, Expr)}


def type_text(output: Any) -> str:
    """A pytree of types in one line."""
    leaves = jax.tree.leaves(output)
    return ", ".join(map(str, leaves[:3])) + (f", … ({len(leaves)})" if len(leaves) > 3 else "")
