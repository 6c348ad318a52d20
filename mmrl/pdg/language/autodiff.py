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
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import partial_eval

from mmrl.pdg.expr import TRUE, Expr, Slice
from mmrl.pdg.graph import ArrayType, Dim, Domain, Edge, Op, components, ragged, reach
from mmrl.pdg.language import Program
from mmrl.pdg.language.indexing import composes
from mmrl.pdg.language.ops import BOUND, infer, plus, traceable
from mmrl.pdg.language.tensor import Tensor
from mmrl.pdg.sets import Inverse, invert, simplify


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


Node = tuple[str, int]  # an operation and one of its outputs


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
    """One backward pass: which tensors carry a gradient, and the gradient of each once made."""

    def __init__(self, loss: Tensor, wrt: set[Node], recompute: bool):
        self.program: Program = loss.program
        self.ops = self.program.ops
        self.loss, self.wrt, self.recompute = loss, wrt, recompute
        # The pass adds operations of its own, through which it must not differentiate.
        self.edges = [edge for edge in self.program.edges if edge not in self.program.detached]
        self.relevant = self._active() & self._needed()
        self.done: dict[Node, Tensor] = {}
        self.vjps: dict[str, dict[int, Tensor]] = {}
        carrying = [e for e in self.edges if self._carries(e)]
        self.cyclic = {name for group in components(carrying) for name in group if len(group) > 1}
        self.cyclic |= {edge.sink for edge in carrying if edge.sink == edge.source}
        for node in sorted(self.relevant - self.wrt):
            if node[0] in self.cyclic and self.ops[node[0]].kind == "merge":
                self._declare(node)
        for node in list(self.done):
            self._finish(node)

    def _active(self) -> set[Node]:
        """Tensors that depend on `wrt` through floating-point values."""

        def after(node: Node) -> list[Node]:
            sinks = [edge.sink for edge in self.edges if edge.tensor == node]
            nodes = ((name, k) for name in sinks for k in range(len(self.ops[name].outputs)))
            return [(name, k) for name, k in nodes if _floating(self.ops[name].outputs[k])]

        return reach(self.wrt, after)

    def _needed(self) -> set[Node]:
        """Tensors that the loss is computed from, short of what `wrt` is computed from."""

        def after(node: Node) -> list[Node]:
            read = [edge.tensor for edge in self.edges if edge.sink == node[0]]
            return [] if node in self.wrt else read

        return reach([(self.loss.source, self.loss.output)], after)

    def _carries(self, edge: Edge) -> bool:
        outputs = range(len(self.ops[edge.sink].outputs))
        through = any((edge.sink, k) in self.relevant - self.wrt for k in outputs)
        return through and edge.tensor in self.relevant

    def gradient(self, node: Node) -> Tensor:
        """The sum of what every reader of the tensor sends back."""
        if node not in self.done:
            terms, kind = self._terms(node), self._kind(node)
            domain = self.ops[node[0]].domain
            if not terms:
                self.done[node] = zeros(self.program, kind, domain)._with(domain=domain)
            elif len(terms) == 1:
                self.done[node] = terms[0]
            else:
                self.done[node] = add(self.program, terms, kind, domain, f"grad_{node[0]}")
        return self.done[node]

    def _kind(self, node: Node) -> Any:
        return inexact(self.ops[node[0]].outputs[node[1]])

    def _terms(self, node: Node) -> list[Tensor]:
        kind, terms = self._kind(node), []
        if node == (self.loss.source, self.loss.output):
            one = self.program.constant(jnp.ones((), self.loss.dtype), name="one")
            terms.append(one._with(domain=self.loss.domain))
        for edge in self.edges:
            if edge.tensor == node and self._carries(edge):
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
        edges = sorted((e for e in self.program.edges if e.sink == op.name), key=lambda e: e.input)
        wanted = [e.input for e in edges if e in self.edges and self._carries(e)]
        outputs = [k for k in range(len(op.outputs)) if (op.name, k) in self.relevant - self.wrt]
        cotangents = [self.gradient((op.name, k)) for k in outputs]
        inputs = self.program.reads[op.name]
        kept = () if self.recompute else residuals(self.program, op, wanted, outputs)
        saved = [self.program.output(op.name, len(op.outputs) + k) for k in range(len(kept))]
        cotangents = [*saved, *cotangents]
        run = pull_back(op, len(inputs), wanted, outputs, kept)
        used = used_inputs(self.program, op, run, [*inputs, *cotangents], len(inputs))
        read = [inputs[k] for k in used]
        kinds = tuple(inexact(inputs[k].type) for k in wanted)
        results = self.program.build(
            "vjp",
            with_only(run, op, [x.type for x in inputs], used),
            [*read, *cotangents],
            kinds,
            domain=op.domain,
            name=f"vjp_{op.name}",
            params={"of": op.name, "wanted": tuple(wanted), "outputs": tuple(outputs)},
        )
        return dict(zip(wanted, results, strict=True))

    def _declare(self, node: Node) -> None:
        """Room for the gradient of a tensor that depends on itself: its terms will read it."""
        name, domain = self.program.fresh(f"grad_{node[0]}"), self.ops[node[0]].domain
        op = Op(name, "fn", domain, (self._kind(node),), plus, {"f": plus})
        self.done[node] = self.program.declare(op)

    def _finish(self, node: Node) -> None:
        terms = self._terms(node)
        self.program.reads[self.done[node].source] = tuple(terms)
        for place, term in enumerate(terms):
            self.program.join(self.done[node].source, term, term.index, place=place)


def _linearized(
    op: Op, wanted: Sequence[int], outputs: Sequence[int], env: Mapping[str, Any], primals: Sequence
) -> tuple[Any, tuple[Any, ...]]:
    """`jax.vjp` of some outputs of the operation by the arguments wanted, and all its outputs."""
    forward = op.run
    assert forward is not None

    def linearized(here: Mapping[str, Any], primals: list[Any]) -> tuple[Any, tuple[Any, ...]]:
        def f(*moved: Any) -> tuple[Any, Any]:
            now = list(primals)
            for k, value in zip(wanted, moved, strict=True):
                now[k] = eqx.combine(value, primals[k])
            results = tuple(forward({**env, **here}, *now))
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
        bounds, kinds = [bound.name for bound in program.bounds], [x.type for x in inputs]
        types = infer(run, kinds, op.domain, bounds, op.name, full=True)
        program.ops[op.name] = dataclasses.replace(op, run=run, outputs=types)
    return tuple(kept)


def _same(op: Op, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise ValueError(
            f"`{op.name}` must have the same derivative whenever it is traced, for its residuals "
            f"to be kept: {wanted} became {found}. Take `gradient(…, recompute=True)`."
        )


def pull_back(
    op: Op, count: int, wanted: Sequence[int], outputs: Sequence[int], kept: Sequence[int]
) -> Callable[..., tuple[Any, ...]]:
    """`run(env, *inputs, *residuals, *cotangents)`: the cotangents of the arguments wanted.

    `kept` are the leaves of the derivative that the residuals are.
    """

    def vjp(env: Mapping[str, Any], *values: Any) -> tuple[Any, ...]:
        back, _ = _linearized(op, wanted, outputs, env, values[:count])
        leaves, tree = jax.tree.flatten(back)
        for k, value in zip(kept, values[count:], strict=False):
            _same(op, (leaves[k].shape, leaves[k].dtype), (value.shape, value.dtype))
            leaves[k] = value
        return tree.unflatten(leaves)(tuple(values[count + len(kept) :]))

    return vjp


def _traced(
    program: Program, op: Op, run: Callable[..., Any], tensors: Sequence[Tensor]
) -> tuple[Any, list[int | None]]:
    """The jaxpr of `run(env, *tensors)`, and which tensor each argument is of; None for symbols."""
    bounds = {bound.name: BOUND for bound in program.bounds}
    size = lambda n: op.domain.largest(n, bounds)  # noqa: E731
    kinds = [x.type for x in tensors]
    call, env, *values = traceable(run, kinds, op.domain.names, list(bounds), size)
    owners: list[int | None] = [None] * len(jax.tree.leaves(env))
    for k, value in enumerate(values):
        owners += [k] * len(jax.tree.leaves(value))
    return jax.make_jaxpr(call)(env, *values).jaxpr, owners


def used_inputs(
    program: Program, op: Op, run: Callable[..., Any], tensors: Sequence[Tensor], count: int
) -> list[int]:
    """Which of the first `count` arguments the results depend on."""
    jaxpr, owners = _traced(program, op, run, tensors)
    _, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    asked = {owner for yes, owner in zip(used, owners, strict=True) if yes}
    return [k for k in range(count) if k in asked]


def with_only(
    run: Callable[..., Any], op: Op, kinds: Sequence[Any], used: Sequence[int]
) -> Callable[..., Any]:
    """`run` without its unused arguments: zeros stand in for them, and nothing depends on those."""

    def fewer(env: Mapping[str, Any], *values: Any) -> tuple[Any, ...]:
        given = dict(zip(used, values, strict=False))
        full = [
            given[k] if k in given else filled(kind, op.domain, env) for k, kind in enumerate(kinds)
        ]
        return run(env, *full, *values[len(used) :])

    return fewer


def inexact(kind: Any) -> Any:
    """The floating-point leaves of a type, None in place of the others."""
    return jax.tree.map(
        lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else None, kind
    )


def _floating(kind: Any) -> bool:
    return bool(jax.tree.leaves(inexact(kind)))
