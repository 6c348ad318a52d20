"""Exercises for chapter 05: returns are monoids too."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

half_life = Exercise(
    "5.1",
    solution=lambda gamma, lam: np.log(0.5) / np.log(gamma * lam),
    cases=lambda rng: [(0.99, 0.95), (0.95, 0.8), (0.9, 0.999), (0.999, 0.7), (0.5, 0.9)],
    mistakes=(
        Mistake(
            lambda gamma, lam: np.log(0.5) / np.log(gamma),
            "that is the half-life of the discount only. In GAE the gain of one step is γ λ, so "
            "both factors shrink a weight.",
        ),
        Mistake(
            lambda gamma, lam: np.log(0.5) / np.log(lam),
            "that is the half-life of the trace only. In GAE the gain of one step is γ λ, so the "
            "discount matters too.",
        ),
        Mistake(
            lambda gamma, lam: 1 / (1 - gamma * lam),
            "that is the sum of all weights, also called the effective horizon. The question is "
            "after how many steps n the weight (γλ)ⁿ is one half.",
        ),
        Mistake(
            lambda gamma, lam: np.log(gamma * lam) / np.log(0.5),
            "your fraction is upside down. Solve (γλ)ⁿ = ½ for n: take logarithms on both sides, "
            "and divide by the logarithm of γλ.",
        ),
        Mistake(
            lambda gamma, lam: np.log(2) / np.log(gamma * lam),
            "your sign is wrong, because a number of steps is positive. The numerator is the "
            "logarithm of ½, which is also negative.",
        ),
        Mistake(
            lambda gamma, lam: np.ceil(np.log(0.5) / np.log(gamma * lam)),
            "right, but rounded up to a whole number. Return the exact value.",
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
            value = values[t if own else t + 1]
            targets[t] += trace * (targets[t + 1] - (value if correct else 0.0))
        elif leak == "multiply" and t + 1 < steps:
            targets[t] -= 0.0 * values[t + 1]  # adds 0 but propagates NaN
        elif leak == "roll" or (leak == "append" and t + 1 < steps):
            targets[t] -= discount[t] * traces[(t + 1) % steps] * values[(t + 1) % steps]
    return targets


def _with_flaws(**flaws: Any) -> Any:
    return lambda *case: _retrace(*case, **flaws)


def _terms(gain: Callable[..., Any], add: Callable[..., Any]) -> Any:
    """Compute targets with gains `gain(γ, c)` and inputs `add(r, γ, q, v', c q)`.

    The arguments c and c q of both functions have their values at step t + 1.
    """

    def answer(*case: Any) -> np.ndarray:
        rewards, discount, values, next_values, last, ratio, lam = case
        c = np.append(lam * np.minimum(1, ratio[1:]), 0)
        product = np.where(last, 0, c * np.append(values[1:], 0))
        x = add(rewards, discount, values, next_values, product)
        targets, after = np.zeros(len(x)), 0.0
        for t in reversed(range(len(x))):
            targets[t] = after = x[t] + (0 if last[t] else gain(discount, c)[t] * after)
        return targets

    return answer


def _addend(r: Any, discount: Any, q: Any, next_v: Any, product: Any) -> Any:
    return r + discount * (next_v - product)


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

    with_nan = draw(9, 0.8)
    with_nan[2][4] = np.nan  # first value of the second episode, which no target needs
    return [draw(6, 0.9), draw(15, 1.0), draw(40, 0.6), with_nan]


retrace = Exercise(
    "5.2",
    solution=_retrace,
    cases=_tapes,
    mistakes=(
        Mistake(
            _with_flaws(ahead=0),
            "you use c at step t, but the trace needs c of the *next* action, at t + 1. The action "
            "at step t is given, because q is its value, so it needs no correction.",
        ),
        Mistake(
            _with_flaws(most=np.inf),
            "the ratio is not clipped. The trace is λ min(1, ratio), so it never exceeds λ.",
        ),
        Mistake(
            _with_flaws(apart=False),
            "the target of an episode's last step depends on the next episode. Pass `last` to "
            "`backward`, and make sure that x at the last step contains nothing from step t + 1.",
        ),
        Mistake(
            _with_flaws(leak="append"),
            "`backward` sets the gain to 0 at an episode's last step, but your x at that step "
            "still contains -γ c q of the next episode. Replace c q with 0 where `last` is true.",
        ),
        Mistake(
            _with_flaws(leak="roll"),
            "your x at an episode's last step contains -γ c q of the next episode. At the end of "
            "the tape it contains that of the first step, because `roll` wraps around. Replace c q "
            "by 0 where `last` is true.",
        ),
        Mistake(
            _with_flaws(scale=False),
            "λ is missing. The trace is λ min(1, ratio), not just min(1, ratio).",
        ),
        Mistake(
            _with_flaws(clip_trace=True),
            "you clip λ times the ratio, but λ is outside the minimum: the trace is λ min(1, "
            "ratio).",
        ),
        Mistake(
            _with_flaws(correct=False),
            "q at t + 1 is missing. Step t receives γ c (G - q). The gain contributes γ c G, so x "
            "must contain the remaining term, -γ c q of the next step.",
        ),
        Mistake(
            _with_flaws(own=True),
            "you use q at step t. Subtract q of the *next* action, at t + 1, from the next target.",
        ),
        Mistake(
            _with_flaws(leak="multiply"),
            "this is right for finite numbers, but a NaN leaks into the previous episode, because "
            "0 · NaN is NaN. Use `where` to select between 0 and the product c q.",
        ),
        Mistake(
            _terms(lambda discount, c: c, _addend),
            "γ is missing from the gain. The G of the next step is one step away, so its gain is γ "
            "c.",
        ),
        Mistake(
            _terms(np.multiply, lambda r, γ, q, v, product: r + γ * v - product),
            "γ is missing before c q. Multiply out the whole bracket: γ v' - γ c q.",
        ),
        Mistake(
            _terms(lambda discount, c: c, lambda r, γ, q, v, product: r + γ * v - product),
            "γ is missing before the correction. The whole bracket of Eq. 5.7 is discounted, not "
            "just v'.",
        ),
        Mistake(
            _terms(np.multiply, lambda r, γ, q, v, product: r + v - γ * product),
            "v' is not discounted. The whole bracket of Eq. 5.7 is multiplied by γ.",
        ),
        Mistake(
            _terms(np.multiply, lambda r, γ, q, v, product: r - γ * product),
            "v' is missing. A target bootstraps from γ v' at every step, and the trace only "
            "corrects this value.",
        ),
        Mistake(
            _terms(np.multiply, lambda r, γ, q, v, product: r + γ * (v + product)),
            "the sign of c q is wrong. Eq. 5.7 contains the difference G - q, so subtract q of the "
            "next action.",
        ),
        Mistake(
            _terms(lambda discount, c: discount, _addend),
            "c is missing from the gain. The G of the next step has the weight γ c, as q does.",
        ),
        Mistake(
            lambda *case: _retrace(*case) - case[2],
            "these are the corrections G - q. The target is G itself.",
        ),
        Mistake(
            _forward,
            "this runs forward in time. Each target depends on the next one, so start at the end, "
            "as `backward` does.",
        ),
        Mistake(
            lambda *case: _terms(np.multiply, lambda *x: case[0] + 0 * _addend(*x))(*case),
            "these are sums of rewards, discounted and weighted by the traces. The values are "
            "missing: v' of this step and q of the next action.",
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
    solution=_compose,
    cases=_stops,
    mistakes=(
        Mistake(
            lambda first, then: _compose(then, first),
            "the order is reversed. The result is then(first(y)), so replace y in the formula of "
            "`then` with the formula of `first`.",
        ),
        Mistake(
            lambda first, then: (max(first[0], then[0]), *_compose(first, then)[1:]),
            "you leave the stop of `first` unchanged. But `then` maps the result of `first` to pay "
            "+ gain · y, so it maps that stop too.",
        ),
        Mistake(
            lambda first, then: (
                max(then[0], then[1] + first[0]),
                then[1] + first[1],
                then[2] * first[2],
            ),
            "the result of `first` must be multiplied by the gain of `then`. This gain is missing "
            "in two places.",
        ),
        Mistake(
            lambda first, then: (
                max(then[0], then[1] + then[2] * first[0]),
                first[1] + first[2] * then[1],
                then[2] * first[2],
            ),
            "your pays are composed in the wrong order. In then(first(y)), `then` maps the pay of "
            "`first` to pay + gain · y.",
        ),
        Mistake(
            lambda first, then: (then[0], *_compose(first, then)[1:]),
            "you ignore that `first` may stop. The result of `first` is at least its stop, so "
            "then(first(y)) is at least pay + gain · stop, with the stop of `first`.",
        ),
        Mistake(
            lambda first, then: (max(then[0], then[2] * first[0]), *_compose(first, then)[1:]),
            "the pay of `then` is missing from the stop. It is also added after `first` stops: the "
            "stop of `first` becomes pay + gain · stop.",
        ),
        Mistake(
            lambda first, then: (max(then[0], then[1] + first[0]), *_compose(first, then)[1:]),
            "the gain is missing from the stop: the stop of `first` becomes pay + gain · stop, "
            "with the pay and the gain of `then`.",
        ),
    ),
)
