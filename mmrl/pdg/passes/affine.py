"""What a step x' = f(x, inputs) does to x, read off its jaxpr: the lift pass starts here.

An abstract interpreter: it runs f on descriptions (`values.py`) instead of numbers. Anything that
leaves their table, tanh of x or x times x, is refused by name.

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
from mmrl.pdg.passes.linear import linear
from mmrl.pdg.passes.values import Refusal, State, Value, bind, moving

_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}


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
