"""Exercises for chapter 17: compiling REINFORCE and PPO."""

import math

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _cost(T, n, m):
    return math.ceil(T / m), T if n is None else min(T, m + n - 1)


cost = Exercise(
    "17.1",
    solution=_cost,
    cases=lambda rng: [
        (64, 8, 1),
        (64, 8, 8),
        (64, 8, 64),
        (64, None, 8),
        (30, 5, 8),
        (30, 5, 29),
        (9, 1, 4),
        (1, 3, 1),
    ],
    mistakes=(
        Mistake(
            lambda T, n, m: (T // m, _cost(T, n, m)[1]),
            "If m does not divide T, the last tile is shorter, but it still needs a launch: round "
            "up.",
        ),
        Mistake(
            lambda T, n, m: (T // m + 1, _cost(T, n, m)[1]),
            "This is one launch too many if m divides T. Rounding up is not the same as adding "
            "one.",
        ),
        Mistake(
            lambda T, n, m: (_cost(T, n, m)[0], T if n is None else min(T, m + n)),
            "This is one observation too many. A window of n = 1 needs only its own step, so a "
            "tile waits for n - 1 steps after its last step.",
        ),
        Mistake(
            lambda T, n, m: (_cost(T, n, m)[0], T if n is None else m + n - 1),
            "An episode has at most T observations, whatever the length of the window.",
        ),
        Mistake(
            lambda T, n, m: (_cost(T, n, m)[0], min(T, m)),
            "That is the size of one tile. Its last step waits for n - 1 more rewards, and "
            "meanwhile acting adds more observations.",
        ),
        Mistake(
            lambda T, n, m: (_cost(T, n, m)[0], min(T, m if n is None else m + n - 1)),
            "With Monte-Carlo returns, every tile waits for the last reward of the episode, so no "
            "observation can be freed before the end.",
        ),
    ),
)


def _later(g, n):
    return np.concatenate([g, np.zeros(n, g.dtype)])[n:]


def _window(g, gamma, n):
    return g - gamma**n * _later(g, n)


window = Exercise(
    "17.2",
    solution=_window,
    cases=lambda rng: [
        (rng.normal(size=T).astype("f4"), gamma, n)
        for T, gamma, n in ((12, 0.9, 3), (12, 0.5, 1), (7, 0.99, 7), (5, 0.95, 9), (20, 1.0, 4))
    ],
    mistakes=(
        Mistake(
            lambda g, gamma, n: g - _later(g, n),
            "The return at t + n is discounted relative to step t + n. Relative to step t, n more "
            "factors γ apply: multiply it by γⁿ.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma ** (n - 1) * _later(g, n - 1),
            "That leaves only n - 1 rewards. The window r[t:t + n] ends before r[t + n], so "
            "subtract the return that starts at t + n.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma ** (n + 1) * _later(g, n + 1),
            "That leaves n + 1 rewards. r[t + n] is the first reward after the window, so subtract "
            "the return that starts there.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma * _later(g, n),
            "There is one factor γ per step, and t + n is n steps away, so the factor is γⁿ, not "
            "γ.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma**n * np.concatenate([g, np.full(n, g[-1])])[n:],
            "Rewards after the end are 0, so the return there is 0: pad with zeros, not with the "
            "last return.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma**n * np.roll(g, -n),
            "Near the end, your window subtracts returns from the beginning of the episode, "
            "because `roll` wraps around. Use zeros after the end.",
        ),
    ),
)


def _softmax(scores, values, shift=True):
    scores, values = scores.astype(float), values.astype(float)
    top = np.maximum.accumulate(scores) if shift else np.zeros_like(scores)
    rows = []
    for t in range(len(scores)):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            weights = np.exp(scores[: t + 1] - top[t]).astype("f4")
            rows.append(np.float32(weights @ values[: t + 1].astype("f4") / weights.sum()))
    return np.array(rows, "f4")


def _whole(scores, values):
    weights = np.exp(scores - scores.max())
    return np.full_like(values, weights @ values / weights.sum())


def _shift(scores, values):
    """Compute averages with weights relative to the largest score.

    Weights of much smaller scores underflow: in float32, e⁻¹⁰⁴ is 0.
    """
    weights = np.exp(scores - scores.max())
    with np.errstate(invalid="ignore"):
        return np.cumsum(weights * values) / np.cumsum(weights)


def _rise(values):
    """Return scores that rise enough for the first weights to be negligible at the end."""
    return np.array([-400, -399, -250, -251, 0, 5, 4], "f4"), values.astype("f4")


def _without_scale(scores, values):
    """Weight the new value correctly, but do not rescale the old average."""
    top = np.logaddexp.accumulate(scores.astype(float))
    return np.cumsum(values * np.exp(scores - top)).astype("f4")


def _by_count(scores, values):
    """Weight by eˢ and divide by the number of steps. In float32, eˢ may be infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.cumsum(np.exp(scores) * values) / np.arange(1, len(values) + 1)


def _from_one(scores, values):
    """Start the sum of weights from 1 instead of 0."""
    return _softmax(np.append(0, scores), np.append(0, values))[1:]


average = Exercise(
    "17.3",
    solution=_softmax,
    cases=lambda rng: (
        [
            (scale * rng.normal(size=T).astype("f4"), rng.normal(size=T).astype("f4"))
            for T, scale in ((12, 1.0), (1, 1.0), (12, 3.0), (12, 200.0), (12, 60.0))
        ]
        + [_rise(rng.normal(size=7))]
    ),
    mistakes=(
        Mistake(
            lambda scores, values: _softmax(scores, values, shift=False),
            "Right if scores are small. In float32, e²⁰⁰ is infinite, and ∞/∞ is NaN: carry the "
            "logarithm L of the sum of the weights instead, and lift that loop first.",
        ),
        Mistake(
            _shift,
            "You shift by the largest of all scores. If the scores up to t are much smaller, all "
            "their weights are 0 in float32, and 0/0 is NaN: shift step t by L[t], which depends "
            "only on scores up to t.",
        ),
        Mistake(
            _whole,
            "Entry t must average only the values up to t. The softmax is over scores[0:t + 1], "
            "but yours is over all scores.",
        ),
        Mistake(
            lambda scores, values: np.cumsum(values) / np.arange(1, len(values) + 1),
            "That is the unweighted average, which ignores the scores: weight value k by "
            "exp(scores[k]).",
        ),
        Mistake(
            _without_scale,
            "The new value has the right weight, but the weight of the previous average must "
            "decrease as the sum of weights grows: multiply it by exp(L[t - 1] - L[t]).",
        ),
        Mistake(
            _from_one,
            "Your logarithm starts at 0, so the sum of weights starts at e⁰ = 1, as if there were "
            "an initial value 0 with score 0. An empty sum of weights is 0, whose logarithm is −∞.",
        ),
        Mistake(
            _by_count,
            "You weight each value by the exponential of its score, but divide by the number of "
            "steps: divide by the sum of the weights instead.",
        ),
    ),
    tolerance=1e-3,
)
