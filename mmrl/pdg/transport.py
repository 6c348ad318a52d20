"""Gradients along an edge: from where a value was read back to where it was made.  §5.1

An edge reads source[φ(p)] at p. Given the cotangent of what was read at every p,

    ∇source[k] = Σ_{p ∈ φ⁻¹(k)} (the slot of the cotangent at p that came from k).

Dimensions that φ does not mention are summed by a recurrence, G[t] = G[t - 1] + d[t], so that the
sum needs no room for its terms and may grow while the program still acts. For the others φ⁻¹ says
what to read: one point, or a box of points of which a mask picks the readers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.domain import Dim, Domain
from mmrl.pdg.expr import TRUE, Expr, Slice
from mmrl.pdg.graph import ArrayType, Edge, Op, ragged
from mmrl.pdg.indexing import composes
from mmrl.pdg.ops import plus
from mmrl.pdg.polyhedra import Inverse, invert, simplify
from mmrl.pdg.program import Program
from mmrl.pdg.tensor import Tensor


def transport(cotangent: Tensor, edge: Edge, kind: Any, *, backwards: bool) -> Tensor:
    """∇source over the source's domain, from the cotangent of what `edge` read.

    `kind` is the type of the gradient. Free dimensions are summed from their end if `backwards`:
    where the cotangents themselves are found in that order.
    """
    program = cotangent.program
    sink, source = program.ops[edge.sink].domain, program.ops[edge.source].domain
    used = frozenset().union(*(part.symbols() for part in (*edge.index, edge.when, sink.when)))
    for dim in reversed(sink.dims):
        if dim.name not in used:
            cotangent = accumulate(cotangent, dim, f"grad_{edge.source}", backwards)
    rest = Domain(tuple(dim for dim in sink if dim.name in used), sink.when)
    inverse = invert(rest, source, edge.index, edge.when)
    if not edge.slices and not any(map(_many, inverse.index)):
        found = _at(cotangent, rest, inverse, source)
    else:
        sliced = {n for n, part in zip(rest.names, inverse.index, strict=True) if _many(part)}
        if rest.when.symbols() & sliced or not (inverse.exact or TRUE.same(rest.when)):
            cotangent = total(cotangent, rest.box(), rest.when)
        found = _gather(cotangent, edge, rest, inverse, source, kind)
    return found if TRUE.same(inverse.when) else total(found, source, inverse.when)


def _many(part: Expr) -> bool:
    return isinstance(part, Slice)


def accumulate(terms: Tensor, dim: Dim, name: str, backwards: bool = False) -> Tensor:
    """Σ over one dimension, as the last value of G[t] = G[t - 1] + d[t]."""
    program, domain = terms.program, terms.domain
    if dim.name not in domain.names:
        domain = domain.union(Domain((dim,)))
    first, step = (dim.bound - 1, -1) if backwards else (0, 1)
    before = program.declare(Op(program.fresh(f"{name}_before"), "merge", domain, ()))
    before[_key(domain, dim, first)] = zeros(program, terms.type, domain)
    after = add(program, [before, terms], before.type, domain, name)
    before[_key(domain, dim, dim.symbol + step)] = after
    return after[_key(domain, dim, 0 if backwards else dim.bound - 1)]


def _key(domain: Domain, dim: Dim, at: Expr | int) -> tuple[Expr | int, ...]:
    return tuple(at if other.name == dim.name else other.symbol for other in domain)


def zeros(program: Program, kind: Any, domain: Domain) -> Tensor:
    """A tree of zeros of some type."""
    domain = domain if ragged(kind) else Domain()
    run = lambda env: (filled(kind, domain, env),)  # noqa: E731
    return program.build("constant", run, [], (kind,), domain=domain, name="zeros")[0]


def filled(kind: Any, domain: Domain, env: Mapping[str, Any]) -> Any:
    """Zeros of some type, at the size that is stored."""
    bounds = {name: size for name, size in env.items() if name not in domain.names}
    shapes = jax.tree.map(lambda leaf: leaf.padded(domain, bounds), kind)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def add(program: Program, terms: Sequence[Tensor], kind: Any, domain: Domain, name: str) -> Tensor:
    """The sum of tensors of one type, over a domain."""
    params = {"f": plus}
    return program.build("fn", plus, terms, (kind,), domain=domain, name=name, params=params)[0]


def total(tensor: Tensor, domain: Domain, when: Expr) -> Tensor:
    """The tensor where `when` holds, zeros elsewhere in a domain: a merge, as §5.1 has it."""
    program = tensor.program
    name = program.fresh("gradient_or_zero")
    nothing = zeros(program, tensor.type, domain)
    merged = program.declare(Op(name, "merge", domain, (tensor.type,)))
    for case, value in ((when, tensor), (~when, nothing)):
        program.join(name, value, value.index, simplify(case, domain))
    return merged


def _at(cotangent: Tensor, sink: Domain, inverse: Inverse, source: Domain) -> Tensor:
    """The cotangent at the one point that read each point of the source."""
    at = dict(zip(sink.names, inverse.index, strict=True))
    index = tuple(part.substitute(at) for part in cotangent.index)
    domain = source if TRUE.same(inverse.when) else source.restrict(inverse.when)
    return cotangent._with(index=index, domain=domain)


def _gather(
    cotangent: Tensor, edge: Edge, sink: Domain, inverse: Inverse, source: Domain, kind: Any
) -> Tensor:
    """The sum over the box of φ⁻¹, one slot of each cotangent, masked to the points that read."""
    program, at = cotangent.program, dict(zip(sink.names, inverse.index, strict=True))
    axes = [name for name, part in at.items() if isinstance(part, Slice)]
    if not composes(cotangent.index, axes):
        cotangent = cotangent.read()
    index = tuple(part.substitute(at) for part in cotangent.index)
    domain = source if TRUE.same(inverse.when) else source.restrict(inverse.when)
    widths = tuple(part.width() for part in at.values() if isinstance(part, Slice))
    stacked = jax.tree.map(
        lambda leaf: ArrayType((*widths, *leaf.shape), leaf.dtype), cotangent.type
    )

    @jax.jit  # one program where operations are called one by one
    def run(env: Mapping[str, Any], block: Any) -> tuple[Any]:
        leaves = jax.tree.leaves(block)
        if not leaves:
            return (block,)
        grid = jnp.ogrid[tuple(slice(size) for size in leaves[0].shape[: len(axes)])]
        mask, slots = _readers(edge, sink, source, at, dict(zip(axes, grid, strict=True)), env)

        def pick(leaf: jax.Array) -> jax.Array:
            room = leaf.shape[len(axes) : len(axes) + len(slots)]
            if 0 in room:  # x[1:T] where T is 1: nothing was read
                return jnp.zeros(leaf.shape[len(axes) + len(slots) :], leaf.dtype)
            places = [jnp.clip(s, 0, n - 1) for s, n in zip(slots, room, strict=True)]
            places = jnp.broadcast_arrays(jnp.zeros([1] * len(axes), int), *grid, *places)[1:]
            picked = leaf[tuple(places)] if places else leaf
            keep = jnp.reshape(mask, (*jnp.shape(mask), *[1] * (picked.ndim - len(axes))))
            return jnp.sum(jnp.where(keep, picked, 0), tuple(range(len(axes))))

        return (jax.tree.map(pick, block),)

    view = cotangent._with(index=index, domain=domain, kind=stacked)
    params = {"of": str(edge)}
    return program.build("gather", run, [view], (kind,), domain=domain, params=params)[0]


def _readers(
    edge: Edge,
    sink: Domain,
    source: Domain,
    at: Mapping[str, Expr],
    grid: Mapping[str, jax.Array],
    env: Mapping[str, Any],
) -> tuple[jax.Array, list[jax.Array]]:
    """Over the box of candidates: which of them read the point at hand, and in which slots."""
    point = dict(env)
    rank = len(grid)
    mask = jnp.ones([1] * rank, bool)
    for dim in sink:
        part = at[dim.name]
        if isinstance(part, Slice):
            point[dim.name] = part.lo.evaluate(env) + grid[dim.name]
            mask = mask & (point[dim.name] < part.hi.evaluate(env))
        else:
            point[dim.name] = jnp.reshape(part.evaluate(env), [1] * rank)
    slots = []
    for dim, part in zip(source, edge.index, strict=True):
        here = jnp.reshape(env[dim.name], [1] * rank)
        if isinstance(part, Slice):
            low = part.lo.evaluate(point)
            mask = mask & (low <= here) & (here < part.hi.evaluate(point))
            slots.append(here - low)
        else:
            mask = mask & (part.evaluate(point) == here)
    return mask & edge.when.evaluate(point) & sink.when.evaluate(point), slots
