"""Steps that are affine in x: a ⊙ x + b where every entry keeps to itself, A x + b where they mix.

Sums, moves, and products with what is free of x keep a value affine. Only that is checked here; a
and b need no bookkeeping, for they are the derivative of the whole step and its value at x = 0.
"""

from jax import numpy as jnp
from jax.extend import core as jax_core

from mmrl.pdg.passes.values import Refusal, State, Value, bind, moving

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
