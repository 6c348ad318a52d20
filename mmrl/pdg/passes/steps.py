"""Analysis of how each value in the jaxpr of a step x' = f(x, inputs) depends on x.

The table lists the supported forms of this dependence:

    free          b                         independent of x
    state         x                         x itself
    shift         x + b
    affine        a ⊙ x + b                 entry by entry
    matrix        A x + b                   the entries of x mix
    max           max(x + a, b)
    logsumexp     log(exp(x + a) + exp(b))
    declared      m(x, b)                   a custom monoid

a and b are arrays that do not depend on x. Each form is closed under composition: two consecutive
steps of a form are again a step of this form, so a scan can compute them. In max-plus algebra,
addition replaces multiplication and max replaces addition, so `max` and `logsumexp` steps compose
like affine ones (`mmrl.monoid.Max` and `LogSumExp`). They cover running maxima, the Viterbi
recurrence, waiting times in a queue, and the forward probabilities of a hidden Markov model in the
log domain.

`declare` adds custom monoids, which are tested before a scan can use them.

`describe` is an abstract interpreter: it evaluates f on these forms instead of numbers. It raises
an error that names the first operation whose result has none of these forms, such as tanh of x or x
times x. For an affine value, it only records whether the entries of x mix; a and b are computed
later from the complete step.

The published system matches patterns of operations: sums, prefix sums and sliding sums
(Silvestre & Pietzuch 2025, arXiv:2501.05408, Section 5.2). Our addition is to analyze what a
function computes, regardless of how it is written.
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

_TOLERANCE = 1e-4  # relative, because the two bracketings are rounded differently


class DeclaredMonoid(Monoid):
    """Custom monoid with a name, an associative function and its identity. See `declare`.

    When a step that calls the monoid is traced, its name is recorded in the jaxpr, where `describe`
    finds it.
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
    "left identity": "have the given identity, e • a = a",
    "right identity": "have the given identity, a • e = a",
}


def declare(
    combine: Callable[[PyTree, PyTree], PyTree],
    identity: PyTree,
    *,
    name: str = "combine",
    sample: Callable[[Key[Array, ""]], PyTree] | None = None,
    triples: int = 64,
) -> DeclaredMonoid:
    """Return a monoid from `combine(earlier, later)` and its identity, after testing its laws.

    The laws are tested on random triples, which is evidence but not a proof. `sample(key)` returns
    a random element. By default, its entries are normal numbers, small integers or bools, depending
    on the dtype of the identity's entries. Pass `sample` if elements are restricted, for example to
    counts ≥ 0. `combine` may also be a monoid of this library.

    Raises `ValueError` with a triple for which (a • b) • c differs from a • (b • c), or with an
    element that the identity changes.
    """
    empty = jax.tree.map(jnp.asarray, identity)
    draw = sample or (lambda key: _random(key, empty))
    keys = jax.random.split(jax.random.key(0), (3, triples))
    a, b, c = (jax.vmap(draw)(k) for k in keys)
    monoid = DeclaredMonoid(combine, empty, name)
    products = jax.eval_shape(jax.vmap(monoid), a, b)
    if jax.tree.structure(products) != jax.tree.structure(a):
        raise ValueError(
            "`combine` must return an element with the structure of its arguments, "
            f"{jax.tree.structure(a)}; got {jax.tree.structure(products)}."
        )
    for law, error in errors(monoid, a, b, c).items():
        if float(jnp.max(error)) > _TOLERANCE:
            case = int(jnp.argmax(error))
            triple = jax.tree.map(lambda x, case=case: x[case].tolist(), (a, b, c))
            at = ", ".join(f"{name} = {value}" for name, value in zip("abc", triple, strict=True))
            raise ValueError(
                f"`combine` must {_LAWS[law]}, but this fails at {at}. A scan could return results "
                "that differ from the loop's: store more in each element, or keep the loop."
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
    """Error that explains why a step cannot become a scan.

    `primitive` is the first unsupported operation, and `inside` is the `jax.named_scope` that
    contains it.

        >>> print(Refusal("mul", "x times x"))
        Not a scan: x times x.
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
    """Dependence of one intermediate value on x, as a row of the table above.

    Affine and matrix rows do not store a and b, which are computed from the complete step: b is the
    step at x = 0, and a is its derivative.
    """

    kind: str = eqx.field(static=True)
    leaf: int | None = eqx.field(static=True, default=None)  # index of the array of x
    a: Any = None
    b: Any = None
    which: int = eqx.field(static=True, default=0)  # index of the caller's monoid


class State(eqx.Module):
    """Arrays of the state x, the maximum number of entries that may mix, and custom monoids."""

    leaves: tuple[jax.ShapeDtypeStruct, ...] = eqx.field(static=True)
    matrix: int = eqx.field(static=True)
    monoids: tuple[DeclaredMonoid, ...] = ()

    def text(self, value: Value) -> str:
        several = len(self.leaves) > 1 and value.leaf is not None
        return _TEXT[value.kind].format(x=f"x[{value.leaf}]" if several else "x")

    def offset(self, value: Value) -> Shaped[Array, "..."]:
        """Return the offset b of a value, which is zero for the state x itself."""
        if value.kind != "state":
            return value.b
        leaf = self.leaves[value.leaf or 0]
        return jnp.zeros(leaf.shape, leaf.dtype)

    def mixes(self, name: str) -> Value:
        """Return the form A x + b. Raises `Refusal` if A would be too large or complex."""
        size = sum(math.prod(leaf.shape) for leaf in self.leaves)
        if size > self.matrix:
            reason = f"{name} mixes the entries of x: {size} × {size} numbers per step, more than"
            raise Refusal(name, f"{reason} `matrix` = {self.matrix} allows")
        if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in self.leaves):
            raise Refusal(name, f"{name} mixes the entries of x, which are complex")
        return Value("matrix")


def dependent(values: Sequence[Value]) -> list[Value]:
    """Return the values that depend on x."""
    return [value for value in values if value.kind != "free"]


def describe(
    state: State, jaxpr: jax_core.Jaxpr, constants: Sequence, arguments: Sequence[Value]
) -> list[Value]:
    """Return descriptions of the results of `jaxpr`, given descriptions of its arguments.

    Raises `Refusal` at the first operation on x whose result is not in the table.
    """
    descriptions: dict[Any, Value] = dict(zip(jaxpr.invars, arguments, strict=True))
    descriptions |= {v: Value("free", b=c) for v, c in zip(jaxpr.constvars, constants, strict=True)}

    def read(variable) -> Value:
        if isinstance(variable, jax_core.Literal):
            return Value("free", b=jnp.asarray(variable.val, variable.aval.dtype))  # pyright: ignore
        return descriptions[variable]

    for equation in jaxpr.eqns:
        values = [read(v) for v in equation.invars]
        try:
            results = _operation(state, equation, values)
        except Refusal as refusal:
            refusal.inside = str(equation.source_info.name_stack) or refusal.inside
            raise
        descriptions |= zip(equation.outvars, results, strict=True)
    return [read(v) for v in jaxpr.outvars]


_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}


def _operation(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    name, kinds = equation.primitive.name, [value.kind for value in values]
    if not dependent(values):
        return [Value("free", b=y) for y in bind(equation, [value.b for value in values])]
    if name in _CALLS:
        return _call(state, equation, values)
    if name == "custom_jvp_call":
        return _custom(state, equation, values)
    if "declared" in kinds:
        text = state.text(dependent(values)[0])
        raise Refusal(name, f"{name} of {text}, but a declared monoid must be the last operation")
    family = "max" if name == "max" else next((kind for kind in kinds if kind in FAMILIES), None)
    if family is not None:
        return [extreme(state, equation, values, family, joins=name == "max")]
    return [linear(state, equation, values)]


def _call(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    """Describe a function call, either as a custom monoid m(x, b) or through its body."""
    inner: Any = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    marks = [monoid.mark for monoid in state.monoids]
    if equation.params.get("name") not in marks:
        jaxpr, constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
        return describe(state, jaxpr, constants, values)
    which = marks.index(equation.params["name"])
    past, new = values[: len(values) // 2], values[len(values) // 2 :]
    whole = [value.leaf if value.kind == "state" else None for value in past]
    if whole != list(range(len(state.leaves))) or dependent(new):
        m = state.monoids[which].name
        reason = f"{m} must be called as {m}(x, element) with the complete state x"
        raise Refusal(m, f"{reason}, and with an element that does not depend on x")
    return [Value("declared", leaf, b=z.b, which=which) for leaf, z in enumerate(new)]


def _custom(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    """Describe a function with a custom derivative; only logaddexp is supported.

    The custom derivative of logaddexp equals the true one. Any other function is refused, and its
    body is analyzed only to find the operation that the error names.
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
    """Describe the result of an operation on values of the form `kind`, max or logsumexp.

    max(max(x + a, b), max(x + c, d)) = max(x + max(a, c), max(b, d)). `joins` is True if the
    operation is the maximum or logaddexp itself. Other supported operations are adding a value that
    does not depend on x, and selecting by a condition that does not depend on x.
    """
    name = kind if joins else equation.primitive.name
    shape = equation.outvars[0].aval.shape
    first, *others = dependent(values)
    unsupported = [v for v in (first, *others) if v.kind not in ("state", "shift", kind)]
    if unsupported:
        raise Refusal(name, f"{name} of {state.text(unsupported[0])}")
    leaf = first.leaf or 0
    if any(other.leaf != leaf for other in others) or state.leaves[leaf].shape != shape:
        texts = " and ".join(state.text(value) for value in (first, *others))
        raise Refusal(name, f"{name} of {texts}, which does not act entrywise on one array")
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
    """Return (a, b) of max(x + a, b): a is -∞ for a free value, and b is -∞ for x + b."""
    if value.kind in FAMILIES:
        return value.a, value.b
    here = jnp.broadcast_to(state.offset(value), shape)
    nothing = jnp.full(shape, -jnp.inf, here.dtype)
    return (nothing, here) if value.kind == "free" else (here, nothing)


_SAME = {"convert_element_type", "copy", "copy_p", "reduce_precision"}
_ENTRYWISE = {"add", "sub", "add_any", "neg", "select_n", "mul", "div"}
_PRODUCTS = {"mul": "times", "dot_general": "times", "conv_general_dilated": "convolved with"}
_INDEX_OPS = {"dynamic_slice", "gather"}  # linear in the first operand if the index is fixed
_SUMS = {"cumsum", "reduce_sum"}
_MOVES = {"broadcast_in_dim", "concatenate", "expand_dims", "pad", "reshape", "rev", "slice"}
_MOVES |= {"squeeze", "transpose"}
_TABLE = _SAME | _ENTRYWISE | _SUMS | _MOVES | _INDEX_OPS | set(_PRODUCTS)


def linear(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> Value:
    """Describe an operation on affine values.

    Raises `Refusal` if it is not affine in x, or if it mixes entries of x that must not mix (see
    `State.mixes`).
    """
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape  # pyright: ignore
    _check(state, equation, values)
    first, *others = dependent(values)
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
    first, *others = dependent(values)
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
    if name in _INDEX_OPS and dependent(values[1:]):
        raise Refusal(name, f"{name} at an index that depends on x")
    before, after = (v.aval.dtype for v in (equation.invars[0], equation.outvars[0]))  # pyright: ignore
    # Rounding is not a linear function.
    if name == "reduce_precision" or (name in _SAME and before != after):
        raise Refusal(name, f"{name} of {text} from {before} to {after}")


def _keeps_gain(name: str, values: list[Value]) -> bool:
    """Return True if the result has the form x + b.

    This holds for adding a free value to x + b, subtracting a free value from it, and selecting
    between values of the form x + b.
    """
    shifts = [value.kind in ("state", "shift") for value in values]
    if name == "select_n":
        return all(shifts[1:])
    if name not in ("add", "add_any", "sub") or len(dependent(values)) > 1:
        return False
    return shifts[0] or (name != "sub" and shifts[1])
