"""Integer index expressions in the symbols of a program, such as `t + 1` and `t:T`.  §4.

Other examples are `min_(t + n, T)`, `t // 2` and `t % 8 == 0`. An expression consists of symbols,
constants, sums, products with a constant, floor division, remainders, minima, maxima, comparisons,
logical operators and half-open slices. All of these are Presburger formulas, so they can be passed
to isl, the integer set library, as strings. `sets` writes a slice as lo <= k < hi.

Python's operators build expressions and fold constants. Sums have a normal form: positive terms in
alphabetical order, then negative terms, then the constant. For example, `T - (T - t)` becomes `t`.
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
"""For each comparison operator: the function that computes it, and the negated operator."""


def _comparison(op: str) -> Callable[..., Any]:
    return lambda self, other: compare(op, self, other)


def _sum(own: int, others: int) -> Callable[..., Any]:
    return lambda self, other: total((own, self), (others, other))


@dataclasses.dataclass(frozen=True, eq=False)
class Expr:
    """Immutable index expression. `==` builds a comparison; `same` compares expressions.

    A comparison has a truth value only if its sides differ by a constant. So `t == t + 1` is false,
    but `bool(t == 0)` raises `TypeError`. Expressions are not hashable, because `t in {0, 1}` would
    then be false without any comparison. In sets and dictionaries, use `structure(t)` as the key.
    """

    symbol: ClassVar[str] = ""
    tightness: ClassVar[int] = 9  # precedence: products bind more tightly than sums
    _structure = functools.cached_property(repr)  # cached, because `repr` visits all subexpressions

    @functools.cached_property
    def terms(self) -> tuple["Expr", ...]:
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return tuple(value for value in values if isinstance(value, Expr))

    def compute(self, *terms: Any) -> Any:
        """Apply the operator to integers, arrays, or expressions."""
        raise NotImplementedError

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """Return the value, given the values of the symbols in `env`, which may be traced."""
        return self.compute(*(term.evaluate(env) for term in self.terms))

    def substitute(self, env: Mapping[str, Union["Expr", int]]) -> "Expr":
        """Return the expression with the symbols in `env` replaced.

        A symbol can be replaced by a slice only if the symbol is the complete expression.
        """
        return as_expr(self.compute(*(term.substitute(env) for term in self.terms)))

    def interval(self, limits: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Return inclusive, possibly loose limits on the value, given limits on the symbols."""
        # On integers, every operator except % is monotone in each term, so the extremes of the
        # value occur at extremes of the terms. `Mod` overrides this method.
        ends = itertools.product(*(term.interval(limits) for term in self.terms))
        values = [int(self.compute(*each)) for each in ends]
        return min(values), max(values)

    def symbols(self) -> frozenset[str]:
        """Return the names of all symbols in the expression."""
        return frozenset().union(*(term.symbols() for term in self.terms))

    def text(self) -> str:
        """Return the expression as a readable string."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text()

    def isl(self) -> str:
        """Return the expression in isl's notation. Raises `ValueError` for a slice."""
        raise ValueError(
            f"isl cannot express the slice `{self}`: pass its start and its end separately"
        )

    def upper(self) -> "Expr":
        """Return the last point that a read depends on, for proximity constraints.  §6.1

        Replaces a slice with its last point, and min(a, b) with a: `t:min_(t + n, T)` becomes
        t + n - 1.
        """
        return as_expr(self.compute(*(term.upper() for term in self.terms)))

    def same(self, other: object) -> bool:
        """Return True if `other` is an expression with the same structure."""
        return isinstance(other, Expr) and self._structure == other._structure

    def __bool__(self) -> bool:
        raise TypeError(
            f"`{self}` has no truth value before its symbols have values: instead of `min`, `max`, "
            f"`and`, `or`, `not`, write `min_`, `max_`, `&`, `|`, `~`, with comparisons in "
            f"parentheses; instead of `x if t == 0 else y`, write `(p.value(t) == 0).where(x, y)`; "
            f"to use the value in a function, pass it as `p.fn(f, x, p.value(t))`"
        )

    def __hash__(self) -> int:
        raise TypeError(
            f"`{self}` has no truth value and is not hashable, so it cannot be in a set or be a "
            f"dictionary key: combine comparisons, as in `(t == 0) | (t == 1)`, and pass bounds by "
            f"name, as in `T=9`"
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
    __array_priority__ = 1  # makes numpy defer `number + t` to `Expr.__radd__`


def structure(value: Any) -> Any:
    """Return a hashable key for an expression or a tuple; equal keys mean equal structure."""
    if isinstance(value, tuple):
        return tuple(map(structure, value))
    return value._structure if isinstance(value, Expr) else value


@dataclasses.dataclass(frozen=True, eq=False)
class Structural:
    """Base class of frozen dataclasses with expressions, which are compared by structure."""

    @functools.cached_property
    def _structure(self) -> tuple[Any, ...]:
        return tuple(structure(getattr(self, field.name)) for field in dataclasses.fields(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._structure == other._structure

    def __hash__(self) -> int:
        return hash(self._structure)


@dataclasses.dataclass(frozen=True, eq=False)
class Sym(Expr):
    """Symbol, either a counter such as t or a bound such as T."""

    name: str

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        if self.name not in env:
            raise ValueError(
                f"`{self.name}` has no value: `env` must contain it, got values for {sorted(env)}"
            )
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
    """Constant integer or truth value (`TRUE`, `FALSE`)."""

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
    """Binary operator with its two terms; base class of the operators below."""

    left: Expr
    right: Expr
    operate: ClassVar[Callable[..., Any]]

    def compute(self, *terms: Any) -> Any:
        return type(self).operate(*terms)

    def isl(self) -> str:
        symbol = "=" if self.symbol == "==" else self.symbol
        return f"({self.left.isl()} {symbol} {self.right.isl()})"

    def text(self) -> str:
        # A term needs brackets if its operator binds less tightly. A right term also needs them if
        # its operator binds equally tightly.
        left = self.left if self.left.tightness >= self.tightness else f"({self.left})"
        right = self.right if self.right.tightness > self.tightness else f"({self.right})"
        return f"{left} {self.symbol} {right}"


class Or(Binary):
    symbol, tightness, operate = "or", 1, operator.or_


class And(Binary):
    symbol, tightness, operate = "and", 2, operator.and_


@dataclasses.dataclass(frozen=True, eq=False)
class Compare(Binary):
    """Comparison; `op` is one of <, <=, >, >=, == and !=."""

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
    """Product left * right, where `left` is a constant."""

    symbol, tightness, operate = "*", 5, operator.mul


class FloorDiv(Binary):
    """Floor division left // right, where `right` is a positive constant."""

    symbol, tightness, operate = "//", 5, operator.floordiv

    def isl(self) -> str:
        return f"floor({self.left.isl()} / {self.right.isl()})"


class Mod(Binary):
    """Remainder left % right, from 0 to right - 1, where `right` is a positive constant."""

    symbol, tightness, operate = "%", 5, operator.mod

    def interval(self, limits: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        return 0, self.right.interval(limits)[1] - 1


class Extreme(Binary):
    """Minimum or maximum of two terms."""

    def isl(self) -> str:
        return f"{self.symbol}({self.left.isl()}, {self.right.isl()})"

    def text(self) -> str:
        return f"{self.symbol}({self.left}, {self.right})"


class Min(Extreme):
    """Minimum; proximity constraints (`upper`) use its `left` term."""

    symbol, operate = "min", lambda a, b: min_(a, b)

    def upper(self) -> Expr:
        return self.left.upper()


class Max(Extreme):
    symbol, operate = "max", lambda a, b: max_(a, b)


@dataclasses.dataclass(frozen=True, eq=False)
class Slice(Expr):
    """Half-open slice of the points lo, lo + 1, …, hi - 1, which is empty if hi <= lo.

    A slice cannot be a term of another expression.
    """

    lo: Expr
    hi: Expr

    def compute(self, *terms: Any) -> Any:
        return Slice(*map(as_expr, terms))

    def upper(self) -> Expr:
        return self.hi.upper() - 1

    def width(self) -> Expr:
        """Return hi - lo; minima in hi and maxima in lo become a minimum of differences."""
        his = leaves(self.hi, Min)
        return min_(*(hi - lo for hi in his for lo in leaves(self.lo, Max)))

    def text(self) -> str:
        return f"{self.lo}:{self.hi}"


def is_index(value: object) -> bool:
    """Return True for an expression, or for a number that may be part of one."""
    return isinstance(value, Expr | int | np.integer | np.bool_)


def as_expr(value: Any) -> Expr:
    """Convert an integer or a Python slice to an expression; return expressions unchanged.

    >>> print(as_expr(slice(0, Sym("t") + 1)))
    0:t + 1
    """
    if isinstance(value, slice):
        if value.step is not None or value.start is None or value.stop is None:
            raise ValueError(f"`{value}` must have a start, a stop and no step; write lo:hi")
        return Slice(as_expr(value.start), as_expr(value.stop))
    if not is_index(value):
        raise ValueError(
            f"`{value}` is not an index: use an integer, a symbol or an expression in symbols"
        )
    if isinstance(value, Expr):
        return value
    return Const(bool(value) if isinstance(value, bool | np.bool_) else int(value))


def min_(*values: Any) -> Any:
    """Return the minimum of integers, arrays or expressions.

    >>> print(min_(Sym("t") + 4, Sym("T")))
    min(t + 4, T)
    """
    return functools.reduce(functools.partial(extreme, Min), values)


def max_(*values: Any) -> Any:
    """Return the maximum of integers, arrays or expressions.

    >>> print(max_(Sym("t") - 1, 0))
    max(t - 1, 0)
    """
    return functools.reduce(functools.partial(extreme, Max), values)


def is_truth(value: Expr) -> bool:
    """Return True if an expression is a condition, which evaluates to a truth value."""
    if isinstance(value, Const):
        return isinstance(value.value, bool)
    return isinstance(value, Compare | And | Or)


def linear(value: Expr, factor: int = 1) -> list[tuple[int, Expr]]:
    """Expand `factor * value` into a list of pairs (factor, term), where no term is a sum.

    A constant n becomes the pair (n, 1).
    """
    if isinstance(value, Const):
        return [(factor * int(value.value), Const(1))]
    if isinstance(value, Mul) and isinstance(value.left, Const):
        return linear(value.right, factor * value.left.value)
    if isinstance(value, Add | Sub):
        sign = 1 if isinstance(value, Add) else -1
        return linear(value.left, factor) + linear(value.right, sign * factor)
    return [(factor, value)]


def total(*terms: tuple[int, Any]) -> Any:
    """Return Σ factor · term in normal form."""
    if wrong := [term for _, term in terms if not is_index(term)]:
        return no_index(next(term for _, term in terms if is_index(term)), wrong[0])
    factors, parts = collections.Counter[str](), {}
    for factor, term in terms:
        for times, part in linear(as_expr(term), factor):
            text = str(part)
            factors[text] += times
            parts[text] = part
    number = factors.pop("1", 0)
    # Positive terms come first, and each group is in alphabetical order. The constant comes last,
    # except in sums such as 5 - t.
    order = sorted(filter(factors.get, parts), key=lambda x: (factors[x] < 0, x.lower(), x))
    summands = [(factors[text], parts[text]) for text in order]
    if number or not summands:
        first = summands and summands[0][0] < 0 < number
        summands.insert(0 if first else len(summands), (number, Const(1)))
    (factor, term), *rest = summands
    result = _multiple(factor, term)
    for factor, term in rest:
        result = (Add if factor > 0 else Sub)(result, _multiple(abs(factor), term))
    return result


def _multiple(factor: int, term: Expr) -> Expr:
    if isinstance(term, Const):
        return Const(factor * term.value)
    return term if factor == 1 else Mul(Const(factor), term)


def divide(kind: type[Binary], left: Expr, right: Any) -> Any:
    """Return `left // right` or `left % right`."""
    if not is_index(right):
        return no_index(left, right)
    divisor = as_expr(right)
    if not isinstance(divisor, Const) or divisor.value < 1:
        raise ValueError(f"`{left}` must be divided by a positive number, got `{right}`")
    if isinstance(left, Const):
        return Const(kind.operate(left.value, divisor.value))
    if divisor.value == 1:
        return left if kind is FloorDiv else Const(0)
    return kind(left, divisor)


def compare(op: str, left: Expr, right: object) -> Any:
    """Return `left op right`, or its truth value if the two sides differ by a constant."""
    if isinstance(right, np.ndarray | jnp.ndarray):  # otherwise `==` would fall back to `is`
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
    """Return the minimum (`Min`) or maximum (`Max`) of two integers, arrays or expressions."""
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
    """Return `left * right`. Raises `ValueError` unless one of them is a constant."""
    if not is_index(right):
        return no_index(left, right)
    a, b = as_expr(right), left
    if not isinstance(a, Const):
        a, b = b, a
    if not isinstance(a, Const):
        raise ValueError(f"`({left}) * ({right})` is not linear: one factor must be a number")
    return total((a.value, b))


def no_index(term: Expr, other: object) -> Any:
    """Raise `ValueError` if `other` is a number or an expression, else return NotImplemented."""
    if not isinstance(other, float | np.number) and not is_index(other):
        return NotImplemented
    raise ValueError(
        f"`{term}` cannot be combined with `{other}` in an index, which may only contain integers, "
        f"+, -, *, and // and % by a number; `p.value({term})` is a tensor and allows any operation"
    )


def refuse(value: Any, *_: Any, **__: Any) -> Any:
    """Raise `ValueError`, because an expression or a tensor has no numeric value yet."""
    raise ValueError(
        f"`{value}` has no numeric value while the program is being built. To apply a Python "
        "function at every point, use `fn`, as in `p.fn(jnp.tanh, x)`, or a method of a tensor, "
        "`x.tanh()`. In an index, use `min_` or `max_`."
    )


def join(kind: type[Binary], left: Expr, right: Expr) -> Expr:
    """Return `left and right` (`And`) or `left or right` (`Or`)."""
    symbol, neutral, final = ("&", TRUE, FALSE) if kind is And else ("|", FALSE, TRUE)
    for term in (left, right):
        if not is_truth(term):
            raise ValueError(
                f"`({left}) {symbol} ({right})` joins `{term}`, which is not a condition: put "
                f"comparisons in parentheses, as in `(t > 1) & (t < 3)` or `t % 2 == 1`"
            )
    if final.same(left) or neutral.same(right) or left.same(right):
        return left
    return right if neutral.same(left) or final.same(right) else kind(left, right)


def equivalent(op: str, left: Expr, right: Expr) -> Expr:
    """Return `left == right` or `left != right` for two conditions."""
    if left.same(right):
        return TRUE if op == "==" else FALSE
    return (left & right) | (~left & ~right) if op == "==" else (left & ~right) | (~left & right)


def negate(term: Any) -> Any:
    """Return `not term` for an expression, a bool or a boolean array."""
    if not isinstance(term, Expr):
        return not term if isinstance(term, bool) else jnp.logical_not(term)
    if isinstance(term, Const):
        return FALSE if term.value else TRUE
    if isinstance(term, Compare):
        return compare(COMPARE[term.op][1], term.left, term.right)
    if isinstance(term, And | Or):
        return join(Or if isinstance(term, And) else And, ~term.left, ~term.right)
    raise ValueError(
        f"`{term}` is not a condition, and only conditions can be negated: write a comparison"
    )


def leaves(value: Expr, kind: type[Binary]) -> list[Expr]:
    """Return all arguments of nested minima or maxima, distributing constants over them.

    For example, the leaves of min(a, b) + 1 are a + 1 and b + 1.
    """
    if isinstance(value, kind):
        return [*leaves(value.left, kind), *leaves(value.right, kind)]
    if isinstance(value, Add | Sub) and isinstance(value.right, Const):
        return [value.compute(leaf, value.right) for leaf in leaves(value.left, kind)]
    return [value]
