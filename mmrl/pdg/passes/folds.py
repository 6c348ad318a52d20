"""Folds: sums, means, extremes and discounted sums of the points that a slice of d reads.

    y[t] = Σ_{lo(t) <= k < hi(t)} x[k]

Prefixes 0:t + 1, suffixes t:T and windows t:min_(t + n, T) are one case. One fold at a time reads
hi - lo points. All of them together share the folds of neighbors,

    z₀[k] = x[k],    zⱼ₊₁[k] = zⱼ[k] • zⱼ[k + 2ʲ],    so that zⱼ[k] folds 2ʲ points from k on,

and y[t] joins one zⱼ for each binary digit of hi - lo. T windows of n points take O(T log n)
operations, and no large sums are subtracted from each other. (The paper lifts such slices to
cumulative sums and convolutions, §5.2, which exist for sums only.)
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
    """An operation that folds the points of a slice, `part`, that its `edge` reads along `name`.

    A mean is a sum until `finish` divides it.
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
        """Combine the folds of the first `count` points and of the rest into the fold of a list."""
        if self.kind in EXTREMES:
            return EXTREMES[self.kind][0](x, y)
        return x + (self.power(count) * y if self.kind == "discounted_sum" else y)

    def empty(self, x: Any) -> Any:
        """Return the fold of no points, with the type of `x`."""
        extreme = EXTREMES.get(self.kind)
        return jnp.asarray(limit(x, extreme[2]) if extreme else 0, x.dtype)

    def finish(self, x: Any, count: Any) -> Any:
        """Return the result from the fold of `count` points."""
        return x / jnp.asarray(count, x.dtype) if self.kind == "mean" else x

    def power(self, count: Any) -> Any:
        """Return γ^count."""
        exponent = count if isinstance(count, int) else count.astype(self.dtype)
        return self.op.params["gamma"] ** exponent

    def all(self, x: Any, count: Any) -> Any:
        """Return the fold of the first `count` points, short of `finish`; the others are zeros."""
        x = x.astype(self.dtype)
        if self.kind == "discounted_sum":
            return jnp.tensordot(self.power(jnp.arange(len(x))), x, 1)
        if self.kind not in EXTREMES:
            return x.sum(0, dtype=self.dtype)
        inside = (jnp.arange(len(x)) < count).reshape(-1, *[1] * (x.ndim - 1))
        return EXTREMES[self.kind][1](jnp.where(inside, x, self.empty(x)), 0)

    def ranges(self, x: Any, low: Any, high: Any, width: int) -> Any:
        """Return the folds of x[low[k]:high[k]], of at most `width` points each, for every k."""
        table = x.astype(self.dtype)
        nothing, one = self.empty(table), (-1, *[1] * (x.ndim - 1))
        count = jnp.maximum(high - low, 0)
        found, done = jnp.full((len(low), *x.shape[1:]), nothing), jnp.zeros_like(low)
        for level in range(width.bit_length()):
            size = 1 << level
            taken = (count & size) > 0
            here = jnp.take(table, low + done, 0, mode="clip")
            joined = self.join(found, here, done.reshape(one))
            found = jnp.where(taken.reshape(one), joined, found)
            done = jnp.where(taken, done + size, done)
            after = [table[size:], jnp.full((min(size, len(table)), *x.shape[1:]), nothing)]
            table = self.join(table, jnp.concatenate(after), size)
        return self.finish(found, count.reshape(one))


def fold_of(graph: Graph, op: Op) -> Fold | None:
    """Return the fold that an operation is; None if it is another operation."""
    edges = graph.inputs(op.name)
    if op.kind not in KINDS or op.params.get("axis", 0) != 0 or len(edges) != 1:
        return None
    (edge,), names = edges, graph.ops[edges[0].source].domain.names
    sliced = [n for n, part in zip(names, edge.index, strict=True) if isinstance(part, Slice)]
    if len(sliced) != 1:
        return None
    return Fold(op, edge, sliced[0], edge.slices[0])


def folds(graph: Graph, name: str) -> list[Fold]:
    """Return the folds of slices that move along a dimension, or of all of it."""
    found = (fold_of(graph, op) for op in graph.ops.values())
    return [fold for fold in found if fold is not None and fold.name == name]
