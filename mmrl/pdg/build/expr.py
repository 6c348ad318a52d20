"""Index expressions: integers that depend on where in a program we are.  §4.

`t + 1`, `min_(t + n, T)`, `t // 2`, `t % 8 == 0`, `t:T`: symbols, constants, sums, products with
a constant, floor division, remainders, minima, comparisons, logic and half-open slices. That is
what a Presburger formula can say, so each has a text for isl, the integer set library.

Python's operators build expressions, fold constants, and keep sums in one normal form (positive
terms in alphabetical order, then negative ones, then the constant): `T - (T - t)` is `t`.
"""

import collections
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Union

import jax.numpy as jnp
import numpy as np

COMPARE = {
    "<": (operator.lt, ">="),
    "<=": (operator.le, ">"),
    ">": (operator.gt, "<="),
    ">=": (operator.ge, "<"),
    "==": (operator.eq, "!="),
    "!=": (operator.ne, "=="),
}
"""The function that computes each comparison, and the comparison that negates it."""


def _comparison(op: str) -> Callable[..., Any]:
    return lambda self, other: compare(op, self, other)


def _sum(own: int, others: int) -> Callable[..., Any]:
    return lambda self, other: total((own, self), (others, other))


@dataclasses.dataclass(frozen=True, eq=False)
class Expr:
    """An expression; immutable. `==` builds a comparison, `same` compares the structure.

    A comparison has a truth value only if its sides differ by a constant: `t == t + 1` is false,
    and `bool(t == 0)` raises `TypeError`. Expressions cannot be hashed, because `t in {0, 1}` would
    be false without comparing anything: sets and dictionaries take `structure(t)`.
    """

    symbol: ClassVar[str] = ""
    tightness: ClassVar[int] = 9  # of its operator: products bind more tightly than sums
    _structure = functools.cached_property(repr)  # which visits all parts, so it is computed once

    @functools.cached_property
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
        """Replace the symbols in `env`; a slice can replace only a whole index."""
        return as_expr(self.compute(*(term.substitute(env) for term in self.terms)))

    def interval(self, limits: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Bounds on the value from bounds on the symbols, all inclusive; they may be loose."""
        # All operators are monotone: their values lie between those at the ends of their terms.
        ends = itertools.product(*(term.interval(limits) for term in self.terms))
        values = [int(self.compute(*each)) for each in ends]
        return min(values), max(values)

    def symbols(self) -> frozenset[str]:
        """The names of its symbols."""
        return frozenset().union(*(term.symbols() for term in self.terms))

    def text(self) -> str:
        """The text that people read."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text()

    def isl(self) -> str:
        """The text that isl reads."""
        raise ValueError(f"`{self}` stands for many points: isl has no text for it")

    def upper(self) -> "Expr":
        """The point that decides when a read is ready: a slice's last, min(a, b) ↦ a.  §6.1"""
        return as_expr(self.compute(*(term.upper() for term in self.terms)))

    def same(self, other: object) -> bool:
        """Is `other` built alike?"""
        return isinstance(other, Expr) and self._structure == other._structure

    def __bool__(self) -> bool:
        raise TypeError(
            f"`{self}` has no truth value before its symbols have values: for `min`, `max`, `and`, "
            f"`or`, `not` write `min_`, `max_`, and `&`, `|`, `~` between brackets; for `x if t == "
            f"0 else y` write `(p.value(t) == 0).where(x, y)`; a function at a point gets them, as "
            f"in `p.fn(f, x, p.value(t))`, where `jnp.where(t == 0, …)` works"
        )

    def __hash__(self) -> int:
        raise TypeError(
            f"`{self}` in a set, or as a key of a dictionary, has no truth value before its "
            f"symbols have values: compare it, as in `(t == 0) | (t == 1)`; name bounds: `T=9`"
        )

    __add__ = __radd__ = _sum(1, 1)
    __sub__, __rsub__ = _sum(1, -1), _sum(-1, 1)
    __neg__ = lambda self: total((-1, self))  # noqa: E731
    __mul__ = __rmul__ = lambda self, other: multiply(self, other)
    __floordiv__ = lambda self, other: divide(FloorDiv, self, other)  # noqa: E731
    __mod__ = lambda self, other: divide(Mod, self, other)  # noqa: E731
    __and__ = __rand__ = lambda self, other: join(And, self, as_expr(other))
    __or__ = __ror__ = lambda self, other: join(Or, self, as_expr(other))
    __invert__ = lambda self: negate(self)  # noqa: E731
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")
    __eq__, __ne__ = _comparison("=="), _comparison("!=")
    __truediv__ = __rtruediv__ = __pow__ = lambda self, other: no_index(self, other)
    __rpow__ = __rfloordiv__ = __rmod__ = __truediv__
    __array__ = __float__ = __index__ = lambda self, *_, **__: refuse(self)
    __array_priority__ = 1  # so that numpy leaves `number + t` to the expression


def structure(value: Any) -> Any:
    """A hashable key of an expression, or of a tuple that holds some: equal if built alike."""
    if isinstance(value, tuple):
        return tuple(map(structure, value))
    return value._structure if isinstance(value, Expr) else value


@dataclasses.dataclass(frozen=True, eq=False)
class Structural:
    """Base of frozen dataclasses that hold expressions: equal if all fields are built alike."""

    @functools.cached_property
    def _structure(self) -> tuple[Any, ...]:
        return tuple(structure(getattr(self, field.name)) for field in dataclasses.fields(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._structure == other._structure

    def __hash__(self) -> int:
        return hash(self._structure)


@dataclasses.dataclass(frozen=True, eq=False)
class Sym(Expr):
    """A counter (t) or a bound (T)."""

    name: str

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        if self.name not in env:
            raise ValueError(f"`{self.name}` has no value: `env` names only {sorted(env)}")
        return env[self.name]

    def substitute(self, env: Mapping[str, Expr | int]) -> Expr:
        return as_expr(env.get(self.name, self))

    def interval(self, limits: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        return limits[self.name]

    def symbols(self) -> frozenset[str]:
        return frozenset({self.name})

    def upper(self) -> Expr:
        return self

    def isl(self) -> str:
        return self.name

    text = isl


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

    def text(self) -> str:
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

    def text(self) -> str:
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

    def interval(self, limits: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        return 0, self.right.interval(limits)[1] - 1


class Extreme(Binary):
    """The lesser or the greater."""

    def isl(self) -> str:
        return f"{self.symbol}({self.left.isl()}, {self.right.isl()})"

    def text(self) -> str:
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
        return Slice(*map(as_expr, terms))

    def upper(self) -> Expr:
        return self.hi.upper() - 1

    def width(self) -> Expr:
        """hi - lo, as the least of the differences where a minimum or maximum is involved."""
        his = leaves(self.hi, Min)
        return min_(*(hi - lo for hi in his for lo in leaves(self.lo, Max)))

    def text(self) -> str:
        return f"{self.lo}:{self.hi}"


def is_index(value: object) -> bool:
    """An expression, or a number that may stand in one?"""
    return isinstance(value, Expr | int | np.integer | np.bool_)


def as_expr(value: Any) -> Expr:
    """An int or a slice of Python's as an expression; an expression as it is."""
    if isinstance(value, slice):
        if value.step is not None or value.start is None or value.stop is None:
            raise ValueError(f"`{value}`: a slice of points has a start, a stop and no step")
        return Slice(as_expr(value.start), as_expr(value.stop))
    if not is_index(value):
        raise ValueError(
            f"`{value}` is not an index: use an int, a symbol or an expression of them"
        )
    if isinstance(value, Expr):
        return value
    return Const(bool(value) if isinstance(value, bool | np.bool_) else int(value))


def min_(*values: Any) -> Any:
    """Return the least of ints, arrays or expressions: `t:min_(t + n, T)` looks n steps ahead."""
    return functools.reduce(functools.partial(extreme, Min), values)


def max_(*values: Any) -> Any:
    """The greatest of ints, arrays or expressions."""
    return functools.reduce(functools.partial(extreme, Max), values)


# Constructors of expressions, which fold constants and bring sums into normal form.


def is_truth(value: Expr) -> bool:
    """Is its value true or false?"""
    if isinstance(value, Const):
        return isinstance(value.value, bool)
    return isinstance(value, Compare | And | Or)


def linear(value: Expr, factor: int = 1) -> list[tuple[int, Expr]]:
    """Return `factor * value` as terms that are not sums, each with its factor: n is n times 1."""
    if isinstance(value, Const):
        return [(factor * int(value.value), Const(1))]
    if isinstance(value, Mul) and isinstance(value.left, Const):
        return linear(value.right, factor * value.left.value)
    if isinstance(value, Add | Sub):
        sign = 1 if isinstance(value, Add) else -1
        return linear(value.left, factor) + linear(value.right, sign * factor)
    return [(factor, value)]


def total(*terms: tuple[int, Any]) -> Any:
    """Σ factor · term, in normal form."""
    if wrong := [term for _, term in terms if not is_index(term)]:
        return no_index(next(term for _, term in terms if is_index(term)), wrong[0])
    factors, parts = collections.Counter[str](), {}
    for factor, term in terms:
        for times, part in linear(as_expr(term), factor):
            text = str(part)
            factors[text] += times
            parts[text] = part
    number = factors.pop("1", 0)
    # Positive terms first, each group in alphabetical order; the number last, or 5 - t.
    ordered = sorted(filter(factors.get, parts), key=lambda x: (factors[x] < 0, x.lower(), x))
    summands = [(factors[text], parts[text]) for text in ordered]
    if number or not summands:
        first = summands and summands[0][0] < 0 < number
        summands.insert(0 if first else len(summands), (number, Const(1)))
    (factor, term), *rest = summands
    result = _scaled(factor, term)
    for factor, term in rest:
        result = (Add if factor > 0 else Sub)(result, _scaled(abs(factor), term))
    return result


def _scaled(factor: int, term: Expr) -> Expr:
    if isinstance(term, Const):
        return Const(factor * term.value)
    return term if factor == 1 else Mul(Const(factor), term)


def divide(kind: type[Binary], left: Expr, right: Any) -> Any:
    """`left // right` or `left % right`."""
    if not is_index(right):
        return no_index(left, right)
    divisor = as_expr(right)
    if not isinstance(divisor, Const) or divisor.value < 1:
        raise ValueError(f"`{left}` may only be divided by a positive number, not by `{right}`")
    if isinstance(left, Const):
        return Const(kind.operate(left.value, divisor.value))
    if divisor.value == 1:
        return left if kind is FloorDiv else Const(0)
    return kind(left, divisor)


def compare(op: str, left: Expr, right: object) -> Any:
    """`left op right`, decided at once where the sides differ by a number."""
    if isinstance(right, np.ndarray | jnp.ndarray):  # Python would fall back to `is`
        return refuse(left)
    if not is_index(right):
        return no_index(left, right)
    other = as_expr(right)
    if is_truth(left) or is_truth(other):
        return equivalent(op, left, other) if op in ("==", "!=") else NotImplemented
    difference = left - other
    if isinstance(difference, Const):
        return TRUE if COMPARE[op][0](difference.value, 0) else FALSE
    return Compare(left, other, op)


def extreme(kind: type[Binary], a: Any, b: Any) -> Any:
    """The lesser (`Min`) or greater (`Max`) of two ints, arrays or expressions."""
    least = kind is Min
    if isinstance(a, Expr) or isinstance(b, Expr):
        left, right = as_expr(a), as_expr(b)
        difference = left - right
        if isinstance(difference, Const):
            return left if (difference.value <= 0) == least else right
        return kind(left, right)
    if isinstance(a, int | np.integer) and isinstance(b, int | np.integer):
        return min(a, b) if least else max(a, b)
    return jnp.minimum(a, b) if least else jnp.maximum(a, b)


def multiply(left: Expr, right: Any) -> Any:
    """`left * right`, one of them a number."""
    if not is_index(right):
        return no_index(left, right)
    a, b = as_expr(right), left
    if not isinstance(a, Const):
        a, b = b, a
    if not isinstance(a, Const):
        raise ValueError(f"`({left}) * ({right})` is not linear: one side must be a number")
    return total((a.value, b))


def no_index(term: Expr, other: object) -> Any:
    """Raise `ValueError` if `other` is a number or an expression; otherwise leave it to `other`."""
    if not isinstance(other, float | np.number) and not is_index(other):
        return NotImplemented
    raise ValueError(
        f"`{term}` cannot be combined with `{other}` in an index, which consists of whole numbers, "
        f"+, -, *, and // and % by a number; `p.value({term})` is a tensor and takes any operation"
    )


def refuse(value: Any, *_: Any, **__: Any) -> Any:
    """Raise `ValueError`: an expression or a tensor has no numbers that a function could take."""
    raise ValueError(
        f"`{value}` has no numbers while the program is written: give the function and its inputs "
        f"to `fn`, which calls it at every point, as in `p.fn(jnp.tanh, x)`; in an index stand "
        f"`min_` and `max_`"
    )


def join(kind: type[Binary], left: Expr, right: Expr) -> Expr:
    """`left and right` (`And`), or `left or right` (`Or`)."""
    symbol, neutral, final = ("&", TRUE, FALSE) if kind is And else ("|", FALSE, TRUE)
    for term in (left, right):
        if not is_truth(term):
            raise ValueError(
                f"`({left}) {symbol} ({right})` joins `{term}`, which is not a condition: put "
                f"comparisons in brackets, as in `(t > 1) & (t < 3)`; odd t are `t % 2 == 1`"
            )
    if final.same(left) or neutral.same(right) or left.same(right):
        return left
    return right if neutral.same(left) or final.same(right) else kind(left, right)


def equivalent(op: str, left: Expr, right: Expr) -> Expr:
    """`left == right` or `left != right` of two conditions."""
    if left.same(right):
        return TRUE if op == "==" else FALSE
    return (left & right) | (~left & ~right) if op == "==" else (left & ~right) | (~left & right)


def negate(term: Any) -> Any:
    """`not term`, of an expression, a truth value or an array of them."""
    if not isinstance(term, Expr):
        return not term if isinstance(term, bool) else jnp.logical_not(term)
    if isinstance(term, Const):
        return FALSE if term.value else TRUE
    if isinstance(term, Compare):
        return compare(COMPARE[term.op][1], term.left, term.right)
    if isinstance(term, And | Or):
        return join(Or if isinstance(term, And) else And, ~term.left, ~term.right)
    raise ValueError(f"`{term}` is not a condition: only conditions can be negated")


def leaves(value: Expr, kind: type[Binary]) -> list[Expr]:
    """Return the arguments of nested minima (or maxima), also where a number is added to them."""
    if isinstance(value, kind):
        return [*leaves(value.left, kind), *leaves(value.right, kind)]
    if isinstance(value, Add | Sub) and isinstance(value.right, Const):
        return [value.compute(leaf, value.right) for leaf in leaves(value.left, kind)]
    return [value]
