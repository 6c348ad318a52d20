"""Steps that are affine in x: a ⊙ x + b where every entry keeps to itself, A x + b where they mix.

One rule serves all: an operation that is linear in its operands acts on the gain a as it acts on
the value, once with the derivative of x in place of x. `mul`, `div` and matrix products are
linear in one operand, so the other one must not depend on x.
"""

import jax
import jax.numpy as jnp
from jax.extend import core as jax_core
from jaxtyping import Array, Shaped

from mmrl.pdg.passes.values import Refusal, State, Value, bind

_SAME = {"convert_element_type", "copy", "copy_p", "reduce_precision"}
_ENTRYWISE = {"add", "sub", "add_any", "neg", "select_n", "mul", "div", *_SAME}
_PRODUCTS = {"mul": "times", "dot_general": "times", "conv_general_dilated": "convolved with"}
_INDEXED = {"dynamic_slice", "gather"}  # linear in the first operand, given the place
_MOVES = {
    "broadcast_in_dim",
    "concatenate",
    "cumsum",
    "expand_dims",
    "pad",
    "reduce_sum",
    "reshape",
    "rev",
    "slice",
    "squeeze",
    "transpose",
}


def linear(state: State, equation: jax_core.JaxprEqn, values: list[Value]) -> Value:
    """The description of an operation on affine values.

    Raises `Refusal` if it is not linear in x, or mixes more entries than `state.matrix`.
    """
    name, out = equation.primitive.name, equation.outvars[0].aval
    _check(state, equation, values)
    moving = [value for value in values if value.kind != "free"]
    first, shape = moving[0], out.shape  # pyright: ignore[reportAttributeAccessIssue]
    if name in _SAME:
        return first
    spread = shape if name in _ENTRYWISE else None
    offsets = [_spread(state.offset(value), spread) for value in values]
    b = bind(equation, offsets)[0]
    alone = len({value.leaf for value in moving}) == 1 and first.leaf is not None
    entrywise = spread == shape and alone and state.leaves[first.leaf or 0].shape == shape
    if entrywise and all(state.offset(value).shape == shape for value in moving):
        if _keeps_gain(name, values):
            return Value("shift", None, b, first.leaf, first.stopped)
        gains = [
            _still(name, i, x) if value.kind == "free" else _spread(state.gain(value), shape)
            for i, (value, x) in enumerate(zip(values, offsets, strict=True))
        ]
        return Value("affine", bind(equation, gains)[0], b, first.leaf, first.stopped)
    check_matrix(state, name)
    rows = [
        _still(name, i, x) if value.kind == "free" else _spread(state.rows(value), spread, 1)
        for i, (value, x) in enumerate(zip(values, offsets, strict=True))
    ]
    axes = [None if value.kind == "free" else 0 for value in values]
    a = jax.vmap(lambda *rows: bind(equation, rows)[0], in_axes=axes)(*rows)
    return Value("matrix", a, b, None, first.stopped)


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
    moving = [value for value in values if value.kind != "free"]
    first = state.text(moving[0])
    if name in _PRODUCTS and len(moving) == 2:
        raise Refusal(name, f"{first} {_PRODUCTS[name]} {state.text(moving[1])}")
    if name == "div" and values[1].kind != "free":
        raise Refusal(name, f"division by {state.text(values[1])}")
    if name == "select_n" and values[0].kind != "free":
        raise Refusal(name, f"a choice that depends on {first}")
    if name in _INDEXED and any(value.kind != "free" for value in values[1:]):
        raise Refusal(name, f"{name} at a place that depends on x")
    if name in _SAME:
        _check_type(state, name, moving[0], equation.outvars[0].aval)
    if name not in _ENTRYWISE | _MOVES | _INDEXED | set(_PRODUCTS):
        power = equation.params.get("y") if name == "integer_pow" else None
        raise Refusal(name, f"{name} of {first}" + (f", power {power}" if power else ""))


def _check_type(state: State, name: str, value: Value, out) -> None:
    """Only conversions that change nothing: rounding x to fewer bits is not linear."""
    before = state.offset(value).dtype
    if out.dtype != before or name == "reduce_precision":
        raise Refusal(name, f"{name} of {state.text(value)} from {before} to {out.dtype}")


def _keeps_gain(name: str, values: list[Value]) -> bool:
    """Whether x + b stays so: adding or subtracting what is free, choosing among shifts."""
    if name == "select_n":
        return all(value.kind in ("state", "shift") for value in values[1:])
    kinds = [value.kind for value in values]
    shifts = sum(kind in ("state", "shift") for kind in kinds)
    if name in ("add", "add_any"):
        return shifts == 1 and "free" in kinds
    return name == "sub" and kinds[0] in ("state", "shift") and kinds[1] == "free"


def _still(name: str, position: int, x: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """What a free operand is where gains are put through the operation: a factor, or nothing."""
    factor = name in _PRODUCTS or name == "div" or name in _INDEXED
    choice = name == "select_n" and position == 0
    return x if factor or choice else jnp.zeros_like(x)


def _spread(
    x: Shaped[Array, "..."], shape: tuple[int, ...] | None, rows: int = 0
) -> Shaped[Array, "..."]:
    """A scalar operand beside an array takes its shape; `rows` leading axes stay."""
    if shape is None or x.ndim > rows:
        return x
    x = x.reshape(*x.shape[:rows], *[1] * len(shape))
    return jnp.broadcast_to(x, (*x.shape[:rows], *shape))
