"""Exercises of chapter 00: start here."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

Element = tuple[np.ndarray, np.ndarray]

guess = Exercise(
    "0.1",
    wanted=-0.5,
    mistakes=(
        Mistake(
            0.25,
            "that is the share of right answers, but each wrong one costs the same amount that a "
            "right one pays.",
        ),
        Mistake(
            -0.75,
            "that counts only the wrong answers, but one in four is right, and it pays.",
        ),
        Mistake(
            0.0,
            "a return of 0 needs equal numbers of right and wrong answers, but only one of four "
            "suits is right.",
        ),
        Mistake(
            -0.461,
            "that is the best agent without memory, which looks at its card and at the begin flag. "
            "The question is about one that always names the same suit.",
        ),
        Mistake(0.5, "the size is right, but the sign is not, because most answers are wrong."),
        Mistake(
            -1.0,
            "that is the return of an episode in which the suit is wrong. In one of four it is "
            "right, so take the average of both.",
        ),
        Mistake(
            1.0,
            "that is the return of an episode in which the suit is right. In three of four it is "
            "wrong, so take the average of both.",
        ),
    ),
)


def _pairs(rng: np.random.Generator) -> list[tuple[Element, Element]]:
    def element(size: tuple[int, ...]) -> Element:
        return rng.uniform(0.1, 0.9, size), rng.normal(size=size)

    identity = (np.ones(3), np.zeros(3))
    sizes = ((), (1,), (4,))
    return [*[(element(s), element(s)) for s in sizes], (identity, element((3,)))]


combine = Exercise(
    "0.2",
    wanted=lambda a, b: (b[0] * a[0], b[0] * a[1] + b[1]),
    cases=_pairs,
    mistakes=(
        Mistake(
            lambda a, b: (a[0] * b[0], a[0] * b[1] + a[1]),
            "it fades the later part. The past must fade, which is `a`, because it came first; and "
            "it fades by the gain of `b`.",
        ),
        Mistake(
            lambda a, b: (b[0] * a[0], a[1] + b[1]),
            "the sum of `a` has to fade while `b` passes, so multiply it by the gain of `b`.",
        ),
        Mistake(
            lambda a, b: (b[0], b[0] * a[1] + b[1]),
            "the sum is right, but the gain is only the gain of `b`. Everything before both parts "
            "fades in each of them, so the gains are multiplied.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], b[0] * a[1] + b[1]),
            "the sum is right, but gains multiply and do not add: for example, half of a half is a "
            "quarter.",
        ),
    ),
)


def _discounted(rewards: np.ndarray, gamma: float) -> np.ndarray:
    returns, after = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        returns[t] = after = rewards[t] + gamma * after
    return returns


def _tapes(rng: np.random.Generator) -> list[tuple[np.ndarray, float]]:
    drawn = [(rng.normal(size=n), gamma) for n, gamma in ((2, 0.5), (7, 0.9), (30, 0.99))]
    return [*drawn, (np.array([1.0]), 0.5), (np.array([0.0, 0.0, 1.0]), 0.0)]


returns = Exercise(
    "0.3",
    wanted=_discounted,
    cases=_tapes,
    mistakes=(
        Mistake(
            lambda rewards, gamma: _discounted(rewards[::-1], gamma)[::-1],
            "it looks back at earlier rewards, but a return looks ahead, so scan with "
            "`reverse=True`.",
        ),
        Mistake(
            lambda rewards, gamma: np.cumsum(rewards[::-1])[::-1],
            "it looks ahead, but does not discount, because every element has the gain 1 in place "
            "of `gamma`.",
        ),
        Mistake(
            lambda rewards, gamma: gamma * _discounted(rewards, gamma),
            "every value is discounted once too often, because the reward of step t itself is not "
            "discounted.",
        ),
        Mistake(
            lambda rewards, gamma: np.full(len(rewards), gamma) ** np.arange(len(rewards), 0, -1),
            "these are the gains, the first half of each element, but the returns are the second.",
        ),
        Mistake(
            lambda rewards, gamma: np.stack(
                [
                    np.full(len(rewards), gamma) ** np.arange(len(rewards), 0, -1),
                    _discounted(rewards, gamma),
                ]
            ),
            "that is the whole pair that `scan` returns, gains and returns, so take its second "
            "half.",
        ),
    ),
)
