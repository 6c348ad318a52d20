"""What the explorers of dependence graphs must compute: by `mmrl.pdg`, and point by point."""

from collections.abc import Iterator
from typing import Any

from mmrl.pdg import polyhedra
from mmrl.pdg.domain import Dim, Domain, reads
from mmrl.pdg.expr import Expr, Slice, Sym, lift, max_, min_

t, T, n, k = (Sym(name) for name in "tTnk")
PATTERNS: dict[str, Expr] = {
    "t": t,
    "t+3": t + 3,
    "t-1": t - 1,
    "0:T": Slice(lift(0), T),
    "t:T": Slice(t, T),
    "0:t+1": Slice(lift(0), t + 1),
    "t:min(t+n,T)": Slice(t, min_(t + n, T)),
    "max(0,t-n):t+1": Slice(max_(lift(0), t - n), t + 1),
    "t//2": t // 2,
    "t%8": t % 8,
    "T-1-t": T - 1 - t,
}


def patterns() -> Iterator[dict[str, Any]]:
    """Rows, and columns by the symbolic inverse of `mmrl.pdg.polyhedra`; lives by following all."""
    elements = Domain((Dim(k, T),))
    for name, phi in PATTERNS.items():
        exists = n >= 1 if isinstance(phi, Slice) else (n >= 1) & (phi >= 0) & (phi < T)
        found = polyhedra.invert(Domain.of("t"), elements, [phi], exists)
        for bounds in ({"T": 4, "n": 1}, {"T": 12, "n": 4}, {"T": 19, "n": 8}, {"T": 24, "n": 3}):
            steps = range(bounds["T"])
            rows = [[q for (q,) in reads([phi], {"t": at, **bounds}) if q in steps] for at in steps]
            columns = []
            for q in steps:
                env = {"k": q, **bounds}
                box = [p for (p,) in reads(found.index, env)] if found.when.evaluate(env) else []
                columns.append(box if found.exact else [p for p in box if q in rows[p]])
            kept = follow(rows)
            settings = {"name": name, "inverse": str(found.index[0]), "exact": found.exact}
            yield settings | bounds | {"rows": rows, "columns": columns, "kept": kept}


def follow(rows: list[list[int]]) -> list[list[int]]:
    """What a store holds while each reader runs, if x[0], x[1], … are made when they must be."""
    store, made, kept = set(), 0, []
    for at, row in enumerate(rows):
        while row and made <= max(row):
            store.add(made)
            made += 1
        store = {q for q in store if any(q in later for later in rows[at:])}
        kept.append(sorted(store))
    return kept
