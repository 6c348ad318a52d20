"""Random recurrence programs, which are built with `Program` and evaluated directly as a reference.

A sampled program is a list of nodes whose indices and conditions are strings with Python
expressions. `build` evaluates such a string with symbols, which results in an index expression.
`Hand` evaluates the same string with the integers of a point. `Hand` does not compute domains: if a
node has no value at a point, looking up the value raises `Missing`.
"""

import dataclasses
import functools
import itertools
import operator
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from mmrl.pdg.build.expr import max_, min_
from mmrl.pdg.build.program import Program, fn
from mmrl.pdg.build.tensor import Tensor

DATA = np.asarray(jax.random.normal(jax.random.key(0), (2, 2, 4, 8)))  # x0 and x1 at all [b, i, t]
ORIGIN = {"b": 0, "i": 0, "t": 0}
GAMMA = 0.5


@dataclasses.dataclass(frozen=True)
class Leaf:
    """Input x[b, i, t] with known values, along some of its dimensions."""

    number: int
    dims: str


@dataclasses.dataclass(frozen=True)
class Read:
    """Value of source[index]; `fold` reduces the values that slices select to a scalar."""

    source: int
    index: tuple[str, ...]
    fold: str = ""


@dataclasses.dataclass(frozen=True)
class Pair:
    """Function of two values at the same point."""

    kind: str
    first: int
    second: int


@dataclasses.dataclass(frozen=True)
class Merge:
    """Definition by cases, whose values may depend on the merge itself."""

    dims: str
    cases: tuple[tuple[tuple[str, ...], int], ...]


Node = Leaf | Read | Pair | Merge


@dataclasses.dataclass(frozen=True)
class Draw:
    """Sampled program with its results and the bounds of a run.

    The last node is always a result; other nodes may be results too.
    """

    names: str
    nodes: Sequence[Node]
    results: tuple[int, ...]
    bounds: Mapping[str, int]

    def __str__(self) -> str:
        lines = [f"{k}: {node}" for k, node in enumerate(self.nodes)]
        return "\n".join([*lines, f"results {self.results} at {self.bounds}"])


def index(text: str, env: Mapping[str, Any]) -> Any:
    """Evaluate a string as an index, slice or condition, with the variables in `env`."""
    values = {"min_": min_, "max_": max_, **env}
    results = [eval(part, values) for part in parts(text)]
    return slice(*results) if len(results) > 1 else results[0]


@functools.cache
def parts(text: str) -> list[types.CodeType]:
    return [compile(part, "index", "eval") for part in text.split(":")]


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + 0.5 * b,
    "product": lambda a, b: a * b,
    "smooth": lambda a, b: a.tanh() - b if isinstance(a, Tensor) else jnp.tanh(a) - b,
    "first": lambda a, b: a * 1.5 + 0.0 * b,
    "larger": lambda a, b: (
        (a < b).where(b, a * 0.5) if isinstance(a, Tensor) else jnp.where(a < b, b, a * 0.5)
    ),
    "vector": lambda a, b: anywhere(lambda a, b: jnp.stack([a, b, a * b]), a, b) @ WEIGHTS,
    "outputs": lambda a, b: operator.sub(*anywhere(lambda a, b: (a * b, jnp.sin(a)), a, b)),
    # The next three functions have a pytree as state: pack(scalar, scalar), step(pytree, scalar),
    # and unpack(pytree, scalar).
    "pack": lambda a, b: anywhere(lambda a, b: {"u": a, "v": [jnp.stack([a, b])]}, a, b),
    "step": lambda a, b: anywhere(
        lambda a, b: {"u": 0.5 * a["u"] + b, "v": [a["v"][0][::-1] * 0.9 + a["u"]]}, a, b
    ),
    "unpack": lambda a, b: anywhere(lambda a, b: a["u"] - a["v"][0][1] * b, a, b),
}
NUMBERS = ("sum", "product", "smooth", "first", "larger", "vector", "outputs")
WEIGHTS = np.asarray([1.0, -0.5, 0.25], np.float32)


def anywhere(f: Callable[..., Any], *inputs: Any) -> Any:
    """Apply `f` to scalars, or to tensors with `fn`."""
    return fn(f, *inputs) if isinstance(inputs[0], Tensor) else f(*inputs)


def places(x: Any) -> Any:
    """Compute Σ_k (k + 1) x_k, which does not change if x is padded with zeros."""
    return jnp.tensordot(x, jnp.arange(1.0, 1.0 + x.shape[0]), 1)


# The first five folds are also defined for an empty slice.
FOLDS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "discounted_sum": lambda x: x.discounted_sum(GAMMA),
    "backwards": lambda x: x.flip().discounted_sum(GAMMA),
    "places": lambda x: x.program.fn(places, x),
    "square": lambda x: x @ x,
    "mean": lambda x: x.mean(),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "softmax": lambda x: (x.exp() @ x) / x.exp().sum(),
    "cumsum": lambda x: x.cumsum().max(),
}
BY_HAND: dict[str, Callable[[Any], Any]] = {
    "sum": jnp.sum,
    "discounted_sum": lambda x: sum(GAMMA**k * value for k, value in enumerate(x)),
    "backwards": lambda x: sum(GAMMA**k * value for k, value in enumerate(x[::-1])),
    "places": lambda x: sum((k + 1) * value for k, value in enumerate(x)),
    "square": lambda x: jnp.sum(x * x),
    "mean": jnp.mean,
    "max": jnp.max,
    "min": jnp.min,
    "softmax": lambda x: jnp.sum(x * jax.nn.softmax(x)),
    "cumsum": lambda x: jnp.max(jnp.cumsum(x)),
}
OF_NOTHING = list(FOLDS)[:5]
WINDOWS = ("sum", "mean", "max", "min", "discounted_sum")


def fold(kind: str, *values: Any) -> Any:
    return BY_HAND[kind](jnp.stack(values)) if values else jnp.float32(0.0)


# ---- Construction of a `Program`


def build(draw: Draw) -> tuple[list[Tensor], list[Tensor]]:
    """Build the program; return its results and its input tensors."""
    p = Program(*draw.names)
    env = {str(symbol): symbol for symbol in (*p.symbols, *p.bounds)}
    tensors: dict[int, Tensor] = {}

    def leaf(node: Leaf) -> Tensor:
        def f(*point: Any) -> Any:
            where = {**ORIGIN, **dict(zip(node.dims, point, strict=True))}
            return jnp.asarray(DATA)[(node.number, *where.values())]

        return p.fn(f, *(p.value(env[name]) for name in node.dims), name=f"x{node.number}")

    def make(k: int) -> Tensor:
        if k in tensors:
            return tensors[k]
        node = draw.nodes[k]
        match node:
            case Leaf():
                tensors[k] = leaf(node)
            case Read():
                tensor = make(node.source)[tuple(index(text, env) for text in node.index)]
                tensors[k] = FOLDS[node.fold](tensor) if node.fold else tensor
            case Pair():
                tensors[k] = PAIRS[node.kind](make(node.first), make(node.second))
            case Merge():
                tensors[k] = p.tensor(*node.dims, name=f"y{k}")
                for key, value in node.cases:
                    tensors[k][tuple(index(text, env) for text in key)] = make(value)
        return tensors[k]

    results = [make(k) for k in draw.results]
    leaves = [k for k, node in enumerate(draw.nodes) if isinstance(node, Leaf) and k in tensors]
    return results, [tensors[k] for k in leaves]


# ---- Direct evaluation


class Missing(Exception):
    """Exception for a point at which a node has no value."""


class Illegal(Exception):
    """Exception for a program that reads a value that does not exist."""


class Hand:
    """Direct evaluation of a sampled program at single points."""

    def __init__(self, draw: Draw, data: Any):
        self.drawn, self.data = draw, data
        self.known: dict[Any, Any] = {}
        self.used: set[tuple[Merge, Any]] = set()  # cases of merges that defined a value

    def value(self, k: int, point: Mapping[str, int]) -> Any:
        """Return the value of a node at a point."""
        key = (k, *sorted(point.items()))
        if key not in self.known:
            self.known[key] = Illegal("depends on itself")
            try:
                self.known[key] = self._value(self.drawn.nodes[k], point)
            except (Missing, Illegal) as error:
                self.known[key] = error
        if isinstance(self.known[key], Exception):
            raise self.known[key]
        return self.known[key]

    def _value(self, node: Node, point: Mapping[str, int]) -> Any:
        match node:
            case Leaf():
                at = ORIGIN | {name: point[name] for name in node.dims}
                return self._operands(node.number, *at.values())
            case Read():
                return self._read(node, point)
            case Pair():
                values = (self.value(k, point) for k in (node.first, node.second))
                return self._compute(PAIRS[node.kind], *values)
            case Merge():
                for case in node.cases:
                    where = self._case(node.dims, case[0], point)
                    if where is not None:
                        try:
                            value = self.value(case[1], where)
                        except Missing:
                            continue
                        self.used.add((node, case))
                        return value
                raise Illegal("not defined")

    def _read(self, node: Read, point: Mapping[str, int]) -> Any:
        env = {**point, **self.drawn.bounds}
        dims, axes = self.dims(node.source), []
        if len(node.index) == 1 and isinstance(result := index(node.index[0], env), bool):
            if not result:
                raise Missing
            return self.value(node.source, point)
        for name, text in zip(dims, node.index, strict=True):
            part, bound = index(text, env), self.drawn.bounds[name.upper()]
            if isinstance(part, slice):
                if part.start < part.stop and not 0 <= part.start < part.stop <= bound:
                    raise Illegal("a slice leaves")
                axes.append(range(part.start, part.stop))
            elif 0 <= part < bound:
                axes.append([part])
            else:
                raise Missing
        points = [dict(point)]
        for name, axis in zip(dims, axes, strict=True):
            points = [{**at, name: value} for at in points for value in axis]
        if not node.fold:
            return self.value(node.source, points[0])
        values = [value for at in points if (value := self._try(node.source, at)) is not None]
        # An empty slice has a sum only if other points along the sliced dimensions have values.
        if not values:
            env = {**point, **self.drawn.bounds}
            texts = zip(dims, node.index, strict=True)
            bounds = {name: range(self.drawn.bounds[name.upper()]) for name in dims}
            axes = [bounds[name] if ":" in text else [index(text, env)] for name, text in texts]
            line = (
                {**point, **dict(zip(dims, at, strict=True))} for at in itertools.product(*axes)
            )
            if all(self._try(node.source, at) is None for at in line):
                raise Missing
        if len(values) < len(points):
            raise Illegal("a slice has holes")
        if not values and node.fold not in OF_NOTHING:
            raise Illegal("of nothing")
        return self._compute(functools.partial(fold, node.fold), *values)

    def _try(self, k: int, point: Mapping[str, int]) -> Any:
        try:
            return self.value(k, point)
        except Missing:
            return None

    def _operands(self, *at: int) -> Any:
        return self.data[at]

    def _compute(self, f: Callable[..., Any], *values: Any) -> Any:
        return f(*values)

    def _case(self, dims: str, key: tuple[str, ...], point: Mapping[str, int]) -> Any:
        """Return the point that a case reads, or None if it does not apply."""
        env, where = {**point, **self.drawn.bounds}, dict(point)
        for name, text in zip(dims, key, strict=True):
            part = index(text, env)
            if isinstance(part, slice):
                inside = part.start <= point[name] < part.stop
            elif isinstance(part, bool):
                inside = part
            elif re.search(rf"\b{name}\b", text):
                where[name] = 2 * point[name] - part  # for t + 1, the previous point
                inside = 0 <= where[name] < self.drawn.bounds[name.upper()]
            else:
                inside = point[name] == part
            if not inside:
                return None
        return where

    def dims(self, k: int) -> str:
        """Return the symbols that index a node."""
        return dims_of(self.drawn.nodes, k, self.drawn.names)


class Places(Hand):
    """Evaluation of which nodes have a value at which points, without computing the values."""

    def __init__(self, draw: Draw):
        super().__init__(draw, None)
        self.places: dict[int, dict[tuple[int, ...], bool]] = {}

    def _operands(self, *at: int) -> Any:
        return 0

    def _compute(self, f: Callable[..., Any], *values: Any) -> Any:
        return 0

    def there(self, k: int) -> dict[tuple[int, ...], bool]:
        """Map each point to True if a node has a value there. Raises `Illegal` for a wrong read."""
        if k not in self.places:
            dims = self.dims(k)
            box = itertools.product(*(range(self.drawn.bounds[name.upper()]) for name in dims))
            points = {at: ORIGIN | dict(zip(dims, at, strict=True)) for at in box}
            self.places[k] = {at: self._try(k, p) is not None for at, p in points.items()}
        return self.places[k]

    def forget(self, count: int) -> None:
        """Discard all results except those of the first `count` nodes."""
        self.used.clear()
        self.known = {key: value for key, value in self.known.items() if key[0] < count}
        self.places = {k: places for k, places in self.places.items() if k < count}


def dims_of(nodes: Sequence[Node], k: int, names: str) -> str:
    """Return the symbols that a node depends on, in the program's order."""
    node = nodes[k]
    if isinstance(node, Leaf | Merge):
        return node.dims
    if isinstance(node, Pair):
        result = {*dims_of(nodes, node.first, names), *dims_of(nodes, node.second, names)}
    else:
        source = dims_of(nodes, node.source, names)
        result = set(re.findall(r"\b[bit]\b", " ".join(node.index)))
        if len(node.index) < len(source) or "=" in node.index[0] or "<" in node.index[0]:
            result |= set(source)
    return "".join(name for name in names if name in result)


# ---- Sampling


def points(d: str, other: str) -> list[str]:
    """Return indices of one point along d, including some that leave the domain."""
    D = d.upper()
    results = [*leaving(d, ""), f"{D} - 1 - {d}", f"{d} // 2", f"{d} % 2"]
    results += [f"min_({d} + 2, {D} - 1)", f"max_({d} - 1, 0)", "0", f"{D} - 1", f"{d} % 3", "1"]
    results += [f"max_({D} - 2 - {d}, 0)", f"({d} + 1) % 2", f"min_(2 * {d}, {D} - 1)"]
    results += [f"{d} // 2 * 2", f"min_({d} // 3 * 3 + 2, {D} - 1)", f"max_({d} - 3, 0)"]
    if other:
        results += [f"min_({d} + {other}, {D} - 1)", f"{d} - {other}", f"max_({d} - {other}, 0)"]
        results += [f"min_({other}, {D} - 1)", other]
    return results


def leaving(d: str, other: str) -> list[str]:
    """Return indices that are always outside the domain."""
    return [f"{d} + 1", f"{d} - 1", f"{d} + 2"] + ([f"{d} - {other}"] if other else [])


def slices(d: str, other: str) -> list[str]:
    """Return slices along d, such as windows, prefixes and suffixes, including illegal ones."""
    D = d.upper()
    results = [f"0:{D}", f"{d}:{D}", f"0:{d} + 1", f"0:{d}", f"{d} + 1:{D}", f"{d} + 2:{D}"]
    results += [f"{d}:min_({d} + 2, {D})", f"{d}:min_({d} + 3, {D})", f"max_({d} - 2, 0):{d} + 1"]
    results += [f"max_({d} - 1, 0):{d}", f"1:{D}", f"0:{D} - 1", f"{d}:min_(2, {D})", "0:1", "0:2"]
    results += [f"min_({d} + 1, {D}):min_({d} + 3, {D})", f"{d} // 2:{d} + 1"]
    results += [f"max_({d} - 1, 0):min_({d} + 2, {D})", f"0:min_(2, {D})"]
    results += [f"{d}:min_({d} + 4, {D})", f"{d} // 2 * 2:{D}", f"{d} // 2 * 2:{d} + 1"]
    results += [f"{D} - 1 - {d}:{D}", f"0:{D} - {d}", f"{d} % 3:{d} + 1"]
    if other:
        results += [f"0:min_({other} + 1, {D})", f"min_({other}, {D} - 1):{D}"]
        results += [f"min_({d}, {other}):{d} + 1"]
    return results


def maybe_empty(d: str) -> list[str]:
    """Return slices that are empty at some points, for which only sums are defined."""
    D = d.upper()
    results = [f"0:{d}", f"{d} + 1:{D}", f"{d} + 2:{D}", f"max_({d} - 1, 0):{d}", f"1:{D}"]
    results += [f"0:{D} - 1", f"{d}:min_(2, {D})", f"min_({d} + 1, {D}):min_({d} + 3, {D})"]
    return results


def refusals(d: str) -> list[str]:
    return ["0:-1", f"{d}:{d} + 2", f"{d} - 1:{d.upper()}", "2:1", f"-2:{d.upper()}"]


def conditions(dims: str) -> list[str]:
    results = []
    for d in dims:
        results += [f"{d} % 2 == 0", f"{d} >= 1", f"{d} < {d.upper()} - 1", f"{d} % 2 == 1"]
    return results + (["i <= t", "i + t < T"] if len(dims) > 1 else [])


def large(names: str) -> list[dict[str, int]]:
    """Return bounds larger than all numbers in indices, with I < T, I > T and I = T."""
    several = ({"B": 1, "I": 4, "T": 9}, {"B": 1, "I": 8, "T": 4}, {"B": 1, "I": 5, "T": 5})
    return [{name.upper(): each[name.upper()] for name in names} for each in several]


def grid(places: Mapping[tuple[int, ...], bool]) -> bool:
    """Return True if the points with values are a Cartesian product of coordinates."""
    points = {point for point, there in places.items() if there}
    return points == set(itertools.product(*map(set, zip(*points, strict=True)))) or not points


def draw_program(choose: Callable[[Sequence[Any]], Any]) -> Draw:
    """Sample a program over up to three dimensions, where `choose` selects one of several options.

    `b` is a batch dimension. Recurrences, windows and shifted indices do not use it, but some sums
    do.
    """
    names = choose(["t", "it", "it", "bt", "bit"])
    own = names.removeprefix("b")
    nodes: list[Node] = [Leaf(0, choose([names, names, own]))]
    if choose([False, True]):
        nodes.append(Leaf(1, choose([names, "t", names[0]])))
    # One program in 200 may read missing values, and must be refused with a reason.
    careless = choose(range(200)) == 7
    hands = [Places(Draw(names, nodes, (), bounds)) for bounds in large(names)]

    def sometimes() -> bool:
        return choose(range(10)) == 7

    def some(d: str, kind: Callable[[str, str], list[str]], dims: str = "") -> str:
        others = [name for name in own if name != d]
        return choose(kind(d, choose(["", *others])))

    def node(k: int) -> str:
        return dims_of(nodes, k, names)

    def tree(k: int) -> bool:
        match nodes[k]:
            case Pair(kind):
                return kind in ("pack", "step")
            case Read(source) | Merge(_, ((_, source), *_)):
                return source < k and tree(source)
            case _:
                return False

    def along(dims: str) -> str:
        """Choose a dimension to move along, other than the batch if possible."""
        return choose(dims.removeprefix("b") or dims)

    def add(new: Node) -> int:
        nodes.append(new)
        return len(nodes) - 1

    def partial(k: int) -> bool:
        """Return True if a node has a value only at some of its points."""
        return not all(all(hand.there(k).values()) for hand in hands)

    def whole(source: int) -> int:
        """Return a node with a value at every point: `source`, merged with another value."""
        if careless or not partial(source):
            return source
        dims = node(source)
        rest = add(Read(0, tuple(d if d in dims else "0" for d in node(0))))
        return add(Merge(dims, ((tuple(dims), source), (tuple(dims), rest))))

    def any_with_dims() -> int | None:
        able = [k for k in range(len(nodes)) if node(k) not in ("", "b") and not tree(k)]
        # Recent nodes are chosen more often, so that programs become deep.
        return choose(able + able[-2:] * 2) if able else None

    def any_number() -> int:
        return choose([k for k in range(len(nodes)) if not tree(k)])

    def read(source: int) -> int:
        dims = node(source)
        at = along(dims)
        return add(Read(source, tuple(some(d, points) if d == at else d for d in dims)))

    def fold(source: int) -> int:
        source = whole(source)
        dims = node(source)
        if "b" in dims and choose([False, False, True]):
            return add(Read(source, ("0:B", *dims[1:]), choose([*FOLDS])))
        at = along(dims)
        part = choose(refusals(at)) if careless else some(at, slices)
        rest = [some(d, points) if sometimes() else d for d in dims]
        both = len(dims) > 1 and sometimes()
        index_ = tuple(
            part if d == at else ((some(d, slices) if both else r) if d != "b" else d)
            for d, r in zip(dims, rest, strict=True)
        )
        sums = part in maybe_empty(at) and not careless
        kind = "sum" if both else choose(OF_NOTHING if sums else [*FOLDS])
        return add(Read(source, index_, kind))

    def window(source: int) -> int:
        """Add a fold of a prefix, a suffix, a window of any width, or all points."""
        source = whole(source)
        dims, n = node(source), choose([1, 2, 3, 5, 9])
        d = along(dims)
        D = d.upper()
        parts = [f"0:{d} + 1", f"{d}:{D}", f"{d}:min_({d} + {n}, {D})", f"0:{D}"]
        part = choose([*parts, f"max_({d} + 1 - {n}, 0):{d} + 1"])
        return add(Read(source, key(d, dims, part), choose(WINDOWS)))

    def pair(source: int) -> int:
        return add(Pair(choose(NUMBERS), source, any_number()))

    def restrict(source: int) -> int:
        return add(Read(source, (choose(conditions(node(source).removeprefix("b"))),)))

    def key(at: str, dims: str, text: str) -> tuple[str, ...]:
        return tuple(text if d == at else d for d in dims)

    def cases(source: int) -> int:
        """Add a definition by cases, one of which reads `source` at a moved or restricted index."""
        dims = node(source)
        here = tuple(dims)
        at = along(dims)
        first = choose([read, restrict])(source)
        if choose([False, True]) or any(d not in dims for d in node(first)):
            first = add(Read(source, tuple(some(d, leaving) if d == at else d for d in dims)))
        if any(d not in dims for d in node(first)):
            return first
        if not careless and not partial(first):  # otherwise the other case would define no points
            return add(
                Merge(dims, ((key(at, dims, f"1:{at.upper()}"), first), (here, whole(source))))
            )
        key_ = choose([here, here, here, key(at, dims, f"{at} + 1")])
        slots = [tuple(s if d == at else d for d in dims) for s in ("0:2", f"1:{at.upper()}")]
        conds = [(text,) for text in conditions(dims)] if len(dims) == 1 else slots
        key_ = choose([key_, key_, choose([*slots, *conds])])
        return add(Merge(dims, ((key_, first), (here, whole(source)))))

    def recur(source: int) -> int:
        """Add the recurrence y[0] = a, y[t + 1] = f(y, b), forward or backward."""
        source = whole(source)
        dims = node(source)
        at = along(dims)
        back = choose([False, True])
        edge = f"{at.upper()} - 1" if back else "0"
        first = add(Read(source, tuple(edge if d == at else d for d in dims)))
        me, read = len(nodes) + 1, None
        if choose([False, False, True]):  # reads all earlier values, not only the last one
            me += 1
            part = f"{at}:{at.upper()}" if back else f"0:{at} + 1"
            read = add(Read(me, tuple(part if d == at else d for d in dims), "mean"))
        step = add(Pair(choose(NUMBERS), source, me if read is None else read))
        keys = [
            tuple(key if d == at else d for d in dims)
            for key in (edge, f"{at} {'-' if back else '+'} 1")
        ]
        return add(Merge(dims, ((keys[0], first), (keys[1], step))))

    def reset(source: int) -> int:
        """Add a recurrence that is reset, for example where t % 3 = 0, to y[t] = a."""
        source = whole(source)
        dims = node(source)
        at, other = along(dims), any_number()
        if not set(node(other)) <= set(dims) or (not careless and partial(other)):
            other = source
        start, step = choose([(f"{at} % 3 == 0", 1), ("0:2", 2), (f"{at} % 2 == 0", 1)])
        new = add(Pair(choose(NUMBERS), len(nodes) + 1, other))
        cases_ = ((key(at, dims, start), source), (key(at, dims, f"{at} + {step}"), new))
        return add(Merge(dims, cases_))

    def together(source: int) -> int:
        """Add two recurrences y and z, each of which depends on the previous value of the other."""
        source = whole(source)
        dims = node(source)
        at, count = along(dims), len(nodes)
        back = choose([False, True])
        start, step = (f"{at.upper()} - 1", f"{at} - 1") if back else ("0", f"{at} + 1")
        first = add(Read(source, key(at, dims, start)))
        y, z = count + 3, count + 4
        for other in (z, y):
            add(Pair(choose(NUMBERS), source, other))
        for k in (1, 2):
            case = (key(at, dims, start), first), (key(at, dims, step), count + k)
            add(Merge(dims, case))
        return add(Pair(choose(NUMBERS), y, z))

    def state(source: int) -> int:
        """Add a node with a pytree of arrays, possibly as the state of a recurrence."""
        source = whole(source)
        dims = node(source)
        at, last = along(dims), add(Pair("pack", source, source))
        if choose([False, True, True]):
            first = add(Read(last, key(at, dims, "0")))
            new = add(Pair("step", len(nodes) + 1, source))
            cases_ = ((key(at, dims, "0"), first), (key(at, dims, f"{at} + 1"), new))
            last = add(Merge(dims, cases_))
        if choose([False, True]):
            last = add(Read(last, key(at, dims, choose(points(at, "")[5:]))))
        return add(Pair("unpack", last, any_number()))

    def sound(start: int) -> bool:
        """Return True if all nodes starting at `start` are legal and all cases define points."""
        try:
            places = [[hand.there(k) for hand in hands] for k in range(start, len(nodes))]
        except Illegal:
            return False
        uses = set().union(*(hand.used for hand in hands))
        merges = (node for node in nodes[start:] if isinstance(node, Merge))
        cases = all((merge, case) in uses for merge in merges for case in merge.cases)
        return cases and all(any(any(at.values()) for at in each) for each in places)

    def fit(bounds: Mapping[str, int]) -> bool:
        """Return True if nodes that are complete for large bounds are complete for `bounds`."""
        hand = Places(Draw(names, nodes, results, bounds))
        try:
            keys = {key[0] for k in results if hand.there(k) for key in [*hand.known]}
            return all(partial(k) or all(hand.there(k).values()) for k in keys)
        except Illegal:
            return False

    def position(k: int) -> int:
        """Return a node that may be a result, because its values cover a grid or all points."""
        return k if all(grid(hand.there(k)) for hand in hands) else whole(k)

    moves = [
        read,
        fold,
        window,
        window,
        pair,
        restrict,
        cases,
        cases,
        recur,
        reset,
        together,
        state,
    ]
    for _ in range(choose([1, 2, 3, 4, 5])):
        for _ in range(3):  # retry nodes that read only missing values
            source, count = any_with_dims(), len(nodes)
            if source is not None:
                choose(moves)(source)
            if careless or sound(count):
                break
            del nodes[count:]
            for hand in hands:
                hand.forget(count)
    last = len(nodes) - 1
    results = (last, *([any_number()] if choose([False, True]) else []))
    sizes = {"b": (1, 2), "i": (1, 2, 3), "t": (2, 3, 4, 5, 7)}
    bounds = [
        dict(zip(names.upper(), each, strict=True))
        for each in itertools.product(*(sizes[name] for name in names))
    ]
    if not careless:
        results = tuple(map(position, results))
        bounds = [*filter(fit, bounds)] or bounds
    return Draw(names, tuple(nodes), results, choose(bounds))


@st.composite
def drawn_programs(draw: Any) -> Draw:
    """Return a Hypothesis strategy for programs over up to three dimensions."""
    return draw_program(lambda options: draw(st.sampled_from(options)))
