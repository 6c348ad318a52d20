"""Exercises of chapter 15: recurrent tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mmrl.course.exercises.answers import Exercise, Failure, Mistake
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor
from mmrl.pdg.run.naive import execute

# Per dimension: the counters in its index, and whether it is a slice.
Read = dict[str, tuple[str, bool]]


def _where(read: Read) -> tuple[str, int]:
    return _ordered(set(_mentions(read))), sum(is_slice for _, is_slice in read.values())


def _mentions(read: Read) -> list[str]:
    return [name for counters, _ in read.values() for name in counters.split()]


def _ordered(names: set[str]) -> str:
    """Sort names in the order of the program, i before t."""
    return " ".join(name for name in ("i", "k", "t") if name in names)


def _own(read: Read, keep: Callable[[str, bool], bool]) -> str:
    """Return the dimensions that the index may `keep` unchanged."""
    return _ordered({name for name, index in read.items() if keep(*index)})


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
    wanted=_where,
    cases=_reads,
    mistakes=(
        Mistake(
            lambda read: (_own(read, lambda counters, is_slice: not is_slice), _where(read)[1]),
            "You let every slice remove its dimension. But x[t:T] is another slice at every t, so "
            "it still has a value for each t.",
        ),
        Mistake(
            lambda read: (_own(read, lambda counters, is_slice: bool(counters)), _where(read)[1]),
            "You keep a dimension if its index mentions any counter. But it matters which one: "
            "x[i, i] has a value for each i, and does not change with t.",
        ),
        Mistake(
            lambda read: (_own(read, lambda counters, is_slice: True), _where(read)[1]),
            "In yours every dimension stays. But x[i, T - 1] has one value for each i, because its "
            "index does not change with t.",
        ),
        Mistake(
            lambda read: (
                _where({n: index for n, index in read.items() if not index[1]})[0],
                _where(read)[1],
            ),
            "You leave out the counters in slices. But x[t:T] changes with t just like x[t], so "
            "they count, too.",
        ),
        Mistake(
            lambda read: (" ".join(sorted(_mentions(read))), _where(read)[1]),
            "You list a counter once per mention. But a domain has each counter once: x[i, i] "
            "lives only on i.",
        ),
        Mistake(
            lambda read: (" ".join(_mentions(read)), _where(read)[1]),
            "You list the counters as they are mentioned. But a domain has each once, in the order "
            "i, k, t: x[i, i] lives on i, and x[t, i] on i and t.",
        ),
        Mistake(
            lambda read: (
                _where(read)[0],
                sum(is_slice and not counters for counters, is_slice in read.values()),
            ),
            "The domain is right. But every slice adds an axis, even one like t:T, whose length "
            "depends on t.",
        ),
        Mistake(
            lambda read: (_where(read)[0], int(any(is_slice for _, is_slice in read.values()))),
            "The domain is right. But each slice adds an axis, so two slices add two: count them.",
        ),
    ),
)


def _through_time(d: float, c: np.ndarray) -> np.ndarray:
    adjoint, found = 0.0, np.zeros(len(c))
    for t in reversed(range(len(c))):
        found[t] = adjoint  # only h[t + 1] reads x[t]
        adjoint = c[t] + d * adjoint
    return found


def _forward(d: float, c: np.ndarray) -> np.ndarray:
    h, found = 0.0, np.zeros(len(c))
    for t in range(len(c)):
        found[t] = h
        h = d * h + c[t]
    return found


def _adjoint(d: float, c: np.ndarray) -> np.ndarray:
    return np.array([np.sum(c[t:] * d ** np.arange(len(c) - t)) for t in range(len(c))])


through_time = Exercise(
    "15.2",
    wanted=_through_time,
    cases=lambda rng: [
        (d, rng.normal(size=steps)) for d, steps in ((0.9, 1), (0.9, 2), (0.5, 7), (-0.8, 12))
    ],
    mistakes=(
        Mistake(
            _adjoint,
            "That is the gradient of h[t]. But x[t] is read by h[t + 1], one step later, so the "
            "last input, x[T - 1], has no reader, and its gradient is 0.",
        ),
        Mistake(
            lambda d, c: d * _through_time(d, c),
            "You have one factor d too many. In h[t + 1] = d h[t] + x[t] only h[t] is multiplied, "
            "and x[t] is not.",
        ),
        Mistake(
            _forward,
            "You run forward in time. But the readers of h[t] come after it and their gradients "
            "must be there first, so run backward.",
        ),
        Mistake(
            lambda d, c: np.append(_forward(d, c)[1:], d * _forward(d, c)[-1] + c[-1]),
            "You sum the past, as h does. But x[t] can only change later states, so its gradient "
            "adds up the later c: run backward.",
        ),
        Mistake(
            lambda d, c: np.append(c[1:], 0.0),
            "That is only the loss at t + 1. But x[t] also reaches h[t + 2] through h[t + 1], and "
            "so on, so later losses count as well.",
        ),
        Mistake(
            lambda d, c: np.append(np.cumsum(c[:0:-1])[::-1], 0.0),
            "You give all later losses the same weight. But each step back multiplies by d, so "
            "later losses count less.",
        ),
    ),
)


WANTED = "return a tensor over t, one equation for every t, and the check computes its values"


def executed(write: Any) -> Any:
    """Turn a program into a function of arrays: (rewards, values, γ, λ) -> A[0:T].

    `write(p, reward, value, gamma, lam)` returns a tensor over t, from tensors over t. `value` is
    one number longer than the program: its last entry follows the end.
    """

    def run(reward: np.ndarray, value: np.ndarray, gamma: float, lam: float) -> Any:
        p = Program("t")
        t, steps = p.symbols[0], len(reward)
        given = p.constant({"r": reward.astype(np.float32), "v": value.astype(np.float32)})
        at = p.value(t)
        r, v, after = (
            p.fn(lambda data, t, name=name, ahead=ahead: data[name][t + ahead], given, at, name=as_)
            for name, ahead, as_ in (("r", 0, "reward"), ("v", 0, "value"), ("v", 1, "next_value"))
        )
        answer = write(p, r, v, after, gamma, lam)
        if answer is None or answer is ...:
            return answer
        if not isinstance(answer, Tensor):
            return Failure(f"it returns a value of type {type(answer).__name__}: {WANTED}")
        if answer.domain.names != ("t",):
            return Failure(f"{answer!r} does not change with t: {WANTED}")
        (found,) = execute(p.graph(answer), {"T": steps}, seed=steps).values()
        if missing := [k for k in range(steps) if (k,) not in found]:
            return Failure(f"it has no value at t = {missing[0]} of {steps} steps: {WANTED}")
        return np.array([found[k,] for k in range(steps)])

    return run


def _gae(reward: np.ndarray, value: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    ahead, found = 0.0, np.zeros(len(reward))
    for t in reversed(range(len(reward))):
        ahead = reward[t] + gamma * value[t + 1] - value[t] + gamma * lam * ahead
        found[t] = ahead
    return found


def _deltas(reward: np.ndarray, value: np.ndarray, gamma: float) -> np.ndarray:
    return reward + gamma * value[1:] - value[:-1]


advantages = Exercise(
    "15.3",
    wanted=_gae,
    cases=lambda rng: [
        (rng.normal(size=steps), rng.normal(size=steps + 1), gamma, lam)
        for steps, gamma, lam in ((4, 0.9, 0.8), (6, 0.99, 0.5), (9, 0.5, 1.0))
    ],
    mistakes=(
        Mistake(
            lambda reward, value, gamma, lam: _deltas(reward, value, gamma),
            "That is only δ[t], as if λ were 0. But later errors count, too, with a factor γλ for "
            "each step.",
        ),
        Mistake(
            lambda reward, value, gamma, lam: _gae(
                _deltas(reward, value, gamma), 0 * value, lam, 1.0
            ),
            "You discount only by λ. But δ[t + 1] is a step later, so it is discounted by γ as "
            "well: the factor is γλ.",
        ),
        Mistake(
            lambda reward, value, gamma, lam: _gae(reward, value, gamma, 1.0),
            "You discount only by γ, as if λ were 1. The factor of each step is γλ.",
        ),
        Mistake(
            lambda reward, value, gamma, lam: _gae(reward, 0 * value, gamma, lam),
            "That is a return, because the values are missing. An advantage adds up δ[t] = r[t] + "
            "γ v[t + 1] - v[t].",
        ),
        Mistake(
            lambda reward, value, gamma, lam: _past(_deltas(reward, value, gamma), gamma * lam),
            "You sum the errors before t. But an action can only change later steps, so A[t] reads "
            "A[t + 1].",
        ),
        Mistake(
            lambda reward, value, gamma, lam: np.append(_gae(reward, value, gamma, lam)[:-1], 0.0),
            "The last one is missing. No advantage follows it, so A[T - 1] is δ[T - 1], not 0.",
        ),
    ),
    tolerance=1e-3,
)


def _past(deltas: np.ndarray, decay: float) -> np.ndarray:
    return np.array(
        [np.sum(deltas[: t + 1] * decay ** np.arange(t, -1, -1)) for t in range(len(deltas))]
    )
