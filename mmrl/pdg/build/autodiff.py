"""Reverse-mode differentiation of programs: every operation's vjp, every edge's φ⁻¹.  §5.1

Gradients are tensors like any others: they live where their tensors live, and are scheduled with
the rest. A recurrence gives a recurrence that runs the other way (back-propagation through time).
What a vjp does not use it does not read, found by dropping dead code from its jaxpr: the gradient
of a mean waits for no term of it, which lets a program learn while it still acts.

`transport` takes gradients along an edge, from where a value was read back to where it was made. An
edge reads source[φ(p)] at p. Given the cotangent of what was read at every p,

    ∇source[k] = Σ_{p ∈ φ⁻¹(k)} (the slot of the cotangent at p that came from k).

Dimensions that φ does not mention are summed by a recurrence, G[t] = G[t - 1] + d[t], so that the
sum needs no room for its terms and may grow while the program still acts. For the others φ⁻¹ gives
the points to read: one point, or a box of points in which a mask selects the readers.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.derivative import Derivative, Forward, PullBack, Residual, filled, inexact
from mmrl.pdg.build.expr import TRUE, Expr, Slice
from mmrl.pdg.build.graph import ArrayType, Dim, Domain, Edge, Op, Output, components, ragged, reach
from mmrl.pdg.build.indexing import composes, width
from mmrl.pdg.build.ops import infer, plus
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.sets import invert, simplify
from mmrl.pdg.build.tensor import Tensor


def transport(
    cotangent: Tensor, edge: Edge, kind: Any, *, backwards: bool, even: bool = False
) -> Tensor:
    """Return ∇source over the source's domain, from the cotangents of the values that `edge` read.

    `kind` is the type of the gradient. Free dimensions are summed from their end if `backwards`:
    where the cotangents themselves are found in that order. If `even`, the cotangent is that of
    each point that a slice reads, so that φ⁻¹ of a window is a window of cotangents to be summed.
    """
    program, ops = cotangent.program, cotangent.program.ops
    sink, source = ops[edge.sink].domain, ops[edge.source].domain
    used = frozenset().union(*(part.symbols() for part in (*edge.index, edge.when, sink.when)))
    for dim in reversed(sink.dims):
        if dim.name not in used:
            cotangent = accumulate(cotangent, dim, f"grad_{edge.source}", backwards)
    rest = Domain(tuple(dim for dim in sink if dim.name in used), sink.when)
    inverse = invert(rest, source, edge.index, edge.when)
    at = dict(zip(rest.names, inverse.index, strict=True))
    box = [name for name, part in at.items() if isinstance(part, Slice)]
    gathers = bool(box or edge.slices)
    holes = rest.when.symbols() & set(box) or not (inverse.exact or TRUE.same(rest.when))
    if gathers and holes:
        cotangent = total(cotangent, rest.box(), rest.when)
    view = cotangent if composes(cotangent.index, box) else cotangent.read()
    index = tuple(part.substitute(at) for part in view.index)
    found = view.replace(index=index, domain=source.restrict(inverse.when))
    if even and len(box) == 1 and inverse.exact:
        (part,) = (part for part in at.values() if isinstance(part, Slice))
        many = ArrayType((width(part, found.domain), *kind.shape), kind.dtype)
        found = program.apply("sum", found.replace(kind=many), axis=0)
    elif gathers:
        found = _gather(found, edge, rest, at, kind, even)
    return found if TRUE.same(inverse.when) else total(found, source, inverse.when)


def accumulate(terms: Tensor, dim: Dim, name: str, backwards: bool = False) -> Tensor:
    """Σ over one dimension, as the last value of G[t] = G[t - 1] + d[t]."""
    program, domain = terms.program, terms.domain.union(Domain((dim,)))
    first, last, step = (dim.bound - 1, 0, -1) if backwards else (0, dim.bound - 1, 1)
    before = program.declare(Op(program.fresh(f"{name}_before"), "merge", domain, ()))
    before[domain.at(dim.name, first)] = zeros(program, terms.type, domain)
    after = add(program, [before, terms], before.type, domain, name)
    before[domain.at(dim.name, dim.symbol + step)] = after
    return after[domain.at(dim.name, last)]


def zeros(program: Program, kind: Any, domain: Domain) -> Tensor:
    """A tree of zeros of some type."""
    domain = domain if ragged(kind) else Domain()
    run = lambda env: (filled(kind, domain, env),)  # noqa: E731
    return program.build("constant", run, [], (kind,), domain=domain, name="zeros")[0]


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
        program.join(name, value, simplify(case, domain))
    return merged


def _gather(
    cotangent: Tensor, edge: Edge, sink: Domain, at: Mapping[str, Expr], kind: Any, even: bool
) -> Tensor:
    """The sum over the box of φ⁻¹, `at`, one slot of each cotangent, masked to what did read."""
    program, source = cotangent.program, cotangent.program.ops[edge.source].domain
    box = {name: part for name, part in at.items() if isinstance(part, Slice)}
    widths, rank = tuple(part.width() for part in box.values()), len(box)

    def stacked(leaf: ArrayType) -> ArrayType:
        return ArrayType((*widths, *leaf.shape), leaf.dtype)

    @jax.jit  # one program where operations are called one by one
    def run(env: Mapping[str, Any], block: Any) -> tuple[Any]:
        def one(value: Any, *steps: jax.Array) -> Any:
            """Return the cotangent from one point of the box; zero if it did not read this one."""
            fixed = {name: part.evaluate(env) for name, part in at.items() if name not in box}
            lows = (part.lo.evaluate(env) for part in box.values())
            point = {**env, **fixed, **dict(zip(box, map(operator.add, lows, steps), strict=True))}
            inside = [point[name] < part.hi.evaluate(env) for name, part in box.items()]
            inside += [edge.when.evaluate(point), sink.when.evaluate(point)]
            slots = []
            for dim, part in zip(source, edge.index, strict=True):
                here = env[dim.name]
                if isinstance(part, Slice):
                    low = part.lo.evaluate(point)
                    inside += [low <= here, here < part.hi.evaluate(point)]
                    if not even:
                        slots.append(here - low)
                else:
                    inside.append(part.evaluate(point) == here)
            mask = functools.reduce(operator.and_, inside)

            def pick(leaf: jax.Array) -> jax.Array:
                if 0 in leaf.shape[: len(slots)]:  # x[1:T] where T is 1: the slice was empty
                    return jnp.zeros(leaf.shape[len(slots) :], leaf.dtype)
                return jnp.where(mask, leaf.at[tuple(slots)].get(mode="fill", fill_value=0), 0)

            return jax.tree.map(pick, value)

        sizes = jax.tree.leaves(block)[0].shape[:rank]
        steps = jnp.indices(sizes).reshape(rank, math.prod(sizes))
        flat = jax.tree.map(lambda x: x.reshape(math.prod(sizes), *x.shape[rank:]), block)
        return (jax.tree.map(lambda x: jnp.sum(x, 0), jax.vmap(one)(flat, *steps)),)

    view = cotangent.replace(kind=jax.tree.map(stacked, cotangent.type))
    more: Any = {"domain": cotangent.domain, "params": {"of": str(edge)}}
    return program.build("gather", run, [view], (kind,), **more)[0]


def _even(op: Op, edge: Edge) -> bool:
    """Does the operation sum the points of a slice that moves with it?"""
    sums = op.kind in ("sum", "mean") and op.params.get("axis") == 0 and len(edge.slices) == 1
    return sums and bool(edge.slices[0].symbols() & set(op.domain.names))


def gradient(loss: Tensor, *wrt: Tensor, recompute: bool | None = None) -> Any:
    """Return ∂(Σ_p loss[p])/∂x[k] for each x in `wrt`, over the domain of x.  §5.1

    A function that is differentiated returns its residuals too, which its backward pass reads. With
    `recompute` true the backward pass calls the function a second time instead, which takes less
    memory and more time. The default, None, keeps residuals and leaves the choice to the compiler
    (`passes.recompute`); false and true are final.

    One tensor for one x, otherwise a tuple. An x is an independent variable: no gradient flows to
    what it is computed from, even where `w[i + 1]` depends on `w[i]`. Leaves that are not
    floating-point have gradient None. Raises `ValueError` if the loss is not a floating-point
    scalar, or an x is an indexed read rather than a whole tensor.
    """
    for x in (loss, *wrt):
        if not isinstance(x, Tensor):
            raise ValueError(f"`loss` and `wrt` must be tensors of a program, got {x!r}")
    if loss.shape != () or not jnp.issubdtype(loss.dtype, jnp.inexact):
        raise ValueError(
            f"`loss` must be one floating-point number, got {loss.array}: sum or cast it"
        )
    if not wrt:
        raise ValueError("`wrt` must name at least one tensor: by what is the loss differentiated?")
    for x in wrt:
        if not x.is_whole:
            raise ValueError(
                f"`{x!r}` is a read of `{x.source}`: differentiate by the whole tensor"
            )
    whole = loss if loss.is_whole and not loss.detached else loss.read()
    reverse = _Reverse(whole, {(x.source, x.output) for x in wrt}, recompute)
    found = tuple(reverse.gradient((x.source, x.output)) for x in wrt)
    return found[0] if len(wrt) == 1 else found


class _Reverse:
    """One backward pass: which edges carry gradients, and the gradient of each tensor once made."""

    def __init__(self, loss: Tensor, wrt: set[Output], recompute: bool | None):
        self.program: Program = loss.program
        self.ops = self.program.ops
        self.loss, self.recompute = loss, recompute
        # The pass also adds operations, and it must not differentiate through these.
        edges = [edge for edge in self.program.edges if edge not in self.program.detached]

        def after(node: Output) -> list[Output]:
            """All that is computed from a tensor in floating-point numbers."""
            sinks = {edge.sink for edge in edges if edge.tensor == node}
            nodes = [(name, k) for name in sinks for k in range(len(self.ops[name].outputs))]
            return [node for node in nodes if jax.tree.leaves(self._kind(node))]

        def before(node: Output) -> list[Output]:
            """All that a tensor is computed from, short of what `wrt` is computed from.

            An integer ends the search: a chosen action carries no gradient to its logits.
            """
            ends = node in wrt or not jax.tree.leaves(self._kind(node))
            return [] if ends else [e.tensor for e in edges if e.sink == node[0]]

        relevant = reach(wrt, after) & reach([(loss.source, loss.output)], before)
        self.outputs: dict[str, list[int]] = {}  # of each operation, those that carry a gradient
        for name, k in sorted(relevant - wrt):
            self.outputs.setdefault(name, []).append(k)
        self.edges = [e for e in edges if e.tensor in relevant and e.sink in self.outputs]
        self.cyclic = {name for group in components(self.edges) for name in group if len(group) > 1}
        self.cyclic |= {edge.sink for edge in self.edges if edge.sink == edge.source}
        self.done: dict[Output, Tensor] = {}
        self.vjps: dict[str, dict[int, Tensor]] = {}
        # Room for gradients that depend on themselves, whose terms will read them.
        for name in self.outputs:
            if name in self.cyclic and self.ops[name].kind == "merge":
                self.done[name, 0] = self._sum((name, 0), [])
        for node, found in list(self.done.items()):
            terms = self._terms(node)
            self.program.reads[found.source] = tuple(terms)
            for place, term in enumerate(terms):
                self.program.join(found.source, term, place=place)

    def gradient(self, node: Output) -> Tensor:
        """The sum of what every reader of the tensor sends back."""
        if node not in self.done:
            terms, domain = self._terms(node), self.ops[node[0]].domain
            if not terms:
                terms = [zeros(self.program, self._kind(node), domain).replace(domain=domain)]
            self.done[node] = terms[0] if len(terms) == 1 else self._sum(node, terms)
        return self.done[node]

    def _sum(self, node: Output, terms: Sequence[Tensor]) -> Tensor:
        name, domain = f"grad_{node[0]}", self.ops[node[0]].domain
        return add(self.program, terms, self._kind(node), domain, name)

    def _kind(self, node: Output) -> Any:
        return inexact(self.ops[node[0]].outputs[node[1]])

    def _terms(self, node: Output) -> list[Tensor]:
        kind, terms = self._kind(node), []
        if node == (self.loss.source, self.loss.output):
            one = self.program.constant(jnp.ones((), self.loss.dtype), name="one")
            terms.append(one.replace(domain=self.loss.domain))
        for edge in self.edges:
            if edge.tensor == node:
                backwards = edge.sink in self.cyclic
                even = _even(self.ops[edge.sink], edge)
                cotangent = self._mean(edge) if even else self._cotangent(edge)
                terms.append(transport(cotangent, edge, kind, backwards=backwards, even=even))
        return terms

    def _mean(self, edge: Edge) -> Tensor:
        """The cotangent of each point of a slice that is summed, or whose mean is taken."""
        found = self.gradient((edge.sink, 0))
        if self.ops[edge.sink].kind == "sum":
            return found
        count = self.program.value(width(edge.slices[0], self.ops[edge.sink].domain))
        return found / count.astype(found.dtype)

    def _cotangent(self, edge: Edge) -> Tensor:
        """The cotangent of what an edge read, over the sink's domain."""
        if self.ops[edge.sink].kind == "merge":
            return self.gradient((edge.sink, 0))
        if edge.sink not in self.vjps:
            self.vjps[edge.sink] = self._vjp(self.ops[edge.sink])
        return self.vjps[edge.sink][edge.input]

    def _vjp(self, op: Op) -> dict[int, Tensor]:
        """Return the cotangents of those arguments of an operation that carry a gradient.

        Gradients of parameters are summed over points. They get a separate operation where that
        repeats no computation: their sum is then a product of matrices, without single terms.
        """
        inputs, outputs = self.program.reads[op.name], tuple(self.outputs[op.name])
        wanted = tuple(sorted({edge.input for edge in self.edges if edge.sink == op.name}))
        derivative = Derivative(op, tuple(x.type for x in inputs), wanted, outputs)
        cotangents = [self.gradient((op.name, k)) for k in outputs]
        kept = () if self.recompute else self._keep(derivative, inputs)
        here = tuple(k for k in wanted if inputs[k].domain.names == op.domain.names)
        parts = [part for part in (here, tuple(k for k in wanted if k not in here)) if part]
        types, bounds = self.ops[op.name].outputs, self.program.bounds
        chosen, found = self.recompute is not None, {}
        for back in PullBack.parts(derivative, parts, kept, types, bounds, chosen):
            saved = [self.program.output(op.name, k) for k in back.saved]
            results = self.program.build(
                "vjp",
                back,
                [*(inputs[k] for k in back.read), *saved, *cotangents],
                tuple(inexact(derivative.kinds[k]) for k in back.gives),
                domain=op.domain,
                name=f"vjp_{op.name}",
                params={"of": op.name, "wanted": back.gives, "outputs": outputs},
            )
            found |= zip(back.gives, results, strict=True)
        return found

    def _keep(self, derivative: Derivative, inputs: Sequence[Tensor]) -> list[Residual]:
        """Let the operation return its residuals too; return where each of them is."""
        op, bounds = derivative.op, self.program.bounds
        if op.kind not in ("fn", "random"):
            return []
        kept = derivative.residuals(bounds, [x.domain for x in inputs])
        new = {output: leaf for leaf, output in kept if output >= len(op.outputs)}
        if new:
            run = Forward(derivative, tuple(new[k] for k in sorted(new)))
            types = infer(run, derivative.kinds, op.domain, bounds, op.name, full=True)
            op = dataclasses.replace(op, run=run, outputs=types)
            self.program.ops[op.name] = op
        return kept
