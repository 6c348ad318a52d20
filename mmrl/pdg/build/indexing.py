"""Subscripts such as `x[i, t:T]`: the points that they read, and the resulting domain and shape.

    index of a symbolic dimension t      t in the domain             the array
    no index, or t itself                kept                        unchanged
    `:` before an index of a later one   kept                        unchanged
    t + 1, min_(t + 9, T - 1), t % 8     kept                        unchanged
    5, T - 4                             removed                     unchanged
    0:5, 0:T                             removed                     a new first axis
    t:T, 0:t + 1                         kept                        a new first axis, ragged
    a different symbol, i                replaced by i               unchanged

Indices after `...` apply to the array's own axes. A condition, as in `x[t % 10 == 0]`, restricts
the domain. So does an index that leaves the domain of `x`: `x[t - 1]` exists where 1 <= t. Points
are counted from 0, never from the end, so the last one is `x[T - 1]`. A slice such as 0:t may be
empty, here at t = 0. Its sum is then 0, but its mean, maximum and minimum are undefined.  §4
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from mmrl.pdg.build.expr import (
    TRUE,
    Const,
    Expr,
    Slice,
    Sym,
    as_expr,
    is_index,
    is_truth,
    max_,
    min_,
)
from mmrl.pdg.build.graph import Dim, Domain, Symbols, conjuncts
from mmrl.pdg.build.sets import always, never, simplify

SHORTEN = "; shorten the slice"
"""Remedy for a slice with holes, used if a shorter slice is not suggested."""


@dataclasses.dataclass(frozen=True, eq=False)
class Subscript:
    """Parsed subscript: an index per symbolic dimension, a condition, and indices of array axes."""

    at: dict[str, Expr]
    when: Expr = TRUE
    axes: tuple[Any, ...] | None = None

    def text(self, name: str) -> str:
        """Return the subscript as the user wrote it, up to simplification."""
        condition = () if TRUE.same(self.when) else (str(self.when),)
        return f"{name}[{', '.join((*map(str, self.at.values()), *condition))}]"

    @property
    def slices(self) -> tuple[str, ...]:
        return tuple(name for name, part in self.at.items() if isinstance(part, Slice))


def subscript(key: Any, domain: Domain, name: str) -> Subscript:
    """Parse the subscript `name[key]`. Raises `ValueError` for too many or invalid indices."""
    items = list(key) if isinstance(key, tuple) else [key]
    axes = None
    places = [k for k, item in enumerate(items) if item is Ellipsis]
    if places:
        items, axes = items[: places[0]], tuple(items[places[0] + 1 :]) or None
    for item in items:
        for end in (item.start, item.stop) if isinstance(item, slice) else (item,):
            _check_index(end, name)
    when, at = TRUE, {}
    if len(items) == 1 and is_index(items[0]) and is_truth(as_expr(items[0])):
        when, items = as_expr(items[0]), []
    if len(items) > len(domain):
        raise ValueError(
            f"`{name}` must have at most {len(domain)} indices, one for each dimension in "
            f"{list(domain.names)}, got {len(items)}; write `...` before indices of the array's "
            f"own axes"
        )
    for place, (dim, item) in enumerate(zip(domain, items, strict=False), 1):
        every = isinstance(item, slice) and item == slice(None)
        if every and place == len(items):
            raise ValueError(
                f"`:` cannot be the last index of `{name}`; it only skips {dim.name} before the "
                f"index of a later dimension. To stack all points along {dim.name}, write "
                f"0:{dim.bound}; to keep {dim.name}, omit the `:`"
            )
        part = dim.symbol if every else _from_start(item, dim.bound, name)
        if not isinstance(part, Slice) and is_truth(part):
            when, part = when & part, dim.symbol
        at[dim.name] = part
    return Subscript(at, when, axes)


def _check_index(item: Any, name: str) -> None:
    """Raise `ValueError` or `TypeError` for an item that is not part of an index."""
    if item is None or is_index(item):
        return
    if isinstance(item, Symbols):
        item.refuse()
    entry, inputs = (repr(item), "x") if isinstance(item, str) else ("k", "x, k")
    raise ValueError(
        f"`{item!r}` is not an index of points of `{name}`, which consists of integers and symbols "
        f"of the program. To index the value at each point, such as an array or a dictionary, "
        f"write `p.fn(lambda {inputs}: x[{entry}], {inputs})`, here with x = {name}"
    )


def _from_start(item: Any, bound: Expr, name: str) -> Expr:
    """Convert an index to an expression; `3:` and `:t` extend to the ends of the dimension."""
    for end in (item.start, item.stop) if isinstance(item, slice) else (item,):
        if isinstance(end, int | np.integer) and end < 0:
            raise ValueError(
                f"`{name}` must be indexed from 0 and not from the end: instead of {end} write "
                f"{bound - -end}"
            )
    if isinstance(item, slice) and item.step is None:
        start, stop = item.start, item.stop
        return Slice(
            as_expr(0 if start is None else start), as_expr(bound if stop is None else stop)
        )
    return as_expr(item)


def read_domain(
    sink: Domain, source: Domain, index: Sequence[Expr], name: str, hint: str = SHORTEN
) -> Domain:
    """Return the points of `sink` at which `source[index]` exists.

    Raises `ValueError` if the index exists at no point, or if a slice extends beyond the source's
    domain, because such a slice would be truncated silently. `hint` is a remedy for `within`.
    """
    text = f"{name}[{', '.join(map(str, index))}]"
    for dim, part in zip(source, index, strict=True):
        inside = _inside(dim, part)
        if isinstance(part, Slice) and not always(inside, roomy(sink, inside)):
            below, above = part.lo < 0, part.hi > dim.bound
            low = part.lo if never(below, sink) else f"max_({part.lo}, 0)"
            high = part.hi if never(above, roomy(sink, above)) else f"min_({part.hi}, {dim.bound})"
            others = [other for other in source if other.name != dim.name]
            likely = [other.name for other in others if part.hi.same(other.bound)]
            hint = f", or use this slice as the index of {likely[0]}" if likely else ""
            raise ValueError(f"`{text}` extends beyond 0:{dim.bound}; write {low}:{high}{hint}")
        if isinstance(part, Slice) and never(part.hi >= part.lo, roomy(sink, part.hi >= part.lo)):
            raise ValueError(
                f"`{text}` ends before it begins, at every point of {sink}: swap its two ends"
            )
    inside = within(source, index, name, hint)
    if always(inside, roomy(sink, inside)):
        return sink
    if never(inside, roomy(sink, inside)):
        extent = ", ".join(map(str, (*source, *(() if TRUE.same(source.when) else [source.when]))))
        raise ValueError(
            f"`{text}` exists at no point of {sink}, because the domain of `{name}` is {extent}: "
            f"shift the index"
        )
    return Domain(sink.dims, simplify(sink.when & inside, roomy(sink.box(), inside)))


def complete(source: Domain, sink: Domain, at: dict[str, Expr]) -> bool:
    """Return True if `source` exists at all points that the index `at` reads within `sink`.

    The check covers all bounds, because a missing point would be read as zero.
    """
    read, inside, dims = dict(at), TRUE, []
    for dim in source:
        part = at.get(dim.name)
        if isinstance(part, Slice):
            inner = Sym(f"{dim.name}_inner")
            dims.append(Dim(inner, dim.bound, dim.rank))
            read[dim.name], inside = inner, inside & (inner >= part.lo) & (inner < part.hi)
    when = source.when.substitute(read)
    return always(when, Domain((*sink.dims, *dims), sink.when & inside))


def without_holes(source: Domain, sink: Domain, at: dict[str, Any], name: str) -> Expr:
    """Return the slice `at[name]` without points at its ends where `source` is undefined.

    If no such slice is found, return the slice unchanged.
    """
    part, (bound,) = at[name], [dim.bound for dim in source if dim.name == name]
    for k in range(1, largest_number(source.when) + 2):
        earlier = part.hi.substitute({str(bound): bound - k})
        earlier = min_(part.hi, bound - k) if earlier.same(part.hi) else earlier
        for shorter in (Slice(part.lo, earlier), Slice(max_(part.lo, k), part.hi)):
            if complete(source, sink, {**at, name: shorter}):
                return shorter
    return part


def width(part: Slice, sink: Domain) -> Expr:
    """Return the number of points in a slice, or 0 where its end precedes its start."""
    size = part.width()
    return size if always(size >= 0, roomy(sink, size)) else max_(size, 0)


def within(source: Domain, index: Sequence[Expr], name: str, hint: str = SHORTEN) -> Expr:
    """Return the condition, in the reader's symbols, for all points of `source[index]` to exist.

    Raises `ValueError` for a slice that may contain points at which `source` is undefined; the
    message contains `hint`.
    """
    at = dict(zip(source.names, index, strict=True))
    holes = [n for n in source.when.symbols() if isinstance(at.get(n), Slice)]
    if holes:
        raise ValueError(
            f"`{name}` exists only where {source.when}, so a slice along {', '.join(holes)} may "
            f"have holes{hint}, or define the missing points in a `Program.tensor`, as in "
            f"`x[T - 1] = 0.0`, `x[t] = …`"
        )
    return stays(source, index)


def stays(source: Domain, index: Sequence[Expr]) -> Expr:
    """Return the condition, in the reader's symbols, for `source[index]` to exist.

    The source must exist at all points within each slice, which `within` checks.
    """
    at = dict(zip(source.names, index, strict=True))
    sliced = {name for name, part in at.items() if isinstance(part, Slice)}
    condition = TRUE
    for part in conjuncts(source.when):
        condition = condition if part.symbols() & sliced else condition & part.substitute(at)
    for dim, part in zip(source, index, strict=True):
        condition = condition if part.same(dim.symbol) else condition & _inside(dim, part)
    return condition


def _inside(dim: Dim, part: Expr) -> Expr:
    if isinstance(part, Slice):
        return (part.hi <= part.lo) | ((part.lo >= 0) & (part.hi <= dim.bound))
    return (part >= 0) & (part < dim.bound)


def composes(index: Sequence[Expr], names: Sequence[str]) -> bool:
    """Return True if the symbols `names` can be replaced by slices in φ.

    This requires that each symbol is an entire index of φ, exactly once, and in the given order.
    """
    return [str(part) for part in index if part.symbols() & set(names)] == list(names)


def roomy(domain: Domain, *exprs: Expr) -> Domain:
    """Restrict the bounds in a domain to values greater than every constant in the expressions.

    Checks use this because a program may require large bounds: `x[2:5]` is valid, but needs T >= 5.
    """
    least = 1 + max(map(largest_number, exprs), default=0)
    bounds = {name for expr in exprs for name in expr.symbols()} - set(domain.names)
    bounds |= {name for dim in domain for name in dim.bound.symbols()}
    for name in sorted(bounds):
        domain = domain.restrict(Sym(name) >= least)
    return domain


def largest_number(expr: Expr) -> int:
    """Return the largest absolute value of the constants in an expression, or 0 without any."""
    if isinstance(expr, Const):
        return abs(int(expr.value))
    return max(map(largest_number, expr.terms), default=0)


def definition(
    target: Subscript, domain: Domain, bounds: Sequence[str], name: str
) -> tuple[Expr, dict[str, Expr]]:
    """Return the condition ψ of `name[…] = value`, and substitutions for the value's symbols.

    `[i, 0]` defines the points with t = 0 from the value at 0, `[i, t + 1]` the points with t >= 1
    from the value at t - 1, `[i, 0:4]` the points with t < 4, and `[i, t]` all remaining points.
    """
    when, change = target.when, {}
    for dim in domain:
        part = target.at.get(dim.name, dim.symbol)
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
                f"`{target.text(name)} = …`: the index of a definition must be a number, a range "
                f"such as 0:4, {dim.symbol} or {dim.symbol} + 1; rewrite the equation in this form"
            )
    if never(when, roomy(domain, when)):
        extent = ", ".join(map(str, domain))
        raise ValueError(
            f"`{target.text(name)} = …` defines no point, because the domain of `{name}` is "
            f"{extent}: change the index"
        )
    return simplify(when, domain), change


def _shift(part: Expr, symbol: Sym) -> int | None:
    """Return c if `part` is `symbol + c`, else None."""
    difference = part - symbol if not isinstance(part, Slice) else part
    return int(difference.value) if isinstance(difference, Const) else None
