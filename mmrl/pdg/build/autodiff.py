"""Reverse-mode differentiation of programs: every operation's vjp, every edge's φ⁻¹.  §5.1

Gradients are tensors like any others: they live where their tensors live, and are scheduled with
the rest. A recurrence gives a recurrence that runs the other way (back-propagation through time).
What a vjp does not use it does not read, found by dropping dead code from its jaxpr: the gradient
of a mean waits for no term of it, which lets a program learn while it still acts.

`transport` takes gradients along an edge, from where a value was read back to where it was made. An
edge reads source[φ(p)] at p. Given the cotangent of what was read at every p,

    ∇source[k] = Σ_{p ∈ φ⁻¹(k)} (the slot of the cotangent at p that came from k).

Dimensions that φ does not mention are summed by a recurrence, G[t] = G[t - 1] + d[t], so that the
sum needs no room for its terms and may grow while the program still acts. For the others φ⁻¹ says
what to read: one point, or a box of points of which a mask picks the readers.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import partial_eval

from mmrl.pdg.build.expr import TRUE, Expr, Slice
from mmrl.pdg.build.graph import ArrayType, Dim, Domain, Edge, Op, Output, components, ragged, reach
from mmrl.pdg.build.indexing import composes
from mmrl.pdg.build.ops import BOUND, infer, plus, traceable
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.sets import invert, simplify
from mmrl.pdg.build.tensor import Tensor


def transport(cotangent: Tensor, edge: Edge, kind: Any, *, backwards: bool) -> Tensor:
    """∇source over the source's domain, from the cotangent of what `edge` read.

    `kind` is the type of the gradient. Free dimensions are summed from their end if `backwards`:
    where the cotangents themselves are found in that order.
    """
    ops = cotangent.program.ops
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
    if gathers:
        found = _gather(found, edge, rest, at, kind)
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


def filled(kind: Any, domain: Domain, env: Mapping[str, Any]) -> Any:
    """Zeros of some type, at the size that is stored."""
    shapes = jax.tree.map(lambda leaf: leaf.padded(domain, env), kind)
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
        program.join(name, value, simplify(case, domain))
    return merged


def _gather(
    cotangent: Tensor, edge: Edge, sink: Domain, at: Mapping[str, Expr], kind: Any
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
            """All that one point of the box sends back; nothing if it did not read this one."""
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
                    slots.append(here - low)
                else:
                    inside.append(part.evaluate(point) == here)
            mask = functools.reduce(operator.and_, inside)

            def pick(leaf: jax.Array) -> jax.Array:
                if 0 in leaf.shape[: len(slots)]:  # x[1:T] where T is 1: nothing was read
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


def gradient(loss: Tensor, *wrt: Tensor, recompute: bool = False) -> Any:
    """∂(Σ_p loss[p])/∂x[k] for each x in `wrt`, over the domain of x.  §5.1

    A function that is differentiated hands what its derivative needs of it (its residuals) to the
    backward pass, as outputs of its own. With `recompute` the backward pass calls it once more:
    less memory, more time.

    One tensor for one x, otherwise a tuple. What an x is computed from plays no part: parameters
    are independent variables, even where `w[i + 1]` depends on `w[i]`. Leaves that are not
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

    def __init__(self, loss: Tensor, wrt: set[Output], recompute: bool):
        self.program: Program = loss.program
        self.ops = self.program.ops
        self.loss, self.recompute = loss, recompute
        # The pass adds operations of its own, through which it must not differentiate.
        edges = [edge for edge in self.program.edges if edge not in self.program.detached]

        def after(node: Output) -> list[Output]:
            """All that is computed from a tensor in floating-point numbers."""
            sinks = {edge.sink for edge in edges if edge.tensor == node}
            nodes = [(name, k) for name in sinks for k in range(len(self.ops[name].outputs))]
            return [node for node in nodes if jax.tree.leaves(self._kind(node))]

        def before(node: Output) -> list[Output]:
            """All that a tensor is computed from, short of what `wrt` is computed from."""
            return [] if node in wrt else [e.tensor for e in edges if e.sink == node[0]]

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
                terms.append(transport(self._cotangent(edge), edge, kind, backwards=backwards))
        return terms

    def _cotangent(self, edge: Edge) -> Tensor:
        """The cotangent of what an edge read, over the sink's domain."""
        if self.ops[edge.sink].kind == "merge":
            return self.gradient((edge.sink, 0))
        if edge.sink not in self.vjps:
            self.vjps[edge.sink] = self._vjp(self.ops[edge.sink])
        return self.vjps[edge.sink][edge.input]

    def _vjp(self, op: Op) -> dict[int, Tensor]:
        """One operation that gives the cotangents of those arguments that carry a gradient."""
        wanted = sorted(edge.input for edge in self.edges if edge.sink == op.name)
        outputs, inputs = self.outputs[op.name], self.program.reads[op.name]
        cotangents = [self.gradient((op.name, k)) for k in outputs]
        kept = () if self.recompute else residuals(self.program, op, wanted, outputs)
        saved = [self.program.output(op.name, len(op.outputs) + k) for k in range(len(kept))]
        kinds, cotangents = [x.type for x in inputs], [*saved, *cotangents]
        run = functools.partial(pull_back, op, kinds, wanted, outputs, kept)
        every = range(len(inputs))
        jaxpr, owners = _traced(self.program, op, run(every), [*inputs, *cotangents])
        _, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
        asked = {owner for yes, owner in zip(used, owners, strict=True) if yes}
        read = [k for k in every if k in asked]
        results = self.program.build(
            "vjp",
            run(read),
            [*(inputs[k] for k in read), *cotangents],
            tuple(inexact(kinds[k]) for k in wanted),
            domain=op.domain,
            name=f"vjp_{op.name}",
            params={"of": op.name, "wanted": tuple(wanted), "outputs": tuple(outputs)},
        )
        return dict(zip(wanted, results, strict=True))


def _linearized(
    op: Op, wanted: Sequence[int], outputs: Sequence[int], env: Mapping[str, Any], primals: Sequence
) -> tuple[Any, tuple[Any, ...]]:
    """`jax.vjp` of some outputs of the operation by the arguments wanted, and all its outputs."""
    forward = op.run
    assert forward is not None

    def linearized(here: Mapping[str, Any], primals: list[Any]) -> tuple[Any, tuple[Any, ...]]:
        def f(*moved: Any) -> tuple[Any, Any]:
            now = dict(enumerate(primals))
            now |= {k: eqx.combine(x, primals[k]) for k, x in zip(wanted, moved, strict=True)}
            results = tuple(forward({**env, **here}, *now.values()))
            return tuple(eqx.filter(results[k], eqx.is_inexact_array) for k in outputs), results

        moving = [eqx.filter(primals[k], eqx.is_inexact_array) for k in wanted]
        _, back, results = jax.vjp(f, *moving, has_aux=True)
        return back, results

    # Numbers, and weak types as of jnp.full(4, 0.3), would change which residuals there are, point
    # by point: so it is always traced, with the same types, before it is run.
    here = {name: env[name] for name in op.domain.names}
    given = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), list(primals))
    jaxpr, out = jax.make_jaxpr(linearized, return_shape=True)(here, given)
    leaves = jaxpr_as_fun(jaxpr)(*jax.tree.leaves((here, given)))
    return jax.tree.unflatten(jax.tree.structure(out), leaves)


def residuals(
    program: Program, op: Op, wanted: Sequence[int], outputs: Sequence[int]
) -> tuple[int, ...]:
    """Let the operation return the residuals of its derivative too; which leaves of it they are.

    Left out is what the backward pass has anyway: arguments themselves, constants, and what
    follows from arguments alone that are the same at several points, as parameters are.
    """
    if op.kind not in ("fn", "random"):
        return ()

    def leaves(env: Mapping[str, Any], *primals: Any) -> tuple[Any, ...]:
        return tuple(jax.tree.leaves(_linearized(op, wanted, outputs, env, primals)[0]))

    inputs = program.reads[op.name]
    jaxpr, owners = _traced(program, op, leaves, inputs)
    here = [k is None or set(inputs[k].domain.names) == set(op.domain.names) for k in owners]
    kept = []
    for k, variable in enumerate(jaxpr.outvars):
        asked = [place == k for place in range(len(jaxpr.outvars))]
        used = partial_eval.dce_jaxpr(jaxpr, asked)[1]
        plain = not jnp.issubdtype(variable.aval.dtype, jax.dtypes.extended)
        if plain and variable not in jaxpr.invars and any(map(operator.and_, used, here)):
            kept.append(k)

    def run(env: Mapping[str, Any], *primals: Any) -> tuple[Any, ...]:
        back, results = _linearized(op, wanted, outputs, env, primals)
        found = jax.tree.leaves(back)
        _same(op, len(found), len(jaxpr.outvars))
        return *results, *(found[k] for k in kept)

    if kept:
        kinds = [x.type for x in inputs]
        types = infer(run, kinds, op.domain, program.bounds, op.name, full=True)
        program.ops[op.name] = dataclasses.replace(op, run=run, outputs=types)
    return tuple(kept)


def _same(op: Op, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise ValueError(
            f"`{op.name}` must have the same derivative whenever it is traced, for its residuals "
            f"to be kept: {wanted} became {found}. Take `gradient(…, recompute=True)`."
        )


def pull_back(
    op: Op,
    kinds: Sequence[Any],
    wanted: Sequence[int],
    outputs: Sequence[int],
    kept: Sequence[int],
    read: Sequence[int],
) -> Callable[..., tuple[Any, ...]]:
    """`run(env, *arguments, *residuals, *cotangents)`: the cotangents of the arguments wanted.

    Given are the arguments that it has to `read`; zeros stand in for others of `kinds`, on which
    nothing depends. `kept` are the leaves of the derivative that the residuals are.
    """

    def vjp(env: Mapping[str, Any], *values: Any) -> tuple[Any, ...]:
        last = len(read) + len(kept)
        given = {k: filled(x, op.domain, env) for k, x in enumerate(kinds) if k not in read}
        given |= zip(read, values, strict=False)
        primals = [given[k] for k in sorted(given)]
        back, _ = _linearized(op, wanted, outputs, env, primals)
        leaves, tree = jax.tree.flatten(back)
        for k, value in zip(kept, values[len(read) : last], strict=True):
            _same(op, (leaves[k].shape, leaves[k].dtype), (value.shape, value.dtype))
            leaves[k] = value
        return tree.unflatten(leaves)(tuple(values[last:]))

    return vjp


def _traced(
    program: Program, op: Op, run: Callable[..., Any], tensors: Sequence[Tensor]
) -> tuple[Any, list[int | None]]:
    """The jaxpr of `run(env, *tensors)`, and which tensor each argument is of; None for symbols."""
    size = functools.partial(op.domain.largest, bounds={b.name: BOUND for b in program.bounds})
    kinds = [x.type for x in tensors]
    call, env, *values = traceable(run, kinds, op.domain.names, program.bounds, size)
    owners: list[int | None] = [None] * len(jax.tree.leaves(env))
    for k, value in enumerate(values):
        owners += [k] * len(jax.tree.leaves(value))
    return jax.make_jaxpr(call)(env, *values).jaxpr, owners


def inexact(kind: Any) -> Any:
    """The floating-point leaves of a type, None in place of the others."""
    return jax.tree.map(
        lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else None, kind
    )
