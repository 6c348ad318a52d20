"""Steps x' = f(x, inputs): how each of their values depends on the state x, read off the jaxpr.

    free          b                         independent of x
    state         x                         x itself
    shift         x + b
    affine        a ⊙ x + b                 entry by entry
    matrix        A x + b                   the entries of x mix
    max           max(x + a, b)
    logsumexp     log(exp(x + a) + exp(b))
    declared      m(x, b)                   a custom monoid

Every row is closed under composition, so that two steps in a row are again one row: this is what
makes a scan of them possible. a and b are arrays that do not depend on x. In max-plus algebra
addition takes the place of multiplication, and max takes the place of addition, so these
compose by the same law (`mmrl.monoid.Max` and `LogSumExp`): running maxima, Viterbi's recurrence,
the waiting time in a queue, forward probabilities of a hidden Markov model in the log domain.

`declare` adds monoids of the reader's own, checked before a scan may use them.

`describe` is an abstract interpreter: it runs f on these descriptions instead of numbers. Anything
that leaves their table, tanh of x or x times x, is refused by name. That a value is affine in x,
entry by entry or not, is all that is noted of it; a and b follow from the step as a whole.

The published system matches patterns of operations: sums, prefix sums and sliding sums
(Silvestre & Pietzuch 2025, arXiv:2501.05408, Section 5.2). To look at what a function computes,
whoever wrote it and however, is our addition.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend import core as jax_core
from jaxtyping import Array, Key, PyTree, Shaped

from mmrl.monoid import Monoid
from mmrl.monoid.testing import errors
from mmrl.pdg.build.derivative import bind

_TOLERANCE = 1e-4  # relative: the two ways to bracket round differently


class Declared(Monoid):
    """A function and its identity under a name; `declare` makes one after it has been checked.

    Called inside a step, it leaves its name in the jaxpr, where the lift pass finds it.
    """

    combine: Callable = eqx.field(static=True)
    empty: PyTree
    name: str = eqx.field(static=True)

    @property
    def mark(self) -> str:
        return f"monoid_{self.name}"

    def identity(self) -> PyTree:
        return self.empty

    def __call__(self, a: PyTree, b: PyTree) -> PyTree:
        def combine(a, b):
            return self.combine(a, b)

        combine.__name__ = self.mark
        return jax.jit(combine)(a, b)


_LAWS = {
    "associativity": "be associative, (a • b) • c = a • (b • c)",
    "left identity": "have the identity that it is given, e • a = a",
    "right identity": "have the identity that it is given, a • e = a",
}


def declare(
    combine: Callable[[PyTree, PyTree], PyTree],
    identity: PyTree,
    *,
    name: str = "combine",
    sample: Callable[[Key[Array, ""]], PyTree] | None = None,
    triples: int = 64,
) -> Declared:
    """A monoid out of `combine(earlier, later)` and its identity, tried on random triples.

    `sample(key)` draws one element; by default entries are normal, small integers or coin flips,
    by the type of the identity's. Give it where elements are special, such as counts ≥ 0.
    `combine` may also be a monoid of the library. Passing is evidence, not proof.

    Raises `ValueError` with the triple where (a • b) • c differs from a • (b • c), or with the
    element that the identity changes.
    """
    empty = jax.tree.map(jnp.asarray, identity)
    draw = sample or (lambda key: _random(key, empty))
    keys = jax.random.split(jax.random.key(0), (3, triples))
    a, b, c = (jax.vmap(draw)(k) for k in keys)
    monoid = Declared(combine, empty, name)
    made = jax.eval_shape(jax.vmap(monoid), a, b)
    if jax.tree.structure(made) != jax.tree.structure(a):
        raise ValueError("`combine` must return an element like its arguments.")
    for law, error in errors(monoid, a, b, c).items():
        if float(jnp.max(error)) > _TOLERANCE:
            case = int(jnp.argmax(error))
            told = jax.tree.map(lambda x, case=case: x[case].tolist(), (a, b, c))
            at = ", ".join(f"{name} = {element}" for name, element in zip("abc", told, strict=True))
            raise ValueError(
                f"`combine` must {_LAWS[law]}, and does not at {at}. A scan would give other "
                "numbers at each way of bracketing: carry more in the element, or keep the loop."
            )
    return monoid


def _random(key: Key[Array, ""], like: PyTree) -> PyTree:
    leaves, tree = jax.tree.flatten(like)

    def one(key, leaf):
        if leaf.dtype == bool:
            return jax.random.bernoulli(key, 0.5, leaf.shape)
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jax.random.randint(key, leaf.shape, 0, 5, leaf.dtype)
        return jax.random.normal(key, leaf.shape, leaf.dtype)

    return tree.unflatten(map(one, jax.random.split(key, len(leaves)), leaves))


class Refusal(ValueError):
    """The reason why a step cannot be a scan: `primitive` is the first operation that does not fit.

    `inside` is the `jax.named_scope` in which it was found.
    """

    inside: str = ""

    def __init__(self, primitive: str, reason: str):
        super().__init__(f"Not a scan: {reason}.")
        self.primitive = primitive
        self.reason = reason


_TEXT = {
    "state": "{x}",
    "shift": "{x} + b",
    "affine": "a·{x} + b",
    "matrix": "A·x + b",
    "max": "max({x} + a, b)",
    "logsumexp": "log(exp({x} + a) + exp(b))",
    "declared": "m({x}, b)",
}
FAMILIES: dict[str, Callable] = {"max": jnp.maximum, "logsumexp": jnp.logaddexp}


class Value(eqx.Module):
    """The dependence of one intermediate value on x: a row of the table above.

    Affine and matrix rows need no a and b here: these are the step at x = 0 and its derivative.
    """

    kind: str = eqx.field(static=True)
    leaf: int | None = eqx.field(static=True, default=None)  # which array of x
    a: Any = None
    b: Any = None
    which: int = eqx.field(static=True, default=0)  # of the caller's monoids


class State(eqx.Module):
    """The arrays that x consists of, and how many of their numbers a matrix may mix."""

    leaves: tuple[jax.ShapeDtypeStruct, ...] = eqx.field(static=True)
    matrix: int = eqx.field(static=True)
    monoids: tuple[Declared, ...] = ()

    def text(self, value: Value) -> str:
        several = len(self.leaves) > 1 and value.leaf is not None
        return _TEXT[value.kind].format(x=f"x[{value.leaf}]" if several else "x")

    def offset(self, value: Value) -> Shaped[Array, "..."]:
        """b of what is free, or x + b."""
        if value.kind != "state":
            return value.b
        leaf = self.leaves[value.leaf or 0]
        return jnp.zeros(leaf.shape, leaf.dtype)

    def mixes(self, name: str) -> Value:
        """A x + b. Refused where a matrix per step would be too large, or complex."""
        size = sum(math.prod(leaf.shape) for leaf in self.leaves)
        if size > self.matrix:
            reason = f"{name} mixes the entries of x: {size} × {size} numbers per step, more than"
            raise Refusal(name, f"{reason} `matrix` = {self.matrix} allows")
        if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in self.leaves):
            raise Refusal(name, f"{name} mixes the entries of x, which are complex")
        return Value("matrix")


def moving(values: Sequence[Value]) -> list[Value]:
    """The values that depend on x."""
    return [value for value in values if value.kind != "free"]


def describe(
    state: State, jaxpr: jax_core.Jaxpr, constants: Sequence, arguments: Sequence[Value]
) -> list[Value]:
    """Return the descriptions of the results of `jaxpr` from the descriptions of its arguments.

    Raises `Refusal` at the first operation on x that leaves the table.
    """
    known: dict[Any, Value] = dict(zip(jaxpr.invars, arguments, strict=True))
    known |= {v: Value("free", b=c) for v, c in zip(jaxpr.constvars, constants, strict=True)}

    def read(variable) -> Value:
        if isinstance(variable, jax_core.Literal):
            return Value("free", b=jnp.asarray(variable.val, variable.aval.dtype))  # pyright: ignore
        return known[variable]

    for equation in jaxpr.eqns:
        values = [read(v) for v in equation.invars]
        try:
            results = _operation(state, equation, values)
        except Refusal as refusal:
            refusal.inside = str(equation.source_info.name_stack) or refusal.inside
            raise
        known |= zip(equation.outvars, results, strict=True)
    return [read(v) for v in jaxpr.outvars]


_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}


def _operation(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    name, kinds = equation.primitive.name, [value.kind for value in values]
    if not moving(values):
        return [Value("free", b=y) for y in bind(equation, [value.b for value in values])]
    if name in _CALLS:
        return _call(state, equation, values)
    if name == "custom_jvp_call":
        return _custom(state, equation, values)
    if "declared" in kinds:
        text = state.text(moving(values)[0])
        raise Refusal(name, f"{name} of {text}, which must be the step's result")
    family = "max" if name == "max" else next((kind for kind in kinds if kind in FAMILIES), None)
    if family is not None:
        return [extreme(state, equation, values, family, joins=name == "max")]
    return [linear(state, equation, values)]


def _call(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    """A function that is called: one of the caller's monoids, m(x, b), or what is inside."""
    inner: Any = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    marks = [monoid.mark for monoid in state.monoids]
    if equation.params.get("name") not in marks:
        jaxpr, constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
        return describe(state, jaxpr, constants, values)
    which = marks.index(equation.params["name"])
    past, new = values[: len(values) // 2], values[len(values) // 2 :]
    whole = [value.leaf if value.kind == "state" else None for value in past]
    if whole != list(range(len(state.leaves))) or moving(new):
        m = state.monoids[which].name
        reason = f"{m} must be called as {m}(x, element), x whole and first"
        raise Refusal(m, f"{reason}, the element independent of x")
    return [Value("declared", leaf, b=z.b, which=which) for leaf, z in enumerate(new)]


def _custom(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    """Describe a function with a custom derivative; for logaddexp, that is the true derivative.

    Other functions are examined only to name the operation that does not fit.
    """
    inner = equation.params["call_jaxpr"]
    name = inner.jaxpr.debug_info.func_name
    if name == "logaddexp":
        return [extreme(state, equation, values, "logsumexp", joins=True)]
    describe(state, inner.jaxpr, inner.consts, values)
    raise Refusal(name, f"{name} of x has a custom derivative, which a scan would not keep")


def extreme(
    state: State, equation: Any, values: list[Value], kind: str, joins: bool = False
) -> Value:
    """Two of a family as one: max(max(x + a, b), max(x + c, d)) = max(x + max(a, c), max(b, d)).

    `joins`: the operation is the family's own, max or log-sum-exp. The others are adding what is
    free of x, and choosing by a condition that is.
    """
    name = kind if joins else equation.primitive.name
    shape = equation.outvars[0].aval.shape
    first, *others = moving(values)
    strange = [v for v in (first, *others) if v.kind not in ("state", "shift", kind)]
    if strange:
        raise Refusal(name, f"{name} of {state.text(strange[0])}")
    leaf = first.leaf or 0
    if any(other.leaf != leaf for other in others) or state.leaves[leaf].shape != shape:
        texts = " and ".join(state.text(value) for value in (first, *others))
        raise Refusal(name, f"{name} of {texts}, which is not one array entry by entry")
    sides = list(zip(*(_parts(state, value, shape) for value in values), strict=True))
    if joins:
        a, b = (FAMILIES[kind](*side) for side in sides)
    elif name == "select_n" and values[0].kind == "free":
        a, b = (jax.lax.select_n(values[0].b, *side[1:]) for side in sides)
    elif not others and (name == "add" or (name == "sub" and values[0] is first)):
        (other,) = (value.b for value in values if value is not first)
        a, b = (part + (other if name == "add" else -other) for part in _parts(state, first, shape))
    else:
        raise Refusal(name, f"{name} of {state.text(first)}")
    return Value(kind, leaf, a, b)


def _parts(state: State, value: Value, shape: tuple[int, ...]) -> tuple[Shaped[Array, "..."], ...]:
    """Return (a, b) of max(x + a, b); a is -∞ for a free value, and b is -∞ for x + b."""
    if value.kind in FAMILIES:
        return value.a, value.b
    here = jnp.broadcast_to(state.offset(value), shape)
    nothing = jnp.full(shape, -jnp.inf, here.dtype)
    return (nothing, here) if value.kind == "free" else (here, nothing)


_SAME = {"convert_element_type", "copy", "copy_p", "reduce_precision"}
_ENTRYWISE = {"add", "sub", "add_any", "neg", "select_n", "mul", "div"}
_PRODUCTS = {"mul": "times", "dot_general": "times", "conv_general_dilated": "convolved with"}
_INDEXED = {"dynamic_slice", "gather"}  # linear in the first operand, given the place
_SUMS = {"cumsum", "reduce_sum"}
_MOVES = {"broadcast_in_dim", "concatenate", "expand_dims", "pad", "reshape", "rev", "slice"}
_MOVES |= {"squeeze", "transpose"}
_TABLE = _SAME | _ENTRYWISE | _SUMS | _MOVES | _INDEXED | set(_PRODUCTS)


def linear(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> Value:
    """The description of an operation on affine values.

    Raises `Refusal` if it is not linear in x, or mixes more entries than `state.matrix`.
    """
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape  # pyright: ignore
    _check(state, equation, values)
    first, *others = moving(values)
    if name in _SAME:
        return first
    alone = first.leaf is not None and all(value.leaf == first.leaf for value in others)
    if not alone or state.leaves[first.leaf or 0].shape != shape or name not in _ENTRYWISE:
        return state.mixes(name)
    if not _keeps_gain(name, values):
        return Value("affine", first.leaf)
    return Value("shift", first.leaf, b=bind(equation, [state.offset(v) for v in values])[0])


def _check(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> None:
    name = equation.primitive.name
    first, *others = moving(values)
    text = state.text(first)
    if name not in _TABLE:
        power = equation.params.get("y") if name == "integer_pow" else None
        raise Refusal(name, f"{name} of {text}" + (f", power {power}" if power else ""))
    if name in _PRODUCTS and others:
        raise Refusal(name, f"{text} {_PRODUCTS[name]} {state.text(others[0])}")
    if name == "div" and values[1].kind != "free":
        raise Refusal(name, f"division by {state.text(values[1])}")
    if name == "select_n" and values[0].kind != "free":
        raise Refusal(name, f"a choice that depends on {text}")
    if name in _INDEXED and moving(values[1:]):
        raise Refusal(name, f"{name} at a place that depends on x")
    before, after = (v.aval.dtype for v in (equation.invars[0], equation.outvars[0]))  # pyright: ignore
    if name == "reduce_precision" or (name in _SAME and before != after):
        raise Refusal(name, f"{name} of {text} from {before} to {after}")  # rounding is not linear


def _keeps_gain(name: str, values: list[Value]) -> bool:
    """True if x + b keeps its form: a free value is added, or one of several shifts is chosen."""
    shifts = [value.kind in ("state", "shift") for value in values]
    if name == "select_n":
        return all(shifts[1:])
    if name not in ("add", "add_any", "sub") or len(moving(values)) > 1:
        return False
    return shifts[0] or (name != "sub" and shifts[1])
