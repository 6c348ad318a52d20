"""Reverse-mode differentiation of programs: the vjp of operations, and φ⁻¹ of edges.  §5.1

Gradients are ordinary tensors. A gradient has the domain of the tensor that it belongs to, and is
scheduled like any other operation. The gradient of a recurrence is a recurrence in the opposite
direction (back-propagation through time). A vjp reads only the values that it uses, because dead
code is eliminated from its jaxpr. For example, the gradient of a mean does not read the terms of
the mean, so learning can start before acting has ended.

`transport` moves gradients backward along an edge, from the reader of a value to its source. An
edge reads source[φ(p)] at p. Given the cotangents of the values read at each p, it computes

    ∇source[k] = Σ_{p ∈ φ⁻¹(k)} (the entries for k in the cotangent at p).

Dimensions that occur neither in φ nor in a condition are summed by a recurrence, G[t] = G[t - 1] +
d[t]. The terms need not be stored, and the sum can be updated as soon as each term is computed. For
all other dimensions, φ⁻¹ is the index of the cotangents: a point, or a box of points with a mask
that selects the readers.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmrl.pdg.build.derivative import (
    Derivative,
    Forward,
    PullBack,
    Residual,
    guard,
    inexact,
    padded_zeros,
)
from mmrl.pdg.build.expr import TRUE, Expr, Slice
from mmrl.pdg.build.graph import ArrayType, Dim, Domain, Edge, Op, Output, components, ragged, reach
from mmrl.pdg.build.indexing import composes, width
from mmrl.pdg.build.ops import infer, plus
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.sets import invert, simplify
from mmrl.pdg.build.tensor import Tensor


def transport(
    cotangent: Tensor,
    edge: Edge,
    kind: Any,
    *,
    backwards: bool,
    even: float | None = None,
    own: Tensor | None = None,
) -> Tensor:
    """Return ∇source over the source's domain, from the cotangents of the values that `edge` reads.

    `kind` is the type of the gradient. If `backwards`, dimensions that occur neither in φ nor in a
    condition are summed from the last point to the first, the order in which a recurrence computes
    its cotangents. `even` is a discount γ (1 for a sum) if entry k of each slice has the cotangent
    γᵏ c. The reader then passes only c, and φ⁻¹ of a window is a window of these c. `own` is the
    argument of a maximum or minimum; `cotangent` then contains the extreme value, and the cotangent
    of each entry that attains it.
    """
    program, ops = cotangent.program, cotangent.program.ops
    sink, source = ops[edge.sink].domain, ops[edge.source].domain
    symbols = frozenset().union(*(part.symbols() for part in (*edge.index, edge.when, sink.when)))
    for dim in reversed(sink.dims):
        if dim.name not in symbols:
            cotangent = accumulate(cotangent, dim, f"grad_{edge.source}", backwards)
    rest = Domain(tuple(dim for dim in sink if dim.name in symbols), sink.when)
    inverse = invert(rest, source, edge.index, edge.when)
    at = dict(zip(rest.names, inverse.index, strict=True))
    box = [name for name, part in at.items() if isinstance(part, Slice)]
    gathers = bool(box or edge.slices)
    holes = rest.when.symbols() & set(box) or not (inverse.exact or TRUE.same(rest.when))
    if gathers and holes:
        cotangent = total(cotangent, rest.box(), rest.when)
    view = cotangent if composes(cotangent.index, box) else cotangent.read()
    index = tuple(part.substitute(at) for part in view.index)
    grad = view.replace(index=index, domain=source.restrict(inverse.when))
    if even == 1 and own is None and len(box) == 1 and inverse.exact:
        (part,) = (part for part in at.values() if isinstance(part, Slice))
        many = ArrayType((width(part, grad.domain), *kind.shape), kind.dtype)
        grad = program.apply("sum", grad.replace(kind=many), axis=0)
    elif gathers:
        grad = _gather(grad, edge, rest, at, kind, even, own)
    return grad if TRUE.same(inverse.when) else total(grad, source, inverse.when)


def accumulate(terms: Tensor, dim: Dim, name: str, backwards: bool = False) -> Tensor:
    """Sum `terms` over one dimension: return the last value of G[t] = G[t - 1] + d[t]."""
    program, domain = terms.program, terms.domain.union(Domain((dim,)))
    first, last, step = (dim.bound - 1, 0, -1) if backwards else (0, dim.bound - 1, 1)
    before = program.declare(Op(program.fresh(f"{name}_before"), "merge", domain, ()))
    before[domain.at(dim.name, first)] = zeros(program, terms.type, domain)
    after = add(program, [before, terms], before.type, domain, name)
    before[domain.at(dim.name, dim.symbol + step)] = after
    return after[domain.at(dim.name, last)]


def zeros(program: Program, kind: Any, domain: Domain) -> Tensor:
    """Return a tensor of zeros with the given type."""
    domain = domain if ragged(kind) else Domain()
    run = lambda env: (padded_zeros(kind, domain, env),)  # noqa: E731
    return program.build("constant", run, [], (kind,), domain=domain, name="zeros")[0]


def add(program: Program, terms: Sequence[Tensor], kind: Any, domain: Domain, name: str) -> Tensor:
    """Return the sum of tensors of equal type over a domain."""
    params = {"f": plus}
    return program.build("fn", plus, terms, (kind,), domain=domain, name=name, params=params)[0]


def total(tensor: Tensor, domain: Domain, when: Expr) -> Tensor:
    """Return the merge of `tensor` where `when` holds and zeros in the rest of the domain.  §5.1"""
    program = tensor.program
    name = program.fresh("gradient_or_zero")
    zero = zeros(program, tensor.type, domain)
    merge = program.declare(Op(name, "merge", domain, (tensor.type,)))
    for case, value in ((when, tensor), (~when, zero)):
        program.join(name, value, simplify(case, domain))
    return merge


def _gather(
    cotangent: Tensor,
    edge: Edge,
    sink: Domain,
    at: Mapping[str, Expr],
    kind: Any,
    even: float | None,
    own: Tensor | None,
) -> Tensor:
    """Sum the cotangents over the box `at` of φ⁻¹, masking points that are not readers."""
    program, source = cotangent.program, cotangent.program.ops[edge.source].domain
    box = {name: part for name, part in at.items() if isinstance(part, Slice)}
    widths, rank = tuple(part.width() for part in box.values()), len(box)

    def stack_type(leaf: ArrayType) -> ArrayType:
        return ArrayType((*widths, *leaf.shape), leaf.dtype)

    @jax.jit  # compile here as well, because the interpreter calls operations one at a time
    def run(env: Mapping[str, Any], block: Any, *own: Any) -> tuple[Any]:
        def one(value: Any, *steps: jax.Array) -> Any:
            """Return the cotangent that one point of the box contributes to this source point.

            The contribution is zero if the point of the box does not read the source point.
            """
            outer = {name: part.evaluate(env) for name, part in at.items() if name not in box}
            lows = (part.lo.evaluate(env) for part in box.values())
            point = {**env, **outer, **dict(zip(box, map(operator.add, lows, steps), strict=True))}
            inside = [point[name] < part.hi.evaluate(env) for name, part in box.items()]
            inside += [edge.when.evaluate(point), sink.when.evaluate(point)]
            slots, weight = [], None
            for dim, part in zip(source, edge.index, strict=True):
                here = env[dim.name]
                if isinstance(part, Slice):
                    low = part.lo.evaluate(point)
                    inside += [low <= here, here < part.hi.evaluate(point)]
                    if even is None:
                        slots.append(here - low)
                    elif even != 1:
                        weight = even ** jnp.maximum(here - low, 0).astype(jnp.float32)
                else:
                    inside.append(part.evaluate(point) == here)
            mask = functools.reduce(operator.and_, inside)

            def pick(leaf: jax.Array) -> jax.Array:
                if 0 in leaf.shape[: len(slots)]:  # an empty slice, such as x[1:T] for T = 1
                    return jnp.zeros(leaf.shape[len(slots) :], leaf.dtype)
                leaf = leaf.at[tuple(slots)].get(mode="fill", fill_value=0)
                leaf = leaf if weight is None else leaf * weight.astype(leaf.dtype)
                return jnp.where(mask, leaf, 0)

            if own:
                extreme = value["extreme"]
                rest = jnp.where(jnp.isnan(extreme), jnp.nan, 0)  # as in the gradient of `jnp.max`
                value = jnp.where(own[0] == extreme, value["share"], rest)
            return jax.tree.map(pick, value)

        sizes = jax.tree.leaves(block)[0].shape[:rank]
        steps = jnp.indices(sizes).reshape(rank, math.prod(sizes))
        flat = jax.tree.map(lambda x: x.reshape(math.prod(sizes), *x.shape[rank:]), block)
        return (jax.tree.map(lambda x: jnp.sum(x, 0), jax.vmap(one)(flat, *steps)),)

    view = cotangent.replace(kind=jax.tree.map(stack_type, cotangent.type))
    more: Any = {"domain": cotangent.domain, "params": {"of": str(edge)}}
    inputs = [view] if own is None else [view, own]
    return program.build("gather", run, inputs, (kind,), **more)[0]


def _share(g: Any, count: Any, y: Any) -> Any:
    """Return the extreme value, and the cotangent of each entry that attains it."""
    return {"share": g / count, "extreme": y}


def _even(op: Op, edge: Edge) -> float | None:
    """Return the discount (1 if undiscounted) of a fold over a moving slice, else None.

    A maximum or minimum also counts as such a fold if its reads use all dimensions of its domain.
    """
    axis = op.params.get("axis", 0)
    folds = op.kind in ("sum", "mean", "discounted_sum", "max", "min") and axis == 0
    moves = len(edge.slices) == 1 and edge.slices[0].symbols() & set(op.domain.names)
    symbols = {name for part in (*edge.index, edge.when) for name in part.symbols()}
    complete = op.kind not in ("max", "min") or {*op.domain.names} <= symbols
    return op.params.get("gamma", 1.0) if folds and moves and complete else None


def gradient(loss: Tensor, *wrt: Tensor, recompute: bool | None = None) -> Any:
    """Return ∂(Σ_p loss[p])/∂x[k] for each x in `wrt`, over the domain of x.  §5.1

    Each differentiated function also returns its residuals for the backward pass. If `recompute` is
    True, the backward pass calls the function again, so that fewer values are stored and more are
    computed. If it is False, residuals are always stored. With the default, None, the compiler
    chooses (`passes.recompute`).

    The result is a single tensor for one x, and a tuple for several. Each x is treated as an
    independent variable: no gradient flows to its inputs, even if `w[i + 1]` depends on `w[i]`.
    Leaves that are not floating-point have the gradient None. Raises `ValueError` if the loss is
    not a floating-point scalar, if `wrt` is empty, or if an x is an indexed read.

        >>> from mmrl.pdg import Program, compile
        >>> program = Program("t")
        >>> x, y, (t,) = program.tensor("t"), program.tensor("t"), program.symbols
        >>> x[t] = 3.0
        >>> y[t] = x[t] * x[t]
        >>> compile(program.graph(gradient(y, x))).xla(T=2)()
        (Array([6., 6.], dtype=float32),)
    """
    for x in (loss, *wrt):
        if not isinstance(x, Tensor):
            raise ValueError(
                f"`loss` and `wrt` must be tensors of a program, got {x!r}: pass each tensor as a "
                f"separate argument, and numbers as `Program.constant`"
            )
    if loss.shape != () or not jnp.issubdtype(loss.dtype, jnp.inexact):
        raise ValueError(
            f"`loss` must be one floating-point number, got {loss.array}: sum it or cast it"
        )
    if not wrt:
        raise ValueError("`wrt` must name at least one tensor, got none: pass the parameters")
    for x in wrt:
        if not x.is_whole:
            raise ValueError(
                f"`wrt` must contain tensors without an index, got `{x!r}`, a read of "
                f"`{x.source}`: differentiate with respect to the whole tensor"
            )
    whole = loss if loss.is_whole and not loss.detached else loss.read()
    reverse = _Reverse(whole, {(x.source, x.output) for x in wrt}, recompute)
    gradients = tuple(reverse.gradient((x.source, x.output)) for x in wrt)
    return gradients[0] if len(wrt) == 1 else gradients


class _Reverse:
    """Backward pass: the edges that carry gradients, and the gradients built so far."""

    def __init__(self, loss: Tensor, wrt: set[Output], recompute: bool | None):
        self.program: Program = loss.program
        self.ops = self.program.ops
        self.loss, self.recompute = loss, recompute
        # The backward pass adds edges, which must not be differentiated, so copy the list first.
        edges = [edge for edge in self.program.edges if edge not in self.program.detached]

        def after(node: Output) -> list[Output]:
            """Return the floating-point tensors that are direct results of a tensor."""
            sinks = {edge.sink for edge in edges if edge.tensor == node}
            nodes = [(name, k) for name in sinks for k in range(len(self.ops[name].outputs))]
            return [node for node in nodes if jax.tree.leaves(self._kind(node))]

        def before(node: Output) -> list[Output]:
            """Return the tensors on which a tensor directly depends.

            The search stops at the tensors `wrt`, and at integers, because no gradient flows
            through them, for example from a sampled action to its logits.
            """
            ends = node in wrt or not jax.tree.leaves(self._kind(node))
            return [] if ends else [e.tensor for e in edges if e.sink == node[0]]

        relevant = reach(wrt, after) & reach([(loss.source, loss.output)], before)
        self.outputs: dict[str, list[int]] = {}  # outputs with a gradient, by operation
        for name, k in sorted(relevant - wrt):
            self.outputs.setdefault(name, []).append(k)
        self.edges = [e for e in edges if e.tensor in relevant and e.sink in self.outputs]
        self.cyclic = {name for group in components(self.edges) for name in group if len(group) > 1}
        self.cyclic |= {edge.sink for edge in self.edges if edge.sink == edge.source}
        self.gradients: dict[Output, Tensor] = {}
        self.vjps: dict[str, dict[int, Tensor]] = {}
        # Gradients in a cycle depend on each other, so declare all of them before adding terms.
        for name in self.outputs:
            if name in self.cyclic and self.ops[name].kind == "merge":
                self.gradients[name, 0] = self._sum((name, 0), [])
        for node, tensor in list(self.gradients.items()):
            terms = self._terms(node)
            self.program.reads[tensor.source] = tuple(terms)
            for place, term in enumerate(terms):
                self.program.join(tensor.source, term, place=place)

    def gradient(self, node: Output) -> Tensor:
        """Return the gradient of a tensor: the sum of one term per reader."""
        if node not in self.gradients:
            terms, domain = self._terms(node), self.ops[node[0]].domain
            if not terms:
                terms = [zeros(self.program, self._kind(node), domain).replace(domain=domain)]
            self.gradients[node] = terms[0] if len(terms) == 1 else self._sum(node, terms)
        return self.gradients[node]

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
                op = self.ops[edge.sink]
                even, own = _even(op, edge), None
                cotangent = self._cotangent(edge) if even is None else self._mean(edge)
                if even is not None and op.kind in ("max", "min"):
                    cotangent, own = self._share(edge), self.program.output(*node)
                more: Any = {"backwards": edge.sink in self.cyclic, "even": even, "own": own}
                terms.append(transport(cotangent, edge, kind, **more))
        return terms

    def _mean(self, edge: Edge) -> Tensor:
        """Return the cotangent that a sum or mean passes to each point of its slice."""
        cotangent = self.gradient((edge.sink, 0))
        if self.ops[edge.sink].kind != "mean":
            return cotangent
        count = self.program.value(width(edge.slices[0], self.ops[edge.sink].domain))
        return cotangent / count.astype(cotangent.dtype)

    def _share(self, edge: Edge) -> Tensor:
        """Return the extreme value of a slice, and the cotangent of each entry that attains it."""
        program, dtype = self.program, self.gradient((edge.sink, 0)).dtype
        x, y = program.reads[edge.sink][edge.input], program.output(edge.sink)
        equal = program.apply("equal", x, program.apply("expand_dims", y, axis=0))
        count = program.apply("sum", program.apply("cast", equal, dtype=dtype), axis=0)
        return program.fn(_share, self.gradient((edge.sink, 0)), count, y, whole=True)

    def _cotangent(self, edge: Edge) -> Tensor:
        """Return the cotangent of the value that an edge reads, over the sink's domain."""
        if self.ops[edge.sink].kind == "merge":
            return self.gradient((edge.sink, 0))
        if edge.sink not in self.vjps:
            self.vjps[edge.sink] = self._vjp(self.ops[edge.sink])
        return self.vjps[edge.sink][edge.input]

    def _vjp(self, op: Op) -> dict[int, Tensor]:
        """Return the cotangents of the arguments that carry a gradient, keyed by argument index.

        Gradients of arguments with fewer dimensions, such as parameters, are summed over points.
        They are a separate operation unless this would repeat expensive computations, so that
        passes can turn the sum into one matrix product without computing its terms.
        """
        inputs, outputs = self.program.reads[op.name], tuple(self.outputs[op.name])
        wrt = tuple(sorted({edge.input for edge in self.edges if edge.sink == op.name}))
        derivative = Derivative(op, tuple(x.type for x in inputs), wrt, outputs)
        cotangents = [self.gradient((op.name, k)) for k in outputs]
        residuals = () if self.recompute else self._keep(derivative, inputs)
        here = tuple(k for k in wrt if inputs[k].domain.names == op.domain.names)
        parts = [part for part in (here, tuple(k for k in wrt if k not in here)) if part]
        types, bounds = self.ops[op.name].outputs, self.program.bounds
        explicit, by_argument = self.recompute is not None, {}
        for back in PullBack.parts(derivative, parts, residuals, types, bounds, explicit):
            residual_tensors = [self.program.output(op.name, k) for k in back.residual_outputs]
            results = self.program.build(
                "vjp",
                back,
                [*(inputs[k] for k in back.argument_positions), *residual_tensors, *cotangents],
                tuple(inexact(derivative.kinds[k]) for k in back.wrt),
                domain=op.domain,
                name=f"vjp_{op.name}",
                params={"of": op.name, "wrt": back.wrt, "outputs": outputs, **guard(back)},
            )
            by_argument |= zip(back.wrt, results, strict=True)
        return by_argument

    def _keep(self, derivative: Derivative, inputs: Sequence[Tensor]) -> list[Residual]:
        """Add missing residuals to the operation's outputs, and return all residuals."""
        op, bounds = derivative.op, self.program.bounds
        if op.kind not in ("fn", "random"):
            return []
        residuals = derivative.residuals(bounds, [x.domain for x in inputs])
        new = {output: leaf for leaf, output in residuals if output >= len(op.outputs)}
        if new:
            run = Forward(derivative, tuple(new[k] for k in sorted(new)))
            types = infer(run, derivative.kinds, op.domain, bounds, op.name, full=True)
            params = {"plain": len(op.outputs), **op.params}
            op = dataclasses.replace(op, run=run, outputs=types, params=params)
            self.program.ops[op.name] = op
        return residuals
