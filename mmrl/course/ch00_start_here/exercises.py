"""Exercises for chapter 00: start here."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

Element = tuple[np.ndarray, np.ndarray]

guess = Exercise(
    "0.1",
    solution=-0.5,
    mistakes=(
        Mistake(
            0.25,
            "that is the fraction of correct answers, but a wrong answer costs as much as a "
            "correct one earns.",
        ),
        Mistake(
            -0.75,
            "that counts only the wrong answers, but one answer in four is correct and earns a "
            "reward.",
        ),
        Mistake(
            0.0,
            "a return of 0 would need as many correct answers as wrong ones, but only one suit in "
            "four is correct.",
        ),
        Mistake(
            -0.461,
            "that is the return of the best agent without memory, which looks at the current card "
            "and at the begin flag. The question is about an agent that always names the same "
            "suit.",
        ),
        Mistake(
            0.5,
            "the magnitude is right, but the return is negative, because most answers are wrong.",
        ),
        Mistake(
            -1.0,
            "that is the return of an episode in which the suit is wrong. In one episode out of "
            "four the suit is correct, so average over both cases.",
        ),
        Mistake(
            1.0,
            "that is the return of an episode in which the suit is correct. In three episodes out "
            "of four the suit is wrong, so average over both cases.",
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
    solution=lambda a, b: (b[0] * a[0], b[0] * a[1] + b[1]),
    cases=_pairs,
    mistakes=(
        Mistake(
            lambda a, b: (a[0] * b[0], a[0] * b[1] + a[1]),
            "here the later part decays. The earlier part, `a`, must decay instead: multiply its "
            "sum by the gain of `b`.",
        ),
        Mistake(
            lambda a, b: (b[0] * a[0], a[1] + b[1]),
            "the sum of `a` must decay during `b`, so multiply it by the gain of `b`.",
        ),
        Mistake(
            lambda a, b: (b[0], b[0] * a[1] + b[1]),
            "the sum is right, but the gain covers only `b`. Whatever came before `a` decays "
            "during `a` and during `b`, so multiply the two gains.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], b[0] * a[1] + b[1]),
            "the sum is right, but gains must be multiplied, not added: half of a half is a "
            "quarter.",
        ),
    ),
)


def _discount(rewards: np.ndarray, gamma: float) -> np.ndarray:
    returns, after = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        returns[t] = after = rewards[t] + gamma * after
    return returns


def _tapes(rng: np.random.Generator) -> list[tuple[np.ndarray, float]]:
    random = [(rng.normal(size=n), gamma) for n, gamma in ((2, 0.5), (7, 0.9), (30, 0.99))]
    return [*random, (np.array([1.0]), 0.5), (np.array([0.0, 0.0, 1.0]), 0.0)]


returns = Exercise(
    "0.3",
    solution=_discount,
    cases=_tapes,
    mistakes=(
        Mistake(
            lambda rewards, gamma: _discount(rewards[::-1], gamma)[::-1],
            "this sums the earlier rewards, but a return sums the later ones, so scan with "
            "`reverse=True`.",
        ),
        Mistake(
            lambda rewards, gamma: np.cumsum(rewards[::-1])[::-1],
            "this sums the later rewards, but without a discount: every element has the gain 1 "
            "instead of `gamma`.",
        ),
        Mistake(
            lambda rewards, gamma: gamma * _discount(rewards, gamma),
            "every value is discounted once too often. The reward of step t itself is not "
            "discounted.",
        ),
        Mistake(
            lambda rewards, gamma: np.full(len(rewards), gamma) ** np.arange(len(rewards), 0, -1),
            "these are the gains. The returns are the second entry of each pair.",
        ),
        Mistake(
            lambda rewards, gamma: np.stack(
                [
                    np.full(len(rewards), gamma) ** np.arange(len(rewards), 0, -1),
                    _discount(rewards, gamma),
                ]
            ),
            "that is the pair (gains, returns) that `scan` computes. Keep only its second entry.",
        ),
    ),
)
