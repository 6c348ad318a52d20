"""Rules for building expressions: one normal form of sums, constants folded; what is alike."""

import contextlib
import contextvars
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from mmrl.pdg import expr as ex

Linear = dict[str, tuple[int, ex.Expr]]  # by its text, each term with its factor; "" is the number


_AT_A_POINT = contextvars.ContextVar("at a point", default=False)
is_at_a_point = _AT_A_POINT.get


@contextlib.contextmanager
def at_a_point() -> Iterator[None]:
    """Where a user's function runs: `if t == 0` asks there for a value, and not for structure."""
    token = _AT_A_POINT.set(True)
    try:
        yield
    finally:
        _AT_A_POINT.reset(token)


def alike(comparison: ex.Compare) -> bool | None:
    """Whether `==` and `!=` hold between structures; None where a value is wanted."""
    if comparison.op not in ("==", "!=") or _AT_A_POINT.get():
        return None
    return comparison.left.same(comparison.right) == (comparison.op == "==")


def is_truth(value: ex.Expr) -> bool:
    """Is its value true or false?"""
    if isinstance(value, ex.Const):
        return isinstance(value.value, bool)
    return isinstance(value, ex.Compare | ex.And | ex.Or)


def linear(value: ex.Expr, factor: int = 1) -> Linear:
    """`factor * value` as a sum of terms that are no sums."""
    if isinstance(value, ex.Const):
        return {"": (factor * int(value.value), value)}
    if isinstance(value, ex.Mul) and isinstance(value.left, ex.Const):
        return linear(value.right, factor * value.left.value)
    if isinstance(value, ex.Add | ex.Sub):
        sign = 1 if isinstance(value, ex.Add) else -1
        return _merge(linear(value.left, factor), linear(value.right, sign * factor))
    return {str(value): (factor, value)}


def _merge(a: Linear, b: Linear) -> Linear:
    keys = {**a, **b}
    return {k: (a.get(k, (0,))[0] + b.get(k, (0,))[0], term) for k, (_, term) in keys.items()}


def total(*terms: tuple[int, Any]) -> Any:
    """Σ factor · term, in normal form."""
    if wrong := [term for _, term in terms if not ex.is_index(term)]:
        return no_index(next(term for _, term in terms if ex.is_index(term)), wrong[0])
    parts: Linear = {}
    for factor, term in terms:
        parts = _merge(parts, linear(ex.lift(term), factor))
    number = parts.pop("", (0, None))[0]
    # Positive terms first, each group in alphabetical order; the number last, or 5 - t.
    ordered = sorted(parts.items(), key=lambda part: (part[1][0] < 0, part[0].lower(), part[0]))
    summands = [part for _, part in ordered if part[0]]
    first = bool(summands) and summands[0][0] < 0 < number
    if number or not summands:
        summands.insert(0 if first else len(summands), (number, ex.Const(1)))
    (factor, term), *rest = summands
    result = _scaled(factor, term)
    for factor, term in rest:
        result = (ex.Add if factor > 0 else ex.Sub)(result, _scaled(abs(factor), term))
    return result


def _scaled(factor: int, term: ex.Expr) -> ex.Expr:
    if isinstance(term, ex.Const):
        return ex.Const(factor * term.value)
    return term if factor == 1 else ex.Mul(ex.Const(factor), term)


def divide(kind: type[ex.Binary], left: ex.Expr, right: Any) -> Any:
    """`left // right` or `left % right`."""
    if not ex.is_index(right):
        return no_index(left, right)
    divisor = ex.lift(right)
    if not isinstance(divisor, ex.Const) or divisor.value < 1:
        raise ValueError(f"`{left}` may only be divided by a positive number, not by `{right}`")
    if isinstance(left, ex.Const):
        return ex.Const(kind.operate(left.value, divisor.value))
    if divisor.value == 1:
        return left if kind is ex.FloorDiv else ex.Const(0)
    return kind(left, divisor)


def compare(op: str, left: ex.Expr, right: object) -> Any:
    """`left op right`, decided at once where the sides differ by a number."""
    if not ex.is_index(right):
        return no_index(left, right)
    other = ex.lift(right)
    if is_truth(left) or is_truth(other):
        alike = left.same(other)
        return {"==": alike, "!=": not alike}.get(op, NotImplemented)
    difference = left - other
    if isinstance(difference, ex.Const):
        return ex.TRUE if ex.COMPARE[op][0](difference.value, 0) else ex.FALSE
    return ex.Compare(left, other, op)


def extreme(kind: type[ex.Binary], values: tuple[Any, ...]) -> Any:
    """The least (`Min`) or greatest (`Max`) of ints, arrays or expressions."""
    first, *rest = values
    for value in rest:
        first = _extreme_of_two(kind, first, value)
    return first


def _extreme_of_two(kind: type[ex.Binary], a: Any, b: Any) -> Any:
    least = kind is ex.Min
    if isinstance(a, ex.Expr) or isinstance(b, ex.Expr):
        left, right = ex.lift(a), ex.lift(b)
        difference = left - right
        if isinstance(difference, ex.Const):
            return left if (difference.value <= 0) == least else right
        return kind(left, right)
    if isinstance(a, int | np.integer) and isinstance(b, int | np.integer):
        return min(a, b) if least else max(a, b)
    return jnp.minimum(a, b) if least else jnp.maximum(a, b)


def multiply(left: ex.Expr, right: Any) -> Any:
    """`left * right`, one of them a number."""
    if not ex.is_index(right):
        return no_index(left, right)
    a, b = ex.lift(right), left
    if not isinstance(a, ex.Const):
        a, b = b, a
    if not isinstance(a, ex.Const):
        raise ValueError(f"`({left}) * ({right})` is not linear: one side must be a number")
    return total((a.value, b))


def no_index(term: ex.Expr, other: object) -> Any:
    """Refuse a number or an expression beside `term` by `ValueError`, leave others to `other`."""
    if not isinstance(other, float | np.number) and not ex.is_index(other):
        return NotImplemented
    raise ValueError(
        f"`{term}` does not go with `{other}` in an index, which is made of whole numbers by +, -, "
        f"*, and by // and % of a number; `p.value({term})` is a tensor, which takes any operation"
    )


_ASKERS = {"array", "_arraylike", "shaped_abstractify", "typeof"}  # functions of JAX


def offer(value: Any) -> Any:
    """Refuse functions of JAX, which ask for the attribute `__jax_array__`.

    To others it is missing, so that JAX leaves `array * tensor` to the tensor.
    """
    if sys._getframe(2).f_code.co_name in _ASKERS:
        refuse(value)
    raise AttributeError("__jax_array__")


def refuse(value: Any, *_: Any, **__: Any) -> Any:
    """Raise `ValueError`: an expression or a tensor has no numbers that a function could take."""
    raise ValueError(
        f"`{value}` has no numbers while the program is written: give the function and its inputs "
        f"to `fn`, which calls it at every point, as in `p.fn(jnp.tanh, x)`; in an index stand "
        f"`min_` and `max_`"
    )


def _joined(left: ex.Expr, symbol: str, right: ex.Expr) -> None:
    for term in (left, right):
        if not is_truth(term):
            raise ValueError(
                f"`({left}) {symbol} ({right})` joins `{term}`, which is no condition: put "
                f"comparisons in brackets, as in `(t > 1) & (t < 3)`; odd t are `t % 2 == 1`"
            )


def both(left: ex.Expr, right: ex.Expr) -> ex.Expr:
    """`left and right`."""
    _joined(left, "&", right)
    if ex.FALSE.same(left) or ex.TRUE.same(right) or left.same(right):
        return left
    return right if ex.TRUE.same(left) or ex.FALSE.same(right) else ex.And(left, right)


def either(left: ex.Expr, right: ex.Expr) -> ex.Expr:
    """`left or right`."""
    _joined(left, "|", right)
    if ex.TRUE.same(left) or ex.FALSE.same(right) or left.same(right):
        return left
    return right if ex.FALSE.same(left) or ex.TRUE.same(right) else ex.Or(left, right)


def negate(term: Any) -> Any:
    """`not term`, of an expression, a truth value or an array of them."""
    if not isinstance(term, ex.Expr):
        return not term if isinstance(term, bool) else jnp.logical_not(term)
    if isinstance(term, ex.Const):
        return ex.FALSE if term.value else ex.TRUE
    if isinstance(term, ex.Compare):
        return compare(ex.COMPARE[term.op][1], term.left, term.right)
    if isinstance(term, ex.And | ex.Or):
        return (either if isinstance(term, ex.And) else both)(~term.left, ~term.right)
    raise ValueError(f"`{term}` is no condition: only conditions can be negated")


def interval(value: ex.Expr, limits: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Bounds on a value by the ends of its terms, since all operators are monotone."""
    if isinstance(value, ex.Sym):
        return limits[value.name]
    if isinstance(value, ex.Mod):
        return 0, interval(value.right, limits)[1] - 1
    ends = itertools.product(*(interval(term, limits) for term in value.terms))
    values = [int(value.compute(*each)) for each in ends]
    return min(values), max(values)


def leaves(value: ex.Expr, kind: type[ex.Binary]) -> list[ex.Expr]:
    """The arguments of nested minima (or maxima), also where a number is added to them."""
    if isinstance(value, kind):
        return [*leaves(value.left, kind), *leaves(value.right, kind)]
    if isinstance(value, ex.Add) and isinstance(value.right, ex.Const):
        return [leaf + value.right for leaf in leaves(value.left, kind)]
    if isinstance(value, ex.Sub) and isinstance(value.right, ex.Const):
        return [leaf - value.right for leaf in leaves(value.left, kind)]
    return [value]


ex.Expr.rules = sys.modules[__name__]
