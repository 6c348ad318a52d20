"""Steps in max-plus algebra and its relative: max(x + a, b), and log-sum-exp in place of max.

Adding plays the part that multiplying plays in an affine map, and max that of adding, so these
compose by the same law (`mmrl.monoid.Max` and `LogSumExp`): running maxima, Viterbi's recurrence,
the waiting time in a queue, forward probabilities of a hidden Markov model in the log domain.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from mmrl.pdg.passes.values import Refusal, State, Value, moving

FAMILIES: dict[str, Callable] = {"max": jnp.maximum, "logsumexp": jnp.logaddexp}


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
    """(a, b) of max(x + a, b), of which a value that is free has no a, and x + b no b: -∞."""
    if value.kind in FAMILIES:
        return value.a, value.b
    here = jnp.broadcast_to(state.offset(value), shape)
    nothing = jnp.full(shape, -jnp.inf, here.dtype)
    return (nothing, here) if value.kind == "free" else (here, nothing)
