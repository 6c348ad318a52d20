"""How expressions are built: one normal form of sums, constants folded, text with few brackets."""

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from mmrl.pdg import expr as ex

Linear = dict[str, tuple[int, ex.Expr]]  # by its text, each term with its factor; "" is the number

COMPARE = {
    "<": (operator.lt, ">="),
    "<=": (operator.le, ">"),
    ">": (operator.gt, "<="),
    ">=": (operator.ge, "<"),
    "==": (operator.eq, "!="),
    "!=": (operator.ne, "=="),
}
OPERATOR: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Min": lambda a, b: extreme(ex.Min, (a, b)),
    "Max": lambda a, b: extreme(ex.Max, (a, b)),
    "And": operator.and_,
    "Or": operator.or_,
}
_TIGHTNESS = {
    "Or": 1,
    "And": 2,
    "Compare": 3,
    "Add": 4,
    "Sub": 4,
    "Mul": 5,
    "FloorDiv": 5,
    "Mod": 5,
}
_SYMBOL = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "Mod": "%", "And": "and"}
_SYMBOL |= {"Or": "or", "Min": "min", "Max": "max"}


def is_index(value: object) -> bool:
    """An expression, or a number that may stand in one?"""
    return isinstance(value, ex.Expr | int | np.integer)


def is_truth(value: ex.Expr) -> bool:
    """Is its value true or false?"""
    if isinstance(value, ex.Const):
        return isinstance(value.value, bool)
    return isinstance(value, ex.Compare | ex.And | ex.Or | ex.Not)


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
    if not all(is_index(term) for _, term in terms):
        return NotImplemented
    parts: Linear = {}
    for factor, term in terms:
        parts = _merge(parts, linear(ex.lift(term), factor))
    number = parts.pop("", (0, None))[0]
    ordered = sorted(((k, str(term), term) for k, term in parts.values() if k), key=_place)
    result: ex.Expr | None = None
    for k, _, term in ordered:
        scaled = term if abs(k) == 1 else ex.Mul(ex.Const(abs(k)), term)
        if result is None:
            result = scaled if k > 0 else ex.Mul(ex.Const(k), term)
        else:
            result = ex.Add(result, scaled) if k > 0 else ex.Sub(result, scaled)
    if result is None:
        return ex.Const(number)
    if ordered[0][0] < 0 < number:  # 5 - t rather than -1 * t + 5
        return total_after(number, ordered)
    if number:
        result = (ex.Add if number > 0 else ex.Sub)(result, ex.Const(abs(number)))
    return result


def total_after(number: int, ordered: list[tuple[int, str, ex.Expr]]) -> ex.Expr:
    """A number, less terms that are all negative."""
    result: ex.Expr = ex.Const(number)
    for k, _, term in ordered:
        result = ex.Sub(result, term if k == -1 else ex.Mul(ex.Const(-k), term))
    return result


def _place(part: tuple[int, str, ex.Expr]) -> tuple[bool, str, str]:
    return part[0] < 0, part[1].lower(), part[1]


def divide(kind: type[ex.Binary], left: ex.Expr, right: Any) -> Any:
    """`left // right` or `left % right`."""
    if not is_index(right):
        return NotImplemented
    divisor = ex.lift(right)
    if not isinstance(divisor, ex.Const) or divisor.value < 1:
        raise ValueError(f"`{left}` may only be divided by a positive number, not by `{right}`")
    if isinstance(left, ex.Const):
        return ex.Const(OPERATOR[kind.__name__](left.value, divisor.value))
    if divisor.value == 1:
        return left if kind is ex.FloorDiv else ex.Const(0)
    return kind(left, divisor)


def compare(op: str, left: ex.Expr, right: object) -> Any:
    """`left op right`, decided at once where the sides differ by a number."""
    if not is_index(right):
        return NotImplemented
    other = ex.lift(right)
    if is_truth(left) or is_truth(other):
        alike = left.same(other)
        return {"==": alike, "!=": not alike}.get(op, NotImplemented)
    difference = left - other
    if isinstance(difference, ex.Const):
        return ex.TRUE if COMPARE[op][0](difference.value, 0) else ex.FALSE
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
    if not is_index(right):
        return NotImplemented
    a, b = ex.lift(right), left
    if not isinstance(a, ex.Const):
        a, b = b, a
    if not isinstance(a, ex.Const):
        raise ValueError(f"`({left}) * ({right})` is not linear: one side must be a number")
    return total((a.value, b))


def both(left: ex.Expr, right: ex.Expr) -> ex.Expr:
    """`left and right`."""
    if ex.FALSE.same(left) or ex.TRUE.same(right) or left.same(right):
        return left
    return right if ex.TRUE.same(left) or ex.FALSE.same(right) else ex.And(left, right)


def either(left: ex.Expr, right: ex.Expr) -> ex.Expr:
    """`left or right`."""
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
        return compare(COMPARE[term.op][1], term.left, term.right)
    return term.term if isinstance(term, ex.Not) else ex.Not(term)


def _symbol(node: ex.Binary) -> str:
    return node.op if isinstance(node, ex.Compare) else _SYMBOL[type(node).__name__]


def text(node: ex.Binary) -> str:
    """As Python writes it."""
    op = _symbol(node)
    if isinstance(node, ex.Min | ex.Max):
        return f"{op}({node.left}, {node.right})"
    return f"{_wrap(node.left, node)} {op} {_wrap(node.right, node, right=True)}"


def isl_text(node: ex.Binary) -> str:
    """As isl reads it."""
    left, right, op = node.left.isl(), node.right.isl(), _symbol(node)
    if isinstance(node, ex.Min | ex.Max):
        return f"{op}({left}, {right})"
    if isinstance(node, ex.FloorDiv):
        return f"floor({left} / {right})"
    return f"({left} { {'==': '=', '%': 'mod'}.get(op, op) } {right})"


def _wrap(inner: ex.Expr, outer: ex.Expr, right: bool = False) -> str:
    within = _TIGHTNESS.get(type(inner).__name__, 9)
    need = _TIGHTNESS[type(outer).__name__]
    tight = within > need or (within == need and not right and need != 3)
    return str(inner) if tight else f"({inner})"


def leaves(value: ex.Expr, kind: type[ex.Binary]) -> list[ex.Expr]:
    """The arguments of nested minima (or maxima), also where a number is added to them."""
    if isinstance(value, kind):
        return [*leaves(value.left, kind), *leaves(value.right, kind)]
    if isinstance(value, ex.Add) and isinstance(value.right, ex.Const):
        return [leaf + value.right for leaf in leaves(value.left, kind)]
    if isinstance(value, ex.Sub) and isinstance(value.right, ex.Const):
        return [leaf - value.right for leaf in leaves(value.left, kind)]
    return [value]
