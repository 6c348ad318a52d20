"""Exercises of chapter 05: returns are monoids too."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

half_life = Exercise(
    "5.1",
    wanted=lambda gamma, lam: np.log(0.5) / np.log(gamma * lam),
    cases=lambda rng: [(0.99, 0.95), (0.95, 0.8), (0.9, 0.999), (0.999, 0.7), (0.5, 0.9)],
    mistakes=(
        Mistake(
            lambda gamma, lam: np.log(0.5) / np.log(gamma),
            "that is the half-life of only the discount. In GAE the gain of one step is γ times λ, "
            "so both make a weight smaller.",
        ),
        Mistake(
            lambda gamma, lam: np.log(0.5) / np.log(lam),
            "that is the half-life of only the trace. In GAE the gain of one step is γ times λ, so "
            "the discount counts too.",
        ),
        Mistake(
            lambda gamma, lam: 1 / (1 - gamma * lam),
            "that is the sum of all weights, which is called the effective horizon. The question "
            "is after how many steps n a single weight, (γλ)ⁿ, is one half.",
        ),
        Mistake(
            lambda gamma, lam: np.log(gamma * lam) / np.log(0.5),
            "your fraction is upside down. Solve (γλ)ⁿ = ½ for n: take logarithms on both sides, "
            "and divide by the one of γλ.",
        ),
        Mistake(
            lambda gamma, lam: np.log(2) / np.log(gamma * lam),
            "your sign is wrong, because a number of steps is positive. The weight falls to one "
            "half, so the numerator is the logarithm of ½, which is negative as well.",
        ),
        Mistake(
            lambda gamma, lam: np.ceil(np.log(0.5) / np.log(gamma * lam)),
            "right, but rounded up to whole steps. Give the real number itself.",
        ),
    ),
)

Tape = tuple[Any, ...]


def _retrace(
    rewards: np.ndarray,
    discount: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    last: np.ndarray,
    ratio: np.ndarray,
    lam: float,
    *,
    ahead: int = 1,
    most: float = 1.0,
    apart: bool = True,
    correct: bool = True,
    own: bool = False,
    leak: str = "",
    clip_trace: bool = False,
    scale: bool = True,
) -> np.ndarray:
    """Compute Retrace one step at a time, from the end."""
    targets, steps = np.zeros(len(rewards)), len(rewards)
    traces = np.minimum(most, lam * ratio) if clip_trace else lam * np.minimum(most, ratio)
    traces = traces if scale else np.minimum(most, ratio)
    for t in range(steps - 1, -1, -1):
        targets[t] = rewards[t] + discount[t] * next_values[t]
        if t + 1 < steps and not (apart and last[t]):
            trace = discount[t] * traces[t + ahead]
            known = values[t if own else t + 1]
            targets[t] += trace * (targets[t + 1] - (known if correct else 0.0))
        elif leak == "multiply" and t + 1 < steps:
            targets[t] -= 0.0 * values[t + 1]  # adds 0, but passes on a NaN
        elif leak == "roll" or (leak == "append" and t + 1 < steps):
            targets[t] -= discount[t] * traces[(t + 1) % steps] * values[(t + 1) % steps]
    return targets


def _flawed(**flaws: Any) -> Any:
    return lambda *case: _retrace(*case, **flaws)


def _terms(gain: Callable[..., Any], add: Callable[..., Any]) -> Any:
    """Compute targets from g_t and x_t, functions of (r, γ, q, v', c q); c and q are of t + 1."""

    def answer(*case: Any) -> np.ndarray:
        rewards, discount, values, next_values, last, ratio, lam = case
        c = np.append(lam * np.minimum(1, ratio[1:]), 0)
        known = np.where(last, 0, c * np.append(values[1:], 0))
        x = add(rewards, discount, values, next_values, known)
        targets, after = np.zeros(len(x)), 0.0
        for t in reversed(range(len(x))):
            targets[t] = after = x[t] + (0 if last[t] else gain(discount, c)[t] * after)
        return targets

    return answer


def _addend(r: Any, discount: Any, q: Any, next_v: Any, known: Any) -> Any:
    return r + discount * (next_v - known)


def _forward(*case: Any) -> np.ndarray:
    *arrays, lam = case
    return _retrace(*(x[::-1] for x in arrays), lam=lam)[::-1]


def _tapes(rng: np.random.Generator) -> list[Tape]:
    def draw(steps: int, lam: float) -> Tape:
        rewards, values, next_values = rng.normal(size=(3, steps))
        terminated, last = np.zeros(steps, bool), np.zeros(steps, bool)
        last[[steps // 3, 2 * steps // 3, steps - 1]] = True
        # The first episode is truncated, the second one terminates.
        terminated[2 * steps // 3] = True
        discount = np.where(terminated, 0.0, 0.95)
        ratio = np.exp(rng.normal(size=steps))
        return rewards, discount, values, next_values, last, ratio, lam

    broken = draw(9, 0.8)
    broken[2][4] = np.nan  # the value of the second episode's first action, which no target needs
    return [draw(6, 0.9), draw(15, 1.0), draw(40, 0.6), broken]


retrace = Exercise(
    "5.2",
    wanted=_retrace,
    cases=_tapes,
    mistakes=(
        Mistake(
            _flawed(ahead=0),
            "you take c at step t, but the trace belongs to the *next* action, c at t + 1. The "
            "first action is fixed, because q is the value of just that action.",
        ),
        Mistake(
            _flawed(most=np.inf),
            "the ratio is not clipped. The trace is λ min(1, ratio), so it never exceeds λ.",
        ),
        Mistake(
            _flawed(apart=False),
            "the target of an episode's last step reads on into the next episode. Give `last` to "
            "`backward`, and also keep everything of step t + 1 out of x at the last step.",
        ),
        Mistake(
            _flawed(leak="append"),
            "`backward` cuts the gain at an episode's last step, but your x there still holds -γ c "
            "q of the next episode. Select: 0 in place of c q where `last` is true.",
        ),
        Mistake(
            _flawed(leak="roll"),
            "your x at an episode's last step contains -γ c q of the next episode, and at the end "
            "of the tape -γ c q of its first step, because `roll` wraps around. Select: 0 in place "
            "of c q where `last` is true.",
        ),
        Mistake(
            _flawed(scale=False),
            "λ is missing. The trace is λ min(1, ratio), and not min(1, ratio) alone.",
        ),
        Mistake(
            _flawed(clip_trace=True),
            "you clip λ times the ratio, but λ stands outside of the minimum: the trace is λ "
            "min(1, ratio).",
        ),
        Mistake(
            _flawed(correct=False),
            "q at t + 1 is missing. Step t receives γ c (G - q), of which γ c G is the gain's "
            "part. The rest, -γ c q of the next step, belongs to x.",
        ),
        Mistake(
            _flawed(own=True),
            "you take q at step t. Subtract the value of the *next* action, q at t + 1, from the "
            "next target.",
        ),
        Mistake(
            _flawed(leak="multiply"),
            "on finite numbers this is right, but a NaN gets from one episode into the one before, "
            "because 0 · NaN is NaN. Select the whole product c q with `where`.",
        ),
        Mistake(
            _terms(lambda discount, c: c, _addend),
            "γ is missing in the gain. G of the next step is one step away, so its gain is γ c.",
        ),
        Mistake(
            _terms(np.multiply, lambda r, γ, q, v, known: r + γ * v - known),
            "γ is missing before c q. Multiply out the whole bracket: γ v' - γ c q.",
        ),
        Mistake(
            _terms(lambda discount, c: c, lambda r, γ, q, v, known: r + γ * v - known),
            "γ is missing before the correction. The whole bracket of Eq. 5.7 is discounted, and "
            "not only v'.",
        ),
        Mistake(
            _terms(np.multiply, lambda r, γ, q, v, known: r + v - γ * known),
            "v' is not discounted. The whole bracket of Eq. 5.7 is multiplied by γ.",
        ),
        Mistake(
            _terms(np.multiply, lambda r, γ, q, v, known: r - γ * known),
            "v' is missing: a target bootstraps from γ v' at every step, and the trace only "
            "corrects it.",
        ),
        Mistake(
            _terms(np.multiply, lambda r, γ, q, v, known: r + γ * (v + known)),
            "the sign of c q is wrong. G - q is a difference: q of the next action is subtracted.",
        ),
        Mistake(
            _terms(lambda discount, c: discount, _addend),
            "c is missing in the gain. G of the next step counts with γ c, as q does.",
        ),
        Mistake(
            lambda *case: _retrace(*case) - case[2],
            "these are the corrections G - q. The target is G itself.",
        ),
        Mistake(
            _forward,
            "this runs forward in time. A target is computed from the next step's target, so begin "
            "at the end: `backward` does.",
        ),
        Mistake(
            lambda *case: _terms(np.multiply, lambda *x: case[0] + 0 * _addend(*x))(*case),
            "these are sums of rewards, discounted and cut by the traces. The values are missing: "
            "v' of this step, and q of the next action.",
        ),
    ),
)

Stop = tuple[float, float, float]


def _compose(first: Stop, then: Stop) -> Stop:
    (a, b, c), (stop, pay, gain) = first, then
    return max(stop, pay + gain * a), pay + gain * b, gain * c


def _stops(rng: np.random.Generator) -> list[tuple[Stop, Stop]]:
    def draw() -> Stop:
        return float(rng.normal()), float(rng.normal()), float(rng.uniform(0.2, 1))

    identity = (-np.inf, 0.0, 1.0)
    return [*((draw(), draw()) for _ in range(8)), (identity, draw()), (draw(), identity)]


optimal_stopping = Exercise(
    "5.3",
    wanted=_compose,
    cases=_stops,
    mistakes=(
        Mistake(
            lambda first, then: _compose(then, first),
            "the order is reversed. The result is then(first(y)), so put the formula of `first` in "
            "place of the y of `then`.",
        ),
        Mistake(
            lambda first, then: (max(first[0], then[0]), *_compose(first, then)[1:]),
            "you keep the stop of `first` unchanged. But the result of `first` goes through pay + "
            "gain · y of `then`, so its stop does too.",
        ),
        Mistake(
            lambda first, then: (
                max(then[0], then[1] + first[0]),
                then[1] + first[1],
                then[2] * first[2],
            ),
            "the result of `first` is multiplied by the gain of `then`. In two places this gain is "
            "missing.",
        ),
        Mistake(
            lambda first, then: (
                max(then[0], then[1] + then[2] * first[0]),
                first[1] + first[2] * then[1],
                then[2] * first[2],
            ),
            "your pay is composed in the other order. In then(first(y)) the pay of `first` goes "
            "through pay + gain · y of `then`.",
        ),
        Mistake(
            lambda first, then: (then[0], *_compose(first, then)[1:]),
            "you forgot that `first` may have stopped. Its result is at least its stop, so "
            "then(first(y)) is at least pay + gain · stop, with the stop of `first`.",
        ),
        Mistake(
            lambda first, then: (max(then[0], then[2] * first[0]), *_compose(first, then)[1:]),
            "the stop lacks the pay of `then`, which is also added after a stop in `first`: the "
            "stop of `first` becomes pay + gain · stop.",
        ),
        Mistake(
            lambda first, then: (max(then[0], then[1] + first[0]), *_compose(first, then)[1:]),
            "in the stop the gain is missing: the stop of `first` becomes pay + gain · stop, with "
            "pay and gain of `then`.",
        ),
    ),
)
