"""Exercises for chapter 15: recurrent tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mmrl.course.exercises.answers import Exercise, Failure, Mistake
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor
from mmrl.pdg.run.naive import execute

# For each dimension: the counters in its index, and whether the index is a slice.
Read = dict[str, tuple[str, bool]]


def _where(read: Read) -> tuple[str, int]:
    return _order(set(_mentions(read))), sum(is_slice for _, is_slice in read.values())


def _mentions(read: Read) -> list[str]:
    return [name for counters, _ in read.values() for name in counters.split()]


def _order(names: set[str]) -> str:
    """Sort names in the order i, k, t."""
    return " ".join(name for name in ("i", "k", "t") if name in names)


def _own(read: Read, keep: Callable[[str, bool], bool]) -> str:
    """Return the dimensions whose index satisfies `keep`."""
    return _order({name for name, index in read.items() if keep(*index)})


def _reads(rng: np.random.Generator) -> list[tuple[Any, ...]]:
    return [
        ({"i": ("i", False), "t": ("t", False)},),  # x
        ({"i": ("i", False), "t": ("", False)},),  # x[i, T - 1]
        ({"i": ("i", False), "t": ("", True)},),  # x[i, 0:T]
        ({"i": ("i", False), "t": ("t", True)},),  # x[i, t:T]
        ({"i": ("", False), "t": ("", True)},),  # x[0, 2:5]
        ({"i": ("i", False), "t": ("i", False)},),  # x[i, i]
        ({"i": ("t", False), "t": ("i", False)},),  # x[t, i]
        ({"i": ("i", True), "t": ("i t", True)},),  # x[0:i + 1, t:min(t + i, T)]
        ({"i": ("i", False), "k": ("", False), "t": ("k", True)},),  # x[i, 0, k:T]
        ({"i": ("", False), "t": ("", False)},),  # x[0, 0]
    ]


where = Exercise(
    "15.1",
    solution=_where,
    cases=_reads,
    mistakes=(
        Mistake(
            lambda read: (_own(read, lambda counters, is_slice: not is_slice), _where(read)[1]),
            "You let every slice remove its dimension. x[t:T] is a different slice at each t, so "
            "it still has a value for each t.",
        ),
        Mistake(
            lambda read: (_own(read, lambda counters, is_slice: bool(counters)), _where(read)[1]),
            "You keep a dimension if its index contains any counter. It matters which one: x[i, i] "
            "has a value for each i, and does not depend on t.",
        ),
        Mistake(
            lambda read: (_own(read, lambda counters, is_slice: True), _where(read)[1]),
            "You keep every dimension. x[i, T - 1] has one value for each i, because its index "
            "does not depend on t.",
        ),
        Mistake(
            lambda read: (
                _where({n: index for n, index in read.items() if not index[1]})[0],
                _where(read)[1],
            ),
            "You leave out the counters in slices. x[t:T] depends on t just like x[t], so include "
            "them, too.",
        ),
        Mistake(
            lambda read: (" ".join(sorted(_mentions(read))), _where(read)[1]),
            "You list a counter once per occurrence. A domain contains each counter only once: the "
            "domain of x[i, i] is i.",
        ),
        Mistake(
            lambda read: (" ".join(_mentions(read)), _where(read)[1]),
            "You list the counters as they occur. A domain contains each counter once, in the "
            "order i, k, t: the domain of x[i, i] is i, and that of x[t, i] is i and t.",
        ),
        Mistake(
            lambda read: (
                _where(read)[0],
                sum(is_slice and not counters for counters, is_slice in read.values()),
            ),
            "The domain is right, but every slice adds an axis, even a slice like t:T, whose "
            "length depends on t.",
        ),
        Mistake(
            lambda read: (_where(read)[0], int(any(is_slice for _, is_slice in read.values()))),
            "The domain is right, but each slice adds an axis: count the slices.",
        ),
    ),
)


def _through_time(d: float, c: np.ndarray) -> np.ndarray:
    adjoint, gradient = 0.0, np.zeros(len(c))
    for t in reversed(range(len(c))):
        gradient[t] = adjoint  # only h[t + 1] depends on x[t]
        adjoint = c[t] + d * adjoint
    return gradient


def _forward(d: float, c: np.ndarray) -> np.ndarray:
    h, states = 0.0, np.zeros(len(c))
    for t in range(len(c)):
        states[t] = h
        h = d * h + c[t]
    return states


def _adjoint(d: float, c: np.ndarray) -> np.ndarray:
    return np.array([np.sum(c[t:] * d ** np.arange(len(c) - t)) for t in range(len(c))])


through_time = Exercise(
    "15.2",
    solution=_through_time,
    cases=lambda rng: [
        (d, rng.normal(size=steps)) for d, steps in ((0.9, 1), (0.9, 2), (0.5, 7), (-0.8, 12))
    ],
    mistakes=(
        Mistake(
            _adjoint,
            "That is the gradient of h[t]. Only h[t + 1] reads x[t], one step later, so nothing "
            "reads the last input, x[T - 1], and its gradient is 0.",
        ),
        Mistake(
            lambda d, c: d * _through_time(d, c),
            "You have one factor d too many. In h[t + 1] = d h[t] + x[t], only h[t] is multiplied "
            "by d.",
        ),
        Mistake(
            _forward,
            "You run forward in time. The gradient of h[t] depends on that of h[t + 1], so run "
            "backward.",
        ),
        Mistake(
            lambda d, c: np.append(_forward(d, c)[1:], d * _forward(d, c)[-1] + c[-1]),
            "You sum over the past, as h does. x[t] can only change later states, so its gradient "
            "sums the later c: run backward.",
        ),
        Mistake(
            lambda d, c: np.append(c[1:], 0.0),
            "That is only the contribution of the loss at t + 1. x[t] also affects h[t + 2] "
            "through h[t + 1], and so on, so later losses contribute as well.",
        ),
        Mistake(
            lambda d, c: np.append(np.cumsum(c[:0:-1])[::-1], 0.0),
            "You give all later losses the same weight. Each step back multiplies by d, so later "
            "losses have smaller weights.",
        ),
    ),
)


REMEDY = "return a tensor over t, which has an equation for every t; the check computes its values"


def executor(write: Any) -> Any:
    """Return a function (rewards, values, γ, λ) -> A[0:T] that executes a program.

    `write(p, r, v, next_v, gamma, lam)` receives tensors over t and returns a tensor over t. The
    array of values has T + 1 entries, because the last one is the value after the end.
    """

    def run(reward: np.ndarray, value: np.ndarray, gamma: float, lam: float) -> Any:
        p = Program("t")
        t, steps = p.symbols[0], len(reward)
        data_op = p.constant({"r": reward.astype(np.float32), "v": value.astype(np.float32)})
        at = p.value(t)
        r, v, after = (
            p.fn(
                lambda data, t, name=name, ahead=ahead: data[name][t + ahead], data_op, at, name=as_
            )
            for name, ahead, as_ in (("r", 0, "reward"), ("v", 0, "value"), ("v", 1, "next_value"))
        )
        answer = write(p, r, v, after, gamma, lam)
        if answer is None or answer is ...:
            return answer
        if not isinstance(answer, Tensor):
            return Failure(f"it returns a value of type {type(answer).__name__}: {REMEDY}")
        if answer.domain.names != ("t",):
            return Failure(f"{answer!r} does not change with t: {REMEDY}")
        (values,) = execute(p.graph(answer), {"T": steps}, seed=steps).values()
        if missing := [k for k in range(steps) if (k,) not in values]:
            return Failure(f"it has no value at t = {missing[0]} of {steps} steps: {REMEDY}")
        return np.array([values[k,] for k in range(steps)])

    return run


def _gae(reward: np.ndarray, value: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    ahead, advantages = 0.0, np.zeros(len(reward))
    for t in reversed(range(len(reward))):
        ahead = reward[t] + gamma * value[t + 1] - value[t] + gamma * lam * ahead
        advantages[t] = ahead
    return advantages


def _deltas(reward: np.ndarray, value: np.ndarray, gamma: float) -> np.ndarray:
    return reward + gamma * value[1:] - value[:-1]


advantages = Exercise(
    "15.3",
    solution=_gae,
    cases=lambda rng: [
        (rng.normal(size=steps), rng.normal(size=steps + 1), gamma, lam)
        for steps, gamma, lam in ((4, 0.9, 0.8), (6, 0.99, 0.5), (9, 0.5, 1.0))
    ],
    mistakes=(
        Mistake(
            lambda reward, value, gamma, lam: _deltas(reward, value, gamma),
            "That is only δ[t], as if λ were 0. Later errors contribute, too, with a factor γλ for "
            "each step.",
        ),
        Mistake(
            lambda reward, value, gamma, lam: _gae(
                _deltas(reward, value, gamma), 0 * value, lam, 1.0
            ),
            "You discount only by λ. δ[t + 1] is one step later, so it is discounted by γ as well: "
            "the factor is γλ.",
        ),
        Mistake(
            lambda reward, value, gamma, lam: _gae(reward, value, gamma, 1.0),
            "You discount only by γ, as if λ were 1. The factor for each step is γλ.",
        ),
        Mistake(
            lambda reward, value, gamma, lam: _gae(reward, 0 * value, gamma, lam),
            "That is a return, because the values are missing. An advantage is a sum of δ[t] = "
            "r[t] + γ v[t + 1] - v[t].",
        ),
        Mistake(
            lambda reward, value, gamma, lam: _past(_deltas(reward, value, gamma), gamma * lam),
            "You sum the errors before t. An action can only affect later steps, so A[t] depends "
            "on A[t + 1].",
        ),
        Mistake(
            lambda reward, value, gamma, lam: np.append(_gae(reward, value, gamma, lam)[:-1], 0.0),
            "The last advantage is wrong. No advantage follows it, so A[T - 1] is δ[T - 1], not 0.",
        ),
    ),
    tolerance=1e-3,
)


def _past(deltas: np.ndarray, decay: float) -> np.ndarray:
    return np.array(
        [np.sum(deltas[: t + 1] * decay ** np.arange(t, -1, -1)) for t in range(len(deltas))]
    )
