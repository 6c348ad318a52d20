"""Steps in max-plus algebra and its relatives: max(x + a, b), min(x + a, b), log-sum-exp.

Adding plays the part that multiplying plays in an affine map, and max that of adding, so these
compose by the same law (`mmrl.monoid.Max` and `LogSumExp`): running maxima, Viterbi's recurrence,
the waiting time in a queue, forward probabilities of a hidden Markov model in the log domain.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from mmrl.pdg.passes.values import Refusal, State, Value

FAMILIES: dict[str, tuple[Callable, float]] = {  # how two combine, and what leaves the other alone
    "max": (jnp.maximum, -jnp.inf),
    "min": (jnp.minimum, jnp.inf),
    "logsumexp": (jnp.logaddexp, -jnp.inf),
}


def extreme(state: State, equation: Any, kind: str, values: list[Value]) -> Value:
    """max(max(x + a, b), max(x + c, d)) = max(x + max(a, c), max(b, d)); log-sum-exp likewise."""
    combine, _ = FAMILIES[kind]
    shape = equation.outvars[0].aval.shape
    moving = [value for value in values if value.kind != "free"]
    bad = [value for value in moving if value.kind not in ("state", "shift", kind)]
    if bad:
        raise Refusal(kind, f"{kind} of {state.text(bad[0])}")
    leaf = _one_leaf(state, kind, moving, shape)
    parts = [_parts(state, value, shape) for value in values]
    a, b = (_join(combine, [part[i] for part in parts]) for i in (0, 1))
    return Value(kind, a, b, leaf, moving[0].stopped)


def shifted(state: State, equation: Any, values: list[Value]) -> Value:
    """Operations on max(x + a, b), or another of its family, that stay in the family."""
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape
    moving = [value for value in values if value.kind != "free"]
    kind = next(value.kind for value in moving if value.kind in FAMILIES)
    leaf = _one_leaf(state, name, moving, shape)
    first = state.text(moving[0])
    if name in ("add", "sub") and len(moving) == 1 and (name == "add" or values[0] is moving[0]):
        value = moving[0]
        other = next(v.b for v in values if v is not value)
        other = jnp.broadcast_to(other if name == "add" else -other, shape)
        a, b = (part if part is None else part + other for part in (value.a, value.b))
        return Value(kind, a, b, leaf, value.stopped)
    fits = all(value.kind in ("free", "state", "shift", kind) for value in values)
    if name == "select_n" and values[0].kind == "free" and fits:
        empty = jnp.asarray(FAMILIES[kind][1], equation.outvars[0].aval.dtype)
        cases = [_parts(state, value, shape) for value in values[1:]]
        cases = [[_full(part, empty, shape) for part in case] for case in cases]
        which = values[0].b
        a, b = (jax.lax.select_n(which, *[case[i] for case in cases]) for i in (0, 1))
        return Value(kind, a, b, leaf, moving[0].stopped)
    raise Refusal(name, f"{name} of {first}" if len(moving) == 1 else f"{name} mixes {first}")


def _parts(state: State, value: Value, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """(a, b) of max(x + a, b), where None stands for -∞: a free value has no a, x + b no b."""
    if value.kind == "free":
        return None, jnp.broadcast_to(value.b, shape)
    return (value.a, value.b) if value.kind in FAMILIES else (state.offset(value), None)


def _full(part: Any, empty: Shaped[Array, ""], shape: tuple[int, ...]) -> Shaped[Array, "..."]:
    return jnp.broadcast_to(empty, shape) if part is None else part


def _join(combine: Callable, parts: list) -> Any:
    first, second = parts
    if first is None or second is None:
        return second if first is None else first
    return combine(first, second)


def _one_leaf(state: State, name: str, moving: list[Value], shape: tuple[int, ...]) -> int:
    leaves = {value.leaf for value in moving}
    if len(leaves) > 1 or None in leaves:
        raise Refusal(name, f"{name} of {' and '.join(state.text(v) for v in moving)}")
    leaf = moving[0].leaf or 0
    if state.leaves[leaf].shape != shape:
        raise Refusal(name, f"{name} of {state.text(moving[0])} in another shape than x")
    return leaf
