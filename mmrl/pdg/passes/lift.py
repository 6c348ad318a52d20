"""Lift: a loop over d that is a recurrence of a known kind becomes one scan over all of d.

    for t in range(T): g[t] = r[t] + γ g[t + 1]      ↦      g = scan(Affine, (γ, r))

A sum of all that follows, Σ_k γᵏ r[t + k], is first written as such a loop (`unfold`).

The loop must carry one tensor from one point of d to the next, and its body, whatever operations
it is made of, must be a step that `recognize` knows. Acting is not: what the environment answers
depends on the action, which depends on the memory by way of a choice.

The paper lifts sums, prefix sums and sliding sums that match a pattern (§5.2); its code names
discounted sums as still to do. Lifting has a price: every reader now waits for all of d.

Of the function of a step alone:

    recognize(f, x, *inputs)      what f does to x, or a `Refusal` that names what is in the way
    lift(f, x0, inputs)           all states at once, by `mmrl.scan`

This is where the compiler meets the rest of the library: discounted returns, advantages, moving
averages and linear recurrent memories are all affine, whatever names their authors gave them.

`unfold` writes folds of all that follows, x[t:T], as loops that run backward:

    g[t] = Σ_k γᵏ x[t + k]      ↦      g[T - 1] = x[T - 1],  g[t] = x[t] + γ g[t + 1]

The left side reads T - t points at each t, O(T²) in all; the right side reads two. It is right
because the fold is a homomorphism of lists: a return is a monoid. (The paper's code matches sums
and prefix sums, §5.2, and names discounted ones as still to do.)
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree, Shaped

from mmrl.monoid import Affine, LogSumExp, MatrixAffine, Max, Monoid, Product, Sum
from mmrl.pdg.expr import TRUE, Expr, Slice
from mmrl.pdg.graph import Edge, Graph, Op
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import Block, cycles
from mmrl.pdg.passes.loops import MARK, Carried, analyze, type_of
from mmrl.pdg.passes.steps import FAMILIES, Declared, Refusal, State, Value, check_matrix, describe
from mmrl.scan import scan

MATRIX = 8  # entries of x that may mix: a step then costs a product of such matrices


class Recurrence(eqx.Module):
    """A step that is a scan: `forms` says of each array in x what happens to it.

    `element(*inputs)` is the step as an element of `monoid`, and `begin(x)` is x as one; `read`
    takes x out again.
    """

    forms: tuple[str, ...] = eqx.field(static=True)
    monoid: Monoid
    element: Callable = eqx.field(static=True)
    begin: Callable = eqx.field(static=True)
    read: Callable = eqx.field(static=True)

    def __call__(
        self, x0: PyTree, inputs: tuple, *, reverse: bool = False, method: str = "auto"
    ) -> PyTree[Shaped[Array, "time ..."]]:
        """x_t = step(x_{t-1}, *inputs_t) for every t, of which x0 is the state before the first."""
        begin = self.begin(jax.tree.map(jnp.asarray, x0))
        elements = jax.vmap(self.element)(*inputs)
        return jax.vmap(self.read)(
            scan(self.monoid, elements, begin, reverse=reverse, method=method)
        )


def lift(
    step: Callable,
    x0: PyTree,
    inputs: tuple,
    *,
    reverse: bool = False,
    method: str = "auto",
    monoids: tuple[Declared, ...] = (),
    matrix: int = MATRIX,
) -> PyTree[Shaped[Array, "time ..."]]:
    """`lax.scan` of x ← step(x, *inputs_t), by `mmrl.scan`: depth O(log T) instead of T.

    `inputs` have a leading time axis; every state is returned. Values and derivatives agree with
    the loop's up to rounding, with one exception: where a factor 0 meets an infinite state, as in
    `where(begin, 0, x)`, a loop forgets it and a scan makes it NaN.

    Raises `Refusal` if the step is not one that `recognize` knows.
    """
    recurrence = recognize(step, x0, *one(inputs), monoids=monoids, matrix=matrix)
    return recurrence(x0, inputs, reverse=reverse, method=method)


def last(step: Callable, x0: PyTree, inputs: tuple) -> PyTree:
    """The state after the last step alone: a sum at once, anything else step by step."""
    try:
        recurrence = recognize(step, x0, *one(inputs))
    except Refusal:
        recurrence = None
    if recurrence is None or set(recurrence.forms) != {"sum"}:
        return jax.lax.scan(lambda x, z: (step(x, *z), None), x0, inputs)[0]
    elements = recurrence.read(jax.vmap(recurrence.element)(*inputs))
    return jax.tree.map(lambda x, b: x + b.sum(0), x0, elements)


def one(inputs: PyTree) -> PyTree:
    """The types of one step's inputs."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), inputs)


def recognize(
    step: Callable,
    x: PyTree,
    *inputs: Any,
    monoids: tuple[Declared, ...] = (),
    matrix: int = MATRIX,
) -> Recurrence:
    """The scan that x ← step(x, *inputs) is; only shapes and types of the arguments matter.

    `monoids` (from `declare`) are recognized where the step calls them as m(x, element). `matrix`
    is the number of entries of x that may mix.

    Raises `Refusal`, naming the operation, if the step leaves the table of `steps`, and
    `ValueError` if it does not return something like x.
    """
    like = jax.eval_shape(lambda x: jax.tree.map(jnp.asarray, x), x)
    leaves, tree = jax.tree.flatten(like)
    _check_step(step, like, inputs)
    state = State(tuple(leaves), matrix, monoids)

    def describe_step(*inputs):
        traced = jax.make_jaxpr(step)(like, *inputs)
        arguments = [Value("state", leaf) for leaf in range(len(leaves))]
        arguments += [Value("free", b=jnp.asarray(z)) for z in jax.tree.leaves(inputs)]
        return describe(state, traced.jaxpr, traced.consts, arguments)

    values = jax.eval_shape(describe_step, *inputs)
    forms = _forms(state, values)
    if forms == ("declared",):
        return Recurrence(
            forms,
            monoids[values[0].which],
            element=lambda *z: tree.unflatten([value.b for value in describe_step(*z)]),
            begin=lambda x: x,
            read=lambda h: h,
        )
    if forms == ("matrix",):
        return _matrix(like, step)

    def element(*inputs):
        zeros, ones = (jax.tree.map(fill, like) for fill in (jnp.zeros_like, jnp.ones_like))
        b, a = jax.jvp(lambda x: step(x, *inputs), (zeros,), (ones,))
        sides = zip(tree.flatten_up_to(a), tree.flatten_up_to(b), strict=True)
        known = describe_step(*inputs) if set(forms) & set(FAMILIES) else values
        return tuple(map(_element, forms, sides, known))

    return Recurrence(
        forms,
        Product(tuple(map(_monoid, forms, leaves))),
        element,
        begin=lambda x: tuple(map(_begin, forms, tree.flatten_up_to(x))),
        read=lambda h: tree.unflatten(map(_read, forms, h)),
    )


def _matrix(like: PyTree, step: Callable) -> Recurrence:
    """All of x as one row vector: x' = x A + b, which is `MatrixAffine` with a single value."""
    zeros, tree = ravel_pytree(jax.tree.map(jnp.zeros_like, like))

    def element(*inputs):
        def row(x):
            return ravel_pytree(step(tree(x), *inputs))[0]

        return jax.jacfwd(row)(zeros).T, row(zeros)[None]

    return Recurrence(
        ("matrix",),
        MatrixAffine(1, zeros.size),
        element,
        begin=lambda x: (jnp.eye(zeros.size), ravel_pytree(x)[0][None]),
        read=lambda h: tree(h[1][0]),
    )


def _forms(state: State, values: list[Value]) -> tuple[str, ...]:
    """A form for every array of x, or one for the whole. Raises `Refusal` if they do not fit."""
    kinds = [value.kind for value in values]
    if "declared" in kinds:
        if set(kinds) == {"declared"} and len({value.which for value in values}) == 1:
            return ("declared",)
        raise Refusal("declared", "some arrays of x are a declared monoid's and some are not")
    for leaf in state.leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            reason = f"x holds {leaf.dtype}, and maps of numbers that round are all that is known"
            raise Refusal("convert_element_type", reason)
    crossed = [i for i, v in enumerate(values) if v.kind != "free" and v.leaf != i]
    if not crossed:
        return tuple(_FORMS.get(kind, kind) for kind in kinds)
    for i, value in enumerate(values):
        if value.kind in FAMILIES:
            reason = f"x[{i}] is {state.text(value)}, and another array of x is not its own"
            raise Refusal(value.kind, reason)
    check_matrix(state, f"x[{crossed[0]}], made of other arrays of x,")
    return ("matrix",)


_FORMS = {"free": "affine", "state": "sum", "shift": "sum"}


def _monoid(form: str, leaf: jax.ShapeDtypeStruct) -> Monoid:
    if form == "sum":
        return Sum(leaf)
    if form == "affine":
        return Affine(leaf.shape, leaf.dtype)
    return LogSumExp(leaf.shape) if form == "logsumexp" else Max(leaf.shape)


def _element(form: str, sides: tuple[Array, Array], known: Value) -> PyTree[Array]:
    """The derivative of an affine map and its value at x = 0; of others what is known of them."""
    if form in FAMILIES:
        return known.a, known.b
    return sides[1] if form == "sum" else sides


def _begin(form: str, x: Array) -> PyTree[Array]:
    if form == "sum":
        return x
    return (jnp.ones_like(x) if form == "affine" else jnp.zeros_like(x)), x


def _read(form: str, h: PyTree[Array]) -> Array:
    return h if form == "sum" else h[1]  # pyright: ignore[reportReturnType]


def _check_step(step: Callable, like: PyTree, inputs: tuple) -> None:
    after = jax.eval_shape(step, like, *inputs)
    same = jax.tree.structure(after) == jax.tree.structure(like)
    before, now = (
        [f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(tree)] for tree in (like, after)
    )
    if not same or before != now:
        raise ValueError(
            f"`step` must return arrays like those of x, {', '.join(before)}; got "
            f"{', '.join(now)}. Give x the shape and type that it has after a step."
        )


Combine = Callable[[Any, Any, Mapping[str, Any]], Any]
FOLDS: dict[str, Combine] = {
    "sum": lambda x, rest, params: x + rest,
    "max": lambda x, rest, params: jnp.maximum(x, rest),
    "discounted_sum": lambda x, rest, params: x + params["gamma"] * rest,
}


def unfold(graph: Graph, block: Block) -> tuple[Graph, list[str]]:
    """The graph in which folds of x[…, d:D] are loops over d, and the names of these folds."""
    found = [op.name for op in graph.ops.values() if _is_suffix_fold(graph, op, block)]
    ops, edges = dict(graph.ops), [edge for edge in graph.edges if edge.sink not in found]
    for name in found:
        made, reads = _loop(graph, name, block)
        ops |= {op.name: op for op in made}
        edges += reads
    return graph.replace(ops=ops, edges=tuple(edges)), found


def _is_suffix_fold(graph: Graph, op: Op, block: Block) -> bool:
    edges = graph.inputs(op.name)
    if op.kind not in FOLDS or op.params.get("axis", 0) != 0 or len(edges) != 1:
        return False
    source = graph.ops[edges[0].source]
    total = TRUE.same(op.domain.when) and TRUE.same(source.domain.when)
    suffix = Slice(block.symbol, block.bound)
    # A sum of flags is a number: there one fold is not the type of the other.
    same = source.outputs[edges[0].output] == op.outputs[0]
    return total and same and edges[0].slices == (suffix,) and block.name in op.domain.names


def _loop(graph: Graph, name: str, block: Block) -> tuple[list[Op], list[Edge]]:
    op, (edge,) = graph.ops[name], graph.inputs(name)
    symbol, end = block.symbol, block.bound - 1
    here: tuple[Expr, ...] = tuple(symbol if part in edge.slices else part for part in edge.index)
    after = tuple(s + 1 if s.same(symbol) else s for s in op.domain.symbols)
    earlier: Any = symbol < end
    last: Any = symbol == end
    more, fold, params = f"{name}_more", FOLDS[op.kind], op.params

    def run(env: Mapping[str, Any], x: Any, rest: Any) -> tuple[Any, ...]:
        return (fold(x, rest, params),)

    made = [
        Op(more, "fn", op.domain.restrict(earlier), op.outputs, run, params),
        Op(name, "merge", op.domain, op.outputs, None, {}),
    ]
    reads = [
        Edge(more, edge.source, here, output=edge.output),
        Edge(more, name, after, input=1),
        Edge(name, edge.source, here, last, output=edge.output),
        Edge(name, more, op.domain.symbols, earlier),
    ]
    return made, reads


SMALL = 4  # the bounds with which shapes are tried out
CHOICES = ("auto", "always")


@move.along
def lift_loops(
    graph: Graph,
    name: str,
    *,
    when: str = "auto",
    matrix: int = MATRIX,
    monoids: tuple[Declared, ...] = (),
) -> tuple[Graph, list[str]]:
    """The graph with loops over `name` lifted, and for each loop what was done, or why not.

    "auto" lifts a loop only where nobody has to wait longer for it and no more has to be kept: one
    that runs backward, or one whose readers want all of d. "always" lifts every loop that can be,
    which suits a parallel device.

    Raises `ValueError` for a dimension that is not there or another `when`.
    """
    if when not in CHOICES:
        raise ValueError(f"`when` must be one of {', '.join(CHOICES)}; got {when!r}.")
    block = move.whole(graph, name)
    graph, folds = unfold(graph, block)
    words = [f"{fold} reads itself at {name} + 1, in place of all that follows" for fold in folds]
    for cycle in cycles(graph, name):
        if cycle.trivial:
            continue
        try:
            loop = analyze(graph, cycle, block)
            forms = _try(loop, _scan_run(loop, matrix, monoids))
            if when == "auto":
                _check_cost(loop)
        except Refusal as refusal:
            words.append(f"{cycle} stay a loop over {name}: {refusal.reason}")
            continue
        graph, names = move.with_views(graph, loop.ops)
        loop = analyze(graph, cycle.renamed(names), block)
        graph = _replace(loop, _scan_run(loop, matrix, monoids), forms)
        words.append(f"{cycle} became one scan over {name}: {' and '.join(sorted(set(forms)))}")
    return graph, words


def adds(loop: Carried) -> bool:
    """Whether a loop is a sum of which only the end is read."""
    try:
        return loop.final and set(_try(loop, _scan_run(loop, 0, ()))) == {"sum"}
    except Refusal:
        return False


def _check_cost(loop: Carried) -> None:
    """Refuse to lift a forward loop of which somebody reads less than all of d at once."""
    if loop.way < 0:
        return
    name, end = loop.block.name, loop.block.bound - 1
    for edge in loop.readers:
        dims = loop.graph.ops[edge.source].domain.names
        part = edge.index[dims.index(name)]
        if part.same(end):
            reason = f"{edge.sink} reads only {edge.source}[{part}], and what leads there would be"
            raise Refusal("cost", f"{reason} kept for all of {name} at once")
        if not (isinstance(part, Slice) and part.hi.same(loop.block.bound)):
            reason = f"{edge.sink} reads {edge.source}[{part}] as it goes, and would have to wait"
            raise Refusal("cost", f"{reason} for all of {name}")
    if any(op in loop.ops for op, _ in loop.graph.results):
        raise Refusal("cost", "its points are results, which could come one by one")


def _try(loop: Carried, run: Callable) -> tuple[str, ...]:
    """The forms of the scan, tried on small shapes: a step that is no recurrence is refused."""
    graph = loop.graph
    bounds = dict.fromkeys(graph.bounds, SMALL)
    env = {**dict.fromkeys(move.graph_dims(graph), 0), **bounds}
    types = []
    for edge, reading in zip(loop.outside, loop.readings, strict=True):
        kind = type_of(graph.ops[edge.source], edge.output, bounds)
        slices = [part for part in reading.index if isinstance(part, Slice)]
        lead = [graph.ops[edge.sink].domain.largest(part.width(), bounds) for part in slices]
        types.append(
            jax.tree.map(lambda x, w=lead: jax.ShapeDtypeStruct((*w, *x.shape), x.dtype), kind)
        )
    found: list[tuple[str, ...]] = []
    try:
        jax.eval_shape(lambda *inputs: run(env, *inputs, found=found), *types)
    except Refusal as refusal:
        scopes = [s for s in refusal.inside.split("/") if s.startswith(MARK)]
        where = f", in {scopes[0].removeprefix(MARK)}" if scopes else ""
        raise Refusal(refusal.primitive, refusal.reason + where) from None
    return found[0]


def _scan_run(loop: Carried, matrix: int, monoids: tuple[Declared, ...]) -> Callable:
    """`run` of the lifted loop: everything in `loop.needed`, stacked over d.

    The first point, which has a definition of its own, is computed apart. So the branch that it
    takes is nowhere in the step, and what is a sum stays a sum.
    """
    carried, way = loop.carried, loop.way

    def run(env: Mapping[str, Any], *inputs: Any, found: list | None = None) -> tuple[Any, ...]:
        at, walked = loop.begin(inputs, env, loop.block.begin(env))
        length, nothing = loop.block.length.evaluate(env), loop.nothing(env)
        points = (jnp.arange(length), walked)
        place = 0 if way > 0 else length - 1
        first = at(place, nothing, jax.tree.map(lambda x: x[place], walked))[carried]
        later = jax.tree.map(lambda x: x[1:] if way > 0 else x[:-1], points)

        def step(x: Any, point: Any, here: list[Any]) -> Any:
            return at(point, x, here, loop.later)[carried]

        recurrence = recognize(step, first, *one(later), monoids=monoids, matrix=matrix)
        if found is not None:
            found.append(recurrence.forms)
        if loop.final:
            return (last(step, *loop.enter(at, env, points)),)

        def join(x: Any, rest: Any) -> Any:  # in the order of time
            return jnp.concatenate([x[None], rest] if way > 0 else [rest, x[None]])

        xs = jax.tree.map(join, first, recurrence(first, later, reverse=way < 0))
        if loop.needed == [carried]:
            return (xs,)
        shifted = jax.tree.map(lambda x: x[:-1] if way > 0 else x[1:], xs)
        everything = jax.vmap(at)(points[0], jax.tree.map(join, nothing, shifted), walked)
        return tuple({**everything, carried: xs}[tensor] for tensor in loop.needed)

    return run


def _replace(loop: Carried, run: Callable, forms: tuple[str, ...]) -> Graph:
    """The graph in which one operation stands for the loop."""
    graph, block = loop.graph, loop.block
    kinds = [graph.ops[op].outputs[k] for op, k in loop.needed]
    outputs = tuple(kinds if loop.final else [move.widen(kind, block) for kind in kinds])
    name = min(loop.needed, key=lambda tensor: tensor != loop.carried)[0]
    domain = move.block_domain(graph.ops[name].domain, block)
    lifted = Op(name, "scan", domain, outputs, run, {"forms": forms, "over": block.name})
    place = {tensor: (name, k) for k, tensor in enumerate(loop.needed)}
    ends = {loop.carried[0]: None} if loop.final else {}
    return move.rewire(graph, block, loop.ops, [(lifted, loop.reads)], place, ends)
