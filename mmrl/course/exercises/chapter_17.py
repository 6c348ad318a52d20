"""The exercises of chapter 17: compiling REINFORCE and PPO."""

import math

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _cost(T, n, m):
    return math.ceil(T / m), T if n is None else min(T, m + n - 1)


cost = Exercise(
    "17.1",
    wanted=_cost,
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
            "Where m does not divide T, a last, shorter tile is still a launch: round up.",
        ),
        Mistake(
            lambda T, n, m: (T // m + 1, _cost(T, n, m)[1]),
            "One launch too many where m divides T: rounding up is not adding one.",
        ),
        Mistake(
            lambda T, n, m: (_cost(T, n, m)[0], T if n is None else min(T, m + n)),
            "One observation too many: the last reward of the window belongs to the step itself "
            "if n = 1, so that a tile waits for n - 1 steps behind its last one.",
        ),
        Mistake(
            lambda T, n, m: (_cost(T, n, m)[0], T if n is None else m + n - 1),
            "An episode has no more than T observations, however long the window is.",
        ),
        Mistake(
            lambda T, n, m: (_cost(T, n, m)[0], min(T, m)),
            "That is one tile. But its last step waits for n - 1 more rewards, and acting goes on "
            "meanwhile.",
        ),
        Mistake(
            lambda T, n, m: (_cost(T, n, m)[0], min(T, m if n is None else m + n - 1)),
            "With Monte-Carlo returns every tile waits for the last reward, so that nothing can be "
            "freed before.",
        ),
    ),
)


def _later(g, n):
    return np.concatenate([g, np.zeros(n, g.dtype)])[n:]


def _window(g, gamma, n):
    return g - gamma**n * _later(g, n)


window = Exercise(
    "17.2",
    wanted=_window,
    cases=lambda rng: [
        (rng.normal(size=T).astype("f4"), gamma, n)
        for T, gamma, n in ((12, 0.9, 3), (12, 0.5, 1), (7, 0.99, 7), (5, 0.95, 9), (20, 1.0, 4))
    ],
    mistakes=(
        Mistake(
            lambda g, gamma, n: g - _later(g, n),
            "The sum that starts at t + n has begun to be discounted at t + n. Seen from t, it "
            "counts γⁿ.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma ** (n - 1) * _later(g, n - 1),
            "That leaves n - 1 rewards: r[t:t + n] ends before r[t + n], so take away what begins "
            "there.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma ** (n + 1) * _later(g, n + 1),
            "That leaves n + 1 rewards: r[t + n] is the first one that does not belong to it.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma * _later(g, n),
            "One γ for every step between: t + n is n steps away.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma**n * np.concatenate([g, np.full(n, g[-1])])[n:],
            "Behind the end there is no return at all: pad with zeros, not with the last one.",
        ),
        Mistake(
            lambda g, gamma, n: g - gamma**n * np.roll(g, -n),
            "At the end your window reads the beginning of the episode: `roll` goes round. Behind "
            "the end there is nothing.",
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


def _shifted(scores, values):
    """Two sums of weights, all seen from the largest score: far below it, e⁻¹⁰⁴ is 0 in 32 bits."""
    weights = np.exp(scores - scores.max())
    with np.errstate(invalid="ignore"):
        return np.cumsum(weights * values) / np.cumsum(weights)


def _rising(values):
    """Scores of which the first are nothing beside the last."""
    return np.array([-400, -399, -250, -251, 0, 5, 4], "f4"), values.astype("f4")


def _unscaled(scores, values):
    """The new share, but the old average left at its old weight."""
    top = np.logaddexp.accumulate(scores.astype(float))
    return np.cumsum(values * np.exp(scores - top)).astype("f4")


def _counted(scores, values):
    """Weighed by eˢ, divided by the number of steps. In 32 bits eˢ may be infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.cumsum(np.exp(scores) * values) / np.arange(1, len(values) + 1)


average = Exercise(
    "17.3",
    wanted=_softmax,
    cases=lambda rng: (
        [
            (scale * rng.normal(size=T).astype("f4"), rng.normal(size=T).astype("f4"))
            for T, scale in ((12, 1.0), (1, 1.0), (12, 3.0), (12, 200.0), (12, 60.0))
        ]
        + [_rising(rng.normal(size=7))]
    ),
    mistakes=(
        Mistake(
            lambda scores, values: _softmax(scores, values, shift=False),
            "Right where scores are small. But eˢ of 200 is infinite in 32 bits, and ∞/∞ is NaN: "
            "carry the logarithm of the weights' sum, and lift that first.",
        ),
        Mistake(
            _shifted,
            "You shift by the largest score of all. Long before it every weight is 0 in 32 bits, "
            "and 0/0 is NaN: measure each step by what was seen so far, L[t].",
        ),
        Mistake(
            _whole,
            "Each entry must weigh what was seen so far: the softmax runs over s[0:t + 1], and "
            "yours over all of them.",
        ),
        Mistake(
            lambda scores, values: np.cumsum(values) / np.arange(1, len(values) + 1),
            "That is the plain average: the scores do not matter in it.",
        ),
        Mistake(
            _unscaled,
            "The new value has the right weight. The average before it must lose weight as the "
            "sum of weights grows: multiply it by exp(L[t - 1] - L[t]).",
        ),
        Mistake(
            _counted,
            "You weigh by eˢ, but divide by the number of steps: divide by the sum of the weights.",
        ),
    ),
    tolerance=1e-3,
)
