"""Polyhedral dependence graph: operations, their domains, and their reads.  §5.1

A *tensor* is one output of an operation. At each point of the operation's domain, its value is a
pytree of arrays, such as an observation, an environment state or parameters. Domains are inferred:
an operation has the dimensions of all its indexed inputs (§4). A branching definition is an
operation of kind "merge". At each point, exactly one of the conditions of its edges holds.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.pdg.build.expr import TRUE, And, Compare, Const, Expr, Mod, Slice, Structural, Sym

Output = tuple[str, int]  # name of an operation, and index of one of its outputs


Point = tuple[int, ...]
_HUGE = 2**40  # assumed to be larger than any bound


class Symbols(tuple[Sym, ...]):
    """Symbols or bounds of a program, which must be unpacked before they are used.

    Raises `TypeError` for arithmetic and comparisons, which Python defines for other tuples.
    """

    def refuse(self, other: Any = None) -> Any:
        """Raise `TypeError`, because the symbols were not unpacked; `other` may be a tuple."""
        if isinstance(other, tuple):
            return NotImplemented
        raise TypeError(
            f"`{self}` is a tuple, and must be unpacked before it is used in an index, as in "
            f"`(t,), (T,) = p.symbols, p.bounds` for one dimension"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = refuse
    __mod__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = refuse
    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"({', '.join(map(str, self))}{',' * (len(self) == 1)})"


@dataclasses.dataclass(frozen=True, eq=False)
class Dim(Structural):
    """Dimension 0 <= symbol < bound, with its position `rank` among the program's dimensions.

    >>> print(Dim(Sym("k"), Sym("T")))
    0 <= k < T
    """

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
    """Domain Ω: the points of a box at which the condition `when` holds.

    The domain of an ordinary tensor, without symbolic dimensions, has a single point.

        >>> list(Domain.of("t").points({"T": 3}))
        [(0,), (1,), (2,)]
    """

    dims: tuple[Dim, ...] = ()
    when: Expr = TRUE

    @staticmethod
    def of(*names: str, when: Expr = TRUE) -> "Domain":
        """Return a domain from names: `Domain.of("i", "t")` is 0 <= i < I, 0 <= t < T."""
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
        """Return a domain that has all the domains' dimensions and satisfies all their conditions.

        The dimensions are in the program's order.
        """
        dims, when = {dim.name: dim for dim in self.dims}, self.when
        for other in others:
            dims |= {dim.name: dim for dim in other.dims if dim.name not in dims}
            when = when & other.when
        return Domain(tuple(sorted(dims.values(), key=lambda dim: dim.rank)), when)

    def restrict(self, when: Expr) -> "Domain":
        """Return the domain without the points at which `when` is false."""
        return Domain(self.dims, self.when & when)

    def box(self) -> "Domain":
        """Return the domain without the condition `when`."""
        return Domain(self.dims)

    def dense(self) -> "Domain":
        """Return the domain without strides, which are conditions on remainders.  §5.3"""
        when = TRUE
        for part in conjuncts(self.when):
            if not (isinstance(part, Compare) and isinstance(part.left, Mod)):
                when = when & part
        return Domain(self.dims, when)

    def at(self, name: str, coordinate: Expr | int) -> tuple[Expr | int, ...]:
        """Return the index of the current point, with one coordinate replaced."""
        return tuple(coordinate if dim.name == name else dim.symbol for dim in self)

    def env(self, point: Sequence[Any], bounds: Mapping[str, int]) -> dict[str, Any]:
        """Return the values of all counters and bounds at a point."""
        return {**bounds, **dict(zip(self.names, point, strict=True))}

    def points(self, bounds: Mapping[str, int]) -> Iterator[Point]:
        """Yield all points for the given bounds, in lexicographic order."""
        sizes = (range(int(dim.bound.evaluate(bounds))) for dim in self.dims)
        for point in itertools.product(*sizes):
            if bool(self.when.evaluate(self.env(point, bounds))):
                yield point

    def grid(self, bounds: Mapping[str, int]) -> tuple[Point, ...]:
        """Return the coordinates that occur along each dimension. See also `sets.is_grid`."""
        if TRUE.same(self.when):
            return tuple(tuple(range(int(dim.bound.evaluate(bounds)))) for dim in self)
        points = list(self.points(bounds))
        return tuple(tuple(sorted({point[k] for point in points})) for k in range(len(self)))

    def ceiling(self, width: Expr) -> int | None:
        """Return an upper limit on a width that is valid for all bounds, or None.

        For example, t:min(t + n, T) has the limit n, and t:T has none.
        """
        names = width.symbols().union(*(dim.bound.symbols() for dim in self.dims))
        most = self._most(width, dict.fromkeys(names, (1, _HUGE)))
        return None if most > _HUGE // 2 else most

    def largest(self, width: Expr | int, bounds: Mapping[str, Any]) -> int:
        """Return an upper limit on a width in the domain, which is the size of padded arrays.

        For a window of n steps, the limit is n even if the bounds are smaller. The domain's
        condition `when` is ignored.
        """
        if not isinstance(width, Expr):
            return int(width)
        most = self.ceiling(width)
        if most is None:
            numbers = {name: n for name, n in bounds.items() if isinstance(n, int)}
            most = self._most(width, {name: (n, n) for name, n in numbers.items()})
        return most

    def _most(self, width: Expr, limits: Mapping[str, tuple[int, int]]) -> int:
        """Return an upper limit on a width, given limits on the bounds."""
        within = {dim.name: (0, dim.bound.interval(limits)[1] - 1) for dim in self.dims}
        return max(0, int(width.interval({**limits, **within})[1]))


def conjuncts(when: Expr) -> tuple[Expr, ...]:
    """Split a condition into the parts that are joined by "and"."""
    if isinstance(when, And):
        return (*conjuncts(when.left), *conjuncts(when.right))
    return (when,)


def split(when: Expr, names: Collection[str]) -> tuple[Expr, Expr]:
    """Split a condition into the part that contains any of the symbols, and the rest."""
    inside, outside = TRUE, TRUE
    for part in conjuncts(when):
        if part.symbols() & set(names):
            inside = inside & part
        else:
            outside = outside & part
    return inside, outside


def reads(index: Sequence[Expr], env: Mapping[str, Any]) -> Iterator[Point]:
    """Return the points that an index φ reads, given the values of its symbols in `env`.

    >>> list(reads([Slice(Sym("t"), Sym("T"))], {"t": 1, "T": 4}))
    [(1,), (2,), (3,)]
    """
    axes = []
    for part in index:
        if isinstance(part, Slice):
            axes.append(range(part.lo.evaluate(env), part.hi.evaluate(env)))
        else:
            axes.append((part.evaluate(env),))
    return itertools.product(*axes)


def shape(sizes: Sequence[int | Expr]) -> tuple[int | Expr, ...]:
    """Convert constant expressions in a shape to integers."""
    return tuple(int(n.value) if isinstance(n, Const) else n for n in sizes)


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayType(Structural):
    """Shape and dtype of an array. Sizes may depend on the point, such as T - t.

    An array with such a size is ragged. It is stored with padding of zeros, at a size that is large
    enough for all points of its domain (`Domain.largest`).
    """

    shape: tuple[int | Expr, ...]
    dtype: np.dtype

    def storage_type(self, domain: Domain, bounds: Mapping[str, Any]) -> jax.ShapeDtypeStruct:
        """Return the type of the stored array for the given bounds."""
        sizes = tuple(domain.largest(size, bounds) for size in self.shape)
        return jax.ShapeDtypeStruct(sizes, self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True, eq=False)
class Op:
    """Operation: at each point of `domain`, `run(env, *inputs)` returns a tuple of outputs.

    `outputs` contains a pytree of `ArrayType` for each output. `env` contains the value of each
    symbol at the point (an integer or a tracer) and of each bound (an integer). A merge has no
    `run`. The condition `needs` must hold at every point; otherwise the operation has no value.
    """

    name: str
    kind: str
    domain: Domain
    outputs: tuple[Any, ...]
    run: Callable[..., tuple[Any, ...]] | None = None
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    needs: Expr = TRUE

    def types(self, bounds: Mapping[str, int]) -> tuple[Any, ...]:
        """Return the types of the stored outputs, as pytrees of `jax.ShapeDtypeStruct`."""
        return jax.tree.map(lambda leaf: leaf.storage_type(self.domain, bounds), self.outputs)

    def __str__(self) -> str:
        outputs = "; ".join(type_text(output) for output in self.outputs)
        return f"{self.name}{self.domain} = {self.kind}: {outputs}"


@dataclasses.dataclass(frozen=True, eq=False)
class Edge(Structural):
    """Edge: at p, the `sink` reads the `source` at φ(p) = `index` if ψ(p) = `when` holds.  §5.1

    `index` contains an expression or a `Slice` for each dimension of the *source*. Each slice
    stacks its points along a new leading axis, in the order of the dimensions.
    """

    sink: str
    source: str
    index: tuple[Expr, ...]
    when: Expr = TRUE
    input: int = 0
    output: int = 0

    @property
    def tensor(self) -> tuple[str, int]:
        """Tensor that is read: the name of an operation, and the index of one of its outputs."""
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
    """Program as a graph: operations by name, edges, names of the bounds, and results.

    `results` contains the (operation, output) pairs of the tensors that a run returns.
    """

    ops: dict[str, Op]
    edges: tuple[Edge, ...]
    bounds: tuple[str, ...]
    results: tuple[tuple[str, int], ...] = ()

    @functools.cached_property
    def _inputs(self) -> dict[str, tuple[Edge, ...]]:
        edges: dict[str, tuple[Edge, ...]] = {}
        for edge in sorted(self.edges, key=lambda edge: edge.input):
            edges[edge.sink] = (*edges.get(edge.sink, ()), edge)
        return edges

    @functools.cached_property
    def tensors(self) -> list[Output]:
        """All outputs of all operations."""
        return [(name, k) for name, op in self.ops.items() for k in range(len(op.outputs))]

    def inputs(self, sink: str) -> tuple[Edge, ...]:
        """Return the edges into `sink`, sorted by argument; edges of a merge have argument 0."""
        return self._inputs.get(sink, ())

    def readers(self, source: str) -> tuple[Edge, ...]:
        """Return the edges along which operations read `source`."""
        return tuple(edge for edge in self.edges if edge.source == source)

    def sizes(self, bounds: Mapping[str, int]) -> dict[str, int]:
        """Check the bounds, and return them as integers.

        Raises `ValueError` if a bound is missing, unknown, not an integer, or smaller than 1.
        `validate.check_bounds` also checks that the bounds are large enough for the reads.
        """
        names, sizes = list(self.bounds), {str(name): size for name, size in bounds.items()}
        for name in names:
            if name not in sizes:
                raise ValueError(f"`bounds` must contain {name}, got {sizes}; add {name}=…")
        for name, size in sizes.items():
            if name not in names:
                raise ValueError(f"`bounds` must contain only {names}, got {name}")
            if not isinstance(size, int | np.integer):
                raise ValueError(f"`bounds` must be integers, got {name} = {size!r}")
            if size < 1:
                raise ValueError(f"`bounds` must be at least 1, got {name} = {size}")
        return {name: int(sizes[name]) for name in names}

    def replace(self, **changes: Any) -> "Graph":
        """Return a copy with some fields changed."""
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
    """Return all nodes that are reachable from `start`; `after` returns a node's successors."""
    nodes = set(start)
    ready = list(nodes)
    while ready:
        new = set(after(ready.pop())) - nodes
        nodes |= new
        ready += new
    return nodes


def components(edges: Iterable["Edge"]) -> list[set[str]]:
    """Return the strongly connected components of the operations, in topological order.

    A component comes after all components that it reads.
    """
    after: dict[str, list[str]] = {}
    for edge in edges:
        after.setdefault(edge.sink, []).append(edge.source)
        after.setdefault(edge.source, [])
    closures = {name: reach([name], after.__getitem__) for name in after}
    order = sorted(after, key=lambda name: len(closures[name]))
    groups = (frozenset(x for x in closures[name] if name in closures[x]) for name in order)
    return [set(group) for group in dict.fromkeys(groups)]


def array_type(sizes: tuple[int | Expr, ...], dtype: Any) -> ArrayType:
    """Return an `ArrayType` with any dtype that NumPy accepts.

    Raises `ValueError` for a typed random key.
    """
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise ValueError(
            "a value must be an array, got a typed key: write `p.sample(f, …)` in place of "
            "`p.fn(f, key, …)`, which passes a separate key at each point; otherwise, use "
            "`jax.random.key_data(key)`"
        )
    return ArrayType(shape(sizes), np.dtype(dtype))


def ragged(kind: Any) -> dict[str, Expr]:
    """Return all sizes in a tree of types that depend on the point, keyed by their strings."""
    leaves = (leaf for leaf in jax.tree.leaves(kind) if isinstance(leaf, ArrayType))
    return {str(n): n for leaf in leaves for n in leaf.shape if isinstance(n, Expr)}


def type_text(output: Any) -> str:
    """Format a pytree of types on one line."""
    leaves = jax.tree.leaves(output)
    return ", ".join(map(str, leaves[:3])) + (f", … ({len(leaves)})" if len(leaves) > 3 else "")
