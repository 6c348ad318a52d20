"""Index expressions: integers that depend on where in a program we are.  §4.

`t + 1`, `min_(t + n, T)`, `t // 2`, `t % 8 == 0`, `t:T`: symbols, constants, sums, products with
a constant, floor division, remainders, minima, comparisons, logic and half-open slices. That is
what a Presburger formula can say, so each has a text for isl, the integer set library.

Python's operators build expressions, by the rules of `normal`, and keep sums in one normal form
(positive terms in alphabetical order, then negative ones, then the constant), so `T - (T - t)` is
`t`.
"""

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Union

import numpy as np

COMPARE = {
    "<": (operator.lt, ">="),
    "<=": (operator.le, ">"),
    ">": (operator.gt, "<="),
    ">=": (operator.ge, "<"),
    "==": (operator.eq, "!="),
    "!=": (operator.ne, "=="),
}
"""Of each comparison, what computes it and which one negates it."""


def _comparison(op: str) -> Callable[..., Any]:
    return lambda self, other: self.rules.compare(op, self, other)


def _sum(own: int, others: int) -> Callable[..., Any]:
    return lambda self, other: self.rules.total((own, self), (others, other))


@dataclasses.dataclass(frozen=True, eq=False)
class Expr:
    """An expression; immutable. `==` builds a comparison, `same` compares the structure.

    Python itself may ask whether a comparison by `==` is true: it is if both sides are the same.
    So expressions work in sets, dictionaries and tuples. Other expressions have no truth value.
    """

    rules: ClassVar[Any]  # by which operators build expressions: `normal`, which sets it
    symbol: ClassVar[str] = ""
    tightness: ClassVar[int] = 9  # of its operator: products bind more tightly than sums

    @property
    def terms(self) -> tuple["Expr", ...]:
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return tuple(value for value in values if isinstance(value, Expr))

    def compute(self, *terms: Any) -> Any:
        """The operator applied to ints, to arrays, or to expressions."""
        raise NotImplementedError

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """The value where symbols have the values in `env`: an int, or traced if one of them is."""
        return self.compute(*(term.evaluate(env) for term in self.terms))

    def substitute(self, env: Mapping[str, Union["Expr", int]]) -> "Expr":
        """Replace the symbols in `env`; one by a slice only where it is alone."""
        return lift(self.compute(*(term.substitute(env) for term in self.terms)))

    def interval(self, limits: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Bounds on the value from bounds on the symbols, all inclusive; they may be loose."""
        return self.rules.interval(self, limits)

    def symbols(self) -> frozenset[str]:
        """The names of its symbols."""
        return frozenset().union(*(term.symbols() for term in self.terms))

    def isl(self) -> str:
        """The text that isl reads."""
        raise ValueError(f"`{self}` stands for many points: isl has no text for it")

    def upper(self) -> "Expr":
        """The point that decides when a read is ready: a slice's last, min(a, b) ↦ a.  §6.1"""
        return lift(self.compute(*(term.upper() for term in self.terms)))

    def same(self, other: object) -> bool:
        """Is `other` built alike?"""
        return isinstance(other, Expr) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __bool__(self) -> bool:
        raise TypeError(
            f"`{self}` has no truth value before its symbols have values: for `min`, `max`, `and`, "
            f"`or`, `not` write `min_`, `max_`, and `&`, `|`, `~` between brackets; a function at "
            f"a point gets them, as in `p.fn(f, x, p.value(t))`, and asks `jnp.where(t == 0, …)`"
        )

    def __neg__(self) -> Any:
        return self.rules.total((-1, self))

    def __floordiv__(self, other: Any) -> Any:
        return self.rules.divide(FloorDiv, self, other)

    def __mod__(self, other: Any) -> Any:
        return self.rules.divide(Mod, self, other)

    def __invert__(self) -> "Expr":
        return self.rules.negate(self)

    __add__ = __radd__ = _sum(1, 1)
    __sub__, __rsub__ = _sum(1, -1), _sum(-1, 1)
    __mul__ = __rmul__ = lambda self, other: self.rules.multiply(self, other)
    __and__ = __rand__ = lambda self, other: self.rules.both(self, lift(other))
    __or__ = __ror__ = lambda self, other: self.rules.either(self, lift(other))
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")
    __eq__, __ne__ = _comparison("=="), _comparison("!=")
    __truediv__ = __rtruediv__ = __pow__ = lambda self, other: self.rules.no_index(self, other)
    __rpow__ = __rfloordiv__ = __rmod__ = __truediv__
    __array__ = __float__ = __index__ = lambda self, *_, **__: self.rules.refuse(self)
    __jax_array__ = property(lambda self: self.rules.offer(self))
    __array_priority__ = 1  # so that numpy leaves `number + t` to the expression


@dataclasses.dataclass(frozen=True, eq=False)
class Sym(Expr):
    """A counter (t) or a bound (T)."""

    name: str

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        if self.name not in env:
            raise ValueError(f"`{self.name}` has no value: `env` names only {sorted(env)}")
        return env[self.name]

    def substitute(self, env: Mapping[str, Expr | int]) -> Expr:
        return lift(env.get(self.name, self))

    def symbols(self) -> frozenset[str]:
        return frozenset({self.name})

    def upper(self) -> Expr:
        return self

    def isl(self) -> str:
        return self.name

    __str__ = isl


@dataclasses.dataclass(frozen=True, eq=False)
class Const(Expr):
    """A number, or a truth value: `TRUE`, `FALSE`."""

    value: int

    def compute(self, *terms: Any) -> Any:
        return self.value

    def isl(self) -> str:
        return str(self.value).lower()

    def __bool__(self) -> bool:
        return self.value if isinstance(self.value, bool) else super().__bool__()

    def __str__(self) -> str:
        return str(self.value)


TRUE, FALSE = Const(True), Const(False)


@dataclasses.dataclass(frozen=True, eq=False)
class Binary(Expr):
    """Two terms with an operator between them; every class below is one."""

    left: Expr
    right: Expr
    operate: ClassVar[Callable[..., Any]]

    def compute(self, *terms: Any) -> Any:
        return type(self).operate(*terms)

    def isl(self) -> str:
        symbol = "=" if self.symbol == "==" else self.symbol
        return f"({self.left.isl()} {symbol} {self.right.isl()})"

    def __str__(self) -> str:
        # A term in brackets where it binds less tightly; to the right also where as tightly.
        left = self.left if self.left.tightness >= self.tightness else f"({self.left})"
        right = self.right if self.right.tightness > self.tightness else f"({self.right})"
        return f"{left} {self.symbol} {right}"


class Or(Binary):
    symbol, tightness, operate = "or", 1, operator.or_


class And(Binary):
    symbol, tightness, operate = "and", 2, operator.and_


@dataclasses.dataclass(frozen=True, eq=False)
class Compare(Binary):
    """`op` is one of < <= > >= == !=."""

    op: str
    tightness = 3

    @property
    def symbol(self) -> str:
        return self.op

    def compute(self, *terms: Any) -> Any:
        return COMPARE[self.op][0](*terms)

    def __bool__(self) -> bool:
        same = self.rules.alike(self)
        return super().__bool__() if same is None else same


class Add(Binary):
    symbol, tightness, operate = "+", 4, operator.add


class Sub(Binary):
    symbol, tightness, operate = "-", 4, operator.sub


class Mul(Binary):
    """left * right; `left` is a number."""

    symbol, tightness, operate = "*", 5, operator.mul


class FloorDiv(Binary):
    """left // right; `right` is a positive number."""

    symbol, tightness, operate = "//", 5, operator.floordiv

    def isl(self) -> str:
        return f"floor({self.left.isl()} / {self.right.isl()})"


class Mod(Binary):
    """left % right, in 0 … right - 1; `right` is a positive number."""

    symbol, tightness, operate = "%", 5, operator.mod


class Extreme(Binary):
    """The lesser or the greater."""

    def isl(self) -> str:
        return f"{self.symbol}({self.left.isl()}, {self.right.isl()})"

    def __str__(self) -> str:
        return f"{self.symbol}({self.left}, {self.right})"


class Min(Extreme):
    """The lesser; `left` is the one that a scheduler pulls towards."""

    symbol, operate = "min", lambda a, b: min_(a, b)

    def upper(self) -> Expr:
        return self.left.upper()


class Max(Extreme):
    symbol, operate = "max", lambda a, b: max_(a, b)


@dataclasses.dataclass(frozen=True, eq=False)
class Slice(Expr):
    """The points lo, lo + 1, …, hi - 1; none if hi <= lo. Only ever an index."""

    lo: Expr
    hi: Expr

    def compute(self, *terms: Any) -> Any:
        return Slice(*map(lift, terms))

    def upper(self) -> Expr:
        return self.hi.upper() - 1

    def width(self) -> Expr:
        """hi - lo, as the least of the differences where a minimum or maximum is involved."""
        his = self.rules.leaves(self.hi, Min)
        return min_(*(hi - lo for hi in his for lo in self.rules.leaves(self.lo, Max)))

    def __str__(self) -> str:
        return f"{self.lo}:{self.hi}"


def is_index(value: object) -> bool:
    """An expression, or a number that may stand in one?"""
    return isinstance(value, Expr | int | np.integer)


def lift(value: Any) -> Expr:
    """An int or a slice of Python's as an expression; an expression as it is."""
    if isinstance(value, slice):
        if value.step is not None or value.start is None or value.stop is None:
            raise ValueError(f"`{value}`: a slice of points has a start, a stop and no step")
        return Slice(lift(value.start), lift(value.stop))
    if not is_index(value):
        raise ValueError(f"`{value}` is no index: wanted an int, a symbol or an expression of them")
    if isinstance(value, Expr):
        return value
    return Const(value if isinstance(value, bool) else int(value))


def min_(*values: Any) -> Any:
    """The least of ints, arrays or expressions: `t:min_(t + n, T)` looks n steps ahead."""
    return Expr.rules.extreme(Min, values)


def max_(*values: Any) -> Any:
    """The greatest of ints, arrays or expressions."""
    return Expr.rules.extreme(Max, values)
