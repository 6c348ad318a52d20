"""Subscripts such as `x[i, t:T]`: which points they read, where they can, and in which shape.

    index of a symbolic dimension t      its place in the domain     the array
    no index, `:`, or t itself           stays                       as it was
    t + 1, min_(t + 9, T - 1), t % 8     stays                       as it was
    5, T - 4                             goes                        as it was
    0:5, 0:T                             goes                        a new first axis
    t:T, 0:t + 1                         stays                       a new first axis, ragged
    another symbol, i                    i takes its place           as it was

Indices after `...` belong to the array's own axes. A condition, `x[t % 10 == 0]`, leaves fewer
points. So does an index that leaves the domain of `x`: `x[t - 1]` lives at 1 <= t. Points are
counted from 0, never from the end: `x[T - 1]` is the last. A slice may be empty, as 0:t is where t
is 0: its sum is 0, and it has no mean and no extremes.  §4
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from mmrl.pdg.build.expr import TRUE, Const, Expr, Slice, Sym, as_expr, is_index, is_truth, max_
from mmrl.pdg.build.graph import Dim, Domain, conjuncts
from mmrl.pdg.build.sets import always, never, simplify


@dataclasses.dataclass(frozen=True, eq=False)
class Subscript:
    """An index sorted out: φ of each symbolic dimension, a condition, and indices of axes."""

    at: dict[str, Expr]
    when: Expr = TRUE
    axes: tuple[Any, ...] | None = None

    def text(self, name: str) -> str:
        """The subscript nearly as it was written."""
        condition = () if TRUE.same(self.when) else (str(self.when),)
        return f"{name}[{', '.join((*map(str, self.at.values()), *condition))}]"

    @property
    def slices(self) -> tuple[str, ...]:
        return tuple(name for name, part in self.at.items() if isinstance(part, Slice))


def subscript(key: Any, domain: Domain, name: str) -> Subscript:
    """Sort out `name[key]`. Raises `ValueError` for too many indices or things that are none."""
    items = list(key) if isinstance(key, tuple) else [key]
    axes = None
    places = [k for k, item in enumerate(items) if item is Ellipsis]
    if places:
        items, axes = items[: places[0]], tuple(items[places[0] + 1 :]) or None
    when, at = TRUE, {}
    if len(items) == 1 and is_index(items[0]) and is_truth(as_expr(items[0])):
        when, items = as_expr(items[0]), []
    if len(items) > len(domain):
        raise ValueError(
            f"`{name}` has {len(domain)} symbolic dimensions, {list(domain.names)}, and was given "
            f"{len(items)} indices; write `...` before indices of the array's own axes"
        )
    for dim, item in zip(domain, items, strict=False):
        every = isinstance(item, slice) and item == slice(None)
        part = dim.symbol if every else _from_start(item, dim.bound, name)
        if not isinstance(part, Slice) and is_truth(part):
            when, part = when & part, dim.symbol
        at[dim.name] = part
    return Subscript(at, when, axes)


def _from_start(item: Any, bound: Expr, name: str) -> Expr:
    """An index as an expression; `3:` and `:t` reach to the ends of the dimension."""
    for end in (item.start, item.stop) if isinstance(item, slice) else (item,):
        if isinstance(end, int | np.integer) and end < 0:
            raise ValueError(
                f"`{name}` counts points from 0 and not from the end: instead of {end} write "
                f"{bound - -end}"
            )
    if isinstance(item, slice) and item.step is None:
        start, stop = item.start, item.stop
        return Slice(
            as_expr(0 if start is None else start), as_expr(bound if stop is None else stop)
        )
    return as_expr(item)


def defined(sink: Domain, source: Domain, index: Sequence[Expr], name: str) -> Domain:
    """The points of `sink` at which `source[index]` exists.

    A slice that runs over the edge is a `ValueError`: it would silently be shorter.
    """
    text = f"{name}[{', '.join(map(str, index))}]"
    for dim, part in zip(source, index, strict=True):
        inside = _inside(dim, part)
        if isinstance(part, Slice) and not always(inside, roomy(sink, inside)):
            below, above = part.lo < 0, part.hi > dim.bound
            low = part.lo if never(below, sink) else f"max_({part.lo}, 0)"
            high = part.hi if never(above, roomy(sink, above)) else f"min_({part.hi}, {dim.bound})"
            raise ValueError(f"`{text}` leaves 0:{dim.bound}; write {low}:{high}")
        if isinstance(part, Slice) and never(part.hi >= part.lo, roomy(sink, part.hi >= part.lo)):
            raise ValueError(f"`{text}` ends before it begins, at every point of {sink}")
    inside = within(source, index, name)
    if always(inside, roomy(sink, inside)):
        return sink
    if never(inside, roomy(sink, inside)):
        has = ", ".join(map(str, (*source, *(() if TRUE.same(source.when) else [source.when]))))
        raise ValueError(f"`{text}` exists at no point of {sink}: `{name}` has {has}")
    return Domain(sink.dims, simplify(sink.when & inside, roomy(sink.box(), inside)))


def width(part: Slice, sink: Domain) -> Expr:
    """Return the number of points in a slice: 0 where it would end before it begins."""
    size = part.width()
    return size if always(size >= 0, roomy(sink, size)) else max_(size, 0)


def within(source: Domain, index: Sequence[Expr], name: str) -> Expr:
    """Return where `source[index]` exists, in the reader's symbols; all points of a slice must.

    Raises `ValueError` for a slice in which some points may be missing.
    """
    at = dict(zip(source.names, index, strict=True))
    holes = [n for n in source.when.symbols() if isinstance(at.get(n), Slice)]
    if holes:
        raise ValueError(
            f"`{name}` exists only where {source.when}: a slice of {holes} may have holes; a "
            f"`Program.tensor` can define these points, as in `x[T - 1] = 0.0`, `x[t] = …`"
        )
    return stays(source, index)


def stays(source: Domain, index: Sequence[Expr]) -> Expr:
    """Return where all points of `source[index]` exist, if slices have no holes."""
    at = dict(zip(source.names, index, strict=True))
    sliced = {name for name, part in at.items() if isinstance(part, Slice)}
    found = TRUE
    for part in conjuncts(source.when):
        found = found if part.symbols() & sliced else found & part.substitute(at)
    for dim, part in zip(source, index, strict=True):
        found = found if part.same(dim.symbol) else found & _inside(dim, part)
    return found


def _inside(dim: Dim, part: Expr) -> Expr:
    if isinstance(part, Slice):
        return (part.hi <= part.lo) | ((part.lo >= 0) & (part.hi <= dim.bound))
    return (part >= 0) & (part < dim.bound)


def composes(index: Sequence[Expr], names: Sequence[str]) -> bool:
    """True if these symbols may become slices in φ: whole indices, once each, in this order."""
    return [str(part) for part in index if part.symbols() & set(names)] == list(names)


def roomy(domain: Domain, *exprs: Expr) -> Domain:
    """Return the domain for bounds that exceed every number in the expressions.

    `x[2:5]` is fine although it needs T >= 5: a program may require sufficiently large bounds.
    """
    least = 1 + max(map(largest_number, exprs), default=0)
    bounds = {name for expr in exprs for name in expr.symbols()} - set(domain.names)
    bounds |= {name for dim in domain for name in dim.bound.symbols()}
    for name in sorted(bounds):
        domain = domain.restrict(Sym(name) >= least)
    return domain


def largest_number(expr: Expr) -> int:
    """The largest absolute value of the numbers in an expression, 0 without any."""
    if isinstance(expr, Const):
        return abs(int(expr.value))
    return max(map(largest_number, expr.terms), default=0)


def definition(
    found: Subscript, domain: Domain, bounds: Sequence[str], name: str
) -> tuple[Expr, dict[str, Expr]]:
    """`name[…] = value`: at which points ψ, and what the value's symbols are there.

    `[i, 0]` defines the points t = 0, `[i, t + 1]` those with t >= 1 from the value at t - 1,
    `[i, 0:4]` those with t < 4, `[i, t]` all that remain.
    """
    when, change = found.when, {}
    for dim in domain:
        part = found.at.get(dim.name, dim.symbol)
        shift = _shift(part, dim.symbol)
        if isinstance(part, Slice) and part.symbols() <= set(bounds):
            when = when & (dim.symbol >= part.lo) & (dim.symbol < part.hi)
        elif part.symbols() <= set(bounds) and not isinstance(part, Slice):
            when = when & (dim.symbol == part)
            change[dim.name] = part
        elif shift is not None:
            when = when.substitute({dim.name: dim.symbol - shift})
            change[dim.name] = dim.symbol - shift
            source = dim.symbol - shift
            when = when & (source >= 0) & (source < dim.bound)
        else:
            raise ValueError(
                f"`{found.text(name)} = …`: a definition is at a number, at 0:4, at {dim.symbol} "
                f"or at {dim.symbol} + 1; turn the equation so that the index on the left is one"
            )
    if never(when, roomy(domain, when)):
        has = ", ".join(map(str, domain))
        raise ValueError(f"`{found.text(name)} = …` defines no point: `{name}` has {has}")
    return simplify(when, domain), change


def _shift(part: Expr, symbol: Sym) -> int | None:
    """c if `part` is `symbol + c`."""
    difference = part - symbol if not isinstance(part, Slice) else part
    return int(difference.value) if isinstance(difference, Const) else None
