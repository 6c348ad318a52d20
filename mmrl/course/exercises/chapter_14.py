"""The exercises of chapter 14: CLEAR."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _part(capacity, actors, unroll, steps):
    """Places in the part of each actor, and the unrolls that came to it."""
    return capacity // (actors * unroll), steps // (actors * unroll)


def _told(places, came):
    return places, min(1.0, places / came), max(0.0, 1 - places / (came + 1))


def _kept(*case):
    return _told(*_part(*case))


def _changed(place, value):
    """The right answer with one entry computed otherwise, from the places and the unrolls."""

    def kept(*case):
        entries = list(_kept(*case))
        entries[place] = value(*_part(*case))
        return tuple(entries)

    return kept


kept = Exercise(
    "14.1",
    wanted=_kept,
    cases=lambda rng: [
        (48_000, 12, 10, 864_000),
        (5000, 3, 7, 9000),
        (100_000, 24, 20, 60_000),
        (1200, 4, 6, 1200),
        (120, 4, 6, 100_000),
    ],
    mistakes=(
        Mistake(
            lambda capacity, actors, unroll, steps: _told(
                capacity // actors, steps // (actors * unroll)
            ),
            "You count an unroll as one. Capacity is in steps of the environment, and an unroll "
            "has several.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _told(
                capacity // unroll, steps // (actors * unroll)
            ),
            "Each part has room for all. The capacity is shared evenly among the actors.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _told(capacity // unroll, steps // unroll),
            "That is one pool for all actors. Asked is the part of one actor, with the unrolls "
            "that come to it; the chance is almost the same, the places are not.",
        ),
        Mistake(
            _changed(1, lambda places, came: places / came),
            "The chance is above 1 while there is still room: then everything is kept.",
        ),
        Mistake(
            _changed(1, lambda places, came: (1 - 1 / places) ** came),
            "That is what is left of the first unroll if each new one overwrites a random place. "
            "In a reservoir all unrolls have the same chance.",
        ),
        Mistake(
            _changed(2, lambda places, came: max(0.0, 1 - places / came)),
            "Nearly: n lots cut the line from 0 to 1 into n + 1 pieces, each 1/(n + 1) long on "
            "average.",
        ),
        Mistake(
            _changed(2, lambda places, came: min(1.0, places / (came + 1))),
            "The lot to beat is the smallest of those kept, the k-th from above: it rises toward "
            "1 as more come.",
        ),
        Mistake(
            _changed(2, lambda places, came: 1 - places / (came + 1)),
            "The lot to beat cannot be below 0: while there is room, every lot is good enough.",
        ),
    ),
    tolerance=1e-6,
)


def _largest(keys, k):
    return np.sort(np.argsort(-np.asarray(keys), kind="stable")[:k])


keep = Exercise(
    "14.2",
    wanted=lambda lots, weights, k: _largest(lots ** (1 / weights), k),
    cases=lambda rng: (
        [(rng.random(n), rng.uniform(0.2, 5, size=n), k) for n, k in ((1, 1), (8, 3), (40, 7))]
        + [(np.array([0.81, 0.5, 0.9]), np.array([2.0, 1.0, 1.0]), 1)]
    ),
    mistakes=(
        Mistake(
            lambda lots, weights, k: _largest(lots, k),
            "The weights do nothing: these are the largest lots as they were drawn.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(lots * weights, k),
            "A lot times its weight is no fair lottery: of two unrolls with weights 1 and 2, the "
            "second wins 3 times in 4. Take the largest of `weight` draws instead.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(lots**weights, k),
            "The power is upside down: a lot is below 1, so a power above 1 makes it smaller.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(weights, k),
            "These are the largest weights, without any chance: the others would never be kept.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(-(lots ** (1 / weights)), k),
            "The smallest stay in yours: it is the largest that are kept.",
        ),
        Mistake(
            lambda lots, weights, k: np.argsort(-(lots ** (1 / weights)), kind="stable")[:k],
            "The right ones, but in the order of their lots. Give them in the order in which they "
            "came.",
        ),
    ),
)


def _occasions(unrolls):
    """Σ 1/j from each unroll's own iteration to the last: how often it is drawn."""
    return np.cumsum(1 / np.arange(unrolls, 0, -1))[::-1]


def _uses(unrolls, fraction):
    return 1 - fraction + fraction * _occasions(unrolls)


uses = Exercise(
    "14.3",
    wanted=_uses,
    cases=lambda rng: [(1, 0.5), (2, 0.5), (7, 0.25), (40, 0.5), (40, 1.0), (12, 0.0)],
    mistakes=(
        Mistake(
            lambda unrolls, fraction: (
                1 - fraction + fraction * (_occasions(unrolls) - 1 / np.arange(1, unrolls + 1))
            ),
            "An unroll enters the reservoir before it is sampled, so it may be drawn in its own "
            "iteration already.",
        ),
        Mistake(
            lambda unrolls, fraction: 1 + fraction * _occasions(unrolls),
            "You always learn from the new unroll. The learner takes one of the pair: the new one "
            "with chance 1 - f only.",
        ),
        Mistake(
            lambda unrolls, fraction: 1 - fraction + _occasions(unrolls),
            "You replay in every iteration. This environment gives its old unroll with chance f.",
        ),
        Mistake(
            lambda unrolls, fraction: np.ones(unrolls),
            "That is the mean over all unrolls, and right as such. But the early ones have had "
            "more occasions.",
        ),
        Mistake(
            lambda unrolls, fraction: _uses(unrolls, fraction)[::-1],
            "The newest first: the first entry is that of the unroll that came first.",
        ),
        Mistake(
            lambda unrolls, fraction: (
                1 - fraction + fraction * np.cumsum(1 / np.arange(1, unrolls + 1))
            ),
            "You count the iterations before an unroll came. It can be drawn from its own on.",
        ),
        Mistake(
            lambda unrolls, fraction: 1 - fraction + fraction * np.arange(unrolls, 0, -1) / unrolls,
            "You draw each of the n unrolls with chance 1/n all along. When only j have come, the "
            "chance is 1/j.",
        ),
    ),
)
