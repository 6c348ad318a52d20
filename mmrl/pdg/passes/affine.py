"""Affine steps: what x' = f(x, inputs) does to x, read off its jaxpr, is where lifting starts.

An abstract interpreter: it runs f on descriptions (`values.py`) instead of numbers. Anything that
leaves their table, tanh of x or x times x, is refused by name. That a value is affine in x, entry
by entry or not, is all that is noted of it; a and b follow from the step as a whole.

The published system matches patterns of operations: sums, prefix sums and sliding sums
(Silvestre & Pietzuch 2025, arXiv:2501.05408, Section 5.2). To look at what a function computes,
whoever wrote it and however, is our addition.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend import core as jax_core

from mmrl.pdg.passes.declared import Declared, declaration
from mmrl.pdg.passes.extremes import FAMILIES, extreme
from mmrl.pdg.passes.values import Refusal, State, Value, bind, moving

_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}
_SAME = {"convert_element_type", "copy", "copy_p", "reduce_precision"}
_ENTRYWISE = {"add", "sub", "add_any", "neg", "select_n", "mul", "div"}
_PRODUCTS = {"mul": "times", "dot_general": "times", "conv_general_dilated": "convolved with"}
_INDEXED = {"dynamic_slice", "gather"}  # linear in the first operand, given the place
_SUMS = {"cumsum", "reduce_sum"}
_MOVES = {"broadcast_in_dim", "concatenate", "expand_dims", "pad", "reshape", "rev", "slice"}
_MOVES |= {"squeeze", "transpose"}
_TABLE = _SAME | _ENTRYWISE | _SUMS | _MOVES | _INDEXED | set(_PRODUCTS)


def describe(
    state: State, jaxpr: jax_core.Jaxpr, constants: Sequence, arguments: Sequence[Value]
) -> list[Value]:
    """The descriptions of the results of `jaxpr`, given those of its arguments.

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
        if all(value.kind == "free" for value in values):
            results = [Value("free", b=y) for y in bind(equation, [v.b for v in values])]
        else:
            results = _located(state, equation, values)
        known |= zip(equation.outvars, results, strict=True)
    return [read(v) for v in jaxpr.outvars]


def _located(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    try:
        return _operation(state, equation, values)
    except Refusal as refusal:
        refusal.inside = str(equation.source_info.name_stack) or refusal.inside
        raise


def _operation(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    """One operation of which at least one operand depends on x."""
    name = equation.primitive.name
    if name in _CALLS:
        return _call(state, equation, values)
    if name == "custom_jvp_call":
        return _custom(state, equation, values)
    first, kinds = moving(values)[0], [value.kind for value in values]
    if "declared" in kinds:
        raise Refusal(name, f"{name} of {state.text(first)}, which must be the step's result")
    family = "max" if name == "max" else next((kind for kind in kinds if kind in FAMILIES), None)
    if family is not None:
        return [extreme(state, equation, values, family, joins=name == "max")]
    return [linear(state, equation, values)]


def _call(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    inner: Any = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    monoid = declaration(state.monoids, equation.params.get("name"))
    if monoid is not None:
        return _declared(state, monoid, values)
    jaxpr, constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
    return describe(state, jaxpr, constants, values)


def _declared(state: State, monoid: Declared, values: list[Value]) -> list[Value]:
    """m(x, b): the whole of x first, then an element that does not depend on x."""
    past, new = values[: len(values) // 2], values[len(values) // 2 :]
    whole = [value.leaf if value.kind == "state" else None for value in past]
    if whole != list(range(len(state.leaves))) or any(value.kind != "free" for value in new):
        reason = f"{monoid.name} must be called as {monoid.name}(x, element), x whole and first"
        raise Refusal(monoid.name, f"{reason}, the element independent of x")
    index = state.monoids.index(monoid)
    return [Value("declared", leaf, b=z.b, which=index) for leaf, z in enumerate(new)]


def _custom(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> list[Value]:
    """A function with a derivative of its own; logaddexp is one whose derivative is the true one.

    Otherwise what is inside is looked at only to name what does not fit.
    """
    inner = equation.params["call_jaxpr"]
    name = inner.jaxpr.debug_info.func_name
    if name == "logaddexp":
        return [extreme(state, equation, values, "logsumexp", joins=True)]
    describe(state, inner.jaxpr, inner.consts, values)
    raise Refusal(name, f"{name} of x has a derivative of its own, which a scan would not keep")


def linear(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> Value:
    """The description of an operation on affine values.

    Raises `Refusal` if it is not linear in x, or mixes more entries than `state.matrix`.
    """
    name, out = equation.primitive.name, equation.outvars[0].aval
    _check(state, equation, values)
    first, *others = moving(values)
    if name in _SAME:
        return first
    alone = first.leaf is not None and all(value.leaf == first.leaf for value in others)
    same_shape = alone and state.leaves[first.leaf or 0].shape == out.shape  # pyright: ignore
    if not same_shape or name not in _ENTRYWISE:
        check_matrix(state, name)
        return Value("matrix")
    if not _keeps_gain(name, values):
        return Value("affine", first.leaf)
    return Value("shift", first.leaf, b=bind(equation, [state.offset(v) for v in values])[0])


def check_matrix(state: State, name: str) -> None:
    """Refuse where a matrix per step would be too large, or complex."""
    if state.size > state.matrix:
        size = f"{state.size} × {state.size}"
        reason = f"{name} mixes the entries of x: {size} numbers per step, more than `matrix`"
        raise Refusal(name, f"{reason} = {state.matrix} allows")
    if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in state.leaves):
        raise Refusal(name, f"{name} mixes the entries of x, which are complex")


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
    """Whether x + b stays so: adding or subtracting what is free, choosing among shifts."""
    shifts = [value.kind in ("state", "shift") for value in values]
    if name == "select_n":
        return all(shifts[1:])
    kept = shifts[0] and values[1].kind == "free" if name in ("add", "add_any", "sub") else False
    return kept or (name in ("add", "add_any") and shifts[1] and values[0].kind == "free")
