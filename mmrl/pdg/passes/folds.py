"""Folds over slices of a dimension d: sums, means, maxima, minima and discounted sums.

    y[t] = Σ_{lo(t) <= k < hi(t)} x[k]

Prefixes 0:t + 1, suffixes t:T and windows t:min_(t + n, T) need no special cases. A single fold
reads hi - lo points. Folds at all points can share the folds of neighboring points,

    z₀[k] = x[k],    zⱼ₊₁[k] = zⱼ[k] • zⱼ[k + 2ʲ],    where zⱼ[k] folds 2ʲ points starting at k.

Then y[t] combines one zⱼ for each bit set in hi - lo. T windows of n points need O(T log n)
operations, and no large sums are subtracted from each other. (The paper lifts such slices to
cumulative sums and convolutions, §5.2, which exist only for sums.)
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.expr import Slice
from mmrl.pdg.build.graph import Edge, Graph, Op
from mmrl.pdg.build.ops import limit

KINDS = ("sum", "mean", "max", "min", "discounted_sum")
EXTREMES = {"max": (jnp.maximum, jnp.max, -1), "min": (jnp.minimum, jnp.min, 1)}


@dataclasses.dataclass(frozen=True, eq=False)
class Fold:
    """Operation that folds the slice `part` of dimension `name`, which it reads along `edge`.

    A mean is computed as a sum, which `finish` divides by the number of points.
    """

    op: Op
    edge: Edge
    name: str
    part: Slice

    @property
    def kind(self) -> str:
        return self.op.kind

    @property
    def dtype(self) -> Any:
        return jax.tree.leaves(self.op.outputs)[0].dtype

    def join(self, x: Any, y: Any, count: Any) -> Any:
        """Combine x, the fold of the first `count` points, with y, the fold of later points."""
        if self.kind in EXTREMES:
            return EXTREMES[self.kind][0](x, y)
        return x + (self.power(count) * y if self.kind == "discounted_sum" else y)

    def empty(self, x: Any) -> Any:
        """Return the fold of no points, with the dtype of `x`."""
        extreme = EXTREMES.get(self.kind)
        return jnp.asarray(limit(x, extreme[2]) if extreme else 0, x.dtype)

    def finish(self, x: Any, count: Any) -> Any:
        """Return the final result, given the fold of `count` points."""
        return x / jnp.asarray(count, x.dtype) if self.kind == "mean" else x

    def power(self, count: Any) -> Any:
        """Return γ^count."""
        exponent = count if isinstance(count, int) else count.astype(self.dtype)
        return self.op.params["gamma"] ** exponent

    def all(self, x: Any, count: Any) -> Any:
        """Return the fold of the first `count` points, without applying `finish`.

        All other points must be zero.
        """
        x = x.astype(self.dtype)
        if self.kind == "discounted_sum":
            return jnp.tensordot(self.power(jnp.arange(len(x))), x, 1)
        if self.kind not in EXTREMES:
            return x.sum(0, dtype=self.dtype)
        inside = (jnp.arange(len(x)) < count).reshape(-1, *[1] * (x.ndim - 1))
        return EXTREMES[self.kind][1](jnp.where(inside, x, self.empty(x)), 0)

    def ranges(self, x: Any, low: Any, high: Any, width: int) -> Any:
        """Return the folds of x[low[k]:high[k]] for every k, each over at most `width` points."""
        count = jnp.maximum(high - low, 0).reshape(-1, *[1] * (x.ndim - 1))
        return self.finish(self.parts(x, low, high, width), count)

    def parts(self, x: Any, low: Any, high: Any, width: int) -> Any:
        """Return the folds that `ranges` returns, but without applying `finish`."""
        table = x.astype(self.dtype)
        identity, one = self.empty(table), (-1, *[1] * (x.ndim - 1))
        count = jnp.maximum(high - low, 0)
        total, offset = jnp.full((len(low), *x.shape[1:]), identity), jnp.zeros_like(low)
        for level in range(width.bit_length()):
            size = 1 << level
            bit = (count & size) > 0
            here = jnp.take(table, low + offset, 0, mode="clip")
            longer = self.join(total, here, offset.reshape(one))
            total = jnp.where(bit.reshape(one), longer, total)
            offset = jnp.where(bit, offset + size, offset)
            after = [table[size:], jnp.full((min(size, len(table)), *x.shape[1:]), identity)]
            table = self.join(table, jnp.concatenate(after), size)
        return total


def fold_of(graph: Graph, op: Op) -> Fold | None:
    """Return a `Fold` for an operation, or None if it does not fold exactly one slice."""
    edges = graph.inputs(op.name)
    if op.kind not in KINDS or op.params.get("axis", 0) != 0 or len(edges) != 1:
        return None
    (edge,), names = edges, graph.ops[edges[0].source].domain.names
    sliced = [n for n, part in zip(names, edge.index, strict=True) if isinstance(part, Slice)]
    if len(sliced) != 1:
        return None
    return Fold(op, edge, sliced[0], edge.slices[0])


def folds(graph: Graph, name: str) -> list[Fold]:
    """Return all operations that fold a slice of a dimension."""
    candidates = (fold_of(graph, op) for op in graph.ops.values())
    return [fold for fold in candidates if fold is not None and fold.name == name]
