"""Index expressions as sums of counters, to be compared and solved."""

from collections.abc import Mapping

from mmrl.pdg.expr import Add, Expr, Mul, Sub, Sym

Form = dict[str, int]
"""Σ c · counter, by name; the constant is under the name ""."""


def form(expr: Expr | int, bounds: Mapping[str, int]) -> Form | None:
    """The sum that `expr` is once the bounds are numbers, None if it is no sum."""
    if isinstance(expr, int) or expr.symbols() <= set(bounds):
        return {"": int(expr if isinstance(expr, int) else expr.evaluate(bounds))}
    if isinstance(expr, Sym):
        return {expr.name: 1}
    if not isinstance(expr, Add | Sub | Mul):
        return None
    left, right = form(expr.left, bounds), form(expr.right, bounds)
    if left is None or right is None:
        return None
    if isinstance(expr, Mul):
        return _times(left, right)
    sign = 1 if isinstance(expr, Add) else -1
    return {name: left.get(name, 0) + sign * right.get(name, 0) for name in {*left, *right}}


def _times(left: Form, right: Form) -> Form | None:
    number, rest = (left, right) if set(left) == {""} else (right, left)
    return {name: c * number[""] for name, c in rest.items()} if set(number) == {""} else None


def same(expr: Expr | int, bounds: Mapping[str, int]) -> tuple[tuple[str, int], ...] | None:
    """A form that can be compared: equal for expressions that are equal at every point."""
    found = form(expr, bounds)
    return None if found is None else tuple(sorted((name, c) for name, c in found.items() if c))
