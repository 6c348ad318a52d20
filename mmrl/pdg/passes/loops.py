"""Recognition of loops that a scan can compute, in functions and in graphs.

For the function of a step:

    recognize(f, x, *inputs)      form of f in x, or a `Refusal` that names the obstacle
    lift(f, x0, inputs)           all states at once, computed with `mmrl.scan`

These functions connect the compiler with the rest of the library: discounted returns, advantages,
moving averages and linear recurrent memories are all affine, whatever their name.

In a graph, a loop is a cycle of operations that carries one tensor from a point of d to the next.
`analyze` extracts the step of such a loop, which may consist of any operations.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.flatten_util import ravel_pytree
from jax.interpreters import partial_eval
from jaxtyping import Array, PyTree, Shaped

from mmrl.monoid import Affine, LogSumExp, MatrixAffine, Max, Monoid, Product, Sum
from mmrl.pdg.build.derivative import bind
from mmrl.pdg.build.expr import TRUE
from mmrl.pdg.build.graph import Edge, Graph, Op, Output, components
from mmrl.pdg.build.sets import always, never
from mmrl.pdg.clean import phi
from mmrl.pdg.passes import move
from mmrl.pdg.passes.access import ZERO, Access, Block, Cycle, entry, scan_inputs, shift
from mmrl.pdg.passes.steps import FAMILIES, DeclaredMonoid, Refusal, State, Value, describe
from mmrl.scan import scan

MATRIX = 8  # maximum number of entries of x that may mix, and the size of the matrices of the scan
MARK = "op_"
At = Callable[..., dict[Output, Any]]


class Recurrence(eqx.Module):
    """Scan that is equivalent to a loop, with the `forms` of the step per array of x.

    `element(*inputs)` returns the step as an element of `monoid`, `begin(x)` returns the state x as
    an element, and `read` extracts the state from an element.
    """

    forms: tuple[str, ...] = eqx.field(static=True)
    monoid: Monoid
    element: Callable = eqx.field(static=True)
    begin: Callable = eqx.field(static=True)
    read: Callable = eqx.field(static=True)

    def __call__(
        self, x0: PyTree, inputs: tuple, *, reverse: bool = False, method: str = "auto"
    ) -> PyTree[Shaped[Array, "time ..."]]:
        """Return x_t = step(x_{t-1}, *inputs_t) for every t; x0 is the state before t = 0."""
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
    monoids: tuple[DeclaredMonoid, ...] = (),
    matrix: int = MATRIX,
) -> PyTree[Shaped[Array, "time ..."]]:
    """Compute `lax.scan` of x ← step(x, *inputs_t) with `mmrl.scan`, in depth O(log T), not T.

    `inputs` have a leading time axis, and all states are returned. Values and derivatives equal the
    loop's up to rounding, with one exception: if a factor 0 meets an infinite state, as in
    `where(begin, 0, x)`, the loop discards the state but the scan returns NaN.

    Raises `Refusal` if `recognize` does not support the step.

        >>> lift(lambda x, r: 0.5 * x + r, jnp.float32(0), (jnp.ones(3),))
        Array([1.  , 1.5 , 1.75], dtype=float32)
    """
    recurrence = recognize(step, x0, *one(inputs), monoids=monoids, matrix=matrix)
    return recurrence(x0, inputs, reverse=reverse, method=method)


def last(step: Callable, x0: PyTree, inputs: tuple, *, reverse: bool = False) -> PyTree:
    """Return only the last state; sums take one operation, other loops run step by step."""
    step = _trace_once(step, x0, *one(inputs))
    try:
        recurrence = recognize(step, x0, *one(inputs))
    except Refusal:
        recurrence = None
    if recurrence is None or set(recurrence.forms) != {"sum"}:
        return jax.lax.scan(lambda x, z: (step(x, *z), None), x0, inputs, reverse=reverse)[0]
    way = -1 if reverse else 1  # the order affects rounding
    inputs = jax.tree.map(lambda x: x[::way], inputs)
    terms = sum_terms(lambda *z: recurrence.read(recurrence.element(*z)), *inputs)
    return jax.tree.map(jnp.add, x0, terms)


def _trace_once(function: Callable, *like: PyTree) -> Callable:
    """Return a function that evaluates the jaxpr of `function`, which is traced only once."""
    jaxpr, out = jax.make_jaxpr(function, return_shape=True)(*like)
    run, tree = jaxpr_as_fun(jaxpr), jax.tree.structure(out)
    return lambda *inputs: tree.unflatten(run(*jax.tree.leaves(inputs)))


_ADDS = {"add", "add_any", "sub"}
_LINEAR = {"broadcast_in_dim", "dot_general", "mul", "neg", "reshape", "squeeze", "transpose"}


def sum_terms(function: Callable, *inputs: PyTree) -> PyTree:
    """Return Σ_k function(*inputs[k]), with sums of products as one product: Σ_k x_k y_kᵀ = Xᵀ Y.

    The gradient of a parameter is such a sum. Its terms are computed only if `function` has no
    products near its end, followed by linear operations, which can be applied to the sums instead.
    """
    closed, out = jax.make_jaxpr(function, return_shape=True)(*one(inputs))
    jaxpr, length = closed.jaxpr, len(jax.tree.leaves(inputs)[0])
    moving = set(jaxpr.invars)  # variables that differ between points

    def moves(v: Any) -> bool:
        return not isinstance(v, Literal) and v in moving

    for equation in jaxpr.eqns:
        moving |= set(equation.outvars) if any(map(moves, equation.invars)) else set()
    sums, leaves, through = {v: None for v in jaxpr.outvars if moves(v)}, {}, []
    for equation in reversed(jaxpr.eqns):
        name, parts = equation.primitive.name, [v for v in equation.invars if moves(v)]
        product = name == "dot_general" and len(parts) == 2
        linear = product or name in _ADDS or (name in _LINEAR and len(parts) == 1)
        if linear and sums.keys() & set(equation.outvars):
            through.append((equation, product))
            (leaves if product else sums).update(dict.fromkeys(parts))
    inner = {v for equation, _ in through for v in equation.outvars}
    every = [*jaxpr.outvars, *(v for equation, _ in through for v in equation.invars)]
    leaves |= {v: None for v in sums if v not in inner}
    leaves |= {v: None for v in every if not isinstance(v, Literal) and v not in moving}
    if not any(product for _, product in through):
        return jax.tree.map(lambda x: x.sum(0), jax.vmap(function)(*inputs))
    short, _ = partial_eval.dce_jaxpr(
        jaxpr.replace(outvars=[*leaves]), [True] * len(leaves), instantiate=True
    )
    run = jaxpr_as_fun(ClosedJaxpr(short, closed.consts))
    axes = [0 if moves(v) else None for v in leaves]
    values = jax.vmap(run, out_axes=axes)(*jax.tree.leaves(inputs))
    # A value is either stacked over all points, or shared by all points.
    value_of = dict(zip(leaves, values, strict=True))
    total = {v: value_of[v].sum(0) for v in sums if v not in inner}

    def constant(v: Any) -> Any:
        literal = isinstance(v, Literal)
        return jnp.asarray(v.val, v.aval.dtype) if literal else value_of[v]  # pyright: ignore

    def sum_of(v: Any) -> Any:
        return total[v] if moves(v) else length * constant(v)

    for equation, product in reversed(through):
        if product:
            result = _contract(equation, *(value_of[v] for v in equation.invars))
        elif equation.primitive.name in _ADDS:
            (result,) = bind(equation, [*map(sum_of, equation.invars)])
        else:
            sides = [total[v] if moves(v) else constant(v) for v in equation.invars]
            (result,) = bind(equation, sides)
        total[equation.outvars[0]] = result
    return jax.tree.unflatten(jax.tree.structure(out), [*map(sum_of, jaxpr.outvars)])


def _contract(equation: Any, a: Array, b: Array) -> Array:
    """Multiply two arrays with a common leading axis, and sum over this axis."""
    (left, right), (also, there) = equation.params["dimension_numbers"]
    contract = ((0, *(d + 1 for d in left)), (0, *(d + 1 for d in right)))
    batch = (tuple(d + 1 for d in also), tuple(d + 1 for d in there))
    more = {k: equation.params[k] for k in ("precision", "preferred_element_type")}
    return jax.lax.dot_general(a, b, (contract, batch), **more)


def one(inputs: PyTree) -> PyTree:
    """Return the types of the inputs of a single step."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), inputs)


class _Form(NamedTuple):
    """Rule for one array of x: its monoid, and conversions of steps and states."""

    monoid: Callable[[jax.ShapeDtypeStruct], Monoid]
    element: Callable[[Array, Array, Value], PyTree]  # from the derivative and the value at x = 0
    begin: Callable[[Array], PyTree] = lambda x: (jnp.zeros_like(x), x)
    read: Callable[[Any], Array] = lambda h: h[1]


_SUM = _Form(Sum, lambda a, b, value: b, lambda x: x, lambda h: h)
_FORMS = {
    "sum": _SUM,
    "affine": _Form(
        lambda leaf: Affine(leaf.shape, leaf.dtype),
        lambda a, b, value: (a, b),
        lambda x: (jnp.ones_like(x), x),
    ),
    "max": _Form(lambda leaf: Max(leaf.shape), lambda a, b, value: (value.a, value.b)),
    "logsumexp": _Form(lambda leaf: LogSumExp(leaf.shape), lambda a, b, value: (value.a, value.b)),
}


def recognize(
    step: Callable,
    x: PyTree,
    *inputs: Any,
    monoids: tuple[DeclaredMonoid, ...] = (),
    matrix: int = MATRIX,
) -> Recurrence:
    """Return the scan that is equivalent to the loop x ← step(x, *inputs).

    Only the shapes and dtypes of the arguments are used. `monoids` (from `declare`) are recognized
    where the step calls them as m(x, element). `matrix` is the maximum number of entries of x that
    may mix.

    Raises `Refusal`, which names the operation, if the step has none of the forms in the table of
    `steps`. Raises `ValueError` if the step does not return arrays like x.

        >>> recognize(lambda x, r: 0.5 * x + r, 0.0, 1.0).forms
        ('affine',)
    """
    like = jax.eval_shape(lambda x: jax.tree.map(jnp.asarray, x), x)
    leaves, tree = jax.tree.flatten(like)
    _check_step(step, like, inputs)
    state = State(tuple(leaves), matrix, monoids)

    def describe_step(*inputs):
        closed = jax.make_jaxpr(step)(like, *inputs)
        arguments = [Value("state", leaf) for leaf in range(len(leaves))]
        arguments += [Value("free", b=jnp.asarray(z)) for z in jax.tree.leaves(inputs)]
        return describe(state, closed.jaxpr, closed.consts, arguments)

    values = jax.eval_shape(describe_step, *inputs)
    forms = _forms(state, values)
    if forms == ("declared",):
        whole = lambda *z: tree.unflatten([value.b for value in describe_step(*z)])  # noqa: E731
        return Recurrence(forms, monoids[values[0].which], whole, lambda x: x, lambda h: h)
    if forms == ("matrix",):
        return _matrix(like, step)

    def element(*inputs):
        zeros, ones = (jax.tree.map(fill, like) for fill in (jnp.zeros_like, jnp.ones_like))
        b, a = jax.jvp(lambda x: step(x, *inputs), (zeros,), (ones,))
        descriptions = describe_step(*inputs) if set(forms) & set(FAMILIES) else values
        sides = zip(rows, tree.flatten_up_to(a), tree.flatten_up_to(b), descriptions, strict=True)
        return tuple(form.element(a, b, v) for form, a, b, v in sides)

    rows = [_FORMS[form] for form in forms]
    return Recurrence(
        forms,
        Product(tuple(form.monoid(leaf) for form, leaf in zip(rows, leaves, strict=True))),
        element,
        begin=lambda x: tuple(f.begin(y) for f, y in zip(rows, tree.flatten_up_to(x), strict=True)),
        read=lambda h: tree.unflatten(f.read(y) for f, y in zip(rows, h, strict=True)),
    )


def _matrix(like: PyTree, step: Callable) -> Recurrence:
    """Return the scan of x' = x A + b for a row vector x (`MatrixAffine`)."""
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
    """Return one form per array of x, or one for all arrays. Raises `Refusal` if none applies."""
    kinds = [value.kind for value in values]
    if "declared" in kinds:
        if set(kinds) == {"declared"} and len({value.which for value in values}) == 1:
            return ("declared",)
        raise Refusal("declared", "some arrays of x belong to a declared monoid and others do not")
    for leaf in state.leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            reason = f"x contains {leaf.dtype}, and only floating-point numbers are supported"
            raise Refusal("convert_element_type", reason)
    mixing = [i for i, v in enumerate(values) if v.kind != "free" and v.leaf != i]
    if not mixing:
        plain = {"free": "affine", "state": "sum", "shift": "sum"}
        return tuple(plain.get(kind, kind) for kind in kinds)
    for i, value in enumerate(values):
        if value.kind in FAMILIES:
            reason = f"x[{i}] is {state.text(value)}, and x[{mixing[0]}] depends on another array"
            raise Refusal(value.kind, reason)
    state.mixes(f"x[{mixing[0]}], computed from other arrays of x,")
    return ("matrix",)


def _check_step(step: Callable, like: PyTree, inputs: tuple) -> None:
    after = jax.eval_shape(step, like, *inputs)
    before, now = (
        [f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(tree)] for tree in (like, after)
    )
    if jax.tree.structure(after) != jax.tree.structure(like) or before != now:
        raise ValueError(
            f"`step` must return arrays like x, {', '.join(before)}; got "
            f"{', '.join(now)}. Pass an x with the shapes and dtypes that it has after a step."
        )


@dataclasses.dataclass
class CarryLoop:
    """Loop: a cycle of operations that carries one tensor along d, one point at a time.

    `way` is +1 if the loop runs forward and -1 if it runs backward. `ops` are in a valid order of
    execution at one point. They read each other along the edges `inside` at the same point, and
    along `back` at the previous point. They read all other values along `outside`, as specified by
    `readings`. `later` maps the edges of branches to True if they are taken at all points after the
    first, and to False if they are taken at none of these points. Other branches are omitted.
    """

    graph: Graph
    block: Block
    ops: tuple[str, ...]
    inside: Collection[Edge]
    back: Collection[Edge]
    outside: tuple[Edge, ...]
    readings: list[Access]
    carry: Output
    way: int
    later: dict[Edge, bool]

    @property
    def reads(self) -> list[Edge]:
        """Input edges of an operation that replaces the loop."""
        return move.as_inputs(move.replan(self.outside, self.readings))

    @property
    def readers(self) -> list[Edge]:
        """Edges from operations outside the loop that read it."""
        return [e for e in self.graph.edges if e.source in self.ops and e.sink not in self.ops]

    @property
    def exports(self) -> list[Output]:
        """Tensors of the loop that operations outside the loop read."""
        return list(dict.fromkeys(edge.tensor for edge in self.readers))

    @property
    def final(self) -> bool:
        """True if every reader reads only the point at which the loop ends."""
        if self.exports != [self.carry] or move.pointwise_sources(self.graph, self.ops):
            return False
        end = self.block.bound - 1 if self.way > 0 else ZERO
        return all(phi(self.graph, e)[self.block.name].same(end) for e in self.readers)

    @property
    def before(self) -> Edge | None:
        """Edge that supplies the initial state; None if the first point differs otherwise."""
        first = [edge for edge, flag in self.later.items() if not flag]
        others = [edge for edge, flag in self.later.items() if flag]
        alone = len(first) == 1 and first[0] in self.outside and others == list(self.back)
        return first[0] if alone and first[0].sink == others[0].sink else None

    def begin(self, env: Mapping[str, Any], inputs: Sequence[Any]) -> tuple[At, Any]:
        """Return the function `at(point, x, here, branches)` of an iteration, and the points.

        `at` returns all outputs of all operations. x is the previous state, `here` contains the
        current entries of the inputs that the loop iterates over, and `branches` specifies for some
        branches whether they are taken. The points are a pair: coordinates, and these inputs.
        """
        start = self.block.begin(env)
        xs, reads = scan_inputs(self.readings, inputs, start)

        def at(
            point: Any, x: Any, here: list[Any], branches: Mapping[Edge, bool] | None = None
        ) -> dict[Output, Any]:
            values: dict[Output, Any] = {}
            spot, sure = {**env, self.block.name: point}, branches or {}
            inputs_at = dict(zip(self.outside, reads(spot, here), strict=True))
            inputs_at |= dict.fromkeys(self.back, x)

            def read(edge: Edge) -> Any:
                return inputs_at[edge] if edge in inputs_at else values[edge.tensor]

            for name in self.ops:
                op, edges = self.graph.ops[name], self.graph.inputs(name)
                if op.run is None:
                    able = [edge for edge in edges if sure.get(edge) is not False]
                    cases = [edge for edge in edges if sure.get(edge)] or able
                    results = move.choose([edge.when for edge in cases], spot, *map(read, cases))
                else:
                    with jax.named_scope(MARK + name):  # the operation to report in a `Refusal`
                        results = op.run(spot, *map(read, edges))
                values |= {(name, k): value for k, value in enumerate(results)}
            return values

        return at, (start[self.block.name] + jnp.arange(self.block.length.evaluate(env)), xs)

    def enter(self, at: At, env: Mapping[str, Any], points: Any) -> tuple[Any, Any]:
        """Return the initial state of the loop, and the remaining points.

        If the first point has a separate definition, the state after this point is computed here,
        so that the step does not contain that branch.
        """
        first, rest = (0, slice(1, None)) if self.way > 0 else (-1, slice(None, -1))
        point, here = jax.tree.map(lambda x: x[first], points)
        if edge := self.before:
            branches = {edge: not flag for edge, flag in self.later.items()}
            return at(point, self.zero_state(env), here, branches)[edge.sink, 0], points
        remaining = jax.tree.map(lambda x: x[rest], points)
        return at(point, self.zero_state(env), here)[self.carry], remaining

    def zero_state(self, env: Mapping[str, Any]) -> Any:
        """Return a state of zeros, which replaces the previous state at the first point."""
        bounds = {name: value for name, value in env.items() if isinstance(value, int)}
        like = type_of(self.graph.ops[self.carry[0]], self.carry[1], bounds)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)

    def step(self, at: At, env: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the function of one step, which leaves the state unchanged beyond the bound."""
        bound, length = (n.evaluate(env) for n in (self.block.bound, self.block.length))
        full = isinstance(bound, int) and bound % length == 0

        def step(x: Any, point: Any, here: list[Any]) -> Any:
            new = at(point, x, here, self.later)[self.carry]
            if full:
                return new
            real = point < bound
            return jax.tree.map(lambda n, o: jax.lax.select_n(real, o, n), new, x)

        return step

    def start(self, reading: Access, env: Mapping[str, Any], x: Any) -> tuple[Any]:
        """Return the state before the first block, which is read along the edge `before`."""
        at = self.block.begin(env)
        (xs,), reads = scan_inputs([reading], [x], at)
        return tuple(reads({**env, **at}, [jax.tree.map(lambda x: x[0], xs)]))

    def end(self, env: Mapping[str, Any], *inputs: Any, before: Any = None) -> tuple[Any]:
        """Return the state after a block.

        `before` is the state before the block. Without it, the block starts at the first point.
        """
        at, rest = self.begin(env, inputs)
        x = before
        if before is None:
            x, rest = self.enter(at, env, rest)
        return (last(self.step(at, env), x, rest, reverse=self.way < 0),)

    def recurrence(
        self, env: Mapping[str, Any], inputs: Sequence[Any], **how: Any
    ) -> tuple[Recurrence, Any, Any, At, Any]:
        """Return the loop as a scan, its initial state and points, and the results of `begin`."""
        at, points = self.begin(env, inputs)
        x, rest = self.enter(at, env, points)
        return recognize(self.step(at, env), x, *one(rest), **how), x, rest, at, points

    def everywhere(self, env: Mapping[str, Any], *inputs: Any, **how: Any) -> tuple[Any, ...]:
        """Compute the `exports` at all points in one scan; pass `how` to `recognize`."""
        recurrence, x, rest, at, points = self.recurrence(env, inputs, **how)
        length = len(points[0])

        def join(*states: Any) -> Any:
            """Concatenate the states in the order of time."""
            ahead = states if self.way > 0 else states[::-1]
            whole = jnp.concatenate(ahead)
            return whole[-length - 1 :] if self.way > 0 else whole[: length + 1]

        start = jax.tree.map(lambda *xs: jnp.stack(xs), self.zero_state(env), x)
        start = start if self.way > 0 else jax.tree.map(lambda xs: xs[::-1], start)
        states = jax.tree.map(join, start, recurrence(x, rest, reverse=self.way < 0))
        sides = [jax.tree.map(lambda x, s=s: x[s], states) for s in (slice(-1), slice(1, None))]
        before, after = sides[:: self.way]
        if self.exports == [self.carry]:
            return (after,)
        values = jax.vmap(at)(points[0], before, points[1]) | {self.carry: after}
        return tuple(values[tensor] for tensor in self.exports)


def analyze(graph: Graph, cycle: Cycle, block: Block) -> CarryLoop:
    """Return a cycle as a loop that carries one tensor. Raises `Refusal` if this is impossible."""
    for op in cycle.ops:
        if block.name not in graph.ops[op].domain.names:
            raise Refusal("domain", f"{op} does not have the dimension {block.name}")
        if graph.ops[op].kind == "host":
            raise Refusal("host", f"{op} calls the host, which happens at one point at a time")
    tensor, away, back = _carry(graph, cycle, block)
    inside = [edge for edge in cycle.edges if edge not in back]
    order = [name for group in components(inside) for name in group]
    order += [name for name in cycle.ops if name not in order]
    outside = [e for op in order for e in graph.inputs(op) if e not in inside and e not in back]
    readings = []
    for edge in outside:
        reading = entry(graph, edge, block)
        foreign = edge.when.symbols() & set(move.graph_dims(graph)) - {block.name}
        if reading is None or foreign or edge.source in cycle.ops:
            raise Refusal("read", f"{edge} cannot be read for all values of {block.name} at once")
        readings.append(reading)
    later = _later(graph, cycle.edges + tuple(outside), block, -away)
    return CarryLoop(
        graph, block, tuple(order), inside, back, tuple(outside), readings, tensor, -away, later
    )


def _carry(graph: Graph, cycle: Cycle, block: Block) -> tuple[Output, int, list[Edge]]:
    """Return the tensor that a cycle carries along d, its distance, and the edges that carry it."""
    back, distances = [], set()
    for edge in cycle.edges:
        away = _distance(graph, edge, block.name)
        if away is None:
            raise Refusal("read", f"{edge} is not a read at a fixed distance along {block.name}")
        if away:
            back.append(edge)
            distances.add(away)
    tensors = sorted({(edge.source, edge.output) for edge in back})
    if len(tensors) > 1:
        names = [f"{op}.{k}" if len(graph.ops[op].outputs) > 1 else op for op, k in tensors]
        raise Refusal("carry", f"it carries {' and '.join(names)}, not one tensor")
    if len(distances) > 1 or not distances <= {-1, 1}:
        raise Refusal("read", f"it reads at distances {sorted(distances)}, not at one of 1 or -1")
    return tensors[0], distances.pop(), back


def _distance(graph: Graph, edge: Edge, name: str) -> int | None:
    """Return the distance of an edge along d, or None if it varies or other dimensions change."""
    steps = {dim: shift(part, dim) for dim, part in phi(graph, edge).items()}
    away = steps.pop(name)
    return away if set(steps.values()) <= {0} else None


def _later(graph: Graph, edges: Sequence[Edge], block: Block, way: int) -> dict[Edge, bool]:
    others: Any = block.symbol != (ZERO if way > 0 else block.bound - 1)
    verdicts = {}
    for edge in edges:
        if TRUE.same(edge.when):
            continue
        domain = graph.ops[edge.sink].domain.restrict(others)
        if always(edge.when, domain):
            verdicts[edge] = True
        elif never(edge.when, domain):
            verdicts[edge] = False
    return verdicts


def type_of(op: Op, output: int, bounds: Mapping[str, int]) -> Any:
    """Return the type of an output. Raises `Refusal` if it is not declared."""
    kind = op.types(bounds)[output]
    if kind is None:
        raise Refusal("type", f"the type of {op.name} is not declared")
    return kind
